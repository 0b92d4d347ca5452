"""What all conformance checks share: one requirement after another, each with its outcome.

A check of an extension (``check_metric``, ``check_corruption``, ...) runs every requirement of the extension point, and
returns one ``CheckResult`` for each. A failing requirement explains itself and does not stop the others. Authors call
the checks in their own tests::

    from shiftbench.conformance import assert_conforms
    from shiftbench.metrics import check_metric

    def test_my_metric():
        assert_conforms(check_metric("mine"))
"""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from shiftbench.arrays import Pixels
from shiftbench.errors import MissingExtraError, ShiftbenchError

__all__ = [
    "CheckResult",
    "assert_conforms",
    "changed_generators",
    "require",
    "require_own_randomness",
    "require_same_pixels",
    "require_unwrapped",
    "requirement",
]
#: A value that falls by more than this where the image becomes one level brighter has wrapped around, unless few do:
#: noise may turn single pixels black.
_WRAPPED_FALL = 200
_MOST_WRAPPED = 0.5
#: People choose seeds below this: NumPy takes no others.
_LARGEST_CHOSEN_SEED = 2**32


class CheckResult(NamedTuple):
    """One requirement, whether it is met, and what was found.

    Attributes:
        name: The requirement, as a statement that holds for a conforming extension.
        ok: Whether it holds.
        message: What was verified, or what is wrong.
        found: Of a failure: what the extension did.
        expected: Of a failure: what it must do.
        hint: Of a failure: what usually helps.
    """

    name: str
    ok: bool
    message: str
    found: object = None
    expected: object = None
    hint: str | None = None

    def as_dict(self) -> dict[str, object]:
        """All fields as data for JSON: found and expected as text."""
        return {
            "check": self.name,
            "ok": self.ok,
            "message": self.message,
            "found": None if self.found is None else str(self.found),
            "expected": None if self.expected is None else str(self.expected),
            "hint": self.hint,
        }

    @property
    def details(self) -> list[str]:
        """The lines of found, expected and hint that there are, as errors show them."""
        parts = {"found:": self.found, "expected:": self.expected, "try:": self.hint}
        return [f"{title:<9} {value}" for title, value in parts.items() if value is not None]


class _FailedError(Exception):
    def __init__(self, message: str, found: object, expected: object, hint: str | None) -> None:
        super().__init__(message)
        self.found = found
        self.expected = expected
        self.hint = hint


@contextmanager
def requirement(name: str, results: list[CheckResult]) -> Iterator[list[str]]:
    """Add the outcome of the checks inside, with the notes that they append to the yielded list.

    An exception of any kind is a failure, because the code of a third party can fail in every way. Only a missing extra
    is not: the error that names it passes.

    Args:
        name: The requirement, as a statement that holds for a conforming extension.
        results: Where the outcome is added.

    Example:
        >>> results: list[CheckResult] = []
        >>> with requirement("one and one is three", results):
        ...     require(1 + 1 == 3, "the sum is wrong", found=1 + 1, expected=3)
        >>> results[0].ok, results[0].found
        (False, 2)
    """
    notes: list[str] = []
    try:
        yield notes
    except MissingExtraError:
        raise  # without its library nothing can be said about the extension
    except _FailedError as error:
        results.append(CheckResult(name, False, str(error), error.found, error.expected, error.hint))
    except ShiftbenchError as error:
        results.append(CheckResult(name, False, error.message, error.found, error.expected, error.hint))
    except Exception as error:
        results.append(CheckResult(name, False, f"{type(error).__name__}: {error}"))
    else:
        results.append(CheckResult(name, True, ", ".join(notes)))


def require(
    condition: bool, message: str, *, found: object = None, expected: object = None, hint: str | None = None
) -> None:
    """Inside ``requirement``: fail with this message, unless the condition holds.

    Args:
        condition: What must hold.
        message: What is wrong if it does not.
        found: What the extension did.
        expected: What it must do.
        hint: What usually helps.
    """
    if not condition:
        raise _FailedError(message, found, expected, hint)


def assert_conforms(results: Sequence[CheckResult]) -> None:
    """Raise AssertionError if a requirement is not met; its text lists all of these.

    Args:
        results: What a check returned.

    Raises:
        AssertionError: If a requirement is not met.
    """
    failures = [result for result in results if not result.ok]
    if not failures:
        return
    lines = [f"{len(failures)} of {len(results)} requirements are not met"]
    for failure in failures:
        lines.append(f"{failure.name}: {failure.message}")
        lines += [f"  {detail}" for detail in failure.details]
    raise AssertionError("\n".join(lines))


# Requirements that checks of several extension points share.


def require_same_pixels(pixels: Pixels, expected: Pixels, message: str, hint: str | None = None) -> None:
    """Inside ``requirement``: fail unless two images are equal.

    Args:
        pixels: The image that was found.
        expected: The image that was expected.
        message: What is wrong if they differ.
        hint: What usually helps.
    """
    same_shape = pixels.shape == expected.shape
    require(same_shape, message, found=f"shape {pixels.shape}", expected=f"shape {expected.shape}", hint=hint)
    differing = int((pixels != expected).sum())
    found = f"{differing} of {pixels.size} values differ"
    require(differing == 0, message, found=found, expected="equal pixels", hint=hint)


def require_unwrapped(function: Callable[[Pixels], Pixels]) -> None:
    """Inside ``requirement``: fail if values leave 0 ... 255 and wrap around when they become uint8.

    The function sees uniform images of all 256 levels. An image that becomes one level brighter may change a lot, but
    a value that falls from white to black by it has wrapped around: 255 + 1 became 0.

    Args:
        function: From a uint8 image to one of the same shape, with the same random numbers in every call.
    """
    images = [function(np.full((16, 16, 3), level, np.uint8)) for level in range(256)]
    levels = np.stack(images).astype(np.int16)
    wrapped = (levels[:-1] - levels[1:] > _WRAPPED_FALL).any(axis=0)
    require(
        float(wrapped.mean()) <= _MOST_WRAPPED,
        "values fall from white to black where the image becomes one level brighter",
        found=f"{int(wrapped.sum())} of {wrapped.size} values do at some level",
        expected="values that are clipped to 0 ... 255",
        hint="np.clip(values, 0, 255) before astype('uint8')",
    )


def require_own_randomness(function: Callable[[], object], hint: str) -> None:
    """Inside ``requirement``: fail if a call draws from, or seeds, the global random numbers of Python, NumPy or torch.

    Args:
        function: What is called.
        hint: Where its random numbers should come from.
    """
    libraries = changed_generators(function)
    require(not libraries, f"the global random numbers of {', '.join(libraries)} were used or seeded", hint=hint)


def changed_generators(function: Callable[[], object]) -> list[str]:
    """The libraries whose global random numbers a call draws from, or seeds.

    The call finds generators in a state that no seed leads to, so that it cannot set them to the state that they are in
    already: a function that seeds them with the same number each time would go unnoticed otherwise.

    Args:
        function: What is called. Afterwards, the generators are in the state in which they were before.

    Example:
        >>> changed_generators(lambda: random.seed(0)), changed_generators(lambda: random.Random(0).random())
        (['Python'], [])
    """
    torch_was_loaded = "torch" in sys.modules
    generators = _global_generators()
    original_states = [generator.state() for generator in generators]
    for generator in generators:
        generator.draw()
    states = [generator.state() for generator in generators]
    try:
        function()
        states_after = [generator.state() for generator in generators]
    finally:
        for generator, state in zip(generators, original_states, strict=True):
            generator.restore(state)
    changed: list[str] = []
    for generator, before, after in zip(generators, states, states_after, strict=True):
        if pickle.dumps(before) != pickle.dumps(after):
            changed.append(generator.library)
    if not torch_was_loaded and _torch_is_seeded():
        changed.append("torch")
    return changed


def _torch_is_seeded() -> bool:
    """Whether torch is loaded, and somebody has seeded it: the seed that it begins with is a random one of 64 bits."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.initial_seed() < _LARGEST_CHOSEN_SEED


@dataclass(frozen=True)
class _GlobalGenerator:
    """Random numbers that any code of a process can draw and seed.

    Attributes:
        library: The library that they belong to.
        draw: Draws one number.
        state: The state as data that can be pickled.
        restore: Sets the state.
    """

    library: str
    draw: Callable[[], object]
    state: Callable[[], Any]
    restore: Callable[[Any], object]


def _global_generators() -> list[_GlobalGenerator]:
    """The generators of Python and NumPy, and that of torch where something has imported it."""
    generators = [
        _GlobalGenerator("Python", random.random, random.getstate, random.setstate),
        _GlobalGenerator("NumPy", np.random.random, np.random.get_state, np.random.set_state),
    ]
    torch = sys.modules.get("torch")
    if torch is not None:
        generators.append(
            _GlobalGenerator(
                "torch",
                lambda: torch.rand(1),
                lambda: torch.get_rng_state().numpy().copy(),
                lambda state: torch.set_rng_state(torch.from_numpy(state)),
            )
        )
    return generators
