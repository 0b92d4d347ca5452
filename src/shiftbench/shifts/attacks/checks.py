"""Does the attack fail, or the classifier resist? Checks that catch masked gradients.

A network can hide its gradients (saturated softmax, rounding, randomness) without being robust; then every attack by
gradients reports an accuracy that is too high. Athalye et al. (2018) and Carlini et al. (2019) list the symptoms that
are checked here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.jobs.threads import one_torch_thread
from shiftbench.labels.space import Labels
from shiftbench.shifts.attacks.attack import Attack, Attacked, fgsm
from shiftbench.shifts.attacks.base import Attackable
from shiftbench.shifts.attacks.objective import Victim

#: Radii in grey levels of 255 over which the loss must rise.
LADDER = (0.25, 0.5, 1.0, 2.0, 4.0)
#: Share of the images by which restarts, or chance, may do better than one run before it is suspicious; rounded up,
#: for a single image at the edge of its class is no symptom.
_SLACK = 0.1


class AttackCheck(NamedTuple):
    """One symptom: whether it is absent, and the numbers that were seen."""

    name: str
    ok: bool
    message: str


@dataclass(frozen=True)
class _Trial:
    """The classifier, the images and what was found so far."""

    classifier: Attackable
    images: Pixels
    labels: Labels
    ids: Sequence[str]
    seed: int
    steps: int

    @property
    def slack(self) -> int:
        return math.ceil(_SLACK * len(self.images))

    def run(self, attack: Attack) -> Attacked:
        return attack.attack(self.classifier, self.images, self.labels, image_ids=self.ids, seed=self.seed)

    def pgd(self, eps: float) -> Attack:
        """Steps of 2.5 eps / steps: enough to cross the ball, as Madry et al. choose them."""
        return Attack("pgd", "linf", eps, self.steps, 2.5 * eps / self.steps)

    def right(self, attacked: Attacked) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = attacked.scores.argmax(axis=1) == self.labels
        return found


def check_attack(
    classifier: Attackable,
    images: Pixels,
    labels: Labels | None = None,
    *,
    image_ids: Sequence[str] | None = None,
    seed: int = 0,
    steps: int = 20,
) -> list[AttackCheck]:
    """Whether attacks by gradients can be believed for this classifier; a failing check says what is suspicious.

    ``images`` are uint8 images in the classifier's geometry, a dozen is enough. Without ``labels`` they are
    driven away from what the classifier takes them for. Images that it takes for another class than their label
    have no part.

    Args:
        classifier: The model.
        images: uint8 (N, H, W, 3) inputs of the model.
        labels: Their labels; default: the model's predictions.
        image_ids: Their names; default: numbers.
        seed: Seed of all random numbers.
        steps: Steps of the attacks that are compared.
    """
    ids = [str(i) for i in range(len(images))] if image_ids is None else image_ids
    still = Attack("none", "linf", 0, 0, None, random_start=False)
    own = np.zeros(len(images), np.int32) if labels is None else labels
    clean = still.attack(classifier, images, own, image_ids=ids, seed=seed)
    predicted = clean.scores.argmax(axis=1).astype(np.int32)
    right = np.full(len(images), True) if labels is None else predicted == labels
    if not right.any():
        return [AttackCheck("some images are classified rightly", False, f"none of {len(images)}")]
    chosen = [one for one, ok in zip(ids, right, strict=True) if ok]
    trial = _Trial(classifier, images[right], predicted[right], chosen, seed, steps)
    return [check for group in _CHECKS for check in group(trial)]


def _gradients(trial: _Trial) -> Iterator[AttackCheck]:
    """Saturation and rounding make them zero."""
    victim, sizes = Victim.of(trial.classifier), []
    with one_torch_thread():
        for pixels, labels, _ in victim.batches(trial.images, trial.labels, trial.ids):
            sizes += victim.gradient(pixels, labels).abs().flatten(1).amax(dim=1).tolist()
    found = np.array(sizes[: len(trial.images)])
    bad = int((~np.isfinite(found) | (found == 0)).sum())
    yield AttackCheck("every image has a gradient", bad == 0, f"{bad} of {len(found)} have none")


def _ladder(trial: _Trial) -> Iterator[AttackCheck]:
    """A larger ball holds the smaller one, so its highest loss is no lower; and one step can't beat many."""
    one_step = [trial.run(fgsm("fgsm", "linf", eps / 255)) for eps in LADDER]
    many = [trial.run(trial.pgd(eps / 255)) for eps in LADDER]
    losses = [float(found.losses.mean()) for found in many]
    rising = all(after >= before - 1e-3 * abs(before) for before, after in pairwise(losses))
    shown, grey = ", ".join(f"{loss:.3g}" for loss in losses), ", ".join(f"{eps:g}" for eps in LADDER)
    yield AttackCheck("the loss rises with eps", rising and losses[-1] > losses[0], f"{shown} at {grey} / 255")
    last_one, last_many = (int(trial.right(found[-1]).sum()) for found in (one_step, many))
    single = float(one_step[-1].losses.mean())
    yield AttackCheck(
        "many steps are as strong as one",
        losses[-1] >= single and last_many <= last_one,
        f"at {LADDER[-1]:g} / 255 loss {losses[-1]:.3g} against {single:.3g}, right {last_many} against {last_one}",
    )


def _restarts(trial: _Trial) -> Iterator[AttackCheck]:
    """At a radius where some images still resist: restarts may only do more harm, and only a little."""
    attack = trial.pgd(LADDER[1] / 255)
    one, many = trial.run(attack), trial.run(replace(attack, restarts=4))
    count, fewer = int(trial.right(one).sum()), int(trial.right(many).sum())
    stronger = bool((many.losses >= one.losses - 1e-6)[trial.right(many)].all()) and fewer <= count
    yield AttackCheck("restarts are as strong as one run", stronger, f"right {fewer} against {count}")
    gained = count - fewer
    yield AttackCheck(
        "one run finds what restarts find", gained <= trial.slack, f"{gained} of {len(trial.images)} more by 4 restarts"
    )


def _chance(trial: _Trial) -> Iterator[AttackCheck]:
    """Where gradients lead nowhere, random points of the ball do better."""
    eps = LADDER[-1] / 255
    searched = trial.right(trial.run(trial.pgd(eps)))
    drawn = trial.right(trial.run(Attack("random", "linf", eps, 0, None, restarts=10)))
    missed = int((searched & ~drawn).sum())
    yield AttackCheck(
        "gradients find what chance finds",
        missed <= trial.slack,
        f"{missed} of {len(trial.images)} fooled by one of 10 random points and not by the attack",
    )


def _unbounded(trial: _Trial) -> Iterator[AttackCheck]:
    """With the whole cube to move in, an image can become any other."""
    attack = Attack("unbounded", "linf", 1.0, 3 * trial.steps, 4 / 255)
    left = int(trial.right(trial.run(replace(attack, random_start=False))).sum())
    yield AttackCheck("an unbounded attack reaches 0 %", left == 0, f"{left} of {len(trial.images)} still right")


_CHECKS: tuple[Callable[[_Trial], Iterator[AttackCheck]], ...] = (_gradients, _ladder, _restarts, _chance, _unbounded)
