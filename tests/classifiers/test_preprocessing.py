"""Geometry and normalisation, against Pillow and torchvision themselves."""

from __future__ import annotations

import json
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from shiftbench.classifiers.preprocessing import CAFFE_NORMALISATION, LITE_NORMALISATION, Normalisation, Preprocessing
from shiftbench.classifiers.zoo import import_torchvision
from shiftbench.datasets.geometry import Geometry, centre_crop
from shiftbench.datasets.samples import sample_images
from shiftbench.errors import ClassifierError

SIZES = [
    (500, 375), (97, 801), (375, 500), (333, 251), (251, 333), (64, 48), (224, 224), (225, 224), (1, 300),
    (513, 512),
]  # fmt: skip
CROPS = [(256, 224), (235, 224), (232, 225), (64, 96), (297, 260)]


def picture(width: int, height: int) -> Any:
    return sample_images(1, (height, width))[0]


@pytest.fixture(scope="module")
def transforms() -> Any:
    return import_torchvision().transforms


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_short_side_and_crop_are_torchvisions(transforms: Any, interpolation: str) -> None:
    mode = transforms.InterpolationMode(interpolation)
    for number, (width, height) in enumerate(SIZES):
        pixels = picture(width, height)
        # The first two sizes in all of them, the others in two.
        for resize, crop in CROPS if number < 2 else (CROPS[number % 5], CROPS[(number + 2) % 5]):
            theirs = transforms.Compose([transforms.Resize(resize, interpolation=mode), transforms.CenterCrop(crop)])
            ours = Geometry(resize, crop, interpolation=interpolation)(pixels)  # type: ignore[arg-type]
            assert np.array_equal(ours, np.asarray(theirs(Image.fromarray(pixels)))), (width, height, resize, crop)


def test_exact_resize_is_torchvisions(transforms: Any) -> None:
    for width, height in SIZES:
        pixels = picture(width, height)
        expected = np.asarray(transforms.Resize((128, 160))(Image.fromarray(pixels)))
        assert np.array_equal(Geometry((128, 160), None, "exact")(pixels), expected), (width, height)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40), st.integers(1, 40))
def test_every_crop_is_torchvisions(height: int, width: int, tall: int, wide: int) -> None:
    crop = import_torchvision().transforms.CenterCrop((tall, wide))
    pixels = np.random.default_rng(0).integers(1, 256, (height, width, 3), dtype=np.uint8)
    assert np.array_equal(centre_crop(pixels, (tall, wide)), np.asarray(crop(Image.fromarray(pixels))))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40), st.integers(1, 40))
def test_rounding_down_is_hugging_faces(height: int, width: int, tall: int, wide: int) -> None:
    import_torchvision()
    image_transforms = pytest.importorskip("transformers.image_transforms")
    pixels = np.random.default_rng(0).integers(1, 256, (height, width, 3), dtype=np.uint8)
    expected = image_transforms.center_crop(pixels, (tall, wide), input_data_format="channels_last")
    assert np.array_equal(centre_crop(pixels, (tall, wide), rounding="floor"), expected)


def test_cropping_the_source_first_would_not_be_the_same() -> None:
    """Why the whole picture is resized: Pillow's ``box`` is faster, and gives other pixels."""
    pixels = picture(500, 375)
    whole = Geometry(256, 224)(pixels)
    scale, (width, height) = 375 / 256, Geometry(256).target(500, 375)
    left = round((width - 224) / 2)
    top = round((height - 224) / 2)
    box = (left * scale, top * scale, (left + 224) * scale, (top + 224) * scale)
    part = np.asarray(Image.fromarray(pixels).resize((224, 224), Image.Resampling.BILINEAR, box=box))
    assert not np.array_equal(whole, part)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["box", "bilinear", "bicubic"]),
    st.tuples(st.integers(1, 300), st.integers(1, 300)),
    st.tuples(st.integers(1, 200), st.integers(1, 200)),
    st.integers(1, 220),
    st.booleans(),
)
def test_compiled_filters_are_pillows(
    interpolation: Any, size: tuple[int, int], target: tuple[int, int], crop: int, extreme: bool
) -> None:
    """Any stretch of either side, with and without a crop that is smaller or larger; noise of 0 and 255 too."""
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    pixels = np.where(pixels > 127, 255, 0).astype(np.uint8) if extreme else pixels
    mode = Image.Resampling[interpolation.upper()]
    expected = np.asarray(Image.fromarray(pixels).resize(target[::-1], mode))
    assert np.array_equal(Geometry(target, None, "exact", interpolation)(pixels), expected)
    assert np.array_equal(Geometry(target, crop, "exact", interpolation)(pixels), centre_crop(expected, crop))


def test_no_resize_keeps_the_picture() -> None:
    pixels = picture(33, 21)
    assert np.array_equal(Geometry(None, None)(pixels), pixels)


@pytest.mark.parametrize(
    ("ours", "theirs"), [("bilinear", "INTER_LINEAR"), ("bicubic", "INTER_CUBIC"), ("area", "INTER_AREA")]
)
def test_opencv_filters_are_opencvs(ours: Any, theirs: str) -> None:
    pixels = picture(300, 200)
    expected = cv2.resize(pixels, (48, 32), interpolation=getattr(cv2, theirs))
    found = Geometry((32, 48), None, "exact", f"opencv-{ours}")(pixels)  # type: ignore[arg-type]
    assert np.array_equal(found, expected)
    pillow = Geometry((32, 48), None, "exact")(pixels)
    assert not np.array_equal(found, pillow)


def test_opencvs_bilinear_is_torchs_without_antialiasing() -> None:
    torch = pytest.importorskip("torch")
    pixels = picture(301, 203)
    tensor = torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None].float()
    plain = torch.nn.functional.interpolate(tensor, (32, 48), mode="bilinear", antialias=False)
    found = Geometry((32, 48), None, "exact", "opencv-bilinear")(pixels)
    assert np.abs(found - plain[0].permute(1, 2, 0).numpy()).max() <= 1.0


def test_the_given_pixels_stay_as_they_are() -> None:
    pixels = picture(300, 200)
    before = pixels.copy()
    pixels.flags.writeable = False
    Geometry(256, 224)(pixels)
    assert np.array_equal(pixels, before)


def test_fit_pads_with_the_fill_colour() -> None:
    result = Geometry(64, 64, "fit", fill=(9, 8, 7))(picture(200, 100))
    assert result.shape == (64, 64, 3)
    assert result[0, 0].tolist() == [9, 8, 7]
    assert result[-1, -1].tolist() == [9, 8, 7]


def test_equal_geometries_are_one_key() -> None:
    assert Geometry((256, 256), (224, 224), "exact") == Geometry(256, 224, "exact")
    assert len({Geometry(), Geometry(256, 224), Geometry(256, 224, interpolation="bicubic")}) == 2


def test_normalisation_is_torchvisions(transforms: Any) -> None:
    pixels = picture(64, 64)
    theirs = transforms.Compose(
        [transforms.ToTensor(), transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]
    )(Image.fromarray(pixels)).numpy()
    assert np.abs(Normalisation()(pixels[None])[0] - theirs).max() < 1e-6


def test_lite_and_caffe_conventions_to_the_bit() -> None:
    pixels = picture(32, 32)[None]
    x = pixels.astype(np.float32)
    assert np.array_equal(LITE_NORMALISATION(pixels), ((x - 127) / 128).transpose(0, 3, 1, 2))
    bgr = x[..., ::-1] - np.array([103.939, 116.779, 123.68], np.float32)
    assert np.array_equal(CAFFE_NORMALISATION(pixels), bgr.transpose(0, 3, 1, 2))


def test_layout_is_only_an_order() -> None:
    pixels = picture(16, 24)[None]
    planes = Normalisation()(pixels)
    assert np.array_equal(Normalisation(layout="nhwc")(pixels), planes.transpose(0, 2, 3, 1))


@pytest.mark.parametrize(
    "preprocessing",
    [
        Preprocessing(),
        Preprocessing(Geometry((224, 320), (200, 300), "cover", "lanczos", (1, 2, 3), "floor"), CAFFE_NORMALISATION),
        Preprocessing(Geometry(None, None), LITE_NORMALISATION),
    ],
)
def test_description_survives_json(preprocessing: Preprocessing) -> None:
    back = Preprocessing.from_dict(json.loads(json.dumps(preprocessing.describe())))
    assert back == preprocessing
    assert hash(back) == hash(preprocessing)


@pytest.mark.parametrize(
    "description",
    [
        {"geometri": {}},
        {"geometry": {"side": 3}},
        {"geometry": {"interpolation": "cubic"}},
        {"geometry": {"resize": 0}},
        {"geometry": {"resize": [3, 4]}},
        {"normalisation": {"mean": [1, 2]}},
        {"normalisation": {"std": [1, 0, 1]}},
        {"normalisation": {"colour_order": "gbr"}},
    ],
)
def test_wrong_descriptions_are_refused(description: dict[str, Any]) -> None:
    with pytest.raises(ClassifierError):
        Preprocessing.from_dict(description)
