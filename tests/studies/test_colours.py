"""Colour counterfactuals: a model that sees nothing but colour, on images whose labels are another colour's."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import shiftbench as sb
from shiftbench.datasets import from_arrays
from shiftbench.diagnosis.images import Images
from shiftbench.studies import StudyError
from shiftbench.studies.colours import ColourEffect, colour_counterfactuals, recoloured
from tests.commands import call
from tests.raised import raises
from tests.runs.helpers import brightest_channel, colour_folder

SPACE = sb.LabelSpace("colours", ("red", "green", "blue"), ("red", "green", "blue"))


def pure(channels: list[int]) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    images = np.zeros((len(channels), 32, 32, 3), np.uint8)
    for image, channel in zip(images, channels, strict=True):
        image[..., channel] = 200
    return images


def effects(labels: list[int], channels: list[int]) -> dict[str, ColourEffect]:
    images = Images(from_arrays(pure(channels), labels, space=SPACE))
    model = sb.load_classifier(brightest_channel, labels=SPACE, preprocessing="resize=32,crop=32")
    return {
        colour_counterfactual.variant: colour_counterfactual
        for colour_counterfactual in colour_counterfactuals(model, images)
    }


def test_a_rotation_of_hue_turns_red_into_green() -> None:
    [red, green, blue] = pure([0, 1, 2])
    assert (recoloured(red, 120).argmax(axis=-1) == 1).all() and (recoloured(red, 240).argmax(axis=-1) == 2).all()
    assert (recoloured(green, 240).argmax(axis=-1) == 0).all() and (recoloured(blue, 0) == blue).all()
    grey = recoloured(red, None)
    assert (grey == grey[..., :1]).all()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_counts_are_of_mistakes_and_of_hits() -> None:
    """Ten hits, and thirty red images with the label green: a third of a turn makes them right, and the hits wrong."""
    labels = [0] * 10 + [1] * 30
    channels = [0] * 40
    found = effects(labels, channels)
    assert list(found) == ["greyscale", *(f"hue {degrees}" for degrees in (60, 120, 180, 240, 300)), "any of these"]
    assert all((one.wrong, one.right) == (30, 10) for one in found.values())
    assert found["hue 120"] == ColourEffect("hue 120", 30, 10, 30, 30, 10)
    assert found["hue 240"] == ColourEffect("hue 240", 30, 10, 30, 0, 10)
    assert (found["any of these"].disappears, found["any of these"].corrected) == (30, 30)
    with raises(StudyError, expected="images with mistakes"):
        effects([i % 3 for i in range(42)], [i % 3 for i in range(42)])


def test_the_command_has_shares_with_intervals(tmp_path: Path) -> None:
    model = tmp_path / "model.py"
    model.write_text("from tests.runs.helpers import brightest_channel\n\ndef make():\n    return brightest_channel\n")
    data = colour_folder(tmp_path / "colours", per_class=20)
    command = ("study", "colours", f"{model}:make", "-d", data, "--labels", "folders", "--trust", "--json")
    done = call(*command)
    rows = json.loads(done.stdout)["rows"]
    assert len(rows) == 7 and all(row["disappears_low"] <= row["disappears"] <= row["disappears_high"] for row in rows)
    assert rows[0]["wrong"] + rows[0]["right"] == 60
    assert "420/420" in done.stderr  # seven passes over 60 images
    assert "420" not in call(*command, "--quiet").stderr
