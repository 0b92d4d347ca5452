"""Errors of the test-set workshop, each with the HTTP status of its page."""

from __future__ import annotations

from shiftbench import ShiftbenchError


class WorkshopError(ShiftbenchError):
    """A project, pool, sample or revision cannot be used as requested."""

    status = 400


class NotAllowedError(WorkshopError):
    """Permission denied: wrong role, excluded account, wrong password or unknown link."""

    status = 403


class DatabaseUnreachableError(WorkshopError):
    """The server of the database does not answer, or the connection was lost. What was confirmed is stored."""

    status = 503


class UnknownTaskError(WorkshopError):
    """No such task or image for this annotator. Forged ids and other people's tasks give the same error."""

    status = 404


class LeaseExpiredError(WorkshopError):
    """The lease of the task expired; it is back in the queue."""

    status = 410


class TooFastError(WorkshopError):
    """An answer came before the minimum time of the project."""


class MissingClassError(WorkshopError):
    """An answer that leaves images without a class, where each needs one."""


class AnsweredError(WorkshopError):
    """The annotator has already answered this task; the first answer counts."""

    status = 409


class BlindnessError(WorkshopError):
    """Model predictions were requested before the test set is frozen."""

    status = 403


class FrozenError(WorkshopError):
    """A frozen set cannot be changed."""

    status = 409


class ProjectBusyError(WorkshopError):
    """Somebody else is changing the project."""

    status = 409


class DamagedError(WorkshopError):
    """Rows of the database are not what the program wrote."""

    status = 500
