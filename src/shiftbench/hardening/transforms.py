"""Augmentations and AugMix's loss for other training loops: timm's train.py, Lightning, the HF Trainer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from shiftbench.extend.shifts import luma, unpack
from shiftbench.extend.types import Pixels
from shiftbench.hardening.augmentations.base import make_image_augmentation, stream
from shiftbench.hardening.errors import AugmentationError
from shiftbench.hardening.training_schemes import jensen_shannon, make_criterion


class Augment:
    """An augmentation as a transform, for DataLoaders and ``torchvision.transforms`` (v1 and v2).

    Images may be PIL, NumPy or torch, as for ``sb.Corrupt``, grey ones too; what comes out has the same kind. Random
    numbers come from torch's global generator, so ``torch.manual_seed`` repeats a run and loader workers differ.

    Args:
        name: An image augmentation: "augmix", "deepaugment-edsr", "stylize", ... (``shiftbench harden list``).
        views: 1 for the augmented image; n > 1 for a list of the image and n - 1 augmented ones (AugMix).
        **options: Its options.

    Example:
        >>> import numpy as np
        >>> augmix = Augment("augmix", severity=3, views=3)
        >>> augmix
        Augment('augmix', views=3, severity=3)
        >>> [view.shape for view in augmix(np.zeros((32, 32, 3), np.uint8))]
        [(32, 32, 3), (32, 32, 3), (32, 32, 3)]
    """

    def __init__(self, name: str, *, views: int = 1, **options: object) -> None:
        self.name = name
        self.views = views
        self.options = options
        self._augment = make_image_augmentation(name, **options)

    def __call__(self, image: object, *others: object) -> Any:
        """Augment an image or a batch.

        Args:
            image: The image or batch; or a tuple that begins with it, or a dict with the key "image".
            *others: Returned as they are, behind the image.
        """
        if isinstance(image, tuple):
            return self(*image, *others)
        if isinstance(image, dict):
            return {**image, "image": self(image.get("image"))}
        if self.views <= 1:
            result = self._once(image)
        else:
            result = [image, *(self._once(image) for _ in range(self.views - 1))]
        return (result, *others) if others else result

    @staticmethod
    def collate(samples: Sequence[tuple[object, object]]) -> tuple[torch.Tensor, torch.Tensor]:
        """A DataLoader's ``collate_fn`` for several views: all clean images, then all first augmented ones, and so on.

        Args:
            samples: (views, label) of each image; views are PIL images, uint8 arrays (H, W, 3) or tensors (3, H, W).

        Returns:
            Images (views * batch, 3, H, W), of PIL and NumPy as floats in [0, 1], and labels (batch,), as
            ``JsdCrossEntropy`` takes them.
        """
        views, labels = zip(*samples, strict=True)
        if not isinstance(views[0], list | tuple):
            raise AugmentationError("not a list of views", found=type(views[0]).__name__, hint="Augment(..., views=3)")
        stacked = []
        for images in zip(*views, strict=True):
            stacked.append(torch.stack([_as_tensor(image) for image in images]))
        return torch.cat(stacked), torch.as_tensor(labels)

    def _once(self, image: object) -> Any:
        """The image augmented once, with random numbers from torch's generator."""
        seed = int(torch.randint(2**63 - 1, ()))

        def augmented(pixels: Pixels, number: int) -> Pixels:
            if pixels.ndim == 2:
                return luma(augmented(np.repeat(pixels[..., None], 3, axis=2), number))
            return self._augment(pixels, stream(seed, number))

        return unpack(image).map(augmented)

    def __repr__(self) -> str:
        arguments = [repr(self.name), f"views={self.views}"]
        arguments += [f"{key}={value!r}" for key, value in self.options.items()]
        return f"Augment({', '.join(arguments)})"

    def __reduce__(self) -> tuple[object, ...]:
        # Augmentations are closures, which cannot be pickled, so a loader's worker makes its own.
        return partial(Augment, self.name, views=self.views, **self.options), ()


def _as_tensor(image: object) -> torch.Tensor:
    if isinstance(image, torch.Tensor):
        return image
    return torch.from_numpy(np.array(image, np.uint8)).permute(2, 0, 1).float() / 255


class JsdCrossEntropy(nn.Module):
    """AugMix's loss of a batch in which the views stand one after the other: all clean images, then each further view.

    Args:
        views: Views of every image.
        weight: Of the Jensen-Shannon divergence.
        smoothing: Label smoothing of the clean view's cross-entropy.
    """

    def __init__(self, views: int = 3, weight: float = 12.0, smoothing: float = 0.0) -> None:
        super().__init__()
        self.views = views
        self.weight = weight
        self.criterion = make_criterion("cross-entropy", smoothing)

    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The loss; of ``targets`` those of the first view count.

        Args:
            logits: (views * batch, classes).
            targets: (batch,) or more class indices, or probabilities.
        """
        clean, *others = logits.chunk(self.views)
        return self.criterion(clean, targets[: len(clean)]) + self.weight * jensen_shannon(clean, *others)
