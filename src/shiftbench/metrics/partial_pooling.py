"""Errors in single settings, of single corruptions and severities under a design: a partially pooled model.

With one pass, each setting is met by few images, and what they show of it is little. The settings have much in
common, however: a logistic model has an effect of each corruption, of the severity in general and within each
corruption, and of each setting, and effects of what is known of an image from its clean pass. Effects of corruptions
and settings are drawn towards zero, as far as the data say that they are alike (empirical Bayes, with a prior in place
of what few settings can't say). An error is the mean of the model's probabilities over all images.

The numbers are based on the model: they are biased towards what settings have in common, and their intervals rely on
the effects being about normal. Means over all settings need no model (``metrics.designs``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shiftbench.arrays import FloatArray
from shiftbench.metrics.designs import DesignOutcomes
from shiftbench.metrics.intervals import Interval

#: What is assumed of the variances of corruptions, of their slopes over severity and of single settings, on the logit
#: scale, and the weight of the assumption in effects. Corruptions of the benchmark differ by about this much.
_ASSUMED_VARIANCES = (1.5, 0.15, 0.35)
_ASSUMED_WEIGHTS = (6.0, 6.0, 20.0)
#: The variance of effects that are not drawn towards zero.
_FREE_VARIANCE = 9.0
_UPDATES = 12
_FIRST_STEPS = 6
_STEPS = 2
_HALVINGS = 10
#: Confidences nearer to 0 or 1 than this say no more.
_LEAST_DOUBT = 1e-4


@dataclass(frozen=True)
class ModelledError:
    """An error according to the model, with its interval for new images like these."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class PooledModel:
    """The model of one classifier's outcomes under a design.

    Attributes:
        outcomes: What the classifier did.
        settings: Corruption and severity of each place of the design.
        clean_confidence: The confidence in each clean image, nan where it is not known; None: not known at all.
    """

    outcomes: DesignOutcomes
    settings: Sequence[tuple[str, float]]
    clean_confidence: FloatArray | None = None

    @cached_property
    def corruptions(self) -> list[str]:
        return list(dict.fromkeys(corruption for corruption, _ in self.settings))

    @cached_property
    def severities(self) -> list[float]:
        return sorted({severity for _, severity in self.settings})

    def by_setting(self, level: float) -> Mapping[tuple[str, float], ModelledError]:
        errors = {}
        for place, setting in enumerate(self.settings):
            errors[setting] = self._mean_error([place], level)
        return errors

    def by_corruption(self, level: float) -> Mapping[str, ModelledError]:
        errors = {}
        for name in self.corruptions:
            places = [place for place, (corruption, _) in enumerate(self.settings) if corruption == name]
            errors[name] = self._mean_error(places, level)
        return errors

    def by_severity(self, level: float) -> Mapping[float, ModelledError]:
        errors = {}
        for of_severity in self.severities:
            places = [place for place, (_, severity) in enumerate(self.settings) if severity == of_severity]
            errors[of_severity] = self._mean_error(places, level)
        return errors

    # -- the model ---------------------------------------------------------------------------------------

    @cached_property
    def _image_columns(self) -> FloatArray:
        """What is known of each image from its clean pass: whether it was wrong, and the confidence; each centred.

        Confidences are divided by their standard deviation. Few images that are wrong when clean would be far from all
        others in theirs, and decide the model.
        """
        columns = []
        if self.outcomes.clean_wrong is not None:
            columns.append(_centred(self.outcomes.clean_wrong))
        if self.clean_confidence is not None:
            confidence = np.clip(self.clean_confidence, _LEAST_DOUBT, 1 - _LEAST_DOUBT)
            deviations = _centred(np.log(confidence / (1 - confidence)))
            columns.append(deviations / max(float(deviations.std()), 1e-9))
        varied = [column for column in columns if column.any()]
        return np.column_stack([np.empty((self.outcomes.size, 0)), *varied])

    @cached_property
    def _place_columns(self) -> FloatArray:
        """(places, effects): constant, severity; each corruption; each corruption's slope; each setting."""
        severities = np.array([severity for _, severity in self.settings])
        centred = severities - severities.mean()
        scaled = centred / max(float(np.abs(centred).max()), 1.0)
        corruptions = np.array([self.corruptions.index(corruption) for corruption, _ in self.settings])
        of_corruption = np.eye(len(self.corruptions))[corruptions]
        common = np.column_stack([np.ones(len(scaled)), scaled])
        return np.column_stack([common, of_corruption, of_corruption * scaled[:, None], np.eye(len(scaled))])

    @cached_property
    def _groups(self) -> list[slice]:
        """The effects that are drawn towards zero together: of corruptions, of their slopes, of settings."""
        count = len(self.corruptions)
        first = 2
        return [
            slice(first, first + count),
            slice(first + count, first + 2 * count),
            slice(first + 2 * count, first + 2 * count + len(self.settings)),
        ]

    @cached_property
    def _fit(self) -> tuple[FloatArray, FloatArray]:
        """The effects and their covariance: first those of places, then those of image columns."""
        outcomes = self.outcomes
        count = self._place_columns.shape[1]
        size = count + self._image_columns.shape[1]
        centre = np.zeros(size)
        share = (float(outcomes.wrong.sum()) + 0.5) / (len(outcomes.wrong) + 1)
        centre[0] = np.log(share / (1 - share))
        effects = centre.copy()
        covariance: FloatArray = np.eye(size)
        variances = list(_ASSUMED_VARIANCES)
        for update in range(_UPDATES):
            precision = np.full(size, 1 / _FREE_VARIANCE)
            for group, variance in zip(self._groups, variances, strict=True):
                precision[group] = 1 / variance
            for _ in range(_STEPS if update else _FIRST_STEPS):
                gradient, curvature = self._derivatives(effects)
                gradient -= precision * (effects - centre)
                curvature += np.diag(precision)
                step = np.asarray(np.linalg.solve(curvature, gradient), np.float64)
                effects = self._better(effects, step, centre, precision)
            covariance = np.asarray(np.linalg.inv(curvature))
            variances = [
                self._variance(effects[group], np.diag(covariance)[group], number)
                for number, group in enumerate(self._groups)
            ]
        return effects, covariance

    def _better(self, effects: FloatArray, step: FloatArray, centre: FloatArray, precision: FloatArray) -> FloatArray:
        """The effects after a step that is halved until they are no less likely: whole steps may go too far."""
        count = self._place_columns.shape[1]
        of_images = self._image_columns[self.outcomes.images]

        def log_density(candidate: FloatArray) -> float:
            of_places = (self._place_columns @ candidate[:count])[self.outcomes.places]
            logits = of_places + of_images @ candidate[count:]
            likelihood = self.outcomes.wrong @ logits - np.logaddexp(0, logits).sum()
            return float(likelihood - precision @ np.square(candidate - centre) / 2)

        before = log_density(effects)
        for halvings in range(_HALVINGS):
            candidate = np.asarray(effects + step * 0.5**halvings)
            if log_density(candidate) >= before:
                return candidate
        return effects

    def _derivatives(self, effects: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The gradient and the curvature of the likelihood, from sums over the observations of each place."""
        outcomes = self.outcomes
        count = self._place_columns.shape[1]
        of_images = self._image_columns[outcomes.images]
        chances = _logistic((self._place_columns @ effects[:count])[outcomes.places] + of_images @ effects[count:])
        residuals = outcomes.wrong - chances
        weights = chances * (1 - chances)
        weighted = of_images * weights[:, None]

        def by_place(values: FloatArray) -> FloatArray:
            return np.asarray(np.bincount(outcomes.places, values, outcomes.shifts))

        gradient = np.concatenate([by_place(residuals) @ self._place_columns, residuals @ of_images])
        crossed = np.column_stack([np.empty((outcomes.shifts, 0)), *map(by_place, weighted.T)])
        mixed = self._place_columns.T @ crossed
        of_places = (self._place_columns * by_place(weights)[:, None]).T @ self._place_columns
        return gradient, np.block([[of_places, mixed], [mixed.T, of_images.T @ weighted]])

    def _variance(self, effects: FloatArray, uncertainties: FloatArray, number: int) -> float:
        """The variance of a group of effects: from those that were estimated, and from what is assumed."""
        weight = _ASSUMED_WEIGHTS[number]
        total = float(np.square(effects).sum() + uncertainties.sum()) + weight * _ASSUMED_VARIANCES[number]
        return total / (len(effects) + weight)

    @cached_property
    def _errors(self) -> tuple[FloatArray, FloatArray]:
        """The error at each place, and the covariance of these errors over effects and images."""
        effects, covariance = self._fit
        count = self._place_columns.shape[1]
        of_places = self._place_columns @ effects[:count]
        of_images = self._image_columns @ effects[count:]
        images = self.outcomes.size
        values = np.empty(len(of_places))
        gradients = np.empty((len(of_places), len(effects)))
        influences = np.empty((len(of_places), images))
        for place, of_place in enumerate(of_places.tolist()):
            chances = _logistic(of_place + of_images)
            slopes = chances * (1 - chances)
            values[place] = chances.mean()
            gradients[place, :count] = slopes.mean() * self._place_columns[place]
            gradients[place, count:] = slopes @ self._image_columns / images
            influences[place] = (chances - values[place]) / images
        return values, gradients @ covariance @ gradients.T + influences @ influences.T

    def _mean_error(self, places: Sequence[int], level: float) -> ModelledError:
        """The mean over some places; its interval is normal on the logit scale."""
        from scipy.special import expit, logit, ndtri

        values, covariance = self._errors
        value = float(values[places].mean())
        error = float(np.sqrt(covariance[np.ix_(places, places)].sum())) / len(places)
        half_width = float(ndtri((1 + level) / 2)) * error / (value * (1 - value))
        ends = Interval(float(expit(logit(value) - half_width)), float(expit(logit(value) + half_width)))
        return ModelledError(value, ends.low, ends.high)


def _centred(values: FloatArray) -> FloatArray:
    """Less their mean; 0 where a value is not known."""
    known = np.isfinite(values)
    if not known.any():
        return np.zeros(len(values))
    return np.where(known, values - values[known].mean(), 0.0)


def _logistic(values: FloatArray) -> FloatArray:
    return np.asarray(1 / (1 + np.exp(-np.clip(values, -30, 30))))
