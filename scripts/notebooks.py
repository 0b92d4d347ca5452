"""Make notebooks of tutorials: the Python and shell blocks of a page are cells, which one kernel runs in order.

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

#: The functions of nbformat have no types.
_make: Any = nbformat.v4
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
    cells = []
    end_of_code = 0
    for match in CELL.finditer(text):
        cells.append(_make.new_markdown_cell(text[end_of_code : match.start()].strip()))
        code = match["code"].strip()
        if match["language"] == "bash":
            code = f"%%bash -e\n{code}"
        cells.append(_make.new_code_cell(code))
        end_of_code = match.end()
    cells.append(_make.new_markdown_cell(text[end_of_code:].strip()))
    document = _make.new_notebook(cells=[cell for cell in cells if cell.source])
    document.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    for number, cell in enumerate(document.cells):
        # Ids are random by default, but the same page should be the same notebook.
        cell["id"] = f"cell-{number}"
    return document


def as_file(text: str) -> str:
    """The page as the text of an .ipynb file, without outputs."""
    return str(_make.writes(notebook(text)))


def run(text: str, folder: Path) -> Any:
    """The notebook with its outputs; a cell that fails raises. Commands find the programs of this Python."""
    document = notebook(text)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    client = NotebookClient(
        document, timeout=SECONDS_PER_CELL, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute(env={**os.environ, **ENVIRONMENT, "PATH": path})
    return document


def with_outputs(text: str, executed: Any) -> str:
    """The page's Markdown, each block followed by what it printed and showed."""
    outputs = iter([cell.outputs for cell in executed.cells if cell.cell_type == "code"])
    return CELL.sub(lambda match: match[0] + _block(next(outputs)), text)


def _block(outputs: list[Any]) -> str:
    """The outputs of a cell as HTML.

    Text of both streams, which arrives in pieces, is joined; figures and tables keep their place in it.
    """
    blocks: list[str] = []
    printed = ""
    for output in outputs:
        data = output.get("data", {})
        rich = _rich(data)
        if rich is None:
            printed += output.get("text") or data.get("text/plain", "")
        else:
            blocks += [_text(printed), rich]
            printed = ""
    blocks.append(_text(printed))
    content = "\n".join(block for block in blocks if block)
    if not content:
        return ""
    return f'\n<div class="output">\n{content}\n</div>\n'


def _rich(data: Any) -> str | None:
    """A figure or a table as HTML; None if the output is plain text."""
    if "image/png" in data:
        return f'<img alt="What the cell draws" src="data:image/png;base64,{data["image/png"].strip()}">'
    # An empty line would end the block of HTML in Markdown.
    content = re.sub(r"\n\s*\n", "\n", data.get("text/html", "")).strip()
    if not content:
        return None
    # Rich, the library, shows nothing as an empty <pre>.
    text = re.sub(r"<[^>]*>", "", content).strip()
    return content if text else ""


def _text(printed: str) -> str:
    printed = COLOURS.sub("", printed).strip("\n")
    if not printed.strip():
        return ""
    return f"<pre><code>{html.escape(printed)}</code></pre>"


def main() -> None:
    page = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        text = page.read_text(encoding="utf-8")
        print(with_outputs(text, run(text, Path(folder))))


if __name__ == "__main__":
    main()
