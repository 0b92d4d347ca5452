"""Attacks on a user's own data: what a classifier still gets right when the images are made against it."""

from __future__ import annotations

from shiftbench.settings.base import Setting, SuiteOptions, suite
from shiftbench.shifts.attacks import ATTACKS, AutoAttack, ClassifierShift


def _attacked(options: SuiteOptions, attacks: list[ClassifierShift]) -> list[Setting]:
    """The clean side, then ``<data>-<attack>`` for each attack."""
    clean = options.data_name
    return [
        Setting(clean, "data"),
        *(Setting(f"{clean}-{attack.name}", "data", attack, reference=clean) for attack in attacks),
    ]


@suite("attacks")
def own_data_attacked(options: SuiteOptions) -> list[Setting]:
    """Your own data set, clean and under PGD (L-infinity, L2) and FGSM; torch classifiers only."""
    return _attacked(options, list(ATTACKS.values()))


@suite("autoattack")
def own_data_under_autoattack(options: SuiteOptions) -> list[Setting]:
    """Your own data set, clean and under AutoAttack (L-infinity, L2); slow, needs shiftbench[attacks]."""
    return _attacked(
        options,
        [AutoAttack("autoattack.linf.eps2", "linf", 2 / 255), AutoAttack("autoattack.l2.eps0.5", "l2", 0.5)],
    )
