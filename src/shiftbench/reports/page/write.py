"""The page as one self-contained HTML file: style, scripts and data inside, nothing fetched, nothing run but ours.

The data stands in a script element that no browser runs, with every ``<`` written as an escape: no name of a
model can end the element. The content security policy allows our own style and script by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from graphlib import TopologicalSorter
from importlib import resources
from pathlib import Path

from shiftbench.errors import ShiftbenchError
from shiftbench.io.atomic import write_atomically
from shiftbench.reports.page.payload import Page

#: Where the live page asks for its data, relative to itself.
LIVE_DATA = "payload.json"

_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")
#: Modules are written and checked one by one; the page has them as one module, without their doc comments.
_NOT_SHIPPED = re.compile(r"^(?:import [^\n]*\n|export |[ ]*/\*\*.*?\*/\n)", re.MULTILINE | re.DOTALL)
_IMPORTED = re.compile(r'^import .* from "\./(.*)";$', re.MULTILINE)
_SUFFIXES = (".html", ".htm")


def write_page(path: Path, page: Page) -> int:
    """Write the file whole or not at all; returns its size in bytes."""
    check_file_name(path)
    text = page_html(page)
    write_atomically(path, lambda temporary: _write(temporary, text))
    return len(text)


def check_file_name(path: Path) -> None:
    """Before long work, so that it is not done in vain."""
    if path.suffix.lower() not in _SUFFIXES:
        raise ShiftbenchError("a report is an HTML file", found=path.name, expected="a name that ends in .html")
    if path.is_dir():
        raise ShiftbenchError("a report is a file", found=f"a folder at {path}", expected="a name for a new file")


def page_html(page: Page) -> bytes:
    """The page with its data inside."""
    return _filled(page["title"], policy(), page_json(page).replace("<", "\\u003c"))


def live_html(title: str) -> bytes:
    """The page that asks for its data, again and again."""
    shell = _filled(title, policy(live=True), "null")
    return shell.replace(b"<html", f'<html data-live="{LIVE_DATA}"'.encode(), 1)


def page_json(page: Page) -> str:
    """Refuses nan and infinity, which JSON does not know."""
    return json.dumps(page, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def policy(*, live: bool = False) -> str:
    """Nothing but our own style and script, and pictures that the page itself brings."""
    style, script = (_hash(_assets()[part]) for part in ("style", "script"))
    sources = {
        "default-src": "'none'",
        "style-src": style,
        "script-src": script,
        "img-src": "'self' data:" if live else "data:",
        **({"connect-src": "'self'"} if live else {}),
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{what} {allowed}" for what, allowed in sources.items())


def _filled(title: str, csp: str, payload: str) -> bytes:
    values = {
        **{name: text for name, text in _assets().items() if name != "index"},
        "title": html.escape(title),
        "csp": html.escape(csp, quote=True),
        "payload": payload,
    }
    # In one pass: a model called {{script}} is a name like any other.
    filled = _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), _assets()["index"])
    # File names can hold bytes that are no text.
    return filled.encode("utf-8", "replace")


@lru_cache(maxsize=1)
def _assets() -> Mapping[str, str]:
    folder = resources.files("shiftbench.reports.page") / "assets"
    files = sorted(file.name for file in (folder / "script").iterdir() if file.name.endswith(".js"))
    modules = {name: (folder / "script" / name).read_text(encoding="utf-8") for name in files}
    # Each module after those that it imports.
    order = TopologicalSorter({name: _IMPORTED.findall(text) for name, text in modules.items()}).static_order()
    return {
        "index": (folder / "index.html").read_text(encoding="utf-8"),
        "style": (folder / "style.css").read_text(encoding="utf-8"),
        "script": "\n".join(_NOT_SHIPPED.sub("", modules[name]) for name in order),
    }


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _write(path: Path, text: bytes) -> None:
    path.write_bytes(text)
