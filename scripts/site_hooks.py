"""Hooks of mkdocs, which do with our pages what Markdown does not: mkdocs.yml names this file under ``hooks``.

- Tutorials are run, and shown with their outputs. ``SHIFTBENCH_DOCS_RUN=0`` skips this while writing other pages.
- Formulas become MathML, which browsers draw themselves: no script is loaded.
- The API reference of the site has a page per package with complete docstrings; ``docs/api.md`` is its index.
- CONTRIBUTING.md and CHANGELOG.md, which live in the root of the repository, are pages too.
"""

from __future__ import annotations

import html
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from scripts import api_reference, notebooks  # noqa: E402

FROM_ROOT = ("CONTRIBUTING.md", "CHANGELOG.md")
COMMENT = re.compile(r"<!--.*?-->\n*", re.DOTALL)
#: Inline code that fits any line: options such as -w are not broken after the hyphen.
SHORT_CODE = re.compile(r"<code>(?=[^<\n]{1,28}</code>)")
#: Longer inline code.
LONG_CODE = re.compile(r"(?<=<code>)[^<\n]+(?=</code>)")
#: Options in longer code, which are not broken after a hyphen either.
OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
#: A number with its interval or unit, alone in a cell.
NUMBER = re.compile(r"<td(?=[^>]*>[~+-]?[\d.,]+(?:–[\d.,]+)?(?: (?:%|ms|s|[kMG]B))?(?: [\[(][^\])<]*[\])])?</td>)")
#: GitHub needs `\|` for a bar in a table's code; Python-Markdown shows the backslash.
CELL_CODE = re.compile(r"(?<=<td>).*?(?=</td>)", re.DOTALL)
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)

#: Tutorials with their outputs that were run in this process, by their text: `mkdocs serve` rebuilds often.
_executed: dict[str, str] = {}


def on_config(config: Any) -> Any:
    """Add the page of every package to the navigation, below Reference and Python."""
    [reference] = [section["Reference"] for section in config.nav if "Reference" in section]
    [pages] = [section["Python"] for section in reference if "Python" in section]
    for package in api_reference.PACKAGES:
        page = {package: f"api/{package}.md"}
        # mkdocs may call this more than once for the same configuration.
        if page not in pages:
            pages.append(page)
    return config


def on_files(files: Files, config: Any) -> Files:
    for name in FROM_ROOT:
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, name, content=text))
    for package in api_reference.PACKAGES:
        files.append(File.generated(config, f"api/{package}.md", content=_api_page(package)))
    for page in notebooks.tutorials():
        notebook = notebooks.as_file(page.read_text(encoding="utf-8"))
        files.append(File.generated(config, f"tutorials/{page.stem}.ipynb", content=notebook))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    uri = page.file.src_uri
    if uri == "api.md":
        return _api_index()
    if uri in {f"tutorials/{path.name}" for path in notebooks.tutorials()}:
        markdown = _tutorial(markdown, page.file.name)
    # The examples' hidden set-up is for tests/test_docs.py.
    return COMMENT.sub("", markdown).replace("](../CONTRIBUTING.md", "](CONTRIBUTING.md")


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    html = CELL_CODE.sub(lambda cell: cell[0].replace("\\|", "|"), html)
    html = NUMBER.sub('<td class="short"', SHORT_CODE.sub('<code class="short">', html))
    html = LONG_CODE.sub(lambda code: OPTION.sub(r'<span class="short">\g<0></span>', code[0]), html)
    return FORMULA.sub(_mathml, html)


def _tutorial(markdown: str, name: str) -> str:
    """A tutorial with a link to its notebook below the title, and with the outputs of its code."""
    title, _, text = markdown.partition("\n")
    markdown = f"{title}\n\n[Download as a notebook]({name}.ipynb)\n{text}"
    if os.environ.get("SHIFTBENCH_DOCS_RUN") == "0":
        return markdown
    if markdown not in _executed:
        with tempfile.TemporaryDirectory() as folder:
            _executed[markdown] = notebooks.with_outputs(markdown, notebooks.run(markdown, Path(folder)))
    return _executed[markdown]


def _mathml(match: re.Match[str]) -> str:
    formula = html.unescape(match[2]).strip()
    if match[1] == "div":
        return f'<div class="math">{convert(formula, display="block")}</div>'
    return str(convert(formula, display="inline"))


def _api_page(package: str) -> str:
    """The page of a package: mkdocstrings replaces each of its names by the docstring."""
    names = [f"::: {path}\n" for path in api_reference.documented(package)]
    return f"# {package}\n\n{api_reference.summary(package)}\n\n" + "\n".join(names)


def _api_index() -> str:
    """The index of the packages, with the headings of docs/api.md, so that links to them hold."""
    lead, _, _ = api_reference.LEAD.partition("\nGenerated by")
    sections = []
    for name in api_reference.PACKAGES:
        summary = api_reference.summary(name)
        sections.append(f"## {name}\n\n{summary}\n\n[All names of `{name}`](api/{name}.md)\n")
    return lead + "\n" + "\n".join(sections)
