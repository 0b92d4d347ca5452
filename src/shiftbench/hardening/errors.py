"""Errors of robust training."""

from __future__ import annotations

from shiftbench import ShiftbenchError


class RecipeError(ShiftbenchError):
    """An invalid recipe."""


class ArchitectureError(ShiftbenchError):
    """A network or baseline with invalid options."""


class AugmentationError(ShiftbenchError):
    """An augmentation with invalid options."""


class NetworkError(ShiftbenchError):
    """An image-to-image network that cannot be loaded or trained."""


class TrainingError(ShiftbenchError):
    """A run that cannot start or continue. Files written before it are complete."""


class DivergedError(TrainingError):
    """The loss is NaN or infinite. The last checkpoint is from before."""


class BusyError(TrainingError):
    """Another process is training in the folder."""


class RankError(TrainingError):
    """A rank failed, so all do. ``reported``: it is another rank of this machine, which prints the error itself."""

    reported = False
