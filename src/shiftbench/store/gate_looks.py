"""What gates looked at cell by cell: one file per candidate, baseline and seed, ``gates/<key>.json``.

A repeated gate reads its cells from here, so that the same candidate meets the same cells with the same weights
however often it is judged. Gates of later candidates learn from these files where models disagree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shiftbench.io.hashing import digest
from shiftbench.store.workspace import Workspace

#: By id of the image: class, and confidence.
CellAnswers = dict[str, tuple[int, float]]


@dataclass
class GateLooks:
    """What a candidate was asked so far, and what it answered.

    Attributes:
        baseline: A digest of the baseline's predictions and specs.
        candidate: A digest of the candidate's record.
        candidate_id: Its id.
        seed: Seed of the draws.
        rates: By kind of cells, the rates that they are drawn with: numbers of draws and of disagreements, by bin.
        draws: By kind of cells, the number of draws that were judged.
        counts: By kind of cells, what the draws add to the rates.
        answers: By setting and id of the image.
        verdict: The last verdict.
    """

    baseline: str
    candidate: str
    candidate_id: str
    seed: int
    rates: dict[str, list[list[float]]] = field(default_factory=dict)
    draws: dict[str, int] = field(default_factory=dict)
    counts: dict[str, list[list[float]]] = field(default_factory=dict)
    answers: dict[str, CellAnswers] = field(default_factory=dict)
    verdict: str = ""

    @property
    def key(self) -> str:
        return digest(self.baseline, self.candidate, self.seed)[:32]

    def write(self, workspace: Workspace) -> None:
        workspace.write_json(workspace.root / "gates" / f"{self.key}.json", {**vars(self)})

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> GateLooks:
        answers: dict[str, CellAnswers] = {}
        for setting, of_setting in value["answers"].items():
            answers[setting] = {image: (int(top), float(sure)) for image, (top, sure) in of_setting.items()}
        return cls(**{**value, "answers": answers})


def read_gate_looks(workspace: Workspace) -> list[GateLooks]:
    """All that the workspace holds, by key."""
    return [GateLooks.of(workspace.files.read_json(path)) for path in workspace.glob("gates/*.json")]
