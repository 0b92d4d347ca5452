"""The arguments of ``evaluate``: objects, and the keywords that are short for their fields."""

from __future__ import annotations

import inspect
import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import shiftbench as sb
from shiftbench.api import argument_names
from shiftbench.datasets import Dataset, from_arrays
from shiftbench.errors import SettingError, UnknownNameError
from shiftbench.runs.arguments import DESIGN_KEYWORDS, SHIFT_KEYWORDS, GroupedArguments


def test_every_field_of_an_object_is_a_keyword() -> None:
    assert tuple(field.name for field in fields(sb.ShiftOptions)) == SHIFT_KEYWORDS
    assert ("name", *DESIGN_KEYWORDS) == tuple(field.name for field in fields(sb.Design))
    names = argument_names()
    assert len(names) == len(set(names))
    assert {"classifiers", "design", "shard", "rebalance", "severities", "device", "budget"} <= set(names)


def test_the_signature_fits_a_screen() -> None:
    assert len(inspect.signature(sb.evaluate).parameters) <= 21


def test_keywords_are_short_for_fields() -> None:
    short = GroupedArguments.of(
        design="one-pass",
        shard="3/8",
        keywords={
            "severities": 3,
            "corruptions": "fog,snow",
            "styles": Path("paintings"),
            "passes": 2,
            "width": 0.5,
            "rebalance": True,
        },
    )
    objects = GroupedArguments.of(
        sb.ShiftOptions(severities=(3,), corruptions=("fog", "snow"), styles="paintings"),
        sb.Design("one-pass", passes=2, width=0.5),
        sb.Shard(3, 8, rebalance=True),
    )
    assert short == objects
    assert short.flat() == objects.flat()


@pytest.mark.parametrize(
    ("objects", "keywords"),
    [
        ({"shifts": sb.ShiftOptions()}, {"severities": 3}),
        ({"design": sb.Design("one-pass")}, {"passes": 2}),
        ({"shard": sb.Shard(1, 2)}, {"rebalance": True}),
    ],
)
def test_a_value_is_stated_once(objects: dict[str, object], keywords: dict[str, object]) -> None:
    with pytest.raises(SettingError) as caught:
        GroupedArguments.of(**objects, keywords=keywords)  # type: ignore[arg-type]
    assert caught.value.found == f"also {next(iter(keywords))}"


def test_an_unknown_argument_is_named(photos: Dataset, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError) as caught:
        sb.evaluate(_classify, "clean", photos, tmp_path, severitys=3)  # type: ignore[call-arg]
    assert "severities" in str(caught.value.hint)


def test_single_values_need_tuples_in_an_object() -> None:
    with pytest.raises(SettingError) as caught:
        sb.ShiftOptions(corruptions="fog")  # type: ignore[arg-type]
    assert caught.value.found == "corruptions='fog'"


def test_objects_and_keywords_give_one_result_and_one_record(photos: Dataset, tmp_path: Path) -> None:
    short = sb.evaluate(_classify, "corruptions", photos, tmp_path / "a", severities=3, corruptions="brightness")
    objects = sb.evaluate(
        _classify,
        "corruptions",
        photos,
        tmp_path / "b",
        shifts=sb.ShiftOptions(severities=(3,), corruptions=("brightness",)),
    )
    assert [result.key for result in short.results] == [result.key for result in objects.results]
    records = []
    for name in ("a", "b"):
        [path] = (tmp_path / name / "runs").glob("*.json")
        records.append(json.loads(path.read_bytes()))
    first, second = (record["configuration"] | {"workspace": ""} for record in records)
    assert first == second
    assert first["severities"] == [3]
    assert "severities=[3]" in records[1]["call"]
    assert "device" not in records[1]["call"]


@pytest.fixture
def photos() -> Dataset:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 32, 32, 3), dtype=np.uint8)
    return from_arrays(pixels, np.arange(8) % 10, space="cifar-10", name="photos")


def _classify(images: np.ndarray) -> np.ndarray:
    return images.reshape(len(images), -1)[:, :10].astype(np.float32)
