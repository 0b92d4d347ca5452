"""001: the testbed's fits, effective and relative robustness and correlations, from its public results."""

from __future__ import annotations

import numpy as np

from shiftbench.published.reproduce.base import NoDataError, Recomputed, claim, difference_of
from shiftbench.published.reproduce.sources import Data
from shiftbench.published.tables import PublishedValue, published
from shiftbench.studies.fits import Fit
from shiftbench.studies.robustness import EffectiveRobustness
from shiftbench.studies.testbed import SHIFTS, known_models

_Row = PublishedValue
_V2, _R = "imagenetv2-matched-frequency-format-val", "imagenet-r"
_NOISY = "efficientnet-l2-noisystudent"
_TESTBED = "the testbed's public results, standard models fitted on the logit scale"
_SHIFT_OF = {shift.y: shift for shift in SHIFTS.values()}

#: Models that the text describes without naming them.
_DESCRIBED = {
    "(an AdvProp model)": "efficientnet-b8-advprop-autoaug",
    "(feature denoising, PGD-trained)": "facebook_adv_trained_resnet152_denoise",
}
_LP, _LP_RESNETS = "(mean of Lp adversarially robust)", "(mean of ResNet-50 Lp adversarially robust)"
_HIGHEST, _INSTAGRAM = "(highest, more data)", "(several ResNeXt on Instagram images)"
_MEANS = (_LP, _LP_RESNETS, _HIGHEST, _INSTAGRAM)


def _effective(row: _Row, data: Data, resamples: int = 0) -> EffectiveRobustness:
    shift = _SHIFT_OF[row.setting]
    # The plots of consistency shifts show models above a threshold, but their line is through all of them.
    least = None if row.setting.endswith("pm10") else shift.min_x
    return data.testbed_with(shift.x, shift.y).effective(shift.x, shift.y, min_x=least, resamples=resamples)


def _drops() -> list[_Row]:
    return [row for row in published("001", model=_NOISY) if row.metric.startswith("accuracy drop")]


@claim("001.rho_from_drops", of=lambda: published("001", model=_NOISY, setting=_V2, metric="rho"))
def rho_from_drops(row: _Row, data: Data) -> Recomputed:
    expected, actual = sorted(_drops(), key=lambda one: one.metric == "accuracy drop")
    return difference_of(expected, actual)


@claim("001.fits")
def fits(row: _Row, data: Data) -> float:
    shift = _SHIFT_OF[row.setting]
    line = data.testbed_with(shift.x, shift.y).fit(shift.x, shift.y, min_x=shift.min_x, resamples=0)
    assert isinstance(line, Fit)
    return line.r2


@claim("001.rho_of_models", of=lambda: [row for row in published("001", metric="rho") if row.model not in _MEANS])
def rho_of_models(row: _Row, data: Data) -> Recomputed:
    found = _effective(row, data, resamples=1000)
    model = _DESCRIBED.get(row.model, row.model)
    if model not in found.rho:
        raise NoDataError(f"{model} in the testbed's results")
    one = found[model]
    return Recomputed(one.rho / 100, 0.0, one.low / 100, one.high / 100)


@claim("001.rho_of_groups", of=lambda: [row for row in published("001", metric="rho") if row.model in _MEANS])
def rho_of_groups(row: _Row, data: Data) -> float:
    rho = _effective(row, data).rho
    if row.model == _INSTAGRAM:
        return float(np.mean(_known([rho[model] for model in rho if model.startswith("instagram-resnext")]))) / 100
    if row.model == _HIGHEST:
        return max(_known([rho[model] for model in rho if data.testbed.category_of(model) == "more_data"])) / 100
    return float(np.mean(_known([rho[model] for model in _adversarially_trained(data) if model in rho]))) / 100


@claim("001.tau")
def tau(row: _Row, data: Data) -> Recomputed:
    shift = _SHIFT_OF[row.setting]
    found = data.testbed_with(shift.x, shift.y).relative(row.setting)
    if row.model in _DESCRIBED:
        one = next((one for one in found.rows if one.model == _DESCRIBED[row.model]), None)
        if one is None:
            raise NoDataError(f"{_DESCRIBED[row.model]} and its base model in the testbed's results")
        return Recomputed(one.tau / 100, 0.0, one.low / 100, one.high / 100)
    shown, least = data.testbed.results.of(shift.x), shift.min_x or 0.0
    models = [m for m in _adversarially_trained(data) if m.startswith("resnet50") and shown.get(m, 0.0) >= least]
    return Recomputed(float(np.mean(_known([found.tau[model] for model in models if model in found.tau]))) / 100)


@claim("001.correlations")
def correlations(row: _Row, data: Data) -> Recomputed:
    name = {"avg_corruptions": "corruptions", "avg_pgd": "pgd"}[row.setting.partition(" ")[0]]
    study = data.testbed_with("val", _V2, SHIFTS[name].y)
    found = study.correlate(study.shift(name), study.shift("imagenetv2"))
    return Recomputed(found.pearson, 0.0, *(found.pearson_interval or (None, None)))


@claim("001.drop", of=_drops)
def drop(row: _Row, data: Data) -> float:
    found = _effective(row, data)[row.model]
    return (found.x - (found.y if row.metric == "accuracy drop" else found.expected)) / 100


@claim("001.best_on_r", of=lambda: published("001", setting=_R, metric="top1"))
def best_on_r(row: _Row, data: Data) -> float:
    study = data.testbed_with(_R)
    found = study.results.of(_R)
    return max(_known([found[model] for model in found if study.category_of(model) not in ("more_data", "")])) / 100


def _adversarially_trained(data: Data) -> list[str]:
    known = data.testbed.models
    return [] if known is None else [name for name in known if known.category(name) == "lp_adversarial"]


def _known(points: list[float]) -> list[float]:
    known = [point for point in points if np.isfinite(point)]
    if not known:
        raise NoDataError("the models of that group in the testbed's results")
    return known


@claim("001.models_by_category")
def models_by_category(row: _Row, data: Data) -> int:
    known = known_models()
    names = [name for name, info in known.items() if info.extra["in_paper"] == "1"]
    if row.model == "standard":
        return int(known.baseline(names).sum())
    wanted = ("lp_adversarial", "robustness_intervention") if row.model == "robust" else (row.model,)
    return sum(known.category(name) in wanted for name in names)
