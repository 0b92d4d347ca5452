"""The documentation is true: its Python blocks run, its commands and options exist, its images are there.

The Python blocks of a page run in order, in one namespace and in an empty folder. An HTML comment, placed directly
before a block and hidden from readers, holds code that defines what the block takes for granted; REPLACE =
{shown: used} changes the text of the block. Blocks of the second kind take long, and run in the soak only:

    <!-- setup: ... -->
    <!-- soak: ... -->

Tutorials are notebooks, which tests/test_tutorials.py runs.
"""

from __future__ import annotations

import csv
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer.main
from scripts import notebooks

from shiftbench.cli.app import app
from shiftbench.registry import Registry

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(
    r"(?:^<!-- (?P<kind>setup|soak):(?P<comment>.*?)-->\n+)?^```python\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True)
class Block:
    """A Python block of a page."""

    page: Path
    line: int
    code: str
    setup: str
    soak: bool


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("code")) + 1
        found.append(Block(page, line, match["code"], match["comment"] or "", match["kind"] == "soak"))
    return found


def execute(code: str, block: Block, namespace: dict[str, Any]) -> None:
    # Blank lines before the code make line numbers in a traceback those of the page.
    exec(compile("\n" * (block.line - 1) + code, str(block.page), "exec"), namespace)


#: Each page, and whether its long blocks are run as well.
RUN = [
    pytest.param(page, soak, marks=[pytest.mark.soak] if soak else [], id=str(page.relative_to(ROOT)) + "-soak" * soak)
    for page in PAGES
    if page.parent != notebooks.TUTORIALS
    for soak in (False, True)
    if any(block.soak is soak for block in blocks(page))
]


@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")  # Keras on torch
@pytest.mark.parametrize(("page", "soak"), RUN)
def test_python_blocks_run(
    page: Path, soak: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_registries: None
) -> None:
    monkeypatch.chdir(tmp_path)
    # Networks of examples have random weights, and the scores of some such networks look like probabilities.
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    module = ModuleType("documentation")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    namespace: dict[str, Any] = vars(module)
    for block in blocks(page):
        if block.soak and not soak:
            continue
        exec(block.setup.strip(), namespace)
        code = block.code
        for shown, used in namespace.pop("REPLACE", {}).items():
            assert shown in code
            code = code.replace(shown, used)
        execute(code, block, namespace)


@pytest.fixture
def own_registries() -> Any:
    """Removes what the examples register."""
    # Loaded first: what a registry loads while an example runs would be taken for the example's.
    before = {id(known): set(known.names()) for known in _registries()}
    yield
    for known in _registries():
        for name in set(known._items) - before.get(id(known), set(known._items)):
            known._items.pop(name)


def _registries() -> list[Registry[Any]]:
    ours = [vars(module).values() for name, module in sys.modules.items() if name.startswith("shiftbench")]
    return list({id(thing): thing for values in ours for thing in values if isinstance(thing, Registry)}.values())


def commands(page: Path) -> list[tuple[int, str]]:
    """The command lines in code blocks (fenced or indented), with continuation lines joined."""
    lines = page.read_text(encoding="utf-8").splitlines()
    found = []
    fenced = False
    for number, line in enumerate(lines, 1):
        if line.startswith("```"):
            fenced = not fenced
        match = re.match(r"\s*(?:\$ )?(shiftbench .*)", line)
        if match and (fenced or line.startswith("    ")):
            command = match[1]
            while command.endswith("\\") and number < len(lines):
                command = command[:-1] + lines[number].strip()
                number += 1
            found.append((number, command))
    return found


@pytest.mark.parametrize(
    "page", [page for page in PAGES if commands(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_commands_and_options_exist(page: Path) -> None:
    unknown = []
    for number, text in commands(page):
        unknown += [f"{page.name}:{number}: {problem} in `{text}`" for problem in problems(text)]
    assert unknown == []


@cache
def _program() -> Any:
    return typer.main.get_command(app)


def problems(text: str) -> list[str]:
    """What a command line names that the program does not have."""
    command: Any = _program()
    words = shlex.split(text.split(" > ")[0].split(" | ")[0], comments=True)[1:]
    if "--" in words:  # what follows are the arguments of another command
        inner = words[words.index("--") + 1 :]
        words = words[: words.index("--")]
        return [*problems(shlex.join(["shiftbench", *words])), *problems(shlex.join(["shiftbench", "eval", *inner]))]
    while words and hasattr(command, "commands"):
        if words[0].startswith("-") or words[0] == "...":
            break
        default = getattr(command, "default_command", None)
        name = default if default and words[0] not in command.commands else words.pop(0)
        command = command.get_command(None, name)
        if command is None:
            return [f"unknown command {name}"]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
    given = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    return [f"unknown option {option}" for option in given if option not in known]


def test_images_of_the_documentation() -> None:
    for page in PAGES:
        for target in re.findall(r"!\[[^\]]*\]\(([^):]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).stat().st_size < 1_500_000, f"{page.name}: {target}"


def test_links_between_pages() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^):#]+\.md)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).is_file(), f"{page.name}: {target}"


@pytest.mark.soak
def test_the_site_is_built_strictly_and_loads_nothing_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHIFTBENCH_DOCS_RUN", "0")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    subprocess.run(command, check=True, cwd=ROOT)
    pages = {page: page.read_text(encoding="utf-8") for page in tmp_path.rglob("*.html")}
    assert len(pages) > len(PAGES)
    loaded = re.compile(r"<(?:script|img|iframe)[^>]+src=.?https?:|<link[^>]+rel=.?stylesheet[^>]+href=.?https?:")
    assert [page.name for page, text in pages.items() if loaded.search(text)] == []


INLINE = re.compile(r"`(shiftbench [^`]+)`")


def test_every_command_of_the_papers_page_is_accepted() -> None:
    """Names, options and required arguments, as its commands parse them; no element is without a statement."""
    page = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    lines = INLINE.findall(page)
    assert len(lines) > 40
    for line in lines:
        arguments = shlex.split(line)[1:]
        command: Any = typer.main.get_command(app)
        while hasattr(command, "list_commands"):
            name = arguments.pop(0)
            command = command.get_command(command.context_class(command), name)
            assert command is not None, line
        command.make_context(name, arguments)
    rows = [row for row in page.splitlines() if row.startswith("| ") and not row.startswith("| element")]
    assert len(rows) > 45 and all(row.split("|")[3].strip() for row in rows)


def test_every_model_of_the_fourth_paper_has_its_source() -> None:
    """Those of tables 11 and 15, each in one row of the page, with an address."""
    with (ROOT / "src/shiftbench/published/data/paper_004.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["table"] in ("11", "15")]
    expected = {row["model"] for row in rows if row["model"]}
    text = (ROOT / "docs/test-set-candidates.md").read_text(encoding="utf-8")
    section = text.partition("## Models of the paper")[2]
    listed: list[str] = []
    for line in section.splitlines():
        if line.startswith(("| CIFAR-10", "| ImageNet")):
            assert re.search(r"<https?://\S+>", line)
            listed += re.findall(r"`(\w+)`", line)
    assert set(listed) == expected and len(listed) == len(expected) == 34 + 67
