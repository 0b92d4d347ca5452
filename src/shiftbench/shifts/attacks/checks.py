"""Checks for masked gradients: does the attack fail, or is the classifier robust?

A network can hide its gradients (saturated softmax, rounding, randomness) without being robust; then every attack by
gradients reports an accuracy that is too high. Athalye et al. (2018) and Carlini et al. (2019) list the symptoms that
are checked here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.datasets.check import CheckResult
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
    ids = [str(i) for i in range(len(images))] if image_ids is None else image_ids
    still = Attack("none", "linf", 0, 0, None, random_start=False)
    own = np.zeros(len(images), np.int32) if labels is None else labels
    clean = still.attack(classifier, images, own, image_ids=ids, seed=seed)
    predicted = clean.scores.argmax(axis=1).astype(np.int32)
    known = np.full(len(images), True) if labels is None else predicted == labels
    if not known.any():
        return [CheckResult("some images are classified rightly", False, f"none of {len(images)}")]
    images, targets, ids = images[known], predicted[known], [ids[i] for i in np.flatnonzero(known).tolist()]
    count, slack = len(images), math.ceil(_SLACK * len(images))
    checks: list[CheckResult] = []

    def run(attack: Attack) -> Attacked:
        return attack.attack(classifier, images, targets, image_ids=ids, seed=seed)

    def pgd(eps: float) -> Attack:
        """Steps of 2.5 eps / steps: enough to cross the ball, as Madry et al. choose them."""
        return Attack("pgd", "linf", eps, steps, 2.5 * eps / steps)

    def right(attacked: Attacked) -> NDArray[np.bool_]:
        return np.asarray(attacked.scores.argmax(axis=1) == targets)

    def check(name: str, ok: bool, message: str) -> None:
        checks.append(CheckResult(name, ok, message))

    # Saturation and rounding make gradients zero.
    victim, sizes = Victim.of(classifier), []
    with one_torch_thread():
        for pixels, classes, _ in victim.batches(images, targets, ids):
            sizes += victim.gradient(pixels, classes).abs().flatten(1).amax(dim=1).tolist()
    found = np.array(sizes[:count])
    bad = int((~np.isfinite(found) | (found == 0)).sum())
    check("every image has a gradient", bad == 0, f"{bad} of {count} have none")

    # A larger ball holds the smaller one, so its highest loss is no lower; and one step can't beat many.
    one_step = run(fgsm("fgsm", "linf", LADDER[-1] / 255))
    many = [run(pgd(eps / 255)) for eps in LADDER]
    losses = [float(attacked.losses.mean()) for attacked in many]
    rising = all(after >= before - 1e-3 * abs(before) for before, after in pairwise(losses))
    shown, grey = ", ".join(f"{loss:.3g}" for loss in losses), ", ".join(f"{eps:g}" for eps in LADDER)
    check("the loss rises with eps", rising and losses[-1] > losses[0], f"{shown} at {grey} / 255")
    last_one, last_many, single = int(right(one_step).sum()), int(right(many[-1]).sum()), float(one_step.losses.mean())
    check(
        "many steps are as strong as one",
        losses[-1] >= single and last_many <= last_one,
        f"at {LADDER[-1]:g} / 255 loss {losses[-1]:.3g} against {single:.3g}, right {last_many} against {last_one}",
    )

    # At a radius where some images still resist: restarts may only do more harm, and only a little.
    once, restarted = many[1], run(replace(pgd(LADDER[1] / 255), restarts=4))
    left, fewer = int(right(once).sum()), int(right(restarted).sum())
    stronger = bool((restarted.losses >= once.losses - 1e-6)[right(restarted)].all()) and fewer <= left
    check("restarts are as strong as one run", stronger, f"right {fewer} against {left}")
    gained = left - fewer
    check("one run finds what restarts find", gained <= slack, f"{gained} of {count} more by 4 restarts")

    # Where gradients are uninformative, random points of the ball are stronger.
    drawn = right(run(Attack("random", "linf", LADDER[-1] / 255, 0, None, restarts=10)))
    missed = int((right(many[-1]) & ~drawn).sum())
    message = f"{missed} of {count} fooled by one of 10 random points and not by the attack"
    check("gradients find what chance finds", missed <= slack, message)

    # With the whole cube to move in, an image can become any other.
    unbounded = Attack("unbounded", "linf", 1.0, 3 * steps, 4 / 255, random_start=False)
    resisting = int(right(run(unbounded)).sum())
    check("an unbounded attack reaches 0 %", resisting == 0, f"{resisting} of {count} still right")
    return checks
