"""The tables as published, and the rule between and beyond them."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from shiftbench.shifts.corruptions.api import corrupt
from shiftbench.shifts.corruptions.catalogue import corruptions
from shiftbench.shifts.corruptions.severities import SIDES, TABLES, parameters
from tests.shifts.pictures import landscape


@pytest.mark.parametrize(
    ("side", "key"), ((224, "imagenet_224"), (299, "inception_299"), (64, "imagenet64_and_tiny_64"), (32, "cifar_32"))
)
def test_tables_equal_the_published_ones(side: int, key: str, reference_data: Path) -> None:
    known = json.loads((reference_data / "corruption_severities.json").read_text())[key]
    for name in corruptions("all"):
        if name == "zoom_blur":
            for (end, step), factors in zip(TABLES[side][name], known[name]["factors"], strict=True):
                assert np.allclose(np.arange(1, end, step), factors)
            continue
        rows = [tuple(row) if isinstance(row, list) else (row,) for row in known[name]]
        assert list(TABLES[side][name]) == rows


@pytest.mark.parametrize("side", SIDES)
def test_published_points_are_exact(side: int) -> None:
    for name, severity in product(corruptions("all"), range(1, 6)):
        found = parameters(name, float(severity), side, side)
        assert found == TABLES[side][name][severity - 1], name


def test_severity_is_continuous() -> None:
    """Just above a published point the parameters are just beside the published ones."""
    for name, severity in product(corruptions("all"), range(1, 5)):
        at, after = (np.array(parameters(name, severity + d, 224, 224)) for d in (0, 1e-9))
        assert np.allclose(at, after, atol=1e-5), name


def test_between_rows() -> None:
    assert parameters("fog", 2.5, 224, 224) == pytest.approx((2.25, 1.85))
    assert parameters("glass_blur", 1.5, 224, 224) == pytest.approx((0.8, 2, 2))  # whole numbers, half up
    assert parameters("jpeg_compression", 1.5, 224, 224) == (22,)
    assert parameters("spatter", 3.9, 224, 224) == TABLES[224]["spatter"][2]  # still water


def test_other_sizes_scale_lengths_only() -> None:
    assert parameters("gaussian_blur", 3, 168, 400) == (2.25,)
    assert parameters("gaussian_noise", 3, 168, 400) == TABLES[224]["gaussian_noise"][2]
    assert parameters("spatter", 5, 168, 168) == pytest.approx((0.67, 0.4, 0.75, 0.65, 1.125, 1))
    assert parameters("spatter", 1, 168, 168) == pytest.approx((0.65, 0.3, 3, 0.69, 0.6, 0))
    assert parameters("snow", 1, 40, 40)[2] == pytest.approx(1.25)
    nearest = {8: 32, 44: 32, 47: 64, 119: 64, 121: 224, 256: 224, 260: 299, 5000: 299}
    for side, table in nearest.items():
        assert parameters("gaussian_blur", 1, side, side) == (TABLES[table]["gaussian_blur"][0][0] * side / table,)


@pytest.mark.parametrize("name", corruptions("all"))
def test_fractional_severities_run(name: str) -> None:
    image = landscape(64)
    for severity in (1.25, 2.5, 3.75, 4.999):
        assert corrupt(image, name, severity).shape == image.shape
