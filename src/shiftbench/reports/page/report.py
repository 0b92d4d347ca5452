"""From a run and a published table to a file on disk, in one call."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shiftbench.reports.page.albums import BUDGET, FileAlbum
from shiftbench.reports.page.build import Bar, Choices, build_page, silent
from shiftbench.reports.page.payload import Page
from shiftbench.reports.page.published import Published
from shiftbench.reports.page.write import check_file_name, write_page
from shiftbench.runs.results import StoredResults


@dataclass(frozen=True)
class Written:
    """What a report turned out to be."""

    path: str
    bytes: int
    models: int
    settings: int
    corruption_families: int
    calibration_diagrams: int
    mistakes: int
    pictures: int
    notes: list[str]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def counts(self) -> str:
        """
        >>> Written("r.html", 9, 1, 46, 0, 0, 12, 20, []).counts
        '1 model, 46 settings, 12 mistakes, 20 pictures'
        """
        shown = {"model": self.models, "setting": self.settings, "mistake": self.mistakes, "picture": self.pictures}
        return ", ".join(f"{n:,} {what}{'' if n == 1 else 's'}" for what, n in shown.items() if n)


def write_report(
    path: str | Path,
    run: StoredResults | None = None,
    published: Published | None = None,
    choices: Choices | None = None,
    *,
    bar: Bar = silent,
) -> Written:
    """Write the page on a run, a published table or both.

    Pictures fill the file up to a bound; whoever says how many mistakes to show gets that many.
    """
    path, chosen = Path(path), choices or Choices()
    check_file_name(path)
    album = FileAlbum(BUDGET if chosen.failures is None else float("inf"))
    page = build_page(run, published, chosen, album, bar=bar)
    return _written(path, write_page(path, page), page)


def _written(path: Path, size: int, page: Page) -> Written:
    results = page["results"]
    return Written(
        str(path),
        size,
        len(results["models"]) if results else 0,
        len(results["settings"]) if results else 0,
        len(page["corruptions"]),
        len(page["calibration"]),
        sum(len(one["images"]) for one in page["failures"]),
        len(page["pictures"]),
        [*(results["notes"] if results else []), *page["warnings"]],
    )
