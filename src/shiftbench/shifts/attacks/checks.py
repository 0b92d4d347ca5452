"""Checks for masked gradients: does the attack fail, or is the classifier robust?

A network can hide its gradients (saturated softmax, rounding, randomness) without being robust; then every attack by
gradients reports an accuracy that is too high. Athalye et al. (2018) and Carlini et al. (2019) list the symptoms that
are checked here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.conformance import CheckResult
from shiftbench.jobs.threads import one_torch_thread
from shiftbench.labels.space import Labels
from shiftbench.shifts.attacks.attack import Attack, Attacked, fgsm
from shiftbench.shifts.attacks.base import Attackable, Victim

#: Radii in grey levels of 255 over which the loss must rise.
LADDER = (0.25, 0.5, 1.0, 2.0, 4.0)
#: Share of the images by which restarts, or chance, may do better than one run before it is suspicious; rounded up,
#: for a single image at the edge of its class is no symptom.
_SLACK = 0.1


def check_attack(
    classifier: Attackable,
    images: Pixels,
    labels: Labels | None = None,
    *,
    image_ids: Sequence[str] | None = None,
    seed: int = 0,
    steps: int = 20,
) -> list[CheckResult]:
    """Whether gradient attacks on this classifier are reliable; a failing check explains the symptom.

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
    if image_ids is None:
        image_ids = [str(i) for i in range(len(images))]
    unattacked = Attack("none", "linf", 0, 0, None, random_start=False)
    placeholder_labels = np.zeros(len(images), np.int32)
    clean = unattacked.attack(classifier, images, placeholder_labels, image_ids=image_ids, seed=seed)
    predicted = clean.scores.argmax(axis=1).astype(np.int32)
    usable = np.full(len(images), True) if labels is None else predicted == labels
    if not usable.any():
        return [CheckResult("some images are classified rightly", False, f"none of {len(images)}")]
    usable_ids = [image_ids[i] for i in np.flatnonzero(usable).tolist()]
    trials = _Trials(classifier, images[usable], predicted[usable], usable_ids, seed, steps)
    # One attack at each radius, which several checks look at.
    ladder = [trials.run(trials.pgd(eps / 255)) for eps in LADDER]
    return [
        _check_gradients(trials),
        *_check_loss(trials, ladder),
        *_check_restarts(trials, ladder[1]),
        _check_random_points(trials, ladder[-1]),
        _check_unbounded(trials),
    ]


@dataclass(frozen=True)
class _Trials:
    """The images that a model classifies rightly, and attacks on them."""

    classifier: Attackable
    images: Pixels
    #: The class to drive each image away from.
    targets: Labels
    ids: Sequence[str]
    seed: int
    steps: int

    @property
    def count(self) -> int:
        return len(self.images)

    @property
    def slack(self) -> int:
        """How many images may differ by chance."""
        return math.ceil(_SLACK * self.count)

    def run(self, attack: Attack) -> Attacked:
        return attack.attack(self.classifier, self.images, self.targets, image_ids=self.ids, seed=self.seed)

    def pgd(self, eps: float) -> Attack:
        """Steps of 2.5 eps / steps: enough to cross the ball, as Madry et al. choose them."""
        return Attack("pgd", "linf", eps, self.steps, 2.5 * eps / self.steps)

    def still_right(self, attacked: Attacked) -> NDArray[np.bool_]:
        """Which images are classified rightly after an attack."""
        return np.asarray(attacked.scores.argmax(axis=1) == self.targets)


def _check_gradients(trials: _Trials) -> CheckResult:
    """Saturation and rounding make gradients zero."""
    victim = Victim.of(trials.classifier)
    largest: list[float] = []
    with one_torch_thread():
        for pixels, classes, _ in victim.batches(trials.images, trials.targets, trials.ids):
            largest += victim.gradient(pixels, classes).abs().flatten(1).amax(dim=1).tolist()
    # The last batch is filled up with black images.
    largest_gradients = np.array(largest[: trials.count])
    missing = int((~np.isfinite(largest_gradients) | (largest_gradients == 0)).sum())
    return CheckResult("every image has a gradient", missing == 0, f"{missing} of {trials.count} have none")


def _check_loss(trials: _Trials, ladder: Sequence[Attacked]) -> list[CheckResult]:
    """A larger ball holds the smaller one, so its highest loss is no lower; and one step cannot beat many."""
    losses = [float(attacked.losses.mean()) for attacked in ladder]
    rising = all(after >= before - 1e-3 * abs(before) for before, after in pairwise(losses))
    losses_text = ", ".join(f"{loss:.3g}" for loss in losses)
    radii_text = ", ".join(f"{eps:g}" for eps in LADDER)
    loss_check = CheckResult(
        "the loss rises with eps", rising and losses[-1] > losses[0], f"{losses_text} at {radii_text} / 255"
    )
    one_step = trials.run(fgsm("fgsm", "linf", LADDER[-1] / 255))
    one_step_loss = float(one_step.losses.mean())
    right_after_one = int(trials.still_right(one_step).sum())
    right_after_many = int(trials.still_right(ladder[-1]).sum())
    step_check = CheckResult(
        "many steps are as strong as one",
        losses[-1] >= one_step_loss and right_after_many <= right_after_one,
        f"at {LADDER[-1]:g} / 255 loss {losses[-1]:.3g} against {one_step_loss:.3g}, "
        f"right {right_after_many} against {right_after_one}",
    )
    return [loss_check, step_check]


def _check_restarts(trials: _Trials, single_run: Attacked) -> list[CheckResult]:
    """At a radius where some images still resist, restarts may only do more harm, and only a little."""
    restarted = trials.run(replace(trials.pgd(LADDER[1] / 255), restarts=4))
    right_after_one = int(trials.still_right(single_run).sum())
    still_right = trials.still_right(restarted)
    right_after_four = int(still_right.sum())
    higher_loss = bool((restarted.losses >= single_run.losses - 1e-6)[still_right].all())
    gained = right_after_one - right_after_four
    return [
        CheckResult(
            "restarts are as strong as one run",
            higher_loss and gained >= 0,
            f"right {right_after_four} against {right_after_one}",
        ),
        CheckResult(
            "one run finds what restarts find",
            gained <= trials.slack,
            f"{gained} of {trials.count} more by 4 restarts",
        ),
    ]


def _check_random_points(trials: _Trials, attacked: Attacked) -> CheckResult:
    """Where gradients are uninformative, random points of the ball are stronger."""
    random_points = trials.run(Attack("random", "linf", LADDER[-1] / 255, 0, None, restarts=10))
    missed = int((trials.still_right(attacked) & ~trials.still_right(random_points)).sum())
    return CheckResult(
        "gradients find what chance finds",
        missed <= trials.slack,
        f"{missed} of {trials.count} fooled by one of 10 random points and not by the attack",
    )


def _check_unbounded(trials: _Trials) -> CheckResult:
    """With the whole cube to move in, an image can become any other."""
    unbounded = Attack("unbounded", "linf", 1.0, 3 * trials.steps, 4 / 255, random_start=False)
    resisting = int(trials.still_right(trials.run(unbounded)).sum())
    return CheckResult("an unbounded attack reaches 0 %", resisting == 0, f"{resisting} of {trials.count} still right")
