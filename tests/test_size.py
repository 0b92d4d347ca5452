"""Limits on the source that reviews must not have to watch: its size, its untyped parts, names with two meanings."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import shiftbench

ROOT = Path(shiftbench.__file__).parent
#: Lower it whenever the source has become shorter; raising it needs a reason in the commit message.
MOST_LINES = 71_372
MOST_FILES = 420
#: Uses of ``Any`` must stay below this.
ANY_LIMIT = 400


@cache
def _sources() -> dict[str, str]:
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in sorted(ROOT.rglob("*.py"))}


@cache
def _nodes() -> list[tuple[str, ast.AST]]:
    return [(name, node) for name, text in _sources().items() for node in ast.walk(ast.parse(text))]


def test_the_source_does_not_grow() -> None:
    assert sum(len(text.splitlines()) for text in _sources().values()) <= MOST_LINES
    assert len(_sources()) <= MOST_FILES


def test_few_uses_of_any() -> None:
    used = Counter(name for name, node in _nodes() if isinstance(node, ast.Name) and node.id == "Any")
    assert sum(used.values()) < ANY_LIMIT, used.most_common(10)


def test_public_class_names_have_one_meaning() -> None:
    places: dict[str, list[str]] = {}
    for name, node in _nodes():
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            places.setdefault(node.name, []).append(name)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_specs_are_records_not_dictionaries() -> None:
    """``spec["..."]`` and ``one.spec["..."]``: a result's specification is read by attribute (store/spec.py)."""
    keyed = [
        f"{name}:{node.lineno}"
        for name, node in _nodes()
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and _is_spec(node.value)
    ]
    assert keyed == []


def _is_spec(node: ast.expr) -> bool:
    return getattr(node, "id", None) == "spec" or getattr(node, "attr", None) == "spec"
