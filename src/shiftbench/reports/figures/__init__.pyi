from .confidence import reliability as reliability
from .confidence import response as response
from .heatmaps import confusion as confusion
from .heatmaps import correlations as correlations
from .heatmaps import corruptions as corruptions
from .heatmaps import error_map as error_map
from .heatmaps import error_map_of_run as error_map_of_run
from .heatmaps import heatmap as heatmap
from .heatmaps import severity_grid as severity_grid
from .mce import bars as bars
from .mce import error_points as error_points
from .mce import error_points_of_run as error_points_of_run
from .mce import mce as mce
from .mce import size_points as size_points
from .new_test_sets import bins as bins
from .new_test_sets import rank as rank
from .new_test_sets import revisions as revisions
from .run_figures import RunFigures as RunFigures
from .scatters import robustness as robustness
from .scatters import scatter as scatter
from .style import PaperFigure as PaperFigure

__all__: list[str]
