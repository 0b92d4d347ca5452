"""Losses on logits, each a plain function, and training schemes: from a batch to the loss that is minimised.

Targets are class indices (N,), probabilities (N, classes) where two images were mixed, and zeros and ones (N, classes)
for multi-label images.

A scheme is called with the model (which sees pixels in [0, 1]), the views of the batch, the targets and a generator.
Most need one view; ``jsd`` needs three. A new one is a small class, registered under the name that recipes use.

The adversaries (003 section 5.1) are uniform noise, one step, and several projected steps, each within an l-infinity
ball whose radius is drawn for every image, so that the model meets perturbations of all sizes. They work on pixels in
[0, 1]. ``shiftbench.shifts.attacks`` has the attacks for evaluation; these have few steps, a radius per image, and no
search for the worst of several starts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol, cast

import torch
from msgspec import Meta
from torch import Generator, Tensor, nn
from torch.nn import functional

from shiftbench import LabelSpace, ShiftbenchError, load_classifier
from shiftbench.extend.classifiers import TorchClassifier, evaluating, unwrapped
from shiftbench.extend.errors import argument, check_names, listed
from shiftbench.extend.options import Count
from shiftbench.extend.registration import Registry
from shiftbench.hardening.architectures.own import Preprocessed, own_network
from shiftbench.hardening.augmentations.mixing import on_device
from shiftbench.hardening.errors import TrainingError

# Losses

#: AugMix takes the logarithm of the mean distribution no nearer to zero than this.
LEAST_PROBABILITY = 1e-7


class Criterion(Protocol):
    """Logits and targets to one number."""

    def __call__(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor: ...


def soft_cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """-sum_k t_k log softmax(z)_k, the mean over the batch, for both kinds of targets.

    Args:
        logits: (batch, classes).
        targets: (batch, classes) probabilities, or (batch,) class indices.

    Example:
        >>> logits = torch.tensor([[2.0, 0.0]])
        >>> hard = soft_cross_entropy(logits, torch.tensor([0]))
        >>> torch.equal(soft_cross_entropy(logits, torch.tensor([[1.0, 0.0]])), hard)
        True
    """
    return functional.cross_entropy(logits, targets)


def binary_cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """For images with several labels: every class is a separate question, and the mean is over all questions."""
    return functional.binary_cross_entropy_with_logits(logits, targets.to(logits.dtype))


def jensen_shannon(*logits: torch.Tensor) -> torch.Tensor:
    """The mean over the views of KL(p_view || M), with M the mean of their distributions (AugMix).

    As published, M is clamped to [1e-7, 1] before its logarithm, and the sum over classes is averaged over the batch.
    timm's JsdCrossEntropy gives the same number, but its gradient is NaN where a probability rounds to zero.

    Args:
        logits: Logits of the views, one tensor (batch, classes) each.
    """
    # A probability of zero has no logarithm, and torch's gradient there is NaN.
    least = torch.finfo(torch.float32).tiny
    views = [functional.softmax(view_logits, dim=1).clamp_min(least) for view_logits in logits]
    mean = torch.stack(views).mean(dim=0).clamp(LEAST_PROBABILITY, 1).log()
    return torch.stack([functional.kl_div(mean, view, reduction="batchmean") for view in views]).mean()


def stability(clean: torch.Tensor, noisy: torch.Tensor) -> torch.Tensor:
    """How far the prediction for a noisy image is from the clean one's: -sum_k p_k log q_k.

    002 minimises the cross-entropy from the noisy distribution to the clean one, as the method's authors do.
    """
    return -(functional.softmax(clean, dim=1) * functional.log_softmax(noisy, dim=1)).sum(dim=1).mean()


def make_criterion(name: str = "cross-entropy", smoothing: float = 0.0) -> Criterion:
    """``cross-entropy`` for one label per image, ``binary`` for several."""
    check_names("loss", [name], ("cross-entropy", "binary"))
    if not 0 <= smoothing < 1:
        raise ShiftbenchError("invalid label smoothing", found=smoothing, expected="0 to below 1")
    if smoothing and name == "binary":
        raise ShiftbenchError("labels are smoothed for one label per image only", hint="leave smoothing out")
    if smoothing:
        return partial(functional.cross_entropy, label_smoothing=smoothing)
    return binary_cross_entropy if name == "binary" else soft_cross_entropy


#: The views of a batch, (N, 3, H, W) each.
Views = Sequence[Tensor]

# Teachers


def open_teacher(spec: str, space: LabelSpace, size: int) -> nn.Module:
    """The network of any model that torch runs, from pixels in [0, 1] to logits, in eval mode and frozen.

    Args:
        spec: ``hardened:RUN``, ``timm:NAME@FILE`` or any other model with a torch module.
        space: The classes that the student has.
        size: The side of the student's input.

    Raises:
        TrainingError: It has other classes, another input, or is no torch module.
    """
    classifier = load_classifier(spec, default_labels=space, engine="torch", device="cpu")
    if not isinstance(classifier, TorchClassifier):
        raise TrainingError(
            f"{spec} can't be a teacher", found=type(classifier).__name__, expected="a model with a torch module"
        )
    if classifier.space.keys != space.keys:
        raise TrainingError(
            "the teacher has other classes than the student",
            found=listed(list(classifier.space.names)),
            expected=f"{listed(list(space.names))}, in this order",
        )
    side = classifier.preprocessing.geometry.output
    if side not in (None, (size, size)):
        raise TrainingError(
            "the teacher has another input than the student",
            found=" x ".join(map(str, side or ())),
            expected=f"{size} x {size}",
            hint=argument("changes", {"data.size": (side or (size,))[0]}, flag="--set"),
        )
    network = Preprocessed(own_network(classifier), classifier.preprocessing.normalisation)
    return network.eval().requires_grad_(False)


# Adversaries

#: The largest radius in 003.
EPSILON = 8 / 255


def random_radii(images: Tensor, largest: float, generator: Generator) -> Tensor:
    """A radius for each image: largest * u with u ~ U[0, 1]."""
    drawn = torch.rand(len(images), 1, 1, 1, generator=generator)
    return largest * drawn.to(images.device)


def uniform_noise(images: Tensor, radii: Tensor | float, generator: Generator) -> Tensor:
    """The adversary without steps: U(-radius, radius) on every value, clipped to pixels."""
    local = on_device(generator, images.device)
    drawn = torch.rand(images.shape, generator=local, device=local.device)
    return (images + radii * (2 * drawn - 1)).clamp(0, 1)


def pgd(
    model: nn.Module,
    images: Tensor,
    targets: Tensor,
    radii: Tensor,
    criterion: Criterion,
    *,
    steps: int = 10,
    step_share: float | None = None,
    start: Tensor | None = None,
) -> Tensor:
    """Steps of ``step_share`` * radius along the sign of the gradient, projected back into the ball and to pixels.

    The share is 1 / sqrt(steps) by default, as in 003. The steps start at the image itself, as 003 writes it, or at
    ``start``. The model is in eval mode meanwhile: unfinished attacks must not move the statistics of its batch norms.
    """
    share = steps**-0.5 if step_share is None else step_share
    # Data-parallel training would wait for a gradient of the weights, which an attack does not take.
    model = cast("nn.Module", unwrapped(model))
    moved = (images if start is None else start).detach()
    low = (images - radii).clamp(min=0)
    high = (images + radii).clamp(max=1)
    with evaluating(model), torch.enable_grad():
        for _ in range(steps):
            moved.requires_grad_(True)
            (gradient,) = torch.autograd.grad(criterion(model(moved), targets), moved)
            moved = (moved.detach() + share * radii * gradient.sign()).clamp(low, high)
    return moved.detach()


# Schemes


class SchemeOutput(NamedTuple):
    """The loss, and the logits of the (first) view, from which the accuracy in training is read."""

    loss: Tensor
    logits: Tensor


@dataclass(frozen=True)
class Scheme(ABC):
    """Computes the loss of a batch."""

    #: How many views of every image it needs.
    views: ClassVar[int] = 1
    criterion: Criterion = soft_cross_entropy

    def prepare(self, space: LabelSpace, size: int, device: torch.device) -> None:
        """Called once before the first step, for what a scheme has to load; most schemes have nothing.

        Args:
            space: The classes of the network that is trained.
            size: The side of its input.
            device: Where it is trained.
        """
        return

    @abstractmethod
    def __call__(self, model: nn.Module, views: Views, targets: Tensor, generator: Generator) -> SchemeOutput: ...


schemes: Registry[type[Any]] = Registry("training scheme")


def make_scheme(name: str, criterion: Criterion = soft_cross_entropy, **options: object) -> Scheme:
    return schemes.get(name)(criterion=criterion, **options)  # type: ignore[no-any-return]


@schemes.register("standard")
@dataclass(frozen=True)
class Standard(Scheme):
    """The loss of the images as they come; of a network with early exits, the sum over its exits."""

    def __call__(self, model: nn.Module, views: Views, targets: Tensor, generator: Generator) -> SchemeOutput:
        logits = model(views[0])
        exits = list(logits) if logits.ndim == 3 else [logits]
        losses = [self.criterion(exit_logits, targets) for exit_logits in exits]
        return SchemeOutput(torch.stack(losses).sum(), exits[-1])


@schemes.register("jsd")
@dataclass(frozen=True)
class JensenShannon(Scheme):
    """AugMix: the loss of the clean view plus ``weight`` times the divergence of it and two augmented ones."""

    views: ClassVar[int] = 3
    weight: float = 12.0

    def __call__(self, model: nn.Module, views: Views, targets: Tensor, generator: Generator) -> SchemeOutput:
        # All views are one batch, as published, so that batch norms see them together.
        clean, *augmented = model(torch.cat(list(views))).chunk(len(views))
        loss = self.criterion(clean, targets) + self.weight * jensen_shannon(clean, *augmented)
        return SchemeOutput(loss, clean)


@schemes.register("either")
@dataclass(frozen=True)
class Either(Scheme):
    """The clean view of each image or the augmented one counts, by even odds; batch norms see both.

    So 000 trains AugMix on DeepFashion Remixed; its released code tosses one coin ``per_batch``.
    """

    views: ClassVar[int] = 2
    per_batch: bool = False

    def __call__(self, model: nn.Module, views: Views, targets: Tensor, generator: Generator) -> SchemeOutput:
        clean, augmented = model(torch.cat(list(views))).chunk(2)
        count = 1 if self.per_batch else len(clean)
        coins = torch.randint(2, (count, 1), generator=generator)
        logits = torch.where(coins.to(clean.device) == 1, augmented, clean)
        return SchemeOutput(self.criterion(logits, targets), logits)


@schemes.register("noise")
@dataclass(frozen=True)
class Noise(Scheme):
    """The adversary of no steps: uniform noise within a ball of radius U[0, 1] * ``epsilon`` for each image (003)."""

    epsilon: Annotated[float, Meta(gt=0, le=1)] = EPSILON

    def moved(self, model: nn.Module, images: Tensor, targets: Tensor, generator: Generator) -> Tensor:
        """The images as the adversary leaves them."""
        return uniform_noise(images, random_radii(images, self.epsilon, generator), generator)

    def __call__(self, model: nn.Module, views: Views, targets: Tensor, generator: Generator) -> SchemeOutput:
        logits = model(self.moved(model, views[0], targets, generator))
        return SchemeOutput(self.criterion(logits, targets), logits)


@schemes.register("fgsm")
@dataclass(frozen=True)
class Fgsm(Noise):
    """The adversary of one step, ``step`` radii long. Wong et al. (2020): a random start, and one radius for all."""

    random_radius: bool = True
    random_start: bool = False
    step: float = 1.0

    def moved(self, model: nn.Module, images: Tensor, targets: Tensor, generator: Generator) -> Tensor:
        radii = torch.full_like(images[:, :1, :1, :1], self.epsilon)
        if self.random_radius:
            radii = random_radii(images, self.epsilon, generator)
        start = uniform_noise(images, radii, generator) if self.random_start else None
        return pgd(model, images, targets, radii, self.criterion, steps=1, step_share=self.step, start=start)


@schemes.register("pgd")
@dataclass(frozen=True)
class Pgd(Noise):
    """The adversary of ``steps`` steps, each radius / sqrt(steps) long."""

    steps: Count = 10

    def moved(self, model: nn.Module, images: Tensor, targets: Tensor, generator: Generator) -> Tensor:
        radii = random_radii(images, self.epsilon, generator)
        return pgd(model, images, targets, radii, self.criterion, steps=self.steps)


@schemes.register("stability")
@dataclass(frozen=True)
class Stability(Scheme):
    """002: the loss of the clean images plus ``weight`` times how far uniform noise of ±``noise`` moves the answer."""

    weight: float = 0.05
    noise: float = 0.05

    def __call__(self, model: nn.Module, views: Views, targets: Tensor, generator: Generator) -> SchemeOutput:
        noisy = uniform_noise(views[0], self.noise, generator)
        clean, moved = model(torch.cat([views[0], noisy])).chunk(2)
        loss = self.criterion(clean, targets) + self.weight * stability(clean, moved)
        return SchemeOutput(loss, clean)


@schemes.register("distillation")
@dataclass(frozen=True)
class Distillation(Scheme):
    """Hinton et al. (2015): the loss of the labels, and the divergence from the predictions of a trained model.

    (1 - ``weight``) * loss + ``weight`` * T^2 * KL(softmax(teacher / T) || softmax(student / T)), T the
    ``temperature``. The trained model is the teacher; it sees the same augmented images as the student.
    """

    #: The model: ``hardened:RUN``, ``timm:NAME@FILE``, or another one that torch runs.
    teacher: str = field(kw_only=True)
    weight: Annotated[float, Meta(ge=0, le=1)] = 0.5
    temperature: Annotated[float, Meta(gt=0)] = 4.0
    #: The network of the teacher, from ``prepare`` on.
    loaded: list[nn.Module] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.criterion is binary_cross_entropy:
            raise ShiftbenchError("distillation needs one label per image", found="loss 'binary'")

    def prepare(self, space: LabelSpace, size: int, device: torch.device) -> None:
        self.loaded[:] = [open_teacher(self.teacher, space, size).to(device)]

    def __call__(self, model: nn.Module, views: Views, targets: Tensor, generator: Generator) -> SchemeOutput:
        (teacher,) = self.loaded
        logits = model(views[0])
        with torch.no_grad():
            expected = functional.log_softmax(teacher(views[0]).float() / self.temperature, dim=1)
        predicted = functional.log_softmax(logits / self.temperature, dim=1)
        divergence = functional.kl_div(predicted, expected, reduction="batchmean", log_target=True)
        distilled = self.temperature**2 * divergence
        loss = (1 - self.weight) * self.criterion(logits, targets) + self.weight * distilled
        return SchemeOutput(loss, logits)
