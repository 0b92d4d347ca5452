from .base import StudyError as StudyError
from .fits import Correlation as Correlation
from .fits import Fit as Fit
from .fits import PiecewiseFit as PiecewiseFit
from .fits import correlate as correlate
from .fits import fit as fit
from .fits import fit_piecewise as fit_piecewise
from .models import ModelInfo as ModelInfo
from .models import Models as Models
from .models import read_models as read_models
from .results import Results as Results
from .results import read_results as read_results
from .results import results_from_scores as results_from_scores
from .robustness import EffectiveRobustness as EffectiveRobustness
from .robustness import RelativeRobustness as RelativeRobustness
from .robustness import effective_robustness as effective_robustness
from .robustness import relative_robustness as relative_robustness
from .study import ShiftCorrelation as ShiftCorrelation
from .study import Study as Study

__all__: list[str]
