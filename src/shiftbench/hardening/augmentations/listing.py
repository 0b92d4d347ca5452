"""What augmentations there are, for people: name, purpose, options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from shiftbench.hardening.augmentations.base import batch_augmentations, image_augmentations


@dataclass(frozen=True)
class Entry:
    """One augmentation."""

    name: str
    kind: Literal["image", "batch"]
    about: str
    #: Option to default.
    options: dict[str, Any]

    def summary(self) -> dict[str, Any]:
        """JSON-able."""
        return {"name": self.name, "kind": self.kind, "about": self.about, "options": self.options}

    def options_in_words(self) -> str:
        return ", ".join(f"{key}={in_words(value)}" for key, value in self.options.items()) or "no options"


def list_augmentations() -> list[Entry]:
    """All that are registered, those of plugins included; pictures' first, then batches'."""
    images = [_entry(name, "image", factory) for name, factory in image_augmentations]
    return images + [_entry(name, "batch", factory) for name, factory in batch_augmentations]


def _entry(name: str, kind: Literal["image", "batch"], factory: Callable[..., object]) -> Entry:
    parameters = inspect.signature(factory).parameters
    options = {key: None if p.default is inspect.Parameter.empty else p.default for key, p in parameters.items()}
    return Entry(name, kind, (inspect.getdoc(factory) or "").split("\n")[0].replace("``", ""), options)


def in_words(value: Any) -> str:
    """An option's value, as it would be typed.

    >>> in_words((0.333333, True))
    '[0.333, true]'
    """
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(in_words, value))}]"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
