"""The page about DeepAugment names every distortion and says what it does in the words of the code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shiftbench.hardening.augmentations.deepaugment.cae_distortions import cae_codes, cae_weights
from shiftbench.hardening.augmentations.deepaugment.drawing import Distortion
from shiftbench.hardening.augmentations.deepaugment.edsr_distortions import body_signals, edsr_weights, head_signals

PAGE = Path(__file__).parents[3] / "docs" / "deepaugment.md"


@pytest.mark.parametrize("entry", [*edsr_weights, *head_signals, *body_signals, *cae_weights, *cae_codes])
def test_each_distortion_has_its_row(entry: Distortion[Any]) -> None:
    assert f"| `{entry.name}` | {entry.summary} |" in PAGE.read_text(encoding="utf-8")
