"""Commands that need an extra say so, instead of showing where an import failed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def extra(name: str, purpose: str) -> Iterator[None]:
    """A package that is missing inside belongs to the extra ``name``."""
    try:
        yield
    except ModuleNotFoundError as error:
        from shiftbench.errors import MissingExtraError

        if error.name is None or error.name.partition(".")[0] == "shiftbench":
            raise
        raise MissingExtraError(error.name, name, purpose) from error


def needing(name: str, purpose: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """For a command as a whole."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def guarded(*arguments: Any, **options: Any) -> None:
            with extra(name, purpose):
                command(*arguments, **options)

        return guarded

    return decorate
