"""What is public is documented, importable, and all that the documentation uses."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest
from scripts import api_reference, cli_reference

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_reference_of_python_is_current() -> None:
    """If not: python scripts/api_reference.py"""
    assert api_reference.PAGE.read_text(encoding="utf-8") == api_reference.page()


def test_the_reference_of_the_extension_api_is_current() -> None:
    """If not: python scripts/api_reference.py"""
    assert api_reference.EXTENSION_PAGE.read_text(encoding="utf-8") == api_reference.extension_page()


def test_the_reference_of_the_command_line_is_current() -> None:
    """If not: python scripts/api_reference.py"""
    written = {page.name: page.read_text(encoding="utf-8") for page in cli_reference.FOLDER.glob("*.md")}
    assert written == cli_reference.pages()


def test_every_page_of_the_command_line_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [name for name in cli_reference.pages() if f"cli/{name}" not in navigation] == []


def test_the_reference_shows_no_markup_as_text() -> None:
    assert ":class:`" not in api_reference.page()
    commands = "".join(cli_reference.pages().values())
    assert r"'vit_\*=gpus:1,cpus:4,memory:16'" in commands and "(eval `--detach`)" in commands


@pytest.mark.parametrize("name", [*api_reference.PACKAGES, *api_reference.EXTENSION_MODULES])
def test_every_public_name_exists_and_is_described(name: str) -> None:
    package = importlib.import_module(name)
    assert package.__doc__ and len(set(package.__all__)) == len(package.__all__)
    for public in package.__all__:
        assert getattr(package, public) is not None


def test_documentation_imports_public_names_only() -> None:
    private = [
        f"{page.name}: from {node.module} import {name.name}"
        for page in PAGES
        for node in _imports(page.read_text(encoding="utf-8"))
        for name in node.names
        if node.module not in (*api_reference.PACKAGES, *api_reference.EXTENSION_MODULES)
    ]
    assert private == []


def _imports(text: str) -> list[ast.ImportFrom]:
    blocks = re.findall(r"^```python[^\n]*\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    nodes = [node for block in blocks for node in ast.walk(ast.parse(block))]
    return [n for n in nodes if isinstance(n, ast.ImportFrom) and (n.module or "").startswith("shiftbench")]
