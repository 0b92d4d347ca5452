"""Options of a network that can't be built, refused before a recipe has spent any time."""

from __future__ import annotations

from collections.abc import Sequence

from shiftbench.errors import ShiftbenchError


class ArchitectureError(ShiftbenchError):
    """An architecture asked for with impossible options."""


def check_whole(what: str, value: object, least: int = 1, most: int | None = None) -> int:
    """A whole number from ``least`` to ``most``; True is none, though Python counts it as one.

    >>> check_whole("width", 16)
    16
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        expected = f"{least} or more" if most is None else f"{least} to {most}"
        raise ArchitectureError(f"{what} is a whole number", found=repr(value), expected=expected)
    return value


def check_flag(what: str, value: object) -> None:
    """A recipe's "no" in quotation marks would count as true."""
    if not isinstance(value, bool):
        raise ArchitectureError(f"{what} is true or false", found=repr(value))


def check_choice(what: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ArchitectureError(f"unknown {what} {value!r}", expected=" or ".join(choices))


def check_share(what: str, value: object) -> None:
    """A probability that may be zero but not one."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
        raise ArchitectureError(f"{what} is a share", found=repr(value), expected="0 or more, less than 1")


def check_positive(what: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise ArchitectureError(f"{what} is a positive number", found=repr(value))


def blocks_of(family: str, depth: int, *, layers: int, around: int) -> int:
    """How many blocks each stage has, where one more block in every stage adds ``layers`` to the depth.

    >>> blocks_of("resnet", 20, layers=6, around=2)
    3
    """
    check_whole("depth", depth)
    blocks, rest = divmod(depth - around, layers)
    if rest or blocks < 1:
        nearest = [layers * n + around for n in (max(blocks, 1), max(blocks, 1) + 1)]
        raise ArchitectureError(
            f"{family} can't be {depth} layers deep",
            found=f"depth {depth}",
            expected=f"{layers}n + {around} with n = 1, 2, ...",
            hint=f"depth = {nearest[0]} or {nearest[1]}",
        )
    return blocks
