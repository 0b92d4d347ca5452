"""The page as one self-contained HTML file: style, scripts and data inside; nothing is fetched.

The data is in a script element that browsers do not run, with every ``<`` escaped, so that no name of a model can end
the element. The content security policy allows only our own style and script, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from functools import lru_cache
from graphlib import TopologicalSorter
from importlib import resources
from pathlib import Path

from shiftbench.errors import CONTROL_CHARACTERS, ShiftbenchError, visible
from shiftbench.io.atomic import write_atomically
from shiftbench.reports.page.payload import Page
from shiftbench.reports.page.published import Published
from shiftbench.reports.page.report_data import Bar, ReportData, ReportOptions, build_page, silent
from shiftbench.reports.page.sections import calibration, failures
from shiftbench.reports.page.thumbnails import BUDGET, FileAlbum
from shiftbench.runs.results import StoredResults

#: Where the live page asks for its data, relative to itself.
LIVE_DATA = "payload.json"

_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")
#: Modules are written and checked one by one; the page has them as one module, without their doc comments.
_NOT_SHIPPED = re.compile(r"^(?:import [^\n]*\n|export |[ ]*/\*\*.*?\*/\n)", re.MULTILINE | re.DOTALL)
_IMPORTED = re.compile(r'^import .* from "\./(.*)";$', re.MULTILINE)
_SUFFIXES = (".html", ".htm")


def write_page(path: Path, page: Page) -> int:
    check_file_name(path)
    text = page_html(page)
    write_atomically(path, lambda temporary: Path(temporary).write_bytes(text))
    return len(text)


def check_file_name(path: Path) -> None:
    if path.suffix.lower() not in _SUFFIXES:
        raise ShiftbenchError("a report is an HTML file", found=path.name, expected="a file name ending in .html")
    if path.is_dir():
        raise ShiftbenchError("a report is a file", found=f"a folder at {path}", expected="a name for a new file")


def page_html(page: Page) -> bytes:
    return _filled(page["title"], policy(), page_json(page).replace("<", "\\u003c"))


def live_html(title: str) -> bytes:
    shell = _filled(title, policy(live=True), "null")
    return shell.replace(b"<html", f'<html data-live="{LIVE_DATA}"'.encode(), 1)


#: Control characters that JSON leaves as they are, written out within its texts.
_WRITTEN_OUT = {code: json.dumps(visible(chr(code)))[1:-1] for code in CONTROL_CHARACTERS if code >= 127}


def page_json(page: Page) -> str:
    """The content of a page, in which no name changes the direction of the text and numbers around it.

    Raises ValueError for nan and infinity, which JSON does not have.
    """
    content = json.dumps(page, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_record)
    return content.translate(_WRITTEN_OUT)


def _record(value: object) -> dict[str, object]:
    """Records that the page shows as they are, such as the bins of a reliability diagram, become JSON objects."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"the page has no JSON for {type(value).__name__}")


def policy(*, live: bool = False) -> str:
    """The content security policy: only our own style and script, and images from the page itself."""
    sources = {
        "default-src": "'none'",
        "style-src": f"'sha256-{_digest('style')}'",
        "script-src": f"'sha256-{_digest('script')}'",
        "img-src": "'self' data:" if live else "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    if live:
        sources["connect-src"] = "'self'"
    return "; ".join(f"{kind} {allowed}" for kind, allowed in sources.items())


def _digest(asset: str) -> str:
    digest = hashlib.sha256(_assets()[asset].encode()).digest()
    return base64.b64encode(digest).decode()


def _filled(title: str, csp: str, payload: str) -> bytes:
    values = {**_assets(), "title": html.escape(title), "csp": html.escape(csp, quote=True), "payload": payload}
    # All placeholders are filled in one pass, because a model may be named {{script}}.
    filled = _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), _assets()["index"])
    # File names can contain bytes that are not valid text.
    return filled.encode("utf-8", "replace")


@lru_cache(maxsize=1)
def _assets() -> Mapping[str, str]:
    folder = resources.files("shiftbench.reports.page") / "assets"
    files = sorted(file.name for file in (folder / "script").iterdir() if file.name.endswith(".js"))
    modules = {name: (folder / "script" / name).read_text(encoding="utf-8") for name in files}
    # Each module comes after those that it imports.
    order = TopologicalSorter({name: _IMPORTED.findall(text) for name, text in modules.items()}).static_order()
    return {
        "index": (folder / "index.html").read_text(encoding="utf-8"),
        "style": (folder / "style.css").read_text(encoding="utf-8"),
        "script": "\n".join(_NOT_SHIPPED.sub("", modules[name]) for name in order),
    }


@dataclass(frozen=True)
class ReportSummary:
    path: str
    bytes: int
    models: int
    settings: int
    corruption_families: int
    calibration_diagrams: int
    mistakes: int
    images: int
    notes: list[str]

    def as_dict(self) -> dict[str, object]:
        return asdict(self)

    @property
    def counts(self) -> str:
        """
        >>> ReportSummary("r.html", 9, 1, 46, 0, 0, 12, 20, []).counts
        '1 model, 46 settings, 12 mistakes, 20 images'
        """
        counts = {"model": self.models, "setting": self.settings, "mistake": self.mistakes, "image": self.images}
        texts = []
        for name, n in counts.items():
            if n == 1:
                texts.append(f"1 {name}")
            elif n:
                texts.append(f"{n:,} {name}s")
        return ", ".join(texts)


def write_report(
    path: str | Path,
    run: StoredResults | None = None,
    published: Published | None = None,
    options: ReportOptions | None = None,
    *,
    bar: Bar = silent,
) -> ReportSummary:
    """Write the report of a run, a published table or both.

    Images fill the file up to a size limit, unless ``options.failures`` gives their number.
    """
    path = Path(path)
    check_file_name(path)
    options = options or ReportOptions()
    album = FileAlbum(budget=BUDGET if options.failures is None else float("inf"))
    data = ReportData(run, published, options, album, bar=bar)
    page = build_page(data)
    size = write_page(path, page)
    models = data.grid["models"] if data.grid else []
    grid_notes = data.grid["notes"] if data.grid else []
    mistakes = failures.SECTION.of(page)
    lists = mistakes["lists"] if mistakes else []
    return ReportSummary(
        path=str(path),
        bytes=size,
        models=len(models),
        settings=page["about"]["settings"],
        corruption_families=len(data.families),
        calibration_diagrams=len(calibration.SECTION.of(page) or ()),
        mistakes=sum(len(failure_list["images"]) for failure_list in lists),
        images=len(album.urls),
        notes=[*grid_notes, *page["warnings"]],
    )
