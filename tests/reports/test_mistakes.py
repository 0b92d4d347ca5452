"""Confusions and tags: counted by hand, kept in the workspace, the same under every shift."""

from __future__ import annotations

from pathlib import Path

import pytest

import shiftbench as sb
from shiftbench.errors import ShiftbenchError
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.reports.images import confusion_table, read_tags, set_tag, tag_table
from tests.reports.recorded import record
from tests.runs.helpers import COLOURS


@pytest.fixture
def run(tmp_path: Path) -> sb.Run:
    """Twelve images of three classes; six and nine of them right, the others taken for the next class."""
    for model, hits in (("poor", 6), ("good", 9)):
        record(tmp_path / "w", "val", 12, hits, model=model, space=COLOURS)
    return sb.Run.open(tmp_path / "w")


def test_confusions_are_counted(run: sb.Run) -> None:
    poor = run.predictions("poor", "val")
    table = confusion_table([poor], most=2)
    assert [(row["count"], row["of"]) for row in table.rows] == [(2, 4)] * 3 and len(table.shown) == 2
    names = poor.space.names
    assert {(row["label"], row["prediction"]) for row in table.rows} == {(names[i], names[i - 2]) for i in range(3)}
    low, high = clopper_pearson(2, 4, 0.95)
    assert (table.rows[0]["low"], table.rows[0]["high"]) == (low, high)
    [whole] = table.as_data()["matrices"]
    assert whole["matrix"] == [[2, 2, 0], [0, 2, 2], [2, 0, 2]] and whole["classes"] == list(names)


def test_tags_are_kept_and_counted(run: sb.Run) -> None:
    dataset = run.results[0].spec.dataset
    with pytest.raises(ShiftbenchError, match="no image is tagged"):
        tag_table(run)
    for image, tag in (("0", "right"), ("7", "texture"), ("7", "two objects"), ("11", " texture ")):
        set_tag(run.workspace, dataset, image, tag, on=True)
    assert read_tags(sb.Workspace(run.workspace.root), dataset)["7"] == ["texture", "two objects"]
    counts = {(row["model"], row["tag"]): (row["count"], row["of"]) for row in tag_table(run).rows}
    # Image 0 is classified correctly by both, image 7 by the good model: a tag counts only where there is a mistake.
    assert counts == {("poor", "texture"): (2, 2), ("poor", "two objects"): (1, 2), ("good", "texture"): (1, 1)}
    assert set_tag(run.workspace, dataset, "7", "texture", on=False) == ["two objects"]
    assert set_tag(run.workspace, dataset, "7", "two objects", on=False) == [] and "7" not in read_tags(
        run.workspace, dataset
    )


@pytest.mark.parametrize(("image", "tag"), [("99", "texture"), ("7", " "), ("7", "x" * 41)])
def test_bad_tags_are_refused(run: sb.Run, image: str, tag: str) -> None:
    with pytest.raises(ShiftbenchError):
        set_tag(run.workspace, run.results[0].spec.dataset, image, tag, on=True)
    assert read_tags(run.workspace, run.results[0].spec.dataset) == {}
