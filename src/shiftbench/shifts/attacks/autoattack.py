"""AutoAttack as the Adversarial Robustness Toolbox assembles it: several attacks, each on what the last one left."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.errors import MissingExtraError
from shiftbench.jobs.threads import one_torch_thread
from shiftbench.labels.space import Labels, Scores
from shiftbench.shifts.attacks.base import (
    Attackable,
    ClassifierShift,
    Norm,
    Victim,
    described,
    import_torch,
    radius,
)
from shiftbench.shifts.seeds import derive_seed

_PACKAGE = "adversarial-robustness-toolbox"
# The library draws from the generators of the whole process.
_drawing = threading.Lock()
#: To estimate its time, an attack is made shorter by this factor.
_SHORTER = 20.0


@dataclass(frozen=True)
class AutoAttack(ClassifierShift):
    """Parameter-free attacks one after the other (Croce and Hein 2020): APGD on cross-entropy, APGD on the
    difference of logits ratio, DeepFool, and the Square attack, which needs no gradients.

    They are the Adversarial Robustness Toolbox's own. Its ensemble is not the standard one, which has targeted APGD
    and FAB in place of untargeted APGD-DLR and DeepFool: accuracies can't stand beside RobustBench's.

    One image at a time, since the library draws random numbers for a batch as a whole. An image that resists all
    attacks costs ``queries`` forward passes and more: slow on a CPU for classifiers that are robust. Three classes
    at least must compete, for the ratio of logits.

    Attributes:
        name: Name in settings and tables.
        norm: ``"linf"`` or ``"l2"``.
        eps: Radius of the perturbation, for pixels in [0, 1].
        steps: Iterations of the gradient attacks.
        queries: Queries of the square attack.

    Example:
        >>> AutoAttack("autoattack.linf.eps2", "linf", 2 / 255).describe()["members"]
        ['apgd-ce', 'apgd-dlr', 'deepfool', 'square']
    """

    name: str
    norm: Norm
    eps: float
    steps: int = 100
    queries: int = 5000

    def describe(self) -> dict[str, Any]:
        """JSON-able provenance."""
        members = ["apgd-ce", "apgd-dlr", "deepfool", "square"]
        return described(self, members=members, away_from="label", generator=f"{_PACKAGE} {_version()}")

    def check(self, classifier: Attackable) -> None:
        _import_art()
        super().check(classifier)

    def shorter(self) -> tuple[AutoAttack, float]:
        steps = max(1, round(self.steps / _SHORTER))
        queries = max(1, round(self.queries / _SHORTER))
        return replace(self, steps=steps, queries=queries), _SHORTER

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
        torch = import_torch()
        victim = Victim.of(classifier, classes)
        score_rows = []
        attacked_images = []
        with one_torch_thread():
            for pixels, label, (image_id,) in victim.batches(images, labels, image_ids, 1):
                with _seeded(derive_seed(seed, "autoattack", self.norm, image_id)):
                    attacked = self._attack(victim, pixels.cpu().numpy(), label.cpu().numpy(), len(classifier.space))
                scores = victim.scores(torch.from_numpy(attacked).to(victim.model.device))
                score_rows.append(scores.cpu().numpy())
                attacked_images.append(attacked.transpose(0, 2, 3, 1))
        if not score_rows:
            return np.empty((0, len(classifier.space)), np.float32), None
        return np.concatenate(score_rows), np.concatenate(attacked_images)

    def _attack(self, victim: Victim, pixels: NDArray[np.float32], labels: object, classes: int) -> NDArray[np.float32]:
        """One image, (1, 3, H, W) in [0, 1], after all members of AutoAttack."""
        torch = import_torch()
        evasion, estimators = _import_art()

        class Competing(torch.nn.Module):  # type: ignore[misc, name-defined]
            def forward(self, pixels: object) -> Any:
                return victim.competing(victim.model(pixels))

        estimator = estimators.PyTorchClassifier(
            Competing(),
            loss=torch.nn.CrossEntropyLoss(),
            input_shape=pixels.shape[1:],
            nb_classes=classes,
            clip_values=(0.0, 1.0),
            device_type=victim.model.device.type.replace("cuda", "gpu"),
        )
        norm = np.inf if self.norm == "linf" else 2
        eps = radius(self.eps, self.norm, pixels.shape[2])
        common = {"norm": norm, "eps": eps, "batch_size": 1, "verbose": False}
        adaptive = []
        for loss in ("cross_entropy", "difference_logits_ratio"):
            # Both start with steps of twice the radius, as published.
            adaptive_attack = evasion.AutoProjectedGradientDescent(
                estimator, **common, eps_step=2 * eps, max_iter=self.steps, nb_random_init=1, loss_type=loss
            )
            adaptive.append(adaptive_attack)
        members = [
            *adaptive,
            evasion.DeepFool(estimator, max_iter=self.steps, epsilon=1e-3, nb_grads=10, batch_size=1, verbose=False),
            evasion.SquareAttack(estimator, **common, max_iter=self.queries, p_init=0.8, nb_restarts=1),
        ]
        ensemble = evasion.AutoAttack(estimator, norm=norm, eps=eps, eps_step=2 * eps, attacks=members, batch_size=1)
        attacked: NDArray[np.float32] = np.clip(ensemble.generate(pixels, labels), 0, 1).astype(np.float32)
        return attacked


def _import_art() -> tuple[Any, Any]:
    """The toolbox's attacks and its estimators; its AutoAttack imports ``multiprocess`` without requiring it."""
    try:
        importlib.import_module("multiprocess")
        evasion = importlib.import_module("art.attacks.evasion")
        return evasion, importlib.import_module("art.estimators.classification")
    except ImportError as error:
        raise MissingExtraError(error.name or _PACKAGE, "attacks", "AutoAttack") from error


def _version() -> str:
    try:
        return importlib.metadata.version(_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the generators of the process inside, one thread at a time, and restore them."""
    with _drawing:
        python_state = random.getstate()
        numpy_state = np.random.get_state()  # noqa: NPY002
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)  # noqa: NPY002
