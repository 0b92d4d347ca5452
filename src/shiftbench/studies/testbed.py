"""The ImageNet testbed's own choices (001): axes and thresholds of each shift, sizes, aggregates.

The accuracies of its plots are ``imagenetv2-matched-frequency-format-val`` and the like; each natural shift has
its own reference on the x axis, and only models above a threshold there are shown and fitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from shiftbench.arrays import FloatArray
from shiftbench.errors import UnknownNameError
from shiftbench.settings.base import Setting, build_suite
from shiftbench.studies.results import Results


@dataclass(frozen=True)
class TestbedShift:
    """One plot of the paper: y against x for models with x of at least ``min_x`` percent."""

    #: Not a test, although its name begins like one.
    __test__ = False

    name: str
    x: str
    y: str
    min_x: float
    #: Two fits around the accuracy, in percent, of the model that filtered the test set.
    pivot: float | None = None


SHIFTS = {
    shift.name: shift
    for shift in (
        TestbedShift("imagenetv2", "val", "imagenetv2-matched-frequency-format-val", 55),
        TestbedShift("objectnet", "val-on-objectnet-classes", "objectnet-1.0-beta", 55),
        TestbedShift("vid-pm0", "val-on-vid-robust-classes", "imagenet-vid-robust_pm0", 92),
        TestbedShift("ytbb-pm0", "val-on-ytbb-robust-classes", "ytbb-robust_pm0", 95),
        TestbedShift("vid-pm10", "imagenet-vid-robust_pm0", "imagenet-vid-robust_pm10", 49),
        TestbedShift("ytbb-pm10", "ytbb-robust_pm0", "ytbb-robust_pm10", 45),
        TestbedShift("imagenet-a", "val-on-imagenet-a-classes", "imagenet-a", 75, pivot=91.86),
        TestbedShift("imagenet-r", "val-on-imagenet-r-classes", "imagenet-r", 75),
        TestbedShift("imagenet-sketch", "val", "imagenet-sketch", 55),
        TestbedShift("corruptions", "val", "avg_corruptions", 55),
        TestbedShift("pgd", "val", "avg_pgd", 55),
    )
}

#: The natural shifts of the paper's table of correlations (appendix I).
NATURAL = ("imagenetv2", "objectnet", "vid-pm0", "ytbb-pm0", "vid-pm10", "ytbb-pm10", "imagenet-a")

#: A standard model whose lower-cased name contains one of these is shown but not fitted.
NOT_FITTED = ("aws", "batch64", "subsample")

#: Level of the intervals that the paper draws at each point.
POINT_LEVEL = 0.995

#: Images of each setting. Sketch is registered with 50,000 in the testbed; the set has 50,889.
SIZES: Mapping[str, int] = {
    "val": 50_000, "greyscale": 50_000, "stylized_imagenet": 50_000, "imagenet-a": 7_500, "imagenet-r": 30_000,
    "imagenet-sketch": 50_889, "imagenet-vid-robust_pm0": 1_109, "imagenet-vid-robust_pm10": 1_109,
    "ytbb-robust_pm0": 2_530, "ytbb-robust_pm10": 2_530, "objectnet-1.0-beta": 18_514,
    "imagenetv2-matched-frequency": 10_000, "imagenetv2-matched-frequency-format-val": 10_000,
    "imagenetv2-threshold0.7": 10_000, "imagenetv2-threshold-0.7-format-val": 10_000,
    "imagenetv2-topimages": 10_000, "imagenetv2-top-images-format-val": 10_000,
    "imagenetv2-matched-frequency-format-val_subsampled_class_1_8": 1_250, "val_subsampled_class_1_8": 6_250,
    "val-on-imagenet-a-classes": 10_000, "val-on-imagenet-r-classes": 10_000, "val-on-objectnet-classes": 6_250,
    "val-on-vid-robust-classes": 14_400, "val-on-ytbb-robust-classes": 11_550,
}  # fmt: skip

#: 37 corruptions, stylized and greyscale; attacks; settings by which a table is seen to be the testbed's.
_CORRUPTION_PARTS, _ATTACKS, _RECOGNISED = 39, 4, 5


def get_shift(name: str) -> TestbedShift:
    try:
        return SHIFTS[name]
    except KeyError:
        raise UnknownNameError("testbed shift", name, SHIFTS) from None


def corruption_means(results: Results) -> dict[str, FloatArray]:
    """``fog_on-disk`` and so on: the mean of five severities, nan where one of them is missing."""
    means = _severities_of_means()
    there = set(results.settings)
    in_order = dict.fromkeys(name for setting in results.settings for name, of in means.items() if setting in of)
    return {name: _mean([results.column(s) for s in means[name]]) for name in in_order if there >= set(means[name])}


@lru_cache(maxsize=1)
def known_settings() -> dict[str, Setting]:
    """The settings of the testbed by name, for its published table: notes, references, label spaces, families."""
    return {setting.name: setting for setting in build_suite("testbed-213").settings}


@lru_cache(maxsize=1)
def _severities_of_means() -> dict[str, list[str]]:
    """The five settings that each mean over severities is of."""
    found: dict[str, list[str]] = {}
    for setting in known_settings().values():
        if setting.member is not None:
            found.setdefault(f"{setting.member.name}_{setting.source}", []).append(setting.name)
    return found


def _attacks(results: Results) -> list[str]:
    known = known_settings()
    return [name for name in results.settings if name in known and known[name].shift.kind == "attack"]


def synthetic(results: Results) -> list[str]:
    """Every synthetic measure that a table with its aggregates has: 37 corruptions, two styles, four attacks, two
    means in the testbed's."""
    means = [name for name in results.settings if name in _severities_of_means()]
    others = ("stylized_imagenet", "greyscale", "avg_corruptions", "avg_pgd")
    return [*means, *_attacks(results), *(name for name in others if name in results.settings)]


def with_aggregates(results: Results) -> Results:
    """The table with the testbed's aggregates, where all of their parts are there.

    Each corruption's mean over five severities; ``avg_corruptions``, the unweighted mean of these (37 columns:
    19 from disk, 18 in memory), ``stylized_imagenet`` and ``greyscale``; ``avg_pgd``, the mean of the four
    attacks. A table that lacks a column, or a model that lacks a cell, has no such mean: over what happens to be
    there it would be another number under the same name.
    """
    columns = corruption_means(results)
    styles = [results.column(name) for name in ("stylized_imagenet", "greyscale") if name in results.settings]
    parts = [*columns.values(), *styles]
    attacks = [results.column(name) for name in _attacks(results)]
    if len(parts) == _CORRUPTION_PARTS:
        columns["avg_corruptions"] = _mean(parts)
    if len(attacks) == _ATTACKS:
        columns["avg_pgd"] = _mean(attacks)
    return results.with_columns(columns) if columns else results


def default_sizes(results: Results) -> Results:
    """The table with the testbed's numbers of images for settings without any.

    Only for a table that is recognisably the testbed's, by five or more of its settings: another's ``val`` need
    not be ImageNet's.
    """
    known = {name: np.asarray(float(n)) for name, n in SIZES.items() if name in results.settings}
    if len(known) < _RECOGNISED:
        return results
    return replace(results, sizes={**known, **results.sizes})


def _mean(columns: list[FloatArray]) -> FloatArray:
    return np.asarray(np.mean(np.stack(columns), axis=0))
