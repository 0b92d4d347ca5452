from shiftbench.metrics.accuracy import class_counts as class_counts
from shiftbench.metrics.accuracy import hits as hits
from shiftbench.metrics.arrays import kept_scores as kept_scores
from shiftbench.metrics.bootstrap import percentile_interval as percentile_interval
from shiftbench.metrics.corruption import ALEXNET as ALEXNET
from shiftbench.metrics.detection import anomaly_scores_of as anomaly_scores_of
from shiftbench.metrics.paired import aligned as aligned
from shiftbench.metrics.paired import holm as holm
