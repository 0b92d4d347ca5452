"""What can go wrong in the workshop, told apart so that a page can answer each in its own way."""

from __future__ import annotations

from shiftbench.errors import ShiftbenchError


class WorkshopError(ShiftbenchError):
    """A project, a pool, a sample or a revision that can't be used as asked."""


class NotAllowedError(WorkshopError):
    """An account that may not do this: wrong role, excluded, wrong password, unknown link."""


class UnknownTaskError(WorkshopError):
    """No such task or picture for this annotator. A forged id and another's task look the same from outside."""


class LeaseExpiredError(WorkshopError):
    """The task was held too long and is back in the queue."""


class AnsweredError(WorkshopError):
    """The task has another answer of this annotator already; the first one stands."""


class BlindnessError(WorkshopError):
    """Predictions of a model were to be seen before the test set is frozen."""


class FrozenError(WorkshopError):
    """A frozen set can't be changed."""
