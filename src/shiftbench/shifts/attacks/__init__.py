"""Attacks: the smallest change of an image that makes one classifier fail, looked for along its gradients.

>>> from shiftbench.shifts.attacks import ATTACKS
>>> sorted(ATTACKS)[-2:]
['pgd.linf.eps0.5', 'pgd.linf.eps2']
"""

from __future__ import annotations

from shiftbench.shifts.attacks.attack import ATTACKS, Attack, Attacked, fgsm, published_attacks
from shiftbench.shifts.attacks.autoattack import AutoAttack
from shiftbench.shifts.attacks.base import Attackable, ClassifierShift
from shiftbench.shifts.attacks.checks import check_attack

__all__ = [
    "ATTACKS",
    "Attack",
    "Attackable",
    "Attacked",
    "AutoAttack",
    "ClassifierShift",
    "check_attack",
    "fgsm",
    "published_attacks",
]
