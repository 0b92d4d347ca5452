"""``key=value`` as people type it, on the command line and in changes of a recipe."""

from __future__ import annotations

import tomllib
from typing import Any


def key_value(text: str) -> tuple[str, Any] | None:
    """The value is read as TOML; what is none is taken as a word. None for what is no pair at all.

    >>> key_value("severity=1"), key_value("fill=random"), key_value("scale=[0.5, 1]"), key_value("3")
    (('severity', 1), ('fill', 'random'), ('scale', [0.5, 1]), None)
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        return None
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()
