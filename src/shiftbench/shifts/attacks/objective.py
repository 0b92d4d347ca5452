"""What an attack raises: the cross-entropy of a classifier at the class an image must no longer be taken for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from shiftbench.errors import ClassifierError, MissingExtraError
from shiftbench.shifts.attacks.base import Attackable

if TYPE_CHECKING:
    from torch import Tensor


def import_torch() -> ModuleType:
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("torch", "torch", "an attack") from error
    return torch


@dataclass(frozen=True)
class Victim:
    """A classifier as attacks see it: differentiable, from pixels in [0, 1] to scores among competing classes."""

    name: str
    model: Any
    probabilities: bool
    #: 0 for the classes that compete, -inf for the others; None where all do.
    mask: Tensor | None

    @classmethod
    def of(cls, classifier: Attackable, classes: Sequence[int] | None = None) -> Victim:
        torch = import_torch()
        model = classifier.gradient_model()
        mask = None
        if classes is not None:
            mask = torch.full((len(classifier.space),), -torch.inf, device=model.device)
            mask[list(classes)] = 0
        return cls(classifier.name, model, classifier.outputs == "probabilities", mask)

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
                (found,) = torch.autograd.grad(loss, leaf)
            except RuntimeError as error:
                if not any(word in str(error) for word in ("require grad", "grad_fn", "derivative", "differentiated")):
                    raise
                raise ClassifierError(
                    f"{self.name} gives no gradients, which attacks need",
                    found=str(error).strip().splitlines()[0][:200],
                    expected="a network of differentiable operations from pixels to scores",
                ) from error
        result: Tensor = found
        return result

    def scores(self, pixels: Tensor) -> Tensor:
        with import_torch().no_grad():
            found: Tensor = self.model(pixels).float()
        return found
