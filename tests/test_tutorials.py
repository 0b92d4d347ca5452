"""The tutorials run from beginning to end, as the notebooks that readers download."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts import notebooks

#: Those that take a few seconds.
QUICK = ("effective-robustness",)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[] if page.stem in QUICK else [pytest.mark.soak], id=page.stem)
        for page in notebooks.tutorials()
    ],
)
def test_a_tutorial_runs(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    executed = notebooks.run(text, tmp_path)
    code = [cell for cell in executed.cells if cell.cell_type == "code"]
    assert len(code) == len(notebooks.CELL.findall(text))
    shown = notebooks.with_outputs(text, executed)
    assert shown.count('<div class="output">') > len(code) / 2


def test_text_and_code_of_a_page_become_cells() -> None:
    made = notebooks.notebook("# Title\n\n```python\n1 + 1\n```\n\nand\n\n```bash\nls\n```\n\n```text\nno cell\n```\n")
    assert [(cell.cell_type, cell.source) for cell in made.cells] == [
        ("markdown", "# Title"),
        ("code", "1 + 1"),
        ("markdown", "and"),
        ("code", "%%bash -e\nls"),
        ("markdown", "```text\nno cell\n```"),
    ]
