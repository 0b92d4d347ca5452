"""From predictions to scores: accuracy, corruption error, flips, intervals, paired tests."""

from shiftbench.metrics.base import Metric, Needs, Score, metric, metrics
from shiftbench.metrics.intervals import clopper_pearson, images_needed

__all__ = ["Metric", "Needs", "Score", "clopper_pearson", "images_needed", "metric", "metrics"]
