"""The files beside the icons: a table of all of them, how they were made, and their licences."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from shiftbench.datasets.icons.sources import IconSource
from shiftbench.errors import DatasetError
from shiftbench.io.atomic import write_atomically, write_json
from shiftbench.outputs.record import Content, check_recipe
from shiftbench.outputs.record import read_record as read_any_record

TABLE, RECORD, LICENCES = "icons.csv", "icons.json", "LICENCES.md"
COLUMNS = ("path", "class", "subtype", "style", "rendition", "version", "codepoint", "package", "licence")
Row = Mapping[str, str]


@dataclass(frozen=True)
class IconOptions:
    """Common to all icons of a folder."""

    variant: str
    size: int
    cap: int | None
    skin_tones: bool

    def check(self) -> None:
        if not 16 <= self.size <= 512:
            raise DatasetError("invalid size of icons", found=self.size, expected="16 to 512 pixels")
        if self.cap is not None and self.cap < 2:
            raise DatasetError("invalid cap: a class needs two subtypes", found=self.cap, expected="2 or more")


@dataclass
class Record:
    """A folder of icons: the styles that are complete."""

    folder: Path
    options: IconOptions
    #: Rows of the table by style.
    rows: dict[str, list[Row]] = field(default_factory=dict)
    #: By style: its sources, and which icons were left out and why.
    about: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path, options: IconOptions) -> Record:
        """The record of a folder, new or continued with the same options."""
        if not (folder / RECORD).is_file():
            record = cls(folder, options)
            record._write_record()  # from now on the folder is known for what it is
            return record
        content = read_record(folder)
        check_recipe(folder, {"options": content["options"]}, {"options": asdict(options)})
        record = cls(folder, options, about=content["styles"])
        for row in _read_table(folder):
            if row["style"] in record.about:
                record.rows.setdefault(row["style"], []).append(row)
        return record

    def holds(self, style: str) -> bool:
        """Whether all icons of a style are there."""
        rows = self.rows.get(style, [])
        listed = style in self.about and len(rows) == self.about[style]["images"]
        return listed and all((self.folder / row["path"]).is_file() for row in rows)

    def add(
        self, style: str, rows: Iterable[Row], sources: Iterable[IconSource], left_out: Mapping[str, list[str]]
    ) -> None:
        """A style whose icons are all written. The record itself is written last: a style that it names is complete."""
        self.rows[style] = list(rows)
        self.about[style] = {
            "images": len(self.rows[style]),
            "left_out": dict(left_out),
            "sources": [_about_source(source) for source in sources],
        }
        _write_text(self.folder / TABLE, self._table())
        _write_text(self.folder / LICENCES, self._licences())
        self._write_record()

    def _write_record(self) -> None:
        write_json(self.folder / RECORD, {"format": 1, "options": asdict(self.options), "styles": self.about})

    def all_rows(self) -> list[Row]:
        return [row for style in sorted(self.rows) for row in self.rows[style]]

    def counts(self, column: str) -> dict[str, int]:
        return dict(sorted(Counter(row[column] for row in self.all_rows()).items()))

    def _table(self) -> str:
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(self.all_rows(), key=lambda row: row["path"]))
        return buffer.getvalue()

    def _licences(self) -> str:
        lines = [
            "# Whose icons these are",
            "",
            "The pictures were read out of registry packages on this machine, for use in experiments here, and drawn",
            "or resized to one size on white. They belong to the holders named below. Before you show them or pass any",
            "on, see that the licence allows it; `icons.csv` names the package and the licence of every picture.",
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


def _about_source(source: IconSource) -> dict[str, str]:
    return {
        "version": source.version,
        "package": f"{source.package.name} {source.package.version}",
        "sha256": source.package.sha256,
        "licence": source.licence,
        "holder": source.holder,
    }


def read_record(folder: Path) -> Content:
    """How the icons of a folder were made; nothing if there is no record."""
    return read_any_record(folder / RECORD, {"options": dict, "styles": dict}) or {"options": {}, "styles": {}}


def _read_table(folder: Path) -> list[dict[str, str]]:
    """The rows of complete styles; without the table none is complete."""
    try:
        with (folder / TABLE).open(encoding="utf-8", newline="") as file:
            return [row for row in csv.DictReader(file) if set(COLUMNS) <= set(row)]
    except FileNotFoundError:
        return []


def _write_text(path: Path, text: str) -> None:
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8", newline="\n"))
