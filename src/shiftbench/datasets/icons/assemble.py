"""Rebuild Icons-50: the icons of many packages, sorted into 50 classes under the file names of the original.

``<class>/<style>_<rendition>_<subtype>.png``, ``icons.csv`` with everything else, ``icons.json`` (how they were made)
and their licences. The renditions of a style are made together, and recorded when all are done: a run that was stopped
continues with the styles that are missing.
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

TABLE, RECORD, LICENCES = "icons.csv", "icons.json", "LICENCES.md"
_ABOUT = "Icons of registry packages, sorted into the classes of Icons-50."
_COLUMNS = ("path", "class", "subtype", "style", "rendition", "version", "codepoint", "package", "licence")
Row = dict[str, str]
#: Most subtypes per class by default: there are 270 flags and 108 faces.
DEFAULT_CAP = 100
#: A rendition that differs less from an earlier one of its style (mean of 255, at 32 pixels) is the same drawing.
SAME_DRAWING = 4.0


@dataclass(frozen=True)
class IconOptions:
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
    #: By style: its sources, and which icons were left out and why.
    about: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def output(self) -> OutputRecord:
        return _Output(self.folder, RECORD, _ABOUT, {"options": asdict(self.options)})

    def continued(self, content: Content) -> IconRecord:
        """With the complete styles: those that ``content``, the record's, names and the table lists."""
        self.about = content.setdefault("styles", {})
        try:
            with (self.folder / TABLE).open(encoding="utf-8", newline="") as file:
                for row in csv.DictReader(file):
                    if set(_COLUMNS) <= set(row) and row["style"] in self.about:
                        self.rows.setdefault(row["style"], []).append(row)
        except FileNotFoundError:  # without the table no style is complete
            pass
        return self

    def holds(self, style: str) -> bool:
        rows = self.rows.get(style, [])
        listed = style in self.about and len(rows) == self.about[style]["images"]
        return listed and all((self.folder / row["path"]).is_file() for row in rows)

    def add(self, style: str, rows: list[Row], sources: Iterable[IconSource], left_out: dict[str, list[str]]) -> None:
        """A style whose icons are all written. The record itself is written last: a style that it names is complete."""
        self.rows[style] = rows
        self.about[style] = {
            "images": len(rows),
            "left_out": left_out,
            "sources": [
                {
                    "version": source.version,
                    "package": f"{source.package.name} {source.package.version}",
                    "sha256": source.package.sha256,
                    "licence": source.licence,
                    "holder": source.holder,
                }
                for source in sources
            ],
        }
        table = io.StringIO()
        writer = csv.DictWriter(table, _COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(self.all_rows(), key=lambda row: row["path"]))
        for name, text in ((TABLE, table.getvalue()), (LICENCES, self._licences())):
            write_bytes(self.folder / name, text.encode("utf-8"))

    def all_rows(self) -> list[Row]:
        return [row for style in sorted(self.rows) for row in self.rows[style]]

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
        for style in sorted(self.about):
            counts = Counter(row["version"] for row in self.rows.get(style, ()))
            for source in self.about[style]["sources"]:
                cells = (style, *(source[k] for k in ("version", "package", "holder", "licence")))
                lines.append(f"| {' | '.join(cells)} | {counts[source['version']]} |")
        return "\n".join(lines) + "\n"


def read_icon_record(folder: Path) -> Content | None:
    content = read_record(folder / RECORD, {"styles": dict})
    if content is not None and "recipe" not in content:  # written by version 0.1
        content |= {"about": _ABOUT, "recipe": {"options": content.pop("options", {})}, "skipped": []}
    return content


@dataclass(frozen=True)
class Assembled:
    record: IconRecord
    #: Icons that this run wrote.
    written: int
    seconds: float

    @property
    def images(self) -> int:
        return len(self.record.all_rows())

    def summary(self) -> dict[str, Any]:
        left_out: Counter[str] = Counter()
        for about in self.record.about.values():
            left_out.update({reason: len(names) for reason, names in about["left_out"].items()})
        options = asdict(self.record.options)
        return {
            "icons": str(self.record.folder),
            "images": self.images,
            "written": self.written,
            "seconds": round(self.seconds, 1),
            **{name: options[name] for name in ("size", "cap", "skin_tones")},
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
    """Fetch the packages of the styles and write their icons, several styles at once; what is there already stays."""
    started = time.monotonic()
    variant, sources = choose_sources(styles)
    if not 16 <= size <= 512:
        raise DatasetError("invalid size of icons", found=size, expected="16 to 512 pixels")
    if cap is not None and cap < 2:
        raise DatasetError("invalid cap: a class needs two subtypes", found=cap, expected="2 or more")
    # checked before hundreds of megabytes are fetched
    if any(source.suffix in (".svg", ".json") for source in sources) and importlib.util.find_spec("resvg_py") is None:
        raise MissingExtraError("resvg-py", "icons", "drawing SVG icons")
    folder, options, part = Path(destination), IconOptions(variant, size, cap, skin_tones), Shard.parse(shard)
    check_destination(folder, RECORD)
    wanted = capped(icons(), cap)
    record = IconRecord(folder, options)
    record.continued(record.output.draft())  # refuses before anything is touched
    own = part.of(list(dict.fromkeys(source.style for source in sources)))
    missing = [source for source in sources if source.style in own and not record.holds(source.style)]
    styles_to_do = list(dict.fromkeys(source.style for source in missing))
    total = len(wanted) * len(missing)
    with workshop(folder, part) as staged, progress_bar("icons", total, show=progress) as advance:
        record.output.change(lambda content: content.setdefault("styles", {}))
        run_items(_Styles(folder, options, missing, wanted, staged), styles_to_do, executor, advance, workers)
    record = IconRecord(folder, options).continued(record.output.draft())
    written = sum(len(record.rows.get(style, ())) for style in styles_to_do)
    return Assembled(record, written, time.monotonic() - started)


@dataclass(frozen=True)
class _Styles(Job[str]):
    """The icons of styles; an item is the name of one."""

    folder: Path
    options: IconOptions
    sources: Sequence[IconSource]
    wanted: Sequence[Icon]
    staged: Path

    def compute(self, item: str, advance: Advance, *, wait: bool) -> list[Problem]:
        """All renditions of a style, the oldest first: a later one is kept where the drawing changed."""
        own = [source for source in self.sources if source.style == item]
        staging = Staging(self.staged / uuid.uuid4().hex)
        rows: list[Row] = []
        left_out: dict[str, list[str]] = {}
        earlier: dict[str, list[Pixels]] = {}
        for source in own:
            seen, package = 0, f"{source.package.name} {source.package.version}"
            for drawing in drawings(source, self.wanted, skin_tones=self.options.skin_tones):
                seen += 1
                if seen <= len(self.wanted):
                    advance(1)
                path = f"{drawing.icon.label}/{source.style}_{source.rendition}_{drawing.subtype}.png"
                known = earlier.setdefault(drawing.subtype, [])
                try:
                    name = f"{source.package.name}/{drawing.codepoint}"
                    pixels = rasterise(drawing.data, self.options.size, name)
                except BadImageError:
                    left_out.setdefault("unreadable", []).append(path)
                    continue
                if is_blank(pixels):
                    left_out.setdefault("blank", []).append(path)
                    continue
                if any(difference(pixels, other) <= SAME_DRAWING for other in known):
                    left_out.setdefault("same drawing as an earlier rendition", []).append(path)
                    continue
                known.append(pixels)
                staging.put(self.folder / path, png_bytes(pixels))
                about = (drawing.icon.label, drawing.subtype, source.style, str(source.rendition), source.version)
                values = (path, *about, drawing.codepoint, package, source.licence)
                rows.append(dict(zip(_COLUMNS, values, strict=True)))
            advance(max(len(self.wanted) - seen, 0))
        record = IconRecord(self.folder, self.options)
        record.output.change(lambda content: record.continued(content).add(item, rows, own, left_out))
        staging.clear()
        return []
