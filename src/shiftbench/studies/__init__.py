"""Is it robustness, or just accuracy? Fits, effective and relative robustness, correlations and what follows.

>>> from shiftbench.studies import effective_robustness, fit
>>> x = {"a": 0.565, "b": 0.698, "c": 0.761, "d": 0.827}
>>> y = {"a": 0.440, "b": 0.572, "c": 0.633, "d": 0.721}
>>> line = fit(x, y, scale="logit")
>>> mine = effective_robustness({**x, "mine": 0.79}, {**y, "mine": 0.71}, line)
>>> round(mine.rho["mine"], 3)
0.037
"""

from shiftbench.studies.base import StudyError
from shiftbench.studies.correlation import Correlation, correlate
from shiftbench.studies.fits import Fit, fit
from shiftbench.studies.models import ModelInfo, Models, read_models
from shiftbench.studies.piecewise import PiecewiseFit, fit_piecewise
from shiftbench.studies.results import Results, read_results, results_from_scores
from shiftbench.studies.robustness import (
    EffectiveRobustness,
    RelativeRobustness,
    effective_robustness,
    relative_robustness,
)

__all__ = [
    "Correlation",
    "EffectiveRobustness",
    "Fit",
    "ModelInfo",
    "Models",
    "PiecewiseFit",
    "RelativeRobustness",
    "Results",
    "StudyError",
    "correlate",
    "effective_robustness",
    "fit",
    "fit_piecewise",
    "read_models",
    "read_results",
    "relative_robustness",
    "results_from_scores",
]
