"""What can end a training run."""

from __future__ import annotations

from shiftbench.errors import ShiftbenchError


class TrainingError(ShiftbenchError):
    """A run that can't start or go on. What was written before is whole."""


class DivergedError(TrainingError):
    """The loss is no number any more. The last checkpoint is from before."""


class BusyError(TrainingError):
    """Another process trains in the folder."""
