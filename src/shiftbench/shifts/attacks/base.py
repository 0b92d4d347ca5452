"""Shifts that depend on the classifier, and what attacks share: the cross-entropy that they increase, and the balls in
which they move. Tensors are (N, 3, H, W); every image is
treated by itself.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.errors import ClassifierError, SettingError, ShiftError, required
from shiftbench.labels.space import Labels, LabelSpace, Scores
from shiftbench.shifts.base import Asked, BlockView, Shift
from shiftbench.shifts.seeds import derive_key

if TYPE_CHECKING:
    from torch import Tensor

    from shiftbench.datasets.base import Dataset
    from shiftbench.labels.space import Projection

Norm = Literal["linf", "l2"]
#: Below this a gradient has no direction.
_TINY = 1e-30
#: Sides of images for which L2 radii are stated.
REFERENCE_SIDE = 224
#: An attack keeps the activations of every layer for the way back, so it takes an eighth of the images at once.
_BATCH_SHARE = 8


class Attackable(Protocol):
    """What an attack uses of a classifier; every ``Classifier`` has it."""

    @property
    def name(self) -> str: ...
    @property
    def space(self) -> LabelSpace: ...
    @property
    def outputs(self) -> str: ...
    @property
    def batch_size(self) -> int: ...

    def gradient_model(self) -> Any:
        """A torch module from RGB pixels (N, 3, H, W) in [0, 1] to scores, or an error that says why not."""


class ClassifierShift(Shift):
    """Computed for each classifier by itself, and giving its scores directly.

    A run asks for the scores, not for pixels: the shifted image stays in floating point, because rounding it to
    8 bits would undo much of an attack of half a grey level.
    """

    per_image = False
    #: Whether it can be run only on images whose class is known.
    needs_labels: bool = True

    @abstractmethod
    def scores_and_images(
        self,
        classifier: Attackable,
        images: Pixels,
        labels: Labels,
        *,
        image_ids: Sequence[str],
        seed: int,
        classes: Sequence[int] | None = None,
    ) -> tuple[Scores, NDArray[np.float32] | None]:
        """The scores of the shifted images, and these images for the report.

        Scores are float32 (N, classes) over the classifier's label space. Images are (N, H, W, 3) in [0, 1], or None
        if the report shows none.

        ``images`` are uint8 (N, H, W, 3), ``labels`` index the classifier's label space. ``classes`` are the
        columns that compete in the setting (None: all of them); the others can't be what the image is taken for.
        An image's scores depend on nothing but itself, its id, the seed and the classifier.
        """

    def check(self, classifier: Attackable) -> None:
        """Refuse a classifier that this shift can't be computed for, before the run begins."""
        classifier.gradient_model()

    def check_setting(self, classifier: Attackable, setting: str, dataset: Dataset, projection: Projection) -> None:
        """It needs model and labels in one label space."""
        if projection.kind == "max":
            raise SettingError(
                f"{setting!r} can't be run for {classifier.name!r}: an attack needs the class of an image among the "
                "model's own classes",
                found="a label space whose classes are groups of them",
                expected="the model's label space, or a part of it",
            )
        if self.needs_labels and not np.any(dataset.labels >= 0):
            raise SettingError(
                f"{setting!r} needs labels: it drives images away from their class",
                found=f"{dataset.name!r}, whose images have none",
            )
        if self.needs_labels and dataset.label_sets is not None:
            raise SettingError(
                f"{setting!r} needs one label per image: it drives images away from their class",
                found=f"{dataset.name!r}, whose images have several",
            )
        self.check(classifier)

    def scores_in(self, view: BlockView, asked: Asked) -> Scores:
        """The scores of the images that the setting uses; the other rows stay zero."""
        scores = np.zeros((len(view.ids), len(view.classifier.space)), np.float32)
        used = list(asked.used)
        if used:
            ids = [view.ids[i] for i in used]
            with view.blamed_on(f"setting {asked.setting!r}", ids):
                images = np.stack([view.images[i] for i in used])
                used_scores, shifted = self.scores_and_images(
                    view.classifier, images, asked.labels, image_ids=ids, seed=view.seed, classes=asked.classes
                )
                scores[used] = view.checked(used_scores, ids)
                if shifted is not None:
                    asked.show(np.rint(shifted * 255).astype(np.uint8))
        return scores

    def __call__(self, image: Pixels, *, image_id: str, seed: int) -> Pixels:
        raise ShiftError(
            f"{self.name} depends on the classifier, so it gives no pixels by itself",
            hint="evaluate a setting that has it, or call scores_and_images(classifier, images, labels, ...)",
        )


def described(attack: Any, **further: object) -> dict[str, object]:
    """JSON-able provenance of an attack: its own fields, what holds for all, and what it adds or states otherwise."""
    fields = asdict(attack)
    name = fields.pop("name")
    description = {
        "shift": "attack",
        **fields,
        "pixels": "[0, 1], clipped, not rounded",
        "engine": "torch float32",
        "attack": name,
        **further,
    }
    if description["norm"] == "l2":
        description["eps_for_side"] = REFERENCE_SIDE
    return description


def import_torch() -> Any:
    return required("torch", "torch", "an attack")


@dataclass(frozen=True)
class Victim:
    """A differentiable classifier for attacks, from pixels in [0, 1] to scores of the competing classes."""

    name: str
    model: Any
    probabilities: bool
    #: 0 for the classes that compete, -inf for the others; None where all do.
    mask: Tensor | None
    batch_size: int

    @classmethod
    def of(cls, classifier: Attackable, classes: Sequence[int] | None = None) -> Victim:
        """The victim that a classifier becomes.

        Args:
            classifier: The classifier to attack.
            classes: The indices of the classes that compete; None for all.
        """
        torch = import_torch()
        model = classifier.gradient_model()
        mask = None
        if classes is not None:
            mask = torch.full((len(classifier.space),), -torch.inf, device=model.device)
            mask[list(classes)] = 0
        batch_size = max(1, classifier.batch_size // _BATCH_SHARE)
        return cls(classifier.name, model, classifier.outputs == "probabilities", mask, batch_size)

    def competing(self, scores: Tensor) -> Tensor:
        """Logits of the competing classes; probabilities become logits by their logarithm."""
        if self.probabilities:
            scores = scores.clamp_min(1e-30).log()
        if self.mask is not None:
            scores = scores + self.mask
        return scores

    def losses(self, scores: Tensor, labels: Tensor) -> Tensor:
        """-log softmax(scores)[label], one value per image."""
        cross_entropy = import_torch().nn.functional.cross_entropy
        losses: Tensor = cross_entropy(self.competing(scores), labels, reduction="none")
        return losses

    def gradient(self, pixels: Tensor, labels: Tensor) -> Tensor:
        """The gradient of each image's own loss: the sum over the batch has no mixed terms."""
        torch = import_torch()
        leaf = pixels.detach().requires_grad_()
        with torch.enable_grad():
            try:
                loss = self.losses(self.model(leaf), labels).sum()
                gradient: Tensor = torch.autograd.grad(loss, leaf)[0]
            except RuntimeError as error:
                if not any(word in str(error) for word in ("require grad", "grad_fn", "derivative", "differentiated")):
                    raise
                raise ClassifierError(
                    f"{self.name} gives no gradients, which attacks need",
                    found=str(error).strip().splitlines()[0][:200],
                    expected="a network of differentiable operations from pixels to scores",
                ) from error
        return gradient

    def scores(self, pixels: Tensor) -> Tensor:
        with import_torch().no_grad():
            scores: Tensor = self.model(pixels).float()
        return scores

    def batches(
        self, images: Pixels, labels: Labels, image_ids: Sequence[str], size: int | None = None
    ) -> Iterator[tuple[Tensor, Tensor, list[str]]]:
        """Pixels in [0, 1] as (size, 3, H, W), labels and ids; the last batch is filled up with black images.

        Torch takes other kernels for other batch sizes. An attack makes much of the last bit, hence every batch has
        the same size.
        """
        torch = import_torch()
        if size is None:
            size = self.batch_size
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
    norms: Tensor = flat.abs().amax(dim=1) if norm == "linf" else flat.norm(dim=1)
    return norms.reshape(-1, 1, 1, 1)


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
    if norm == "l2":
        return eps * side / REFERENCE_SIDE
    return eps


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
