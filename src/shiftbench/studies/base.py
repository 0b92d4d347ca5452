"""Shared by all studies: their error, the units of accuracies, and values that belong to named models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from shiftbench.arrays import BoolArray, FloatArray
from shiftbench.errors import ShiftbenchError, argument, check_names, listed

PERCENT, FRACTION = "percent", "fraction"

#: Accuracies of many models: an array, or a mapping from the model's name.
Accuracies = ArrayLike | Mapping[str, float]


class StudyError(ShiftbenchError):
    """Invalid input of a study.

    Attributes:
        message: What is wrong.
        found: What was found.
        expected: What was expected.
        hint: What to do.
    """


def whole(unit: str) -> float:
    """The accuracy of a model that is always right: 100 or 1."""
    if unit not in (PERCENT, FRACTION):
        raise StudyError("unknown unit of accuracies", found=unit, expected=f"{PERCENT} or {FRACTION}")
    return 100.0 if unit == PERCENT else 1.0


def recognise_unit(columns: Mapping[str, ArrayLike], unit: str | None = None) -> str:
    """Percent or fraction, by one rule for the whole table.

    A column with a value above 1 can only be percent. A column whose values all lie in [0, 1] can only be
    fractions, unless all of it is 0 or missing, which fits both. A table with both kinds is an error: either two
    units were mixed, or a percent column happens to stay below 1 % throughout and needs ``unit="percent"``. Values
    below 0 or above 100 are invalid in any unit.
    """
    known = {name: np.asarray(column, dtype=np.float64) for name, column in columns.items()}
    known = {name: column[~np.isnan(column)] for name, column in known.items()}
    percent = [name for name, values in known.items() if values.any() and values.max() > 1.0]
    fraction = [name for name, values in known.items() if values.any() and values.max() <= 1.0]
    chosen = unit or (PERCENT if percent else FRACTION)
    for name, values in known.items():
        bad = values[~((values >= 0) & (values <= whole(chosen)))]
        if len(bad):
            raise StudyError(
                f"{name!r} contains invalid accuracies",
                found=f"{bad[0]:g}" + (f" and {len(bad) - 1} more" if len(bad) > 1 else ""),
                expected=f"0 to {whole(chosen):g} ({chosen})",
            )
    if unit is None and percent and fraction:
        raise StudyError(
            "percent and fractions in one table",
            found=f"above 1: {listed(percent)}; within [0, 1]: {listed(fraction)}",
            expected="accuracies in one unit",
            hint=f"convert one of them, or, if all of it is percent, pass {argument('unit', 'percent')}",
        )
    return chosen


def named_values(
    values: Sequence[Accuracies], models: Sequence[str] | None = None
) -> tuple[list[str], list[FloatArray]]:
    """Several columns on one list of models; a model that a mapping lacks gets nan there.

    Without names the models are called "1", "2", ... A duplicate name is an error: it would count twice.
    """
    mappings = [column for column in values if isinstance(column, Mapping)]
    if mappings and len(mappings) != len(values):
        raise StudyError("mappings and arrays can't be mixed", expected="accuracies by model name in all arguments")
    if mappings:
        names = list(models) if models is not None else list(dict.fromkeys(name for one in mappings for name in one))
        columns = [np.array([float(one.get(name, np.nan)) for name in names]) for one in mappings]
    else:
        columns = [np.asarray(column, dtype=np.float64) for column in values]
        if shapes := [column.shape for column in columns if column.ndim != 1]:
            raise StudyError("accuracies must be one value for each model", found=f"shape {shapes[0]}")
        names = list(models) if models is not None else numbered(columns[0])
    if {len(column) for column in columns} != {len(names)}:
        raise StudyError(
            "the arguments differ in length",
            found=f"{', '.join(str(len(column)) for column in columns)} values, {len(names)} names",
            expected="the same number, nan where a value is missing",
        )
    check_unique(names)
    return names, columns


def numbered(rows: Collection[object]) -> list[str]:
    """Names for models that have none: "1", "2", ..."""
    return [str(i + 1) for i in range(len(rows))]


def check_unique(names: Sequence[str]) -> None:
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        hint = "drop or rename one of them"
        raise StudyError("duplicate model", found=listed(twice), expected="one row for each model", hint=hint)


def count_of(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def left_out(why: str, names: Collection[str], what: str = "model") -> list[str]:
    """A note on what is left out, if anything is."""
    return [f"{why}: {count_of(len(names), what)} ({listed(names)})"] if names else []


def finite_or_none(value: float) -> float | None:
    """For JSON, which has no nan."""
    return float(value) if np.isfinite(value) else None


@dataclass(frozen=True)
class Scale:
    """``forward`` from fractions, ``inverse`` back to them."""

    name: str
    forward: Callable[[FloatArray], FloatArray]
    inverse: Callable[[FloatArray], FloatArray]
    #: Whether accuracies of exactly 0 and 1 have a finite place on this axis.
    holds_ends: bool = False

    def usable(self, fractions: FloatArray) -> BoolArray:
        """Which accuracies have a finite place on this axis; nan has none."""
        known = ~np.isnan(fractions)
        return known if self.holds_ends else known & (fractions > 0) & (fractions < 1)


def logit(fraction: ArrayLike) -> FloatArray:
    """ln(p / (1 - p))."""
    p = np.asarray(fraction, dtype=np.float64)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(p / (1.0 - p)))


def inverse_logit(value: ArrayLike) -> FloatArray:
    """1 / (1 + exp(-z)), without overflow at either end."""
    z = np.asarray(value, dtype=np.float64)
    # exp only of numbers that are not positive
    small = np.exp(-np.abs(z))
    return np.asarray(np.where(z >= 0, 1.0 / (1.0 + small), small / (1.0 + small)))


def probit(fraction: ArrayLike) -> FloatArray:
    """The standard normal quantile."""
    from scipy.special import ndtri  # here, so that importing the studies stays light

    return np.asarray(ndtri(np.asarray(fraction, dtype=np.float64)))


def inverse_probit(value: ArrayLike) -> FloatArray:
    from scipy.special import ndtr

    return np.asarray(ndtr(np.asarray(value, dtype=np.float64)))


SCALES = {
    "logit": Scale("logit", logit, inverse_logit),
    "probit": Scale("probit", probit, inverse_probit),
    "linear": Scale("linear", lambda value: value, lambda value: value, holds_ends=True),
}


def get_scale(name: str) -> Scale:
    check_names("scale", [name], SCALES)
    return SCALES[name]
