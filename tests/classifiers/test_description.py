"""The flat vocabulary of preprocessing: the same words in Python, files, sidecars and on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shiftbench.classifiers.configs import understood
from shiftbench.classifiers.description import (
    Description,
    description_text,
    flat_description,
    parse_description,
    read_description,
)
from shiftbench.classifiers.preprocessing import CAFFE_NORMALISATION, LITE_NORMALISATION, Normalisation, Preprocessing
from shiftbench.datasets.geometry import Geometry
from shiftbench.errors import ClassifierError

FIXED = Preprocessing(Geometry(32, None, "exact"))


@pytest.mark.parametrize(
    ("stated", "geometry"),
    [
        ({}, Geometry()),
        ({"size": 32}, Geometry(32, None, "exact")),
        ({"size": [32, 48]}, Geometry((32, 48), None, "exact")),
        ({"size": 32, "crop": 32}, Geometry(32, None, "exact")),
        ({"size": 32, "resize": "short-side"}, Geometry(32, 32)),
        ({"size": 32, "resize": "fit"}, Geometry(32, 32, "fit")),
        ({"size": 32, "resize": 40}, Geometry(40, 32)),
        ({"resize": "squash"}, Geometry(224, None, "exact")),
        ({"resize": 40}, Geometry(40, 224)),
        ({"resize": 40, "crop": 32}, Geometry(40, 32)),
        ({"resize": 40, "crop": "none"}, Geometry(40, None)),
        ({"resize": [40, 50]}, Geometry((40, 50), None, "exact")),
        ({"resize": "none"}, Geometry(None, None)),
        ({"resize": "none", "size": 32}, Geometry(None, 32)),
        ({"resize": None, "crop": None}, Geometry(None, None)),
        ({"crop": 192}, Geometry(256, 192)),
        ({"interpolation": "bicubic"}, Geometry(interpolation="bicubic")),
        ({"resize": 40, "crop": 32, "resize_rule": "fit"}, Geometry(40, 32, "fit")),
    ],
)
def test_geometry(stated: dict[str, Any], geometry: Geometry) -> None:
    assert read_description(stated).over(Preprocessing()).geometry == geometry


def test_a_resize_of_a_model_of_fixed_input_is_cropped_to_it() -> None:
    assert Description(resize=37).over(FIXED).geometry == Geometry(37, 32)


@pytest.mark.parametrize(
    ("stated", "normalisation"),
    [
        ({"mean": 0.5, "std": 0.25}, Normalisation((0.5,) * 3, (0.25,) * 3)),
        ({"mean": [0.5]}, Normalisation((0.5,) * 3)),
        ({"mean": 127.5, "std": 127.5}, Normalisation((127.5,) * 3, (127.5,) * 3, 1)),
        ({"mean": 0, "std": 1, "scale": 1}, Normalisation((0, 0, 0), (1, 1, 1), 1)),
        ({"scale": "2/255"}, Normalisation(scale=2 / 255)),
        ({"colour": "bgr"}, Normalisation(colour_order="bgr")),
        ({"color": "bgr", "layout": "nhwc"}, Normalisation(colour_order="bgr", layout="nhwc")),
    ],
)
def test_normalisation(stated: dict[str, Any], normalisation: Normalisation) -> None:
    assert read_description(stated).over(Preprocessing()).normalisation == normalisation


def test_mean_and_std_are_those_of_pixels_from_0_to_1_whatever_the_model_had() -> None:
    raw = Preprocessing(normalisation=Normalisation((0, 0, 0), (1, 1, 1), 1, layout="nhwc"))
    stated = read_description({"mean": 0, "std": 1}).over(raw).normalisation
    assert (stated.scale, stated.layout) == (1 / 255, "nhwc")


def test_the_two_halves_of_describe_are_read_and_change_only_what_they_state() -> None:
    caffe = Preprocessing(Geometry(256, 227), CAFFE_NORMALISATION)
    assert read_description(caffe.describe()).over(FIXED) == caffe
    nhwc = Preprocessing(Geometry(8, None, "exact"), Normalisation(layout="nhwc"))
    stated = {"geometry": {"resize": 32, "crop": None, "resize_rule": "exact"}}
    assert read_description(stated).over(nhwc) == Preprocessing(Geometry(32, None, "exact"), nhwc.normalisation)


@pytest.mark.parametrize(
    "preprocessing",
    [
        Preprocessing(),
        FIXED,
        Preprocessing(Geometry(None, None), LITE_NORMALISATION),
        Preprocessing(Geometry((40, 50), (32, 48), "exact", "bicubic"), CAFFE_NORMALISATION),
        Preprocessing(Geometry(40, 32, "fit", fill=(1, 2, 3), crop_rounding="floor")),
        Preprocessing(Geometry((40, 50), (32, 48), "cover"), Normalisation(layout="nhwc")),
        Preprocessing(Geometry(40, None)),
    ],
)
def test_every_preprocessing_can_be_written_flat(preprocessing: Preprocessing, tmp_path: Path) -> None:
    flat = flat_description(preprocessing)
    other = Preprocessing(Geometry(9, 9, "exact", "box", (7, 7, 7)), Normalisation((9, 9, 9), scale=9))
    other = Preprocessing(Geometry(9, 9, "exact", "box"), other.normalisation)
    assert read_description(flat).over(other) == preprocessing
    assert parse_description(description_text(flat)).keys() == flat.keys()


@pytest.mark.parametrize("text", ["size=40x56,mean=[0.1,0.2,0.3]", "size=40 x 56,mean=(0.1, 0.2, 0.3)"])
def test_sizes_and_lists_as_people_write_them(text: str) -> None:
    assert parse_description(text) == {"size": [40, 56], "mean": [0.1, 0.2, 0.3]}
    assert parse_description("output=conv1x1") == {"output": "conv1x1"}


@pytest.mark.parametrize(
    "stated",
    [
        {"sise": 32},
        {"size": 256, "crop": 224},
        {"resize": "squish"},
        {"crop": "yes"},
        {"mean": [1, 2]},
        {"std": 0},
        {"scale": "half"},
        {"colour": "purple"},
        {"geometry": 3},
        "size",
        "size=",
        "nosuch.toml",
        object(),
    ],
)
def test_what_is_wrong_is_refused(stated: Any) -> None:
    with pytest.raises(ClassifierError):
        found = understood(stated)
        assert isinstance(found, Description)
        found.over(Preprocessing())


def test_files_and_text_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("size = 32\nmean = [0.5, 0.4, 0.3]\nstd = 0.25\n")
    nested = {"name": "x", "preprocessing": {"size": 32, "mean": [0.5, 0.4, 0.3], "std": 0.25}}
    (tmp_path / "own.json").write_text(json.dumps(nested))
    stated = {"size": 32, "mean": (0.5, 0.4, 0.3), "std": 0.25}
    found = [understood(one) for one in (tmp_path / "own.toml", str(tmp_path / "own.json"), stated)]
    found.append(understood("size=32,mean=0.5,0.4,0.3,std=0.25"))
    assert found == [found[0]] * 4
