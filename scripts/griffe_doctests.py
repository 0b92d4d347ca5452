"""Show the doctests of docstrings as code: an extension of griffe, which mkdocstrings reads our source with."""

from __future__ import annotations

import re
from typing import Any

import griffe

# The lines from a prompt to the next empty line.
DOCTEST = re.compile(r"^([ \t]*)>>> .*(?:\n[ \t]*\S.*)*", re.MULTILINE)


class Doctests(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring:
            obj.docstring.value = DOCTEST.sub(_fenced, obj.docstring.value)


def _fenced(match: re.Match[str]) -> str:
    """A doctest as a block of code, without the comments that only doctest reads."""
    code = re.sub(r"[ \t]*# doctest: .*", "", match[0])
    indent = match[1]
    return f"{indent}```pycon\n{code}\n{indent}```"
