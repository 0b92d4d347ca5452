"""Errors in tests: their class, and the fields that identify the cause, not their wording."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from shiftbench.errors import ShiftbenchError

E = TypeVar("E", bound=ShiftbenchError)


@contextmanager
def raises(kind: type[E], **fields: object) -> Iterator[pytest.ExceptionInfo[E]]:
    """As ``pytest.raises``, for an error of this package whose fields (``found``, ``expected``, ...) have these values.

    >>> with raises(ShiftbenchError, found=7, expected="1 to 5"):
    ...     raise ShiftbenchError("bad severity", found=7, expected="1 to 5")
    """
    with pytest.raises(kind) as caught:
        yield caught
    raised = {name: getattr(caught.value, name) for name in fields}
    assert raised == fields, caught.value
