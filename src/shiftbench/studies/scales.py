"""Axes on which accuracies fall on a line: logit, probit, linear.

Accuracies of many models on two test sets lie on a line once both are stretched at the ends (001 section 3;
004 appendix C uses the probit). A scale is a pair of functions on fractions, each the other's inverse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from shiftbench.arrays import FloatArray
from shiftbench.errors import UnknownNameError


@dataclass(frozen=True)
class Scale:
    """``forward`` from fractions, ``inverse`` back to them."""

    name: str
    forward: Callable[[FloatArray], FloatArray]
    inverse: Callable[[FloatArray], FloatArray]
    #: Whether accuracies of exactly 0 and 1 have a finite place on this axis.
    holds_ends: bool

    def usable(self, fractions: FloatArray) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Which accuracies have a finite place on this axis; nan has none."""
        known = ~np.isnan(fractions)
        return known if self.holds_ends else known & (fractions > 0) & (fractions < 1)


def logit(fraction: ArrayLike) -> FloatArray:
    """ln(p / (1 - p)).

    >>> float(logit(0.75).round(4))
    1.0986
    """
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


def _same(value: FloatArray) -> FloatArray:
    return value


SCALES = {
    scale.name: scale
    for scale in (
        Scale("logit", logit, inverse_logit, holds_ends=False),
        Scale("probit", probit, inverse_probit, holds_ends=False),
        Scale("linear", _same, _same, holds_ends=True),
    )
}


def get_scale(name: str) -> Scale:
    try:
        return SCALES[name]
    except KeyError:
        raise UnknownNameError("scale", name, SCALES) from None
