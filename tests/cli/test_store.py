"""``store stats | verify | compact | export`` on a real network's predictions."""

from __future__ import annotations

import csv
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import shiftbench as sb
from shiftbench.datasets import from_arrays
from shiftbench.errors import UnknownNameError
from shiftbench.settings.roles import Selection
from tests.commands import answer
from tests.commands import call as shiftbench

call = partial(shiftbench, "store")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("store") / "w"
    sb.evaluate("demo:squeezenet1_1", "clean", "demo", root, select=Selection(sample=24), progress=False)
    return root


def test_stats(workspace: Path) -> None:
    found = answer("store", "stats", workspace)
    assert (found["results"], found["predictions"], found["images"]) == (1, 24, 24)
    size = sum(path.stat().st_size for path in (workspace / "predictions").rglob("*.parquet"))
    assert found["bytes"] == size and found["bytes_per_prediction"] == size / 24
    text = call("stats", workspace).stdout
    assert "1 (1 models, 1 settings)" in text and "24 in 1 datasets" in text


def test_stats_count_two_versions_of_a_name_as_two_models(tmp_path: Path) -> None:
    data = from_arrays(
        np.zeros((4, 8, 8, 3), np.uint8), [0, 1, 0, 1], space=sb.LabelSpace("two", ("a", "b")), name="tiny"
    )
    stated = {"size": 8, "outputs": "logits"}
    for score in (1.0, 2.0):
        weights = np.eye(2)[:1] * score
        sb.evaluate(
            lambda images, weights=weights: weights.repeat(len(images), 0),
            *("clean", data, tmp_path),
            name="same",
            labels=data.space,
            preprocessing=stated,
            progress=False,
        )
    found = answer("store", "stats", tmp_path)
    assert (found["classifiers"], found["results"]) == (2, 2)


def test_verify_names_the_damaged_file_and_ends_with_one(workspace: Path) -> None:
    assert " files, 0 damaged" in call("verify", workspace, "-q").stdout
    (path,) = (workspace / "predictions").rglob("*.parquet")
    whole = path.read_bytes()
    try:
        path.write_bytes(whole[:-10])
        result = call("verify", workspace, "-q", "--json")
        assert result.exit_code == 1
        assert json.loads(result.stdout)["damaged"][0]["file"] == str(path.relative_to(workspace))
    finally:
        path.write_bytes(whole)


def test_compact_writes_the_catalogue(workspace: Path) -> None:
    assert answer("store", "compact", workspace)["catalogued"] == 1
    assert (workspace / "catalogue.parquet").exists()


def test_export_says_how_many_rows(workspace: Path, tmp_path: Path) -> None:
    result = call("export", tmp_path / "all.csv", "-w", workspace, "--top", 5, "-q")
    assert result.exit_code == 0 and "24 rows" in result.stderr
    with (tmp_path / "all.csv").open() as file:
        rows = list(csv.DictReader(file))
    (score,) = [score for _, _, score in sb.Run.open(workspace).scores("top5")]
    hits = sum(row["label"] in (row[f"top{k}"] for k in range(1, 6)) for row in rows)
    assert hits / 24 == pytest.approx(score.value)


def test_what_is_not_there_is_said(workspace: Path, tmp_path: Path) -> None:
    assert isinstance(call("export", tmp_path / "x.csv", "-w", workspace, "-c", "nobody").exception, UnknownNameError)
    for command in ("stats", "verify", "compact"):
        assert "not a workspace" in str(call(command, tmp_path / "none").exception)
