"""The page about DeepAugment explains every distortion."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

from shiftbench.hardening.augmentations.deepaugment import distortions

PAGE = Path(__file__).parents[3] / "docs" / "deepaugment.md"


def test_each_distortion_has_its_row() -> None:
    tables = (
        distortions.edsr_weights,
        distortions.head_signals,
        distortions.body_signals,
        distortions.cae_weights,
        distortions.cae_codes,
    )
    page = PAGE.read_text(encoding="utf-8").split("## The distortions")[1].split("\n## ")[0]
    assert re.findall(r"^\| `([\w-]+)` \| \S+", page, re.MULTILINE) == list(chain(*tables))
