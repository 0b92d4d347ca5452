"""The papers' headline numbers, recomputed from the data that was given, beside the published ones.

>>> from shiftbench.published.reproduce import reproduce
>>> checked = {entry.claim.name: entry for entry in reproduce("002")}
>>> [row.mark for row in checked["002.mean_ce"].rows if row.name == "ResNet-50"]
['rounding']
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shiftbench.errors import check_names
from shiftbench.io.paths import Location
from shiftbench.published.reproduce.base import MARKS, Checked, CheckedNumber, Claim, Recomputed, claims
from shiftbench.published.reproduce.sources import Data, open_data
from shiftbench.published.tables import PAPERS

__all__ = [
    "MARKS",
    "TITLES",
    "Checked",
    "CheckedNumber",
    "Claim",
    "Data",
    "Recomputed",
    "claims",
    "open_data",
    "reproduce",
]

TITLES = {
    "000": "The many faces of robustness: ImageNet-R, DeepAugment, hypotheses",
    "001": "Measuring robustness to natural distribution shifts: the testbed",
    "002": "Benchmarking corruptions and surface variations: ImageNet-C, Icons-50",
    "003": "Natural adversarial examples: ImageNet-A, ImageNet-O",
    "004": "Do ImageNet classifiers generalise to ImageNet? ImageNetV2, CIFAR-10.1",
}


def reproduce(
    papers: str | Sequence[str] = "all",
    *,
    testbed: str | Path | None = None,
    predictions: str | Path | None = None,
    workspace: str | Location | None = None,
    models: Path | None = None,
) -> list[Checked]:
    """Every claim of the papers ("004", a list of them, or "all"), each number recomputed, compared and marked."""
    names = [papers] if isinstance(papers, str) else list(papers)
    check_names("paper", names, (*PAPERS, "all"))
    data = open_data(testbed, predictions, workspace, models)
    checked: list[Checked] = []
    for paper in PAPERS:
        if paper in names or "all" in names:
            checked.extend(claim.check(data) for _, claim in claims if claim.paper == paper)
    return checked
