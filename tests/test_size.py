"""Limits on the source that reviews must not have to watch: its untyped parts, and names with two meanings."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import shiftbench

ROOT = Path(shiftbench.__file__).parent
#: Uses of ``Any`` must stay below this.
ANY_LIMIT = 520


@cache
def _sources() -> dict[str, str]:
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in sorted(ROOT.rglob("*.py"))}


@cache
def _found() -> tuple[Counter[str], dict[str, list[str]], list[str]]:
    """Uses of Any by file, files by public class, and places that read a specification by key; all in one pass."""
    used = Counter[str]()
    classes = defaultdict[str, list[str]](list)
    keyed = list[str]()
    for name, text in _sources().items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Name):
                used[name] += node.id == "Any"
            elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(name)
            elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and _is_spec(node.value):
                keyed.append(f"{name}:{node.lineno}")
    return used, classes, keyed


def _is_spec(node: ast.expr) -> bool:
    return getattr(node, "id", None) == "spec" or getattr(node, "attr", None) == "spec"


def test_few_uses_of_any() -> None:
    used, _, _ = _found()
    assert used.total() < ANY_LIMIT, used.most_common(10)


def test_public_class_names_have_one_meaning() -> None:
    _, classes, _ = _found()
    assert {name: where for name, where in classes.items() if len(where) > 1} == {}


def test_specs_are_records_not_dictionaries() -> None:
    """``spec["..."]`` and ``one.spec["..."]``: a result's specification is read by attribute (store/spec.py)."""
    assert _found()[2] == []
