"""NRTK's perturbers as shifts, keyed by the image."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shiftbench as sb
from shiftbench.bridges import nrtk_shift
from shiftbench.conformance import assert_conforms
from shiftbench.errors import ShiftError
from shiftbench.shifts import rebuild_shift
from tests.runs.helpers import brightest_channel, colour_folder

IMAGES = np.random.default_rng(1).integers(0, 256, (2, 24, 20, 3), dtype=np.uint8)


def haze() -> Any:
    library = pytest.importorskip("nrtk.impls.perturb_image.environment")
    return library.HazePerturber(factor=0.7)


def noise() -> Any:
    noises = pytest.importorskip("nrtk.impls.perturb_image.photometric.noise")
    return noises.GaussianNoisePerturber(seed=5, var=0.02)


def test_a_shift_conforms_and_depends_on_the_image_alone() -> None:
    shift = nrtk_shift(noise())
    assert_conforms(sb.check_shift(shift))
    first = shift(IMAGES[0], image_id="a", seed=1)
    assert (shift(IMAGES[0], image_id="a", seed=1) == first).all()
    assert (shift(IMAGES[0], image_id="b", seed=1) != first).any()
    assert (shift(IMAGES[0], image_id="a", seed=2) != first).any()
    # The seed that the caller gave the perturber plays no part.
    other = noise()
    other._seed = 99
    assert nrtk_shift(other) == shift
    for again in (pickle.loads(pickle.dumps(shift)), rebuild_shift(shift.record())):
        assert (again(IMAGES[0], image_id="a", seed=1) == first).all()


def test_a_perturber_without_random_numbers_gives_its_own_pixels(tmp_path: Path) -> None:
    perturber = haze()
    shift = nrtk_shift(perturber, "haze")
    expected, _ = perturber(image=IMAGES[1])
    assert (shift(IMAGES[1], image_id="x", seed=0) == expected).all()
    data = colour_folder(tmp_path / "photos", per_class=4)
    settings = [sb.Setting("clean", "data"), sb.Setting("haze", "data", shift, reference="clean")]
    model = sb.load_classifier(
        brightest_channel, labels=["red", "green", "blue"], preprocessing={"size": 32, "outputs": "logits"}
    )
    run = sb.evaluate(model, settings, data, tmp_path / "w", labels="folders", progress=False)
    assert sorted(run.settings) == ["clean", "haze"]


def test_a_record_of_another_class_is_not_run() -> None:
    record = nrtk_shift(haze()).record() | {"perturber": "subprocess.Popen"}
    with pytest.raises(ShiftError):
        rebuild_shift(record)(IMAGES[0], image_id="a", seed=0)
