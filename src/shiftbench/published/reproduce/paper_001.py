"""001: the testbed's fits, effective and relative robustness and correlations, from its public results."""

from __future__ import annotations

from itertools import compress

import numpy as np

from shiftbench.labels.catalogue import label_space
from shiftbench.published.reproduce.base import NoDataError, Recomputed, claim, difference_of
from shiftbench.published.reproduce.sources import Data
from shiftbench.published.tables import PublishedValue, published
from shiftbench.studies.fits import Fit
from shiftbench.studies.robustness import EffectiveRobustness
from shiftbench.studies.testbed import SHIFTS, SIZES, known_models, known_settings, synthetic

_Row = PublishedValue
_V2 = "imagenetv2-matched-frequency-format-val"
_R = "imagenet-r"
_NOISY = "efficientnet-l2-noisystudent"
_TESTBED = "the testbed's public results, standard models fitted on the logit scale"
_SHIFT_OF = {shift.y: shift for shift in SHIFTS.values()}

#: Models that the text describes without naming them.
_DESCRIBED = {
    "(an AdvProp model)": "efficientnet-b8-advprop-autoaug",
    "(feature denoising, PGD-trained)": "facebook_adv_trained_resnet152_denoise",
}
_LP = "(mean of Lp adversarially robust)"
_LP_RESNETS = "(mean of ResNet-50 Lp adversarially robust)"
_HIGHEST = "(highest, more data)"
_INSTAGRAM = "(several ResNeXt on Instagram images)"
_MEANS = (_LP, _LP_RESNETS, _HIGHEST, _INSTAGRAM)


def _effective(row: _Row, data: Data, resamples: int = 0) -> EffectiveRobustness:
    shift = _SHIFT_OF[row.setting]
    # The plots of consistency shifts show models above a threshold, but their line is through all of them.
    min_x = None if row.setting.endswith("pm10") else shift.min_x
    return data.testbed_with(shift.x, shift.y).effective(
        shift.x, shift.y, min_x=min_x, resamples=resamples, procedure="testbed"
    )


def _drops() -> list[_Row]:
    return [row for row in published("001", model=_NOISY) if row.metric.startswith("accuracy drop")]


@claim("001.rho_from_drops", of=lambda: published("001", model=_NOISY, setting=_V2, metric="rho"))
def rho_from_drops(row: _Row, data: Data) -> Recomputed:
    expected, actual = sorted(_drops(), key=lambda drop: drop.metric == "accuracy drop")
    return difference_of(expected, actual)


@claim("001.fits")
def fits(row: _Row, data: Data) -> float:
    shift = _SHIFT_OF[row.setting]
    line = data.testbed_with(shift.x, shift.y).fit(shift.x, shift.y, min_x=shift.min_x, resamples=0)
    assert isinstance(line, Fit)
    return line.r2


@claim("001.rho_of_models", of=lambda: [row for row in published("001", metric="rho") if row.model not in _MEANS])
def rho_of_models(row: _Row, data: Data) -> Recomputed:
    effective = _effective(row, data, resamples=1000)
    model = _DESCRIBED.get(row.model, row.model)
    if model not in effective.rho:
        raise NoDataError(f"{model} in the testbed's results")
    result = effective[model]
    return Recomputed(result.rho / 100, 0.0, result.low / 100, result.high / 100)


@claim("001.rho_of_groups", of=lambda: [row for row in published("001", metric="rho") if row.model in _MEANS])
def rho_of_groups(row: _Row, data: Data) -> float:
    rho = _effective(row, data).rho
    if row.model == _INSTAGRAM:
        return _mean([rho[model] for model in rho if model.startswith("instagram-resnext")]) / 100
    if row.model == _HIGHEST:
        return max(_finite([rho[model] for model in rho if data.testbed.category_of(model) == "more_data"])) / 100
    return _mean([rho[model] for model in _adversarially_trained_resnets(data) if model in rho]) / 100


@claim("001.tau")
def tau(row: _Row, data: Data) -> Recomputed:
    shift = _SHIFT_OF[row.setting]
    relative = data.testbed_with(shift.x, shift.y).relative(row.setting)
    if row.model in _DESCRIBED:
        for result in relative.rows:
            if result.model == _DESCRIBED[row.model]:
                return Recomputed(result.tau / 100, 0.0, result.low / 100, result.high / 100)
        raise NoDataError(f"{_DESCRIBED[row.model]} and its base model in the testbed's results")
    taus = [relative.tau[model] for model in _adversarially_trained_resnets(data) if model in relative.tau]
    return Recomputed(_mean(taus) / 100)


@claim("001.correlations")
def correlations(row: _Row, data: Data) -> Recomputed:
    name = {"avg_corruptions": "corruptions", "avg_pgd": "pgd"}[row.setting.partition(" ")[0]]
    study = data.testbed_with("val", _V2, SHIFTS[name].y)
    correlation = study.correlate(study.shift(name), study.shift("imagenetv2"))
    return Recomputed(correlation.pearson, 0.0, *(correlation.pearson_interval or (None, None)))


@claim("001.drop", of=_drops)
def drop(row: _Row, data: Data) -> float:
    result = _effective(row, data)[row.model]
    if row.metric == "accuracy drop":
        return (result.x - result.y) / 100
    return (result.x - result.expected) / 100


@claim("001.best_on_r", of=lambda: published("001", setting=_R, metric="top1"))
def best_on_r(row: _Row, data: Data) -> float:
    study = data.testbed_with(_R)
    accuracies = study.results.of(_R)
    without_more_data = []
    for model, accuracy in accuracies.items():
        if study.category_of(model) not in ("more_data", ""):
            without_more_data.append(accuracy)
    return max(_finite(without_more_data)) / 100


@claim("001.imagenet_a")
def imagenet_a(row: _Row, data: Data) -> float:
    if row.metric == "top1":
        return 1 / len(label_space("imagenet-a-200"))
    shift = SHIFTS["imagenet-a"]
    study = data.testbed_with(shift.x, shift.y)
    unshifted = study.results.of(shift.x)
    shifted = study.results.of(shift.y)
    standard = [name for name in compress(study.results.models, study.baseline) if name in unshifted.keys() & shifted]
    if "resnet50" not in standard:
        raise NoDataError("resnet50 on ImageNet-A in the testbed's results")
    best = max(standard, key=lambda name: unshifted[name])
    return (shifted[best] - shifted["resnet50"]) / (unshifted[best] - unshifted["resnet50"])


#: The natural shifts of each kind that section 3.1.1 defines.
_KINDS_OF_SHIFTS = {
    "consistency shifts": ("vid-pm10", "ytbb-pm10"),
    "dataset shifts": ("imagenetv2", "objectnet", "vid-pm0", "ytbb-pm0"),
}


@claim("001.kinds_of_shifts")
def kinds_of_shifts(row: _Row, data: Data) -> float:
    """How well a synthetic measure of robustness predicts robustness to the natural shifts of one kind.

    It is the mean over these shifts of Pearson's correlation: its rank among the measures, or its distance from the
    mean over corruptions.
    """
    natural = _KINDS_OF_SHIFTS[row.setting]
    needed = [SHIFTS[name] for name in natural]
    study = data.testbed_with(*(axes.x for axes in needed), *(axes.y for axes in needed))
    measures = synthetic(study.results)
    if row.model not in measures:
        raise NoDataError(f"{row.model} in the testbed's results")
    by_measure: dict[str, list[float]] = {}
    for measure, _, correlation in study.correlations(measures, natural):
        by_measure.setdefault(measure, []).append(correlation.pearson)
    means = {measure: float(np.mean(values)) for measure, values in by_measure.items()}
    if row.unit == "rank":
        return 1 + sum(mean > means[row.model] for mean in means.values())
    return means[row.model] - means["avg_corruptions"]


@claim("001.sizes")
def sizes(row: _Row, data: Data) -> int:
    if row.setting == "models":
        return sum(info.extra["in_paper"] == "1" for info in known_models().values())
    settings = known_settings()
    if row.setting == "settings":
        return len(settings)
    if row.setting == "images":
        return SIZES[row.model]
    return len(label_space(settings[row.model].space or "imagenet-1k"))


def _adversarially_trained_resnets(data: Data) -> list[str]:
    """The 13 ResNet-50s trained against Lp attacks.

    The paper says so of tau only; the printed means of rho are theirs, too.
    """
    models = data.testbed.models
    if models is None:
        return []
    return [name for name in models if models.category(name) == "lp_adversarial" and name.startswith("resnet50")]


def _mean(points: list[float]) -> float:
    return float(np.mean(_finite(points)))


def _finite(points: list[float]) -> list[float]:
    """The numbers that are not nan; an error if there are none."""
    finite = [point for point in points if np.isfinite(point)]
    if not finite:
        raise NoDataError("the models of that group in the testbed's results")
    return finite


@claim("001.models_by_category")
def models_by_category(row: _Row, data: Data) -> int:
    models = known_models()
    names = [name for name, info in models.items() if info.extra["in_paper"] == "1"]
    if row.model == "standard":
        return int(models.baseline(names).sum())
    categories = ("lp_adversarial", "robustness_intervention") if row.model == "robust" else (row.model,)
    return sum(models.category(name) in categories for name in names)
