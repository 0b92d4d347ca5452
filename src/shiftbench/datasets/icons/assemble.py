"""Rebuild Icons-50: the icons of many packages, sorted into 50 classes under the file names of the original.

A folder of icons holds ``<class>/<style>_<rendition>_<subtype>.png``, ``icons.csv`` with everything else,
``icons.json`` (how they were made) and their licences. The renditions of a style are made together, and recorded when
all are done: a run that was stopped continues with the styles that are missing.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from shiftbench.arrays import Pixels
from shiftbench.datasets.icons.sources import (
    Drawing,
    Icon,
    IconSource,
    capped,
    choose_sources,
    difference,
    drawings,
    icons,
    is_blank,
    png_bytes,
    rasterise,
)
from shiftbench.errors import BadImageError, DatasetError, MissingExtraError
from shiftbench.io.atomic import write_bytes
from shiftbench.jobs.base import Executor, Job, Problem, Shard
from shiftbench.jobs.blocks import run_items
from shiftbench.jobs.progress import Advance, progress_bar
from shiftbench.outputs.record import Content, OutputRecord, Staging, check_destination, read_record, workshop

TABLE = "icons.csv"
RECORD = "icons.json"
LICENCES = "LICENCES.md"
_ABOUT = "Icons of registry packages, sorted into the classes of Icons-50."
_COLUMNS = ("path", "class", "subtype", "style", "rendition", "version", "codepoint", "package", "licence")
Row = dict[str, str]
#: Most subtypes per class by default: there are 270 flags and 108 faces.
DEFAULT_CAP = 100
#: A rendition that differs less from an earlier one of its style (mean of 255, at 32 pixels) is the same drawing.
SAME_DRAWING = 4.0


@dataclass(frozen=True)
class IconOptions:
    """What a folder of icons is made with; another folder is needed for other options."""

    variant: str
    size: int
    cap: int | None
    skin_tones: bool


class _Output(OutputRecord):
    def read(self) -> Content | None:
        return read_icon_record(self.folder)


@dataclass
class IconRecord:
    """A folder of icons: the styles that are complete."""

    folder: Path
    options: IconOptions
    #: Rows of the table by style.
    rows: dict[str, list[Row]] = field(default_factory=dict)
    #: For each style the number of its images, its sources, and which icons were left out and why.
    styles: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def output(self) -> OutputRecord:
        return _Output(self.folder, RECORD, _ABOUT, {"options": asdict(self.options)})

    def continued(self, content: Content) -> IconRecord:
        """Add the complete styles, which are named in ``content``, that of the record file, and listed in the table."""
        self.styles = content.setdefault("styles", {})
        try:
            with (self.folder / TABLE).open(encoding="utf-8", newline="") as file:
                for row in csv.DictReader(file):
                    if set(_COLUMNS) <= set(row) and row["style"] in self.styles:
                        self.rows.setdefault(row["style"], []).append(row)
        except FileNotFoundError:  # without the table no style is complete
            pass
        return self

    def holds(self, style: str) -> bool:
        """Whether a style is complete, and all its images are present."""
        rows = self.rows.get(style, [])
        if style not in self.styles or len(rows) != self.styles[style]["images"]:
            return False
        return all((self.folder / row["path"]).is_file() for row in rows)

    def add(self, style: str, rows: list[Row], sources: Iterable[IconSource], left_out: dict[str, list[str]]) -> None:
        """Add a style whose icons are all written, to the table and the licences.

        The record file itself is written after this: a style that it names is complete.
        """
        self.rows[style] = rows
        self.styles[style] = {
            "images": len(rows),
            "left_out": left_out,
            "sources": [_source_fields(source) for source in sources],
        }
        table = io.StringIO()
        writer = csv.DictWriter(table, _COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(self.all_rows(), key=lambda row: row["path"]))
        write_bytes(self.folder / TABLE, table.getvalue().encode("utf-8"))
        write_bytes(self.folder / LICENCES, self._licences().encode("utf-8"))

    def all_rows(self) -> list[Row]:
        rows: list[Row] = []
        for style in sorted(self.rows):
            rows += self.rows[style]
        return rows

    def counts(self, column: str) -> dict[str, int]:
        return dict(sorted(Counter(row[column] for row in self.all_rows()).items()))

    def _licences(self) -> str:
        lines = [
            "# Whose icons these are",
            "",
            "The images were read out of registry packages on this machine, for use in experiments here, and drawn",
            "or resized to one size on white. They belong to the holders named below. Before you show them or pass any",
            "on, see that the licence allows it; `icons.csv` names the package and the licence of every image.",
            "",
            "| style | version | package | holder | licence | icons |",
            "|---|---|---|---|---|---|",
        ]
        for style in sorted(self.styles):
            counts = Counter(row["version"] for row in self.rows.get(style, ()))
            for source in self.styles[style]["sources"]:
                version = source["version"]
                cells = [style, version, source["package"], source["holder"], source["licence"], str(counts[version])]
                lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines) + "\n"


def _source_fields(source: IconSource) -> dict[str, str]:
    """A source as the record file describes it."""
    return {
        "version": source.version,
        "package": f"{source.package.name} {source.package.version}",
        "sha256": source.package.sha256,
        "licence": source.licence,
        "holder": source.holder,
    }


def read_icon_record(folder: Path) -> Content | None:
    content = read_record(folder / RECORD, {"styles": dict})
    if content is not None and "recipe" not in content:  # written by version 0.1
        content |= {"about": _ABOUT, "recipe": {"options": content.pop("options", {})}, "skipped": []}
    return content


@dataclass(frozen=True)
class Assembled:
    """The outcome of ``assemble``."""

    record: IconRecord
    #: Icons that this run wrote.
    written: int
    seconds: float

    @property
    def images(self) -> int:
        return len(self.record.all_rows())

    def summary(self) -> dict[str, Any]:
        left_out: Counter[str] = Counter()
        for style in self.record.styles.values():
            left_out.update({reason: len(names) for reason, names in style["left_out"].items()})
        options = self.record.options
        return {
            "icons": str(self.record.folder),
            "images": self.images,
            "written": self.written,
            "seconds": round(self.seconds, 1),
            "size": options.size,
            "cap": options.cap,
            "skin_tones": options.skin_tones,
            "styles": self.record.counts("style"),
            "classes": self.record.counts("class"),
            "subtypes": len(self.record.counts("subtype")),
            "left_out": dict(left_out),
        }


def assemble(
    destination: str | Path,
    *,
    styles: str | Iterable[str] = "all",
    size: int = 64,
    cap: int | None = DEFAULT_CAP,
    skin_tones: bool = False,
    shard: Shard | str | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    progress: bool = True,
) -> Assembled:
    """Fetch the packages of the styles and write their icons, several styles at once; complete styles are kept."""
    started = time.monotonic()
    variant, sources = choose_sources(styles)
    if not 16 <= size <= 512:
        raise DatasetError("invalid size of icons", found=size, expected="16 to 512 pixels")
    if cap is not None and cap < 2:
        raise DatasetError("invalid cap: a class needs two subtypes", found=cap, expected="2 or more")
    # The program that draws SVG is looked for before hundreds of megabytes are fetched.
    if any(source.suffix in (".svg", ".json") for source in sources) and importlib.util.find_spec("resvg_py") is None:
        raise MissingExtraError("resvg-py", "icons", "drawing SVG icons")
    folder = Path(destination)
    options = IconOptions(variant, size, cap, skin_tones)
    shard = Shard.parse(shard)
    check_destination(folder, RECORD)
    needed_icons = capped(icons(), cap)
    record = IconRecord(folder, options)
    record.continued(record.output.draft())  # refuses before anything is touched
    shard_styles = shard.of(list(dict.fromkeys(source.style for source in sources)))
    sources_of_shard = [source for source in sources if source.style in shard_styles]
    missing = [source for source in sources_of_shard if not record.holds(source.style)]
    missing_styles = list(dict.fromkeys(source.style for source in missing))
    total = len(needed_icons) * len(missing)
    with workshop(folder, shard) as staged, progress_bar("icons", total, show=progress) as advance:
        record.output.change(lambda content: content.setdefault("styles", {}))
        job = _Styles(folder, options, missing, needed_icons, staged)
        run_items(job, missing_styles, executor, advance, workers)
    record = IconRecord(folder, options).continued(record.output.draft())
    written = sum(len(record.rows.get(style, ())) for style in missing_styles)
    return Assembled(record, written, time.monotonic() - started)


@dataclass(frozen=True)
class _Styles(Job[str]):
    """The job that writes the icons of styles; an item is the name of a style."""

    folder: Path
    options: IconOptions
    sources: Sequence[IconSource]
    icons: Sequence[Icon]
    staged: Path

    def compute(self, item: str, advance: Advance, *, wait: bool) -> list[Problem]:
        """Write all renditions of a style, the oldest first: a later one is kept where the drawing changed."""
        sources = [source for source in self.sources if source.style == item]
        staging = Staging(self.staged / uuid.uuid4().hex)
        style = _StyleIcons(self.options.size)
        for source in sources:
            count = 0
            for drawing in drawings(source, self.icons, skin_tones=self.options.skin_tones):
                count += 1
                if count <= len(self.icons):  # skin tones are further drawings of the same icons
                    advance(1)
                pixels = style.add(source, drawing)
                if pixels is not None:
                    staging.put(self.folder / _path_of(source, drawing), png_bytes(pixels))
            advance(max(len(self.icons) - count, 0))
        record = IconRecord(self.folder, self.options)
        record.output.change(lambda content: record.continued(content).add(item, style.rows, sources, style.left_out))
        staging.clear()
        return []


class _StyleIcons:
    """Collects the icons of one style: the rows of those that are kept, and why others are left out."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.rows: list[Row] = []
        #: The paths of the icons that are left out, by the reason.
        self.left_out: dict[str, list[str]] = {}
        #: The kept drawings of each subtype, to compare later renditions with.
        self._kept: dict[str, list[Pixels]] = {}

    def add(self, source: IconSource, drawing: Drawing) -> Pixels | None:
        """Draw an icon and add its row; None if it is left out."""
        path = _path_of(source, drawing)
        try:
            pixels = rasterise(drawing.data, self.size, f"{source.package.name}/{drawing.codepoint}")
        except BadImageError:
            self._leave_out(path, "unreadable")
            return None
        if is_blank(pixels):
            self._leave_out(path, "blank")
            return None
        earlier = self._kept.setdefault(drawing.subtype, [])
        if any(difference(pixels, kept) <= SAME_DRAWING for kept in earlier):
            self._leave_out(path, "same drawing as an earlier rendition")
            return None
        earlier.append(pixels)
        row = {
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
        self.rows.append(row)
        return pixels

    def _leave_out(self, path: str, reason: str) -> None:
        self.left_out.setdefault(reason, []).append(path)


def _path_of(source: IconSource, drawing: Drawing) -> str:
    """The path of an icon in its folder, as in the original."""
    return f"{drawing.icon.label}/{source.style}_{source.rendition}_{drawing.subtype}.png"
