"""Small real workspaces for the page's tests: pictures on disk, classifiers that are plain functions."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

import shiftbench as sb
from shiftbench.published.importers import open_table
from shiftbench.reports.page.payload import Page, ResultGrid
from shiftbench.reports.page.published import Published
from shiftbench.reports.page.report_data import ReportData, ReportOptions, build_page
from shiftbench.reports.page.sections import Section, results
from shiftbench.reports.page.sections.corruptions import CorruptionFamily, CorruptionRow
from shiftbench.reports.page.sections.failures import FailureList, draft_failures, illustrate
from shiftbench.reports.page.thumbnails import FileAlbum, ImageFinder
from shiftbench.reports.page.write import page_json
from tests.runs.helpers import COLOURS, brightest_channel

Part = TypeVar("Part")

SMALL = sb.Preprocessing(sb.Geometry(resize=36, crop=32))
LARGER = sb.Preprocessing(sb.Geometry(resize=30, crop=28, interpolation="bicubic"))


def unsure_channel(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Wrong now and then: it looks at the upper left pixel only."""
    return brightest_channel(images[:, :1, :1])


def classifiers() -> list[sb.Classifier]:
    return [
        sb.load_classifier(brightest_channel, labels=COLOURS, preprocessing=SMALL, name="bright"),
        sb.load_classifier(unsure_channel, labels=COLOURS, preprocessing=LARGER, name="unsure"),
    ]


def channel_network() -> sb.Classifier:
    """``brightest_channel`` as a torch network, which attacks need."""
    import torch

    class Channels(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.tensor(3.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.scale * x.mean(dim=(2, 3))

    return sb.load_classifier(Channels(), labels=COLOURS, preprocessing=SMALL, engine="torch", name="network")


def run_colours(data: Any, workspace: Path, *, chosen: Any = None, **options: Any) -> sb.Run:
    if options.setdefault("suite", "corruptions") == "corruptions":
        options = {"corruptions": ("gaussian_noise", "contrast", "frost"), "severities": (1, 3, 5), **options}
    options.setdefault("labels", COLOURS)
    with warnings.catch_warnings():
        # A classifier at chance level is what these tests want.
        warnings.simplefilter("ignore", UserWarning)
        return sb.evaluate(chosen or classifiers(), data=data, workspace=workspace, progress=False, **options)


def page_of(
    run: sb.Run | None = None, published: Published | None = None, *, budget: float = 1e9, **options: Any
) -> Page:
    """The page as a reader gets it: it can be written as JSON, where nan and infinity are errors."""
    page = build_page(ReportData(run, published, ReportOptions(**options), FileAlbum(budget=budget)))
    assert json.loads(page_json(page))["title"] == page["title"]
    return page


def grid_of(run: sb.Run | None = None, published: Published | None = None, **options: Any) -> ResultGrid:
    """The grid alone, without the other sections of a page."""
    grid = ReportData(run, published, ReportOptions(**options), FileAlbum()).grid
    read: ResultGrid = json.loads(json.dumps(grid, allow_nan=False))
    return read


def read_published(data: Path) -> Published:
    return Published(data.name, open_table(data))


class Mistakes(NamedTuple):
    lists: list[FailureList]
    thumbnails: list[str]
    notes: list[str]


def mistakes_of(run: sb.Run, *folders: Path, most: int = 12, budget: float = 1e9) -> Mistakes:
    """The mistakes alone, without the scores and calibration of a whole page."""
    finder = ImageFinder(run.workspace, {"": folders})
    album = FileAlbum(budget=budget)
    drafts, notes = draft_failures(run.results, finder, most=most)
    notes += illustrate(drafts, album)
    return Mistakes([draft.mistakes for draft in drafts], album.urls, notes)


def part_of(page: Page, section: Section[Part]) -> Part:
    """The part of a page that must have it."""
    found = section.of(page)
    assert found is not None
    return found


def results_of(page: Page) -> ResultGrid:
    return part_of(page, results.SECTION)


def number(grid: ResultGrid, model: str, setting: str) -> Any:
    """[value, low, high, n] of one cell, or None."""
    row = [entry["name"] for entry in grid["models"]].index(model)
    column = [entry["name"] for entry in grid["settings"]].index(setting)
    return grid["estimates"][row][column]


def accuracies(page: Page, family: CorruptionFamily, row: CorruptionRow) -> list[list[Any]]:
    """By corruption and severity: what the page shows, from the results of the page or from the row itself."""
    if not family["settings"]:
        return [list(by_severity) for by_severity in row["accuracy"]]
    grid = results_of(page)
    shown = []
    for settings in family["settings"]:
        shown.append([number(grid, row["model"], setting) if setting else None for setting in settings])
    return shown
