"""Tutorials as notebooks: the Python and shell blocks of a Markdown page are cells, which one kernel runs in order.

python scripts/notebooks.py docs/tutorials/own-onnx-model.md    # run a tutorial, and print it with its outputs
"""

from __future__ import annotations

import html
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

_make: Any = nbformat.v4  # untyped
CELL = re.compile(r"^```(?P<language>python|bash)\n(?P<code>.*?)^```\n", re.DOTALL | re.MULTILINE)
TUTORIALS = Path(__file__).resolve().parents[1] / "docs" / "tutorials"
SECONDS_PER_CELL = 600
#: Lines that fit a page, and no messages of the kernel itself.
ENVIRONMENT = {"COLUMNS": "96", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def tutorials() -> list[Path]:
    return sorted(page for page in TUTORIALS.glob("*.md") if page.name != "index.md")


def notebook(text: str) -> Any:
    """The page as a notebook: text and code by turns."""
    cells, end = [], 0
    for match in CELL.finditer(text):
        cells.append(_make.new_markdown_cell(text[end : match.start()].strip()))
        magic = "%%bash -e\n" if match["language"] == "bash" else ""
        cells.append(_make.new_code_cell(magic + match["code"].strip()))
        end = match.end()
    cells.append(_make.new_markdown_cell(text[end:].strip()))
    made = _make.new_notebook(cells=[cell for cell in cells if cell.source])
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    for number, cell in enumerate(made.cells):
        cell["id"] = f"cell-{number}"  # random by default: the same page is the same notebook
    return made


def as_file(text: str) -> str:
    """The page as the text of an .ipynb file, without outputs."""
    return str(_make.writes(notebook(text)))


def run(text: str, folder: Path) -> Any:
    """The notebook with its outputs; a cell that fails raises. Commands find the programs of this Python."""
    made = notebook(text)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    client = NotebookClient(
        made, timeout=SECONDS_PER_CELL, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute(env={**os.environ, **ENVIRONMENT, "PATH": path})
    return made


def with_outputs(text: str, executed: Any) -> str:
    """The page's Markdown, each block followed by what it printed and showed."""
    outputs = iter([cell.outputs for cell in executed.cells if cell.cell_type == "code"])
    return CELL.sub(lambda match: match[0] + _block(next(outputs)), text)


def _block(outputs: list[Any]) -> str:
    """Text of both streams, which arrives in pieces, is joined; figures and tables keep their place."""
    parts: list[str] = []
    printed = ""
    for output in outputs:
        data = output.get("data", {})
        rich = _rich(data)
        if rich is None:
            printed += output.get("text") or data.get("text/plain", "")
        else:
            parts += [_text(printed), rich]
            printed = ""
    content = "\n".join(part for part in [*parts, _text(printed)] if part)
    return f'\n<div class="output">\n{content}\n</div>\n' if content else ""


def _rich(data: Any) -> str | None:
    if "image/png" in data:
        return f'<img alt="What the cell draws" src="data:image/png;base64,{data["image/png"].strip()}">'
    shown = re.sub(r"\n\s*\n", "\n", data.get("text/html", "")).strip()
    # Rich shows nothing as an empty <pre>.
    return (shown if re.sub(r"<[^>]*>", "", shown).strip() else "") if shown else None


def _text(printed: str) -> str:
    printed = COLOURS.sub("", printed).strip("\n")
    return f"<pre><code>{html.escape(printed)}</code></pre>" if printed.strip() else ""


def main() -> None:
    page = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        text = page.read_text(encoding="utf-8")
        print(with_outputs(text, run(text, Path(folder))))


if __name__ == "__main__":
    main()
