"""Corrupted copies of a data set on disk: an ImageNet-C tree, CIFAR-C arrays or WebDataset shards.

In-memory evaluation needs none of this; it is for tools that read files, and for handing a test set on.
"""

from __future__ import annotations

from shiftbench.shifts.writing.write import Written, write_corruptions

__all__ = ["Written", "write_corruptions"]
