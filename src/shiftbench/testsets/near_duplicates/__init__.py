"""Near-duplicates within a set of candidates, and between candidates and reference sets.

``descriptors`` turns images into vectors, ``search`` finds neighbours, ``similarity`` compares two images, and ``find``
combines them. The package works on datasets; what a project does with suspected pairs belongs to ``pool.suspects``.
"""

from shiftbench.testsets.near_duplicates.find import THRESHOLDS, ReviewQueue, SuspectedPair, find_near_duplicates

__all__ = ["THRESHOLDS", "ReviewQueue", "SuspectedPair", "find_near_duplicates"]
