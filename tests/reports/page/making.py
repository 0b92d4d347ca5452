"""Small real workspaces for the page's tests: pictures on disk, classifiers that are plain functions."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import shiftbench as sb
from shiftbench.reports.page.albums import FileAlbum
from shiftbench.reports.page.build import Choices, build_page
from shiftbench.reports.page.failures import draft_failures, illustrate
from shiftbench.reports.page.payload import FailureList, Page, Results
from shiftbench.reports.page.pictures import PictureFinder
from shiftbench.reports.page.published import Published
from shiftbench.store.display_names import classifier_titles
from tests.runs.helpers import COLOURS, brightest_channel

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


def run_colours(data: Any, workspace: Path, *, chosen: Any = None, **options: Any) -> sb.Run:
    options = {
        "suite": "corruptions",
        "corruptions": ("gaussian_noise", "contrast", "frost"),
        "severities": (1, 3, 5),
        "labels": COLOURS,
        **options,
    }
    with warnings.catch_warnings():
        # A classifier at chance level is what these tests want.
        warnings.simplefilter("ignore", UserWarning)
        return sb.evaluate(chosen or classifiers(), data=data, workspace=workspace, progress=False, **options)


def page_of(
    run: sb.Run | None = None, published: Published | None = None, *, budget: float = 1e9, **choices: Any
) -> Page:
    """The page as a reader gets it: through JSON, which nothing that is no number survives."""
    page = build_page(run, published, Choices(**choices), FileAlbum(budget))
    read: Page = json.loads(json.dumps(page, allow_nan=False))
    return read


class Mistakes(NamedTuple):
    lists: list[FailureList]
    pictures: list[str]
    notes: list[str]


def mistakes_of(run: sb.Run, *folders: Path, most: int = 12, budget: float = 1e9) -> Mistakes:
    """The mistakes alone, without the scores and calibration of a whole page."""
    finder, album = PictureFinder(run.workspace, {"": folders}), FileAlbum(budget)
    drafts, notes = draft_failures(run.workspace, run.results, classifier_titles(run.results), finder, most=most)
    notes += illustrate(drafts, album)
    return Mistakes([draft.payload() for draft in drafts], album.urls, notes)


def results_of(page: Page) -> Results:
    results = page["results"]
    assert results is not None
    return results


def number(results: Results, model: str, setting: str) -> Any:
    """[value, low, high, n] of one cell, or None."""
    row = [entry["name"] for entry in results["models"]].index(model)
    column = [entry["name"] for entry in results["settings"]].index(setting)
    return results["cells"][row][column]
