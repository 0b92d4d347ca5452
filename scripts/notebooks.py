"""Tutorials as notebooks: the Python and shell blocks of a Markdown page are cells, which one kernel runs in order.

python scripts/notebooks.py docs/tutorials/own-onnx-model.md    # run a tutorial, and print it with its outputs
"""

from __future__ import annotations

import base64
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
#: No colours, and lines that fit a page.
ENVIRONMENT = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "96", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}


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
    return CELL.sub(lambda match: match[0] + "".join(map(_shown, _joined(next(outputs)))), text)


def _joined(outputs: list[Any]) -> list[Any]:
    """Streams arrive in pieces; neighbours of one stream belong together."""
    joined: list[Any] = []
    for output in outputs:
        if output.output_type == "stream" and joined and joined[-1].get("name") == output.name:
            joined[-1]["text"] += output.text
        else:
            joined.append(output)
    return joined


def _shown(output: Any) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        size = len(base64.b64decode(data["image/png"]))
        return _block(f'<img alt="Figure ({size:,} bytes)" src="data:image/png;base64,{data["image/png"].strip()}">')
    if "text/html" in data:
        return _block(re.sub(r"\n\s*\n", "\n", data["text/html"]))
    text = output.get("text") or data.get("text/plain", "")
    return _block(f"<pre><code>{html.escape(text.rstrip())}</code></pre>") if text.strip() else ""


def _block(content: str) -> str:
    return f'\n<div class="output">\n{content}\n</div>\n'


def main() -> None:
    page = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        text = page.read_text(encoding="utf-8")
        print(with_outputs(text, run(text, Path(folder))))


if __name__ == "__main__":
    main()
