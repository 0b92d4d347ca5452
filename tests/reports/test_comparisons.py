"""The table of comparisons."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

import shiftbench as sb
from shiftbench.errors import StoreError
from shiftbench.reports.comparisons import compare_all, compare_runs
from shiftbench.reports.table import Table
from tests.metrics.making import predictions, with_hits
from tests.reports.recorded import record


@pytest.fixture(scope="module")
def table() -> Table:
    easy = np.arange(300)
    right = {
        "efficientnet_lite0": easy < 240,
        "efficientnet_lite1": (easy < 230) | (easy >= 285),
        "squeezenet": (easy < 120) | (easy >= 290),
    }
    return compare_all(
        with_hits(hits, classifier=name, setting="demo", provenance="300 images") for name, hits in right.items()
    )


@pytest.mark.parametrize(("width", "ascii_only"), [(45, False), (50, True), (80, False), (200, True)])
def test_fits_and_shows_what_matters(table: Table, width: int, ascii_only: bool) -> None:
    text = table.to_text(width, ascii_only=ascii_only)
    assert max(map(len, text.splitlines())) <= width
    assert text.isascii() or not ascii_only
    part = table.parts[0]
    assert all(part.columns[4].cell(row).whole in text for row in part.shown)
    assert "n = 300" in text and "corrected for 3 comparisons" in " ".join(text.split())


def test_only_a_wide_terminal_has_room_for_everything(table: Table) -> None:
    assert "only 2nd  " in table.to_text(140)
    eighty = table.to_text(80).splitlines()
    assert eighty[2].split() == ["first", "second", "difference", "p", "(Holm)", "better"]
    assert [line.split()[-1] for line in eighty[4:7]] == ["–", "first", "first"]


def test_verdicts(table: Table) -> None:
    better = [row["better"] for row in table.parts[0].shown]
    assert better == ["undecided", "efficientnet_lite0", "efficientnet_lite1"]
    assert [row["better"] for row in table.rows] == ["", "efficientnet_lite0", "efficientnet_lite1"]


def test_formats_carry_the_same_rows(table: Table) -> None:
    rows = list(csv.DictReader(io.StringIO(table.to_csv())))
    data = json.loads(table.to_json())["comparisons"]
    assert len(rows) == len(data) == 3
    for row, fields in zip(rows, data, strict=True):
        assert float(row["difference"]) == fields["difference"]
        assert (row["better"], fields["n"]) == (fields["better"], 300)
    assert r"efficientnet\_lite0" in table.to_latex() and r"efficientnet\_lite0" in table.to_markdown()
    assert table.to_latex().count(r"\\") == 4


def test_nothing_to_compare() -> None:
    assert "at least two models" in compare_all([with_hits([1])]).to_text(80)


def test_no_common_image_prints_dashes() -> None:
    pair = [predictions([0, -1], [0, 0], classifier="a"), predictions([-1, 0], [0, 0], classifier="b")]
    found = compare_all(pair)
    part = found.parts[0]
    assert part.columns[4].cell(part.shown[0]).whole == "–"
    assert json.loads(found.to_json())["comparisons"][0]["p"] is None


def test_results_on_other_images_are_left_out_across_workspaces(tmp_path: Path) -> None:
    for model, images in (("a", 50), ("b", 50), ("c", 40)):
        record(tmp_path / ("second" if model == "b" else "first"), "val", images, 30, model=model)
    runs = [sb.Run.open(tmp_path / name) for name in ("first", "second")]
    found = compare_runs(runs, "val")
    assert [(row["first"], row["second"], row["n"]) for row in found.rows] == [("a", "b", 50)]
    assert any("left out: c" in note for note in found.notes)
    with pytest.raises(StoreError):
        compare_runs([sb.Run(runs[0].workspace, [])])
