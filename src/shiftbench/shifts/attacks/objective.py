"""What an attack raises, the cross-entropy of a classifier at the class an image must no longer be taken for, and the
balls in which it moves: their projections, steepest directions and random points. Tensors are (N, 3, H, W); every image
is treated by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.errors import ClassifierError, required
from shiftbench.labels.space import Labels
from shiftbench.shifts.attacks.base import Attackable
from shiftbench.shifts.seeds import derive_key

if TYPE_CHECKING:
    from torch import Tensor

Norm = Literal["linf", "l2"]
#: Below this a gradient has no direction.
_TINY = 1e-30
#: Sides of images for which L2 radii are stated.
REFERENCE_SIDE = 224
#: An attack keeps the activations of every layer for the way back, so it takes an eighth of the images at once.
_BATCH_SHARE = 8


def import_torch() -> Any:
    return required("torch", "torch", "an attack")


@dataclass(frozen=True)
class Victim:
    """A classifier as attacks see it: differentiable, from pixels in [0, 1] to scores among competing classes."""

    name: str
    model: Any
    probabilities: bool
    #: 0 for the classes that compete, -inf for the others; None where all do.
    mask: Tensor | None
    batch_size: int

    @classmethod
    def of(cls, classifier: Attackable, classes: Sequence[int] | None = None) -> Victim:
        torch = import_torch()
        model = classifier.gradient_model()
        mask = None
        if classes is not None:
            mask = torch.full((len(classifier.space),), -torch.inf, device=model.device)
            mask[list(classes)] = 0
        size = max(1, classifier.batch_size // _BATCH_SHARE)
        return cls(classifier.name, model, classifier.outputs == "probabilities", mask, size)

    def competing(self, scores: Tensor) -> Tensor:
        """Logits of the competing classes; probabilities become logits by their logarithm."""
        logits = scores.clamp_min(1e-30).log() if self.probabilities else scores
        return logits if self.mask is None else logits + self.mask

    def losses(self, scores: Tensor, labels: Tensor) -> Tensor:
        """-log softmax(scores)[label], one value per image."""
        found: Tensor = import_torch().nn.functional.cross_entropy(self.competing(scores), labels, reduction="none")
        return found

    def gradient(self, pixels: Tensor, labels: Tensor) -> Tensor:
        """Of each image's own loss: the sum over the batch has no mixed terms."""
        torch = import_torch()
        leaf = pixels.detach().requires_grad_()
        with torch.enable_grad():
            try:
                loss = self.losses(self.model(leaf), labels).sum()
                found: Tensor = torch.autograd.grad(loss, leaf)[0]
            except RuntimeError as error:
                if not any(word in str(error) for word in ("require grad", "grad_fn", "derivative", "differentiated")):
                    raise
                raise ClassifierError(
                    f"{self.name} gives no gradients, which attacks need",
                    found=str(error).strip().splitlines()[0][:200],
                    expected="a network of differentiable operations from pixels to scores",
                ) from error
        return found

    def scores(self, pixels: Tensor) -> Tensor:
        with import_torch().no_grad():
            found: Tensor = self.model(pixels).float()
        return found

    def batches(
        self, images: Pixels, labels: Labels, image_ids: Sequence[str], size: int | None = None
    ) -> Iterator[tuple[Tensor, Tensor, list[str]]]:
        """Pixels in [0, 1] as (size, 3, H, W), labels and ids; the last batch is filled up with black images.

        Torch takes other kernels for other batch sizes. An attack makes much of the last bit, hence every batch has
        the same size.
        """
        torch, size = import_torch(), size or self.batch_size
        for start in range(0, len(images), size):
            piece = slice(start, start + size)
            missing = size - len(images[piece])
            filled = np.concatenate([images[piece], np.zeros((missing, *images.shape[1:]), np.uint8)])
            pixels = torch.from_numpy(np.ascontiguousarray(filled.transpose(0, 3, 1, 2))).to(self.model.device)
            targets = np.concatenate([np.maximum(labels[piece], 0), np.zeros(missing, labels.dtype)]).astype(np.int64)
            ids = [*image_ids[piece], *[""] * missing]
            yield pixels.float() / 255, torch.from_numpy(targets).to(self.model.device), ids


def lengths(delta: Tensor, norm: Norm) -> Tensor:
    """The norm of each image's perturbation, as (N, 1, 1, 1)."""
    flat = delta.flatten(1)
    found: Tensor = flat.abs().amax(dim=1) if norm == "linf" else flat.norm(dim=1)
    return found.reshape(-1, 1, 1, 1)


def project(delta: Tensor, norm: Norm, eps: float) -> Tensor:
    """The nearest perturbation of length eps or less: L-infinity cuts every value, L2 shortens the whole vector."""
    if norm == "linf":
        return delta.clamp(-eps, eps)
    return delta * (eps / lengths(delta, "l2").clamp_min(_TINY)).clamp_max(1)


def steepest(gradient: Tensor, norm: Norm) -> Tensor:
    """The perturbation of length 1 that raises the loss most, to first order: sign(g), or g / ||g||.

    Where the gradient is zero there is no such direction, and the image stays where it is.
    """
    if norm == "linf":
        return gradient.sign()
    # Scaled first: squares of small gradients would vanish in 32 bits.
    scaled = gradient / lengths(gradient, "linf").clamp_min(_TINY)
    return scaled / lengths(scaled, "l2").clamp_min(_TINY)


def radius(eps: float, norm: Norm, side: int) -> float:
    """The radius for images of this side: L2 radii are stated for 224 and grow with the side, as the testbed's do.

    With it the mean change of a pixel stays the same. L-infinity radii hold for every size.
    """
    return eps * side / REFERENCE_SIDE if norm == "l2" else eps


def unit_start(norm: Norm, shape: Sequence[int], *, image_id: str, seed: int, restart: int) -> NDArray[np.float32]:
    """A uniformly distributed point of the unit ball, which belongs to this image, seed and restart.

    The radius does not enter: attacks of different eps start in the same direction, so that a curve over eps
    shows eps and not luck.
    """
    key = derive_key(seed, "attack", norm, restart, image_id)
    rng = np.random.Generator(np.random.Philox(key=np.array(key, np.uint64)))
    if norm == "linf":
        return rng.random(shape, np.float32) * 2 - 1
    direction = rng.standard_normal(shape)
    distance = rng.random() ** (1 / direction.size)
    start: NDArray[np.float32] = (direction * (distance / np.linalg.norm(direction))).astype(np.float32)
    return start
