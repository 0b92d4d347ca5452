"""``Corrupt`` in the pipelines it is made for."""

from __future__ import annotations

import pickle
import random
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

import shiftbench as sb
from shiftbench.classifiers.zoo import import_torchvision
from shiftbench.errors import ShiftError, UnknownNameError
from shiftbench.shifts.corruptions.api import Corruption
from tests.raised import raises
from tests.shifts.pictures import landscape

PHOTO = landscape(32)
TENSOR = torch.from_numpy(PHOTO.transpose(2, 0, 1).copy())


def noise(corrupt: sb.Corrupt, image: Any = PHOTO, **more: Any) -> Any:
    return np.asarray(corrupt(image, **more)).astype(float) - np.asarray(image)


def test_an_id_gives_the_pixels_of_the_benchmark() -> None:
    fog = sb.Corrupt("fog", severity=3)
    assert (fog(PHOTO, id="cat.jpg") == Corruption("fog", 3)(PHOTO, image_id="cat.jpg", seed=0)).all()
    seeded = sb.Corrupt("fog", severity=3, seed=7)
    assert (seeded(PHOTO, id="cat.jpg") == sb.corrupt(PHOTO, "fog", 3, seed=7, image_id="cat.jpg")).all()
    batch = np.stack([PHOTO, PHOTO])
    assert (fog(batch, id=["a", "b"]) == sb.corrupt(batch, "fog", 3, image_id=["a", "b"])).all()
    with raises(ShiftError, found="1 ids", expected="2 ids"):
        fog(batch, id=["a"])


def test_every_call_draws_fresh_noise_from_torchs_generator() -> None:
    transform = sb.Corrupt("gaussian_noise", 3)
    torch.manual_seed(1)
    first = noise(transform)
    second = noise(transform)
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.1
    torch.manual_seed(1)
    assert (noise(transform) == first).all()
    batch = noise(transform, np.stack([PHOTO, PHOTO]))
    assert abs(np.corrcoef(batch[0].ravel(), batch[1].ravel())[0, 1]) < 0.1


def test_without_torch_pythons_generator_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(__import__("sys").modules, "torch")
    transform = sb.Corrupt("gaussian_noise", 3)
    random.seed(1)
    first = noise(transform)
    second = noise(transform)
    random.seed(1)
    assert (noise(transform) == first).all() and (first != second).any()


def test_a_seed_fixes_the_noise_of_each_image() -> None:
    transform = sb.Corrupt("gaussian_noise", 1, seed=3)
    grey = np.full((64, 64, 3), 120, np.uint8)
    other = np.full((64, 64, 3), 121, np.uint8)
    assert (transform(grey) == transform(grey)).all()
    shared = np.corrcoef(noise(transform, grey).ravel(), noise(transform, other).ravel())[0, 1]
    assert abs(shared) < 0.1
    assert (transform(np.stack([other, grey]))[1] == transform(grey)).all()


def test_one_of_several_is_chosen_for_each_image() -> None:
    transform = sb.Corrupt(["contrast", "pixelate"], severity=range(1, 6), seed=0)
    possible = {
        Corruption(name, severity)(PHOTO, image_id="", seed=0).tobytes()
        for name in ("contrast", "pixelate")
        for severity in range(1, 6)
    }
    found = [transform(PHOTO, id=str(i)).tobytes() for i in range(100)]
    assert set(found) == possible
    assert found == [transform(PHOTO, id=str(i)).tobytes() for i in range(100)]
    assert len(sb.Corrupt("benchmark")._choices) == 15
    assert len(sb.Corrupt("all", severity=[1, 2, 3, 4, 5])._choices) == 95


def test_options_reach_the_corruptions_that_take_them() -> None:
    sb.Corrupt("benchmark", 2, true_swap=True)(PHOTO)
    for wrong in ({"true_swap": True}, {"nosuch": 1}):
        with raises(ShiftError, expected="no options"):
            sb.Corrupt("fog", **wrong)
    with raises(UnknownNameError, name="foggy", hint="did you mean 'fog'?"):
        sb.Corrupt("foggy")
    with raises(ShiftError, found="Corrupt([], severity=1)", expected="a corruption and a severity"):
        sb.Corrupt([])
    with raises(ShiftError, found="6", expected="a number from 1 to 5, whole or not"):
        sb.Corrupt("fog", 6)


@pytest.mark.parametrize(
    "transform",
    [sb.Corrupt("fog", severity=3), sb.Corrupt(["fog", "snow"], severity=[1, 2.5], seed=1), sb.Corrupt("noise")],
)
def test_it_can_be_pickled_and_shown(transform: sb.Corrupt) -> None:
    again = pickle.loads(pickle.dumps(transform))
    assert repr(again) == repr(transform)
    assert (again(PHOTO, id="a") == transform(PHOTO, id="a")).all()
    assert repr(eval(repr(transform), {"Corrupt": sb.Corrupt})) == repr(transform)


def test_in_torchvisions_pipelines() -> None:
    import_torchvision()
    from torchvision import tv_tensors
    from torchvision.transforms import v2

    pipeline = v2.Compose([v2.PILToTensor(), sb.Corrupt("fog", 3), v2.ToDtype(torch.float32, scale=True)])
    out = pipeline(Image.fromarray(PHOTO))
    assert out.shape == (3, 32, 32) and out.dtype == torch.float32
    joint = v2.Compose([v2.RandomHorizontalFlip(), sb.Corrupt("fog", 3)])
    image, mask, label = joint(tv_tensors.Image(TENSOR), tv_tensors.Mask(torch.ones(32, 32)), 4)
    assert type(image) is tv_tensors.Image and type(mask) is tv_tensors.Mask and label == 4
    assert bool((mask == 1).all()) and bool((image != TENSOR).any())
    sometimes = v2.RandomApply([sb.Corrupt("fog", 3)], p=0.5)
    torch.manual_seed(0)
    assert {bool((sometimes(TENSOR) == TENSOR).all()) for _ in range(30)} == {True, False}


class Photos(Dataset[Any]):
    """The same image again and again, so that equal results mean equal noise."""

    def __init__(self) -> None:
        self.transform = sb.Corrupt("gaussian_noise", 3)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return self.transform(TENSOR)


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_and_epochs_of_a_loader_differ_and_can_be_repeated(workers: int) -> None:
    loader = DataLoader(Photos(), batch_size=4, num_workers=workers)
    torch.manual_seed(5)
    epochs = [torch.cat(list(loader)) for _ in range(2)]
    assert len({image.numpy().tobytes() for epoch in epochs for image in epoch}) == 16
    torch.manual_seed(5)
    assert torch.equal(torch.cat(list(loader)), epochs[0])
