"""The page about DeepAugment names every distortion and says what it does in the words of the code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shiftbench.hardening.augmentations.deepaugment.cae_distortions import cae_codes, cae_weights
from shiftbench.hardening.augmentations.deepaugment.drawing import Distortion
from shiftbench.hardening.augmentations.deepaugment.edsr_distortions import body_signals, edsr_weights, head_signals

PAGE = Path(__file__).parents[3] / "docs" / "deepaugment.md"


def test_each_distortion_has_its_row() -> None:
    page = PAGE.read_text(encoding="utf-8")
    entries: list[Distortion[Any]] = [*edsr_weights, *head_signals, *body_signals, *cae_weights, *cae_codes]
    assert [one.name for one in entries if f"| `{one.name}` | {one.summary} |" not in page] == []
