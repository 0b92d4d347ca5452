"""What every image augmentation of the package promises, whatever it does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shiftbench.errors import ShiftbenchError
from shiftbench.hardening.augmentations.base import (
    image_augmentations,
    list_augmentations,
    make_image_augmentation,
    stream,
)
from shiftbench.hardening.errors import AugmentationError
from tests.hardening.augmentations.pictures import SIZES, coloured, grey

#: Each with options under which it always acts.
ALWAYS: dict[str, dict[str, Any]] = {
    "flip": {"probability": 1},
    "crop": {},
    "resized-crop": {},
    "speckle": {"probability": 1},
    "gaussian-noise": {"probability": 1},
    "erase": {"probability": 1},
    "cutout": {},
    "augmix": {"all_operations": True, "severity": 10},
}


@pytest.mark.parametrize("name", ALWAYS)
@pytest.mark.parametrize("size", SIZES)
def test_size_and_type_are_kept_and_the_input_is_left_alone(name: str, size: tuple[int, int]) -> None:
    image = coloured(size)
    before = image.copy()
    out = make_image_augmentation(name, **ALWAYS[name])(image, stream(0, name))
    assert out.dtype == np.uint8 and out.shape == image.shape
    assert out.flags.c_contiguous and not np.shares_memory(out, image)
    assert np.array_equal(image, before)


@pytest.mark.parametrize("name", ALWAYS)
def test_the_generator_decides_all(name: str) -> None:
    image = coloured((40, 40))
    augment = make_image_augmentation(name, **ALWAYS[name])
    state = np.random.get_state()[1].copy()  # type: ignore[index] # noqa: NPY002 - that nobody touches it
    first = [augment(image, stream(0, "picture", i)) for i in range(6)]
    again = [make_image_augmentation(name, **ALWAYS[name])(image, stream(0, "picture", i)) for i in range(6)]
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert np.array_equal(state, np.random.get_state()[1])  # type: ignore[index] # noqa: NPY002
    if name != "flip":
        assert any(not np.array_equal(first[0], other) for other in first[1:])


@pytest.mark.parametrize("name", ALWAYS)
def test_views_of_memory_are_welcome(name: str) -> None:
    """A mirrored view is neither contiguous nor, if it comes from a file, writable."""
    image = coloured((40, 44))
    view = image[:, ::-1]
    view.flags.writeable = False
    augment = make_image_augmentation(name, **ALWAYS[name])
    assert np.array_equal(augment(view, stream(1, name)), augment(view.copy(), stream(1, name)))


@pytest.mark.parametrize("name", ["flip", "crop", "resized-crop", "augmix"])
def test_grey_pictures_stay_grey(name: str) -> None:
    """Those that treat the channels alike; noise has colours of its own."""
    out = make_image_augmentation(name)(grey((32, 40)), stream(0, name))
    assert np.array_equal(out[:, :, 0], out[:, :, 1]) and np.array_equal(out[:, :, 0], out[:, :, 2])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("flip", {"probability": 1.1}),
        ("flip", {"probability": float("nan")}),
        ("flip", {"probability": "often"}),
        ("crop", {"padding": -1}),
        ("crop", {"padding": 1.5}),
        ("resized-crop", {"scale": [0.5, 0.1]}),
        ("resized-crop", {"scale": [0, 1]}),
        ("resized-crop", {"ratio": [1]}),
        ("resized-crop", {"size": 0}),
        ("speckle", {"scales": []}),
        ("speckle", {"scales": [0.1, -0.2]}),
        ("speckle", {"per_channel": "yes"}),
        ("gaussian-noise", {"scales": [0.001 * i for i in range(1, 99)]}),
        ("erase", {"area": [0.1, 1.5]}),
        ("erase", {"fill": "blue"}),
        ("erase", {"fill": [1, 2]}),
        ("cutout", {"size": 0}),
        ("cutout", {"fill": 300}),
        ("augmix", {"severity": 0}),
        ("augmix", {"severity": 11}),
        ("augmix", {"width": 0}),
        ("augmix", {"depth": 0}),
        ("augmix", {"alpha": 0}),
        ("augmix", {"all_operations": 1}),
    ],
)
def test_impossible_options_are_refused_when_it_is_made(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(AugmentationError) as caught:
        make_image_augmentation(name, **options)
    assert caught.value.expected is not None


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(AugmentationError, match="did you mean 'severity'"):
        make_image_augmentation("augmix", severty=1)
    with pytest.raises(ShiftbenchError, match="augmix"):
        make_image_augmentation("augmixx")


def test_the_list_has_every_augmentation_with_its_options() -> None:
    entries = {entry.name: entry for entry in list_augmentations()}
    assert {*ALWAYS, "mixup", "cutmix", "noise2net"} <= set(entries)
    assert entries["augmix"].options["severity"] == 3 and entries["mixup"].kind == "batch"
    assert all(entry.about and "`" not in entry.about for entry in entries.values())
    assert "all_operations=false" in entries["augmix"].options_in_words()


def test_the_example_of_the_page_is_an_augmentation() -> None:
    """docs/augmentations.md teaches by a piece of code; it runs, and keeps the promises above."""
    page = (Path(__file__).parents[3] / "docs" / "augmentations.md").read_text(encoding="utf-8")
    code = page.split("```python")[2].split("```")[0]
    try:
        exec(code, {})
        image = coloured((20, 30))
        out = make_image_augmentation("dim", least=0.25)(image, stream(0, "dim"))
        assert out.shape == image.shape and out.dtype == np.uint8 and 0.2 < out.mean() / image.mean() < 1
        assert "dim" in {entry.name for entry in list_augmentations()}
    finally:
        image_augmentations._items.pop("dim", None)
