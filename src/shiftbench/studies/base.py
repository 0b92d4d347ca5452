"""What all studies share: their error, the units and scales of accuracies, and values by model name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from shiftbench.arrays import BoolArray, FloatArray
from shiftbench.errors import ShiftbenchError, argument, check_names, listed
from shiftbench.grouping import repeated

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

PERCENT = "percent"
FRACTION = "fraction"

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
    percent = []
    fraction = []
    accuracies = {}
    for name, column in columns.items():
        values = np.asarray(column, dtype=np.float64)
        values = values[~np.isnan(values)]
        accuracies[name] = values
        if values.any() and values.max() > 1.0:
            percent.append(name)
        elif values.any():
            fraction.append(name)
    mixed = unit is None and percent and fraction
    unit = unit or (PERCENT if percent else FRACTION)
    for name, values in accuracies.items():
        _check_range(name, values, unit)
    if mixed:
        raise StudyError(
            "percent and fractions in one table",
            found=f"above 1: {listed(percent)}; within [0, 1]: {listed(fraction)}",
            expected="accuracies in one unit",
            hint=f"convert one of them, or, if all of it is percent, pass {argument('unit', 'percent')}",
        )
    return unit


def _check_range(name: str, values: FloatArray, unit: str) -> None:
    invalid = values[~((values >= 0) & (values <= whole(unit)))]
    if not len(invalid):
        return
    examples = f"{invalid[0]:g}"
    if len(invalid) > 1:
        examples += f" and {len(invalid) - 1} more"
    raise StudyError(
        f"{name!r} contains invalid accuracies",
        found=examples,
        expected=f"0 to {whole(unit):g} ({unit})",
    )


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
        names = list(dict.fromkeys(chain.from_iterable(mappings))) if models is None else list(models)
        columns = [_in_order(column, names) for column in mappings]
    else:
        columns = [np.asarray(column, dtype=np.float64) for column in values]
        for column in columns:
            if column.ndim != 1:
                raise StudyError("accuracies must be one value for each model", found=f"shape {column.shape}")
        names = numbered(columns[0]) if models is None else list(models)
    lengths = [len(column) for column in columns]
    if set(lengths) != {len(names)}:
        raise StudyError(
            "the arguments differ in length",
            found=f"{', '.join(map(str, lengths))} values, {len(names)} names",
            expected="the same number, nan where a value is missing",
        )
    check_unique(names)
    return names, columns


def _in_order(by_model: Mapping[str, float], names: Sequence[str]) -> FloatArray:
    return np.array([float(by_model.get(name, np.nan)) for name in names])


def numbered(rows: Collection[object]) -> list[str]:
    """Names for models that have none: "1", "2", ..."""
    return [str(i + 1) for i in range(len(rows))]


def check_unique(names: Sequence[str]) -> None:
    """Raise an error if two models have one name."""
    if duplicates := repeated(names):
        hint = "drop or rename one of them"
        raise StudyError("duplicate model", found=listed(duplicates), expected="one row for each model", hint=hint)


def count_of(n: int, noun: str) -> str:
    """A number with its noun, in the plural unless it is 1.

    >>> count_of(1, "model"), count_of(2, "model")
    ('1 model', '2 models')
    """
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def left_out(reason: str, names: Collection[str], noun: str = "model") -> list[str]:
    """A list with one note that counts and names what was left out; empty if nothing was."""
    if not names:
        return []
    return [f"{reason}: {count_of(len(names), noun)} ({listed(names)})"]


def as_json(record: DataclassInstance) -> dict[str, Any]:
    """The fields of a record for JSON: tuples as lists."""
    fields: dict[str, Any] = {}
    for name, value in asdict(record).items():
        fields[name] = list(value) if isinstance(value, tuple) else value
    return fields


def finite_or_none(value: float) -> float | None:
    """The number for JSON, which has no nan and no infinity."""
    return float(value) if np.isfinite(value) else None


@dataclass(frozen=True)
class Scale:
    """An axis for accuracies: ``forward`` maps fractions onto it, ``inverse`` maps back to fractions."""

    name: str
    forward: Callable[[FloatArray], FloatArray]
    inverse: Callable[[FloatArray], FloatArray]
    #: Whether accuracies of exactly 0 and 1 have a finite place on this axis.
    holds_ends: bool = False

    def usable(self, fractions: FloatArray) -> BoolArray:
        """Which accuracies have a finite place on this axis; nan has none."""
        present = ~np.isnan(fractions)
        if self.holds_ends:
            return present
        return present & (fractions > 0) & (fractions < 1)


def logit(fraction: ArrayLike) -> FloatArray:
    """ln(p / (1 - p))."""
    p = np.asarray(fraction, dtype=np.float64)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(p / (1.0 - p)))


def inverse_logit(value: ArrayLike) -> FloatArray:
    """1 / (1 + exp(-z)), without overflow at either end."""
    z = np.asarray(value, dtype=np.float64)
    # The exponential of a positive number could overflow, that of its negative can't.
    small = np.exp(-np.abs(z))
    return np.asarray(np.where(z >= 0, 1.0 / (1.0 + small), small / (1.0 + small)))


def probit(fraction: ArrayLike) -> FloatArray:
    """The standard normal quantile."""
    from scipy.special import ndtri  # here, so that importing the studies stays light

    return np.asarray(ndtri(np.asarray(fraction, dtype=np.float64)))


def inverse_probit(value: ArrayLike) -> FloatArray:
    """The standard normal distribution function."""
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
