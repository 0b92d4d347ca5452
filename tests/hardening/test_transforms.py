"""The same losses and augmentations in other people's training loops."""

from __future__ import annotations

import importlib
import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from shiftbench.classifiers.zoo import import_timm
from shiftbench.hardening import Augment, JsdCrossEntropy
from shiftbench.hardening.augmentations.base import make_image_augmentation, stream
from shiftbench.hardening.errors import AugmentationError
from tests.raised import raises

PHOTO = np.random.default_rng(0).integers(0, 256, (24, 32, 3), dtype=np.uint8)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_timms(smoothing: float) -> None:
    import_timm()
    theirs = importlib.import_module("timm.loss").JsdCrossEntropy(num_splits=3, alpha=12, smoothing=smoothing)
    logits = torch.randn(12, 5, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(4) % 5
    ours = JsdCrossEntropy(smoothing=smoothing)
    assert torch.allclose(ours(logits, targets), theirs(logits.clone(), targets), atol=1e-5)
    assert torch.allclose(ours(logits, targets.repeat(3)), ours(logits, targets))


def test_a_transform_keeps_the_kind_and_follows_torchs_seed() -> None:
    transform = Augment("augmix")
    for image in (Image.fromarray(PHOTO), PHOTO, torch.from_numpy(PHOTO.copy()).permute(2, 0, 1)):
        found = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            found.append(np.asarray(transform(image)))
        assert isinstance(transform(image), type(image)) and found[0].shape == np.asarray(image).shape
        assert np.array_equal(found[0], found[1]) and not np.array_equal(found[0], found[2])


@pytest.mark.parametrize("name", ["augmix", "speckle", "flip", "erase"])
def test_grey_images_stay_grey(name: str) -> None:
    """The kernels of AugMix are for colour images: given others, they wrote beyond the end of the array."""
    grey = Image.fromarray(PHOTO).convert("L")
    torch.manual_seed(0)
    for image in (grey, np.asarray(grey), torch.from_numpy(np.array(grey))[None]):
        found = Augment(name)(image)
        assert isinstance(found, type(image)) and np.asarray(found).shape == np.asarray(image).shape
    for wrong in (np.asarray(grey), PHOTO[..., :1], PHOTO / 255):
        with pytest.raises(AugmentationError) as caught:
            make_image_augmentation(name)(wrong, stream(0))  # type: ignore[arg-type]
        assert str(wrong.shape) in str(caught.value.found)


def test_views_begin_with_the_image_and_labels_pass() -> None:
    views, label = Augment("augmix", severity=3, views=3)(PHOTO, 7)
    assert label == 7 and len(views) == 3 and np.array_equal(views[0], PHOTO)
    assert not np.array_equal(views[1], views[2])
    views, label = Augment("flip", views=2)((PHOTO, 7))
    assert label == 7 and np.array_equal(views[0], PHOTO)
    assert Augment("flip")({"image": PHOTO, "label": 7}).keys() == {"image", "label"}


def test_it_works_in_a_composition_and_in_a_loaders_workers() -> None:
    from shiftbench.classifiers.zoo import import_torchvision

    import_torchvision()
    from torchvision.transforms import v2

    chain = v2.Compose([v2.ToImage(), Augment("augmix", severity=1), v2.ToDtype(torch.float32, scale=True)])
    assert chain(Image.fromarray(PHOTO)).shape == (3, 24, 32)
    again = pickle.loads(pickle.dumps(Augment("augmix", severity=1)))
    assert repr(again) == "Augment('augmix', views=1, severity=1)"
    batch = next(iter(DataLoader([again(PHOTO) for _ in range(4)], batch_size=4)))  # type: ignore[arg-type]
    assert batch.shape == (4, 24, 32, 3)


def test_batches_of_views_are_ordered_as_the_loss_takes_them() -> None:
    augmix = Augment("augmix", views=3)
    photos = [Image.fromarray(np.full((8, 8, 3), level, np.uint8)) for level in (10, 200)]
    images, labels = Augment.collate([(augmix(photo), number) for number, photo in enumerate(photos)])
    assert images.shape == (6, 3, 8, 8) and labels.tolist() == [0, 1]
    assert torch.equal(images[:2], torch.stack([torch.full((3, 8, 8), level / 255) for level in (10, 200)]))
    kept = torch.zeros(3, 8, 8, dtype=torch.uint8)
    assert Augment.collate([([kept, kept], 0)])[0].dtype == torch.uint8
    with raises(AugmentationError, found="Image"):
        Augment.collate([(photos[0], 0)])
