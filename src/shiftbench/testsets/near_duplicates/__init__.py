"""Near-duplicates within a set of candidates, and between candidates and reference sets."""

from shiftbench.testsets.near_duplicates.find import find_near_duplicates
from shiftbench.testsets.near_duplicates.plant import measure_recall
from shiftbench.testsets.near_duplicates.review_queue import THRESHOLDS, ReviewQueue, SuspectedPair

__all__ = ["THRESHOLDS", "ReviewQueue", "SuspectedPair", "find_near_duplicates", "measure_recall"]
