"""The ImageNet testbed (001): its models, axes and thresholds of each shift, sizes, aggregates.

The accuracies of its plots are ``imagenetv2-matched-frequency-format-val`` and the like; each natural shift has
its own reference on the x axis, and only models above a threshold there are shown and fitted. Its public table
(``robustness_top1s.csv``, 338 models) is recognised by its settings and models; 204 of them are the paper's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import as_file, files
from itertools import chain

import numpy as np

from shiftbench.arrays import FloatArray
from shiftbench.settings.base import Setting, build_suite
from shiftbench.studies.base import whole
from shiftbench.studies.models import Models, read_models
from shiftbench.studies.results import Results


@dataclass(frozen=True)
class ShiftAxes:
    """A setting and the reference it is compared with."""

    x: str
    y: str
    #: Only models with x of at least this many percent (or, up to 1, this fraction) are fitted.
    min_x: float | None = None
    #: Two fits around this x, in percent or as a fraction; "auto" takes that of a baseline model with y = 0, if any.
    pivot: float | str | None = None

    @property
    def least_x(self) -> float | None:
        """``min_x`` as a fraction."""
        return None if self.min_x is None else as_fraction(self.min_x)


def as_fraction(threshold: float) -> float:
    """A threshold on accuracies as a fraction; above 1 it was stated in percent, as ``--min-x`` documents.

    >>> as_fraction(55), as_fraction(0.55)
    (0.55, 0.55)
    """
    return threshold / 100.0 if threshold > 1.0 else threshold


#: The plots of the paper.
SHIFTS = {
    "imagenetv2": ShiftAxes("val", "imagenetv2-matched-frequency-format-val", 55),
    "objectnet": ShiftAxes("val-on-objectnet-classes", "objectnet-1.0-beta", 55),
    "vid-pm0": ShiftAxes("val-on-vid-robust-classes", "imagenet-vid-robust_pm0", 92),
    "ytbb-pm0": ShiftAxes("val-on-ytbb-robust-classes", "ytbb-robust_pm0", 95),
    "vid-pm10": ShiftAxes("imagenet-vid-robust_pm0", "imagenet-vid-robust_pm10", 49),
    "ytbb-pm10": ShiftAxes("ytbb-robust_pm0", "ytbb-robust_pm10", 45),
    # ResNet-50 filtered the test set: its 91.86 % on the x axis is the pivot.
    "imagenet-a": ShiftAxes("val-on-imagenet-a-classes", "imagenet-a", 75, pivot="auto"),
    "imagenet-r": ShiftAxes("val-on-imagenet-r-classes", "imagenet-r", 75),
    "imagenet-sketch": ShiftAxes("val", "imagenet-sketch", 55),
    "corruptions": ShiftAxes("val", "avg_corruptions", 55),
    "pgd": ShiftAxes("val", "avg_pgd", 55),
}

#: The natural shifts of the paper's table of correlations (appendix I).
NATURAL = ("imagenetv2", "objectnet", "vid-pm0", "ytbb-pm0", "vid-pm10", "ytbb-pm10", "imagenet-a")

#: Confidence level of the intervals that the paper draws at each point.
POINT_LEVEL = 0.995

#: Images of each setting. Sketch is registered with 50,000 in the testbed; the set has 50,889. YTBB is registered with
#: 2,530; every published accuracy is a multiple of 1/2,030.
SIZES: Mapping[str, int] = {
    "val": 50_000,
    "greyscale": 50_000,
    "stylized_imagenet": 50_000,
    "imagenet-a": 7_500,
    "imagenet-r": 30_000,
    "imagenet-sketch": 50_889,
    "imagenet-vid-robust_pm0": 1_109,
    "imagenet-vid-robust_pm10": 1_109,
    "ytbb-robust_pm0": 2_030,
    "ytbb-robust_pm10": 2_030,
    "objectnet-1.0-beta": 18_514,
    "imagenetv2-matched-frequency": 10_000,
    "imagenetv2-matched-frequency-format-val": 10_000,
    "imagenetv2-threshold0.7": 10_000,
    "imagenetv2-threshold-0.7-format-val": 10_000,
    "imagenetv2-topimages": 10_000,
    "imagenetv2-top-images-format-val": 10_000,
    "imagenetv2-matched-frequency-format-val_subsampled_class_1_8": 1_250,
    "val_subsampled_class_1_8": 6_250,
    "val-on-imagenet-a-classes": 10_000,
    "val-on-imagenet-r-classes": 10_000,
    "val-on-objectnet-classes": 6_250,
    "val-on-vid-robust-classes": 14_400,
    "val-on-ytbb-robust-classes": 11_550,
}

STYLES = ("stylized_imagenet", "greyscale")

#: A table with this many of the testbed's settings is recognised as the testbed's.
_RECOGNISED = 5

#: Images of a corruption or an attack that was run on all of ImageNet's validation images.
ALL_IMAGES = 50_000
#: Images of a corruption or an attack that was run on the testbed's list of 10 %.
TENTH = 5_000


@lru_cache(maxsize=1)
def known_settings() -> dict[str, Setting]:
    """The settings of the testbed by name, for its published table: notes, references, label spaces, families."""
    return {setting.name: setting for setting in build_suite("testbed-213").settings}


@lru_cache(maxsize=1)
def _severities_of_means() -> dict[str, list[str]]:
    """The five settings that each mean over severities is of, by names such as ``fog_on-disk``."""
    severities: dict[str, list[str]] = {}
    for setting in known_settings().values():
        if setting.member is not None:
            severities.setdefault(f"{setting.member.name}_{setting.source}", []).append(setting.name)
    return severities


def parts_of(mean: str) -> list[str]:
    """The settings that one of the testbed's means is of; empty for other settings."""
    severities = _severities_of_means()
    if mean == "avg_corruptions":
        return [*chain.from_iterable(severities.values()), *STYLES]
    if mean == "avg_pgd":
        return [name for name, setting in known_settings().items() if setting.shift.kind == "attack"]
    return severities.get(mean, [])


def corruption_means(results: Results) -> dict[str, FloatArray]:
    """``fog_on-disk`` and so on: the mean of five severities, nan where one of them is missing."""
    severities = _severities_of_means()
    mean_of = {}
    for mean, settings in severities.items():
        mean_of.update(dict.fromkeys(settings, mean))
    # The means come in the order in which the table has their settings.
    in_order = dict.fromkeys(mean_of[setting] for setting in results.settings if setting in mean_of)
    means = {}
    for name in in_order:
        if set(severities[name]) <= set(results.settings):
            means[name] = np.mean([results.column(setting) for setting in severities[name]], axis=0)
    return means


def synthetic(results: Results) -> list[str]:
    """Every synthetic measure that a table with its aggregates has.

    The testbed's table has 37 corruptions, two styles, four attacks and two means.
    """
    corruptions = [name for name in results.settings if name in _severities_of_means()]
    other_measures = (*parts_of("avg_pgd"), *STYLES, "avg_corruptions", "avg_pgd")
    return [*corruptions, *(name for name in other_measures if name in results.settings)]


@lru_cache(maxsize=1)
def known_models() -> Models:
    """The 338 models of the public table: category, base model, and whether 001 has them (``in_paper``)."""
    with as_file(files("shiftbench.studies") / "data" / "testbed_models.csv") as path:
        return read_models(path)


def is_testbed(results: Results) -> bool:
    """Whether a table is the testbed's: five or more of its settings, and half of the models or more are its own."""
    return models_of(results.models, results.settings) is not None


def models_of(models: Collection[str], settings: Collection[str]) -> Models | None:
    """The package's list of models if these models and settings are the testbed's, else None.

    Studies, figures and reports take their categories from it, so that all of them draw the same line.
    """
    testbed_models = known_models()
    listed = sum(name in testbed_models for name in models)
    if has_testbed_settings(settings) and 2 * listed >= len(models):
        return testbed_models
    return None


def has_testbed_settings(settings: Collection[str]) -> bool:
    """Whether at least five of the settings are the testbed's."""
    return len(known_settings().keys() & set(settings)) >= _RECOGNISED


def complete(results: Results, own: Results | None = None, *, all_models: bool = False) -> Results:
    """A table with the user's own models below, and the testbed's sizes and aggregates where it is the testbed's.

    Of the testbed's own models only those of the paper stay, unless ``all_models`` is set. Own models join before the
    means are taken, so that they have ``avg_corruptions`` and ``avg_pgd``, too.
    """
    if is_testbed(results):
        if not all_models:
            results = _of_the_paper(results)
        results = with_sizes(results)
        if own is not None:
            own = with_sizes(own)
    if own is not None:
        results = results.with_own(own)
    return with_aggregates(results)


def _of_the_paper(results: Results) -> Results:
    """The table without those of the testbed's models that were added after the paper."""
    testbed_models = known_models()
    later = np.zeros(len(results.models), dtype=bool)
    for i, name in enumerate(results.models):
        later[i] = name in testbed_models and testbed_models[name].extra["in_paper"] != "1"
    if not later.any():
        return results
    note = f"the {len(later) - int(later.sum())} models of the paper of {len(later)} in the table"
    return replace(results.keep(~later), notes=(*results.notes, note))


def with_aggregates(results: Results) -> Results:
    """The table with the testbed's aggregates, where all of their parts are there.

    Each corruption's mean over five severities; ``avg_corruptions``, the unweighted mean of these (37 columns:
    19 from disk, 18 in memory), ``stylized_imagenet`` and ``greyscale``; ``avg_pgd``, the mean of the four
    attacks. A table that lacks a column, or a model that lacks a cell, has no such mean: the mean over the other
    parts would be another number under the same name. A mean's size is the smallest of its parts': a mean of
    accuracies over the same images varies no more than one accuracy of that height.
    """
    columns = corruption_means(results)
    if set(parts_of("avg_corruptions")) <= set(results.settings):
        styles = [results.column(name) for name in STYLES]
        columns["avg_corruptions"] = np.mean([*columns.values(), *styles], axis=0)
    attacks = parts_of("avg_pgd")
    if set(attacks) <= set(results.settings):
        columns["avg_pgd"] = np.mean([results.column(name) for name in attacks], axis=0)
    if not columns:
        return results
    sizes = dict(results.sizes)
    for name in columns:
        part_sizes = [results.sizes[part] for part in parts_of(name) if part in results.sizes]
        if len(part_sizes) == len(parts_of(name)):
            sizes[name] = np.asarray(np.minimum.reduce(np.broadcast_arrays(*part_sizes)))
    return replace(results.with_columns(columns), sizes=sizes)


def with_sizes(results: Results) -> Results:
    """The testbed's table with the numbers of images behind each result, where the table does not have them.

    Corruptions and attacks were run on 50,000 images or on a list of 5,000, and the table does not say which. An
    accuracy on 5,000 is a multiple of 1/5,000: so are all five severities of a corruption then, and by chance one
    in ten of the others; a single attack that might be either counts as the smaller.
    """
    sizes = {name: np.asarray(float(n)) for name, n in SIZES.items() if name in results.settings}
    groups = [*_severities_of_means().values(), *([attack] for attack in parts_of("avg_pgd"))]
    for group in groups:
        settings = [name for name in group if name in results.settings]
        if not settings:
            continue
        counts = np.nan_to_num([results.column(name) / whole(results.unit) for name in settings]) * TENTH
        of_list = np.all(np.abs(counts - np.round(counts)) < 1e-3, axis=0)  # the table's numbers were 32-bit floats
        sizes |= dict.fromkeys(settings, np.where(of_list, float(TENTH), float(ALL_IMAGES)))
    return replace(results, sizes={**sizes, **results.sizes})
