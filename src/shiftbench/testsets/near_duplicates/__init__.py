"""Near-duplicates within a set of candidates, and between candidates and reference sets."""

from shiftbench.testsets.near_duplicates.find import THRESHOLDS, ReviewQueue, SuspectedPair, find_near_duplicates

__all__ = ["THRESHOLDS", "ReviewQueue", "SuspectedPair", "find_near_duplicates"]
