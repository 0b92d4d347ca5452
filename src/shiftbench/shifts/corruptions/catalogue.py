"""The registry of corruptions: one decorated function each, as in CONTRIBUTING.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS, EXTRA_CORRUPTIONS
from shiftbench.errors import ShiftError
from shiftbench.registry import Registry

GROUPS = ("noise", "blur", "weather", "digital")


@dataclass(frozen=True)
class Definition:
    """One registered corruption.

    ``function(image, parameters, draws, **options)`` gets a C-contiguous uint8 image (H, W, 3) that it must
    not change, and returns a new one. ``parameters`` is the row of the published tables (``tabled``) or the
    severity itself. ``any_channels``: the function treats every value alike, so a greyscale image goes in as
    (H, W) and one number is drawn for each pixel.
    """

    name: str
    group: str
    function: Callable[..., object]
    tabled: bool = False
    any_channels: bool = False
    options: tuple[str, ...] = ()
    #: For options that name files: what the record says about their content, which decides the pixels.
    identity: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None


_PACKAGE = "shiftbench.shifts.corruptions"
CORRUPTIONS: Registry[Definition] = Registry(
    "corruption", builtin=tuple(f"{_PACKAGE}.{module}" for module in (*GROUPS, "testbed"))
)


def corruption(
    name: str,
    *,
    group: str,
    tabled: bool = False,
    any_channels: bool = False,
    options: tuple[str, ...] = (),
    identity: Callable[[Mapping[str, Any]], Mapping[str, object]] | None = None,
) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Register a function as a corruption; the function itself stays an ordinary function.

    Args:
        name: Name that settings and the command line show.
        group: ``"noise"``, ``"blur"``, ``"weather"``, ``"digital"``, or another.
        tabled: Whether it gets a row of the published tables of parameters in place of the severity.
        any_channels: Whether it treats every value alike, so that a greyscale image goes in as (H, W).
        options: Names of the keyword arguments that users may set.
        identity: For options that name files: from them to what the record says about the files' content.
    """

    def register(function: Callable[..., object]) -> Callable[..., object]:
        CORRUPTIONS.add(name, Definition(name, group, function, tabled, any_channels, options, identity))
        return function

    return register


def corruptions(which: str = "benchmark") -> list[str]:
    """Names in benchmark order.

    ``"benchmark"`` the 15 that make up mCE, ``"extra"`` the four held out for validation, ``"all"`` these 19,
    a group (``"noise"``, ``"blur"``, ``"weather"``, ``"digital"``), or ``"registered"``: all 19 and whatever
    plugins added. Two groups stand apart: ``"testbed"``, variants of the 18 that another benchmark computes
    differently, and ``"style"``, the style transfer that needs a network and paintings of the user's.

    Args:
        which: ``"benchmark"`` (15), ``"extra"`` (4), ``"all"``, ``"registered"``, or a group such as ``"blur"``.

    Example:
        >>> corruptions()[:3], len(corruptions()), len(corruptions("all"))
        (['gaussian_noise', 'shot_noise', 'impulse_noise'], 15, 19)
        >>> corruptions("noise")
        ['gaussian_noise', 'shot_noise', 'impulse_noise', 'speckle_noise']
    """
    published = BENCHMARK_CORRUPTIONS + EXTRA_CORRUPTIONS
    sets = {"benchmark": list(BENCHMARK_CORRUPTIONS), "extra": list(EXTRA_CORRUPTIONS), "all": list(published)}
    if which in sets:
        return sets[which]
    ordered = [*published, *(name for name in CORRUPTIONS.names() if name not in published)]
    if which == "registered":
        return [name for name in ordered if CORRUPTIONS.get(name).group not in ("style", "testbed")]
    members = [name for name in ordered if CORRUPTIONS.get(name).group == which]
    if not members:
        raise ShiftError(
            "unknown set of corruptions", found=repr(which), expected=", ".join((*sets, "registered", *GROUPS))
        )
    return members
