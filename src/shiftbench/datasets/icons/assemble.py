"""Icons-50 rebuilt: the icons of many packages, sorted into 50 classes under the file names of the original.

``<class>/<style>_<rendition>_<subtype>.png``, and ``icons.csv`` with everything else. The renditions of a style are
made together, and recorded when all are done: a run that was stopped continues with the styles that are missing.
"""

from __future__ import annotations

import importlib.util
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shiftbench.arrays import Pixels
from shiftbench.datasets.icons.drawings import Drawing, difference, drawings, is_blank, png_bytes, rasterise
from shiftbench.datasets.icons.record import RECORD, IconOptions, Record, Row
from shiftbench.datasets.icons.sources import Icon, IconSource, capped, choose_sources, icons
from shiftbench.errors import BadImageError, MissingExtraError
from shiftbench.io.atomic import write_atomically
from shiftbench.io.locks import file_lock
from shiftbench.jobs.base import Executor, Job, Problem
from shiftbench.jobs.blocks import run_items
from shiftbench.jobs.progress import Advance, progress_bar
from shiftbench.outputs.record import WORKSHOP, check_destination

if TYPE_CHECKING:
    from rich.console import Console

#: Most subtypes per class by default: there are 270 flags and 108 faces.
DEFAULT_CAP = 100
#: A rendition that differs less from an earlier one of its style (mean of 255, at 32 pixels) is the same drawing.
SAME_DRAWING = 4.0


@dataclass(frozen=True)
class Assembled:
    """The outcome of ``assemble``."""

    record: Record
    #: Icons that this run wrote.
    written: int
    seconds: float

    @property
    def images(self) -> int:
        return len(self.record.all_rows())

    def summary(self) -> dict[str, Any]:
        left_out: dict[str, int] = {}
        for about in self.record.about.values():
            for reason, names in about["left_out"].items():
                left_out[reason] = left_out.get(reason, 0) + len(names)
        return {
            "icons": str(self.record.folder),
            "images": self.images,
            "written": self.written,
            "seconds": round(self.seconds, 1),
            "size": self.record.options.size,
            "cap": self.record.options.cap,
            "skin_tones": self.record.options.skin_tones,
            "styles": self.record.counts("style"),
            "classes": self.record.counts("class"),
            "subtypes": len(self.record.counts("subtype")),
            "left_out": left_out,
        }


def assemble(
    destination: str | Path,
    *,
    styles: str | Iterable[str] = "all",
    size: int = 64,
    cap: int | None = DEFAULT_CAP,
    skin_tones: bool = False,
    workers: int | None = None,
    executor: Executor | None = None,
    progress: bool = True,
    console: Console | None = None,
) -> Assembled:
    """Fetch the packages of the styles and write their icons, several styles at once; what is there already stays."""
    started = time.monotonic()
    variant, sources = choose_sources(styles)
    options = IconOptions(variant, size, cap, skin_tones)
    options.check()
    _check_rasteriser(sources)
    folder = Path(destination)
    check_destination(folder, RECORD)
    wanted = capped(icons(), cap)
    with file_lock(folder / ".lock", wait=True):
        before = Record.open(folder, options)
        job = _Styles(folder, options, [source for source in sources if not before.holds(source.style)], wanted)
        styles_to_do = list(dict.fromkeys(source.style for source in job.sources))
        with progress_bar("icons", len(wanted) * len(job.sources), show=progress, console=console) as advance:
            run_items(job, styles_to_do, executor, advance, workers)
        shutil.rmtree(folder / WORKSHOP, ignore_errors=True)
        record = Record.open(folder, options)
    written = sum(len(record.rows.get(style, ())) for style in styles_to_do)
    return Assembled(record, written, time.monotonic() - started)


@dataclass(frozen=True)
class _Styles(Job[str]):
    """The icons of styles; an item is the name of one."""

    folder: Path
    options: IconOptions
    sources: Sequence[IconSource]
    wanted: Sequence[Icon]

    def compute(self, item: str, advance: Advance, *, wait: bool) -> list[Problem]:
        own = [source for source in self.sources if source.style == item]
        rows, left_out = _assemble_style(self.folder, own, self.wanted, self.options, advance)
        with file_lock(self.folder / WORKSHOP / "lock", wait=True):
            Record.open(self.folder, self.options).add(item, rows, own, left_out)
        return []


def _assemble_style(
    folder: Path, sources: Sequence[IconSource], wanted: Sequence[Icon], options: IconOptions, advance: Advance
) -> tuple[list[Row], dict[str, list[str]]]:
    """All renditions of a style, the oldest first: a later one is kept where the drawing changed."""
    rows: list[Row] = []
    left_out: dict[str, list[str]] = {}
    earlier: dict[str, list[Pixels]] = {}
    for source in sources:
        seen = 0
        for drawing in drawings(source, wanted, skin_tones=options.skin_tones):
            seen += 1
            if seen <= len(wanted):
                advance(1)
            pixels = _pixels(drawing, source, options.size)
            known = earlier.setdefault(drawing.subtype, [])
            reason = "unreadable" if pixels is None else _reason_to_leave_out(pixels, known)
            if pixels is None or reason:
                left_out.setdefault(reason, []).append(_path(source, drawing))
                continue
            known.append(pixels)
            rows.append(_write_icon(folder, source, drawing, pixels))
        advance(max(len(wanted) - seen, 0))
    return rows, left_out


def _pixels(drawing: Drawing, source: IconSource, size: int) -> Pixels | None:
    try:
        return rasterise(drawing.data, size, f"{source.package.name}/{drawing.codepoint}")
    except BadImageError:
        return None


def _reason_to_leave_out(pixels: Pixels, earlier: Sequence[Pixels]) -> str:
    if is_blank(pixels):
        return "blank"
    if any(difference(pixels, other) <= SAME_DRAWING for other in earlier):
        return "same drawing as an earlier rendition"
    return ""


def _path(source: IconSource, drawing: Drawing) -> str:
    return f"{drawing.icon.label}/{source.style}_{source.rendition}_{drawing.subtype}.png"


def _write_icon(folder: Path, source: IconSource, drawing: Drawing, pixels: Pixels) -> Row:
    path = _path(source, drawing)
    data = png_bytes(pixels)
    # not waited for: a style that was not recorded is made again
    write_atomically(folder / path, lambda temporary: temporary.write_bytes(data), durable=False)
    return {
        "path": path,
        "class": drawing.icon.label,
        "subtype": drawing.subtype,
        "style": source.style,
        "rendition": str(source.rendition),
        "version": source.version,
        "codepoint": drawing.codepoint,
        "package": f"{source.package.name} {source.package.version}",
        "licence": source.licence,
    }


def _check_rasteriser(sources: Iterable[IconSource]) -> None:
    """Checked before hundreds of megabytes are fetched."""
    if any(source.suffix in (".svg", ".json") for source in sources) and importlib.util.find_spec("resvg_py") is None:
        raise MissingExtraError("resvg-py", "icons", "drawing SVG icons")
