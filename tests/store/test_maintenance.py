"""Catalogue, statistics, verification, compaction and export, against the plain files and DuckDB."""

from __future__ import annotations

import csv
import os
import shutil
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shiftbench as sb
from shiftbench.api import IncompleteRunError
from shiftbench.errors import StoreError
from shiftbench.io.paths import local
from shiftbench.jobs.base import Block
from shiftbench.store import workspace as workspace_module
from shiftbench.store.export import export_table
from shiftbench.store.maintenance import compact, verify, workspace_stats
from shiftbench.store.workspace import Workspace
from tests.raised import raises
from tests.runs.helpers import COLOURS, brightest_channel, colour_folder, darkest_channel
from tests.runs.test_evaluate import run_small, stored

FUNCTIONS: dict[str, Any] = {"bright": brightest_channel, "dark": darkest_channel}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = colour_folder(tmp_path_factory.mktemp("data") / "pictures")
    (data / "green" / "004.png").write_bytes(b"no picture")
    return data


@pytest.fixture(scope="module")
def _made(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made")
    with pytest.warns(UserWarning):
        run_small(pictures, root, functions=FUNCTIONS)
    return root


@pytest.fixture
def made(_made: Path, tmp_path: Path) -> Workspace:
    """A real workspace of ten results, to be damaged at will."""
    shutil.copytree(_made, tmp_path / "w")
    return Workspace(tmp_path / "w", create=False)


def names(workspace: Workspace) -> list[tuple[str, str, str]]:
    return [(result.classifier, result.setting, result.key) for result in workspace.results()]


# -- the catalogue -------------------------------------------------------------------------------------------


def test_a_catalogue_lists_the_same_cells_without_opening_files(
    made: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = list(made.results())
    assert made.write_catalogue() == 10

    def refuse(path: Path) -> Any:
        raise AssertionError(f"{path} was opened")

    monkeypatch.setattr(workspace_module, "read_spec", refuse)
    assert list(made.results()) == before
    assert names(made) == [(result.classifier, result.setting, result.key) for result in before]
    assert [result.setting for result in made.results(["dark"], ["pictures"])] == ["pictures"]


def test_a_catalogue_follows_files_that_come_and_go(made: Workspace, pictures: Path) -> None:
    made.write_catalogue()
    next(iter(made.prediction_files()))[2].unlink()
    assert len(names(made)) == 9
    run_small(pictures, made.root, functions={"third": brightest_channel}, suite="clean")
    assert len(names(made)) == 10 and ("third", "pictures") in {(a, b) for a, b, _ in names(made)}


@pytest.mark.parametrize("damage", ["torn", "edited", "not ours"])
def test_a_damaged_catalogue_is_not_believed(made: Workspace, damage: str) -> None:
    before = list(made.results())
    made.write_catalogue()
    path = local(made.root) / "catalogue.parquet"
    if damage == "torn":
        path.write_bytes(path.read_bytes()[:-50])
    elif damage == "edited":
        table = pq.read_table(path)
        specs = [text.replace("bilinear", "nearest") for text in table.column("spec").to_pylist()]
        assert specs != table.column("spec").to_pylist()
        pq.write_table(table.set_column(1, "spec", pa.array(specs)), path)
    else:
        pq.write_table(pa.table({"a": [1]}), path)
    assert list(made.results()) == before


def test_a_run_of_many_results_writes_the_catalogue(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shiftbench.runs.execute._WORTH_CATALOGUING", 5)
    run_small(pictures, tmp_path / "few", suite="clean")
    assert not (tmp_path / "few" / "catalogue.parquet").exists()
    run_small(pictures, tmp_path / "many")
    assert pq.read_table(tmp_path / "many" / "catalogue.parquet").num_rows == 5


# -- statistics and verification ------------------------------------------------------------------------------


def test_statistics_count_what_is_there(made: Workspace, pictures: Path) -> None:
    run_small(pictures, made.root, functions={"later": brightest_channel}, suite="clean", shard="1/2")
    found = workspace_stats(made)
    sizes = [path.stat().st_size for path in (made.root / "predictions").rglob("*.parquet")]
    assert (found.classifiers, found.settings, found.results) == (2, 5, 10)
    assert found.predictions == 10 * 60 and found.bytes == sum(sizes)
    assert (found.datasets, found.images, found.skipped_images) == (1, 60, 1)
    assert (found.unfinished_results, found.unfinished_blocks) == (1, 2)


def test_a_whole_workspace_verifies(made: Workspace) -> None:
    counted: list[int] = []
    assert list(verify(made, counted.append)) == []
    files = [path for path in local(made.root).rglob("*") if path.is_file() and path.parent.name != "locks"]
    assert sum(counted) == len(files) > 10, "all of them"


def test_every_kind_of_damage_is_named(made: Workspace) -> None:
    paths = [local(path) for _, _, path in made.prediction_files()]
    paths[0].write_bytes(paths[0].read_bytes()[:-100])
    flipped = bytearray(paths[1].read_bytes())
    flipped[60] ^= 0xFF
    paths[1].write_bytes(bytes(flipped))
    shutil.copy(paths[3], paths[2])
    found = {damage.file: damage.why for damage in verify(made)}
    assert set(found) == {str(path.relative_to(local(made.root))) for path in paths[:3]}
    assert "written for another place" in found[str(paths[2].relative_to(local(made.root)))]


def test_shards_are_verified_too(pictures: Path, tmp_path: Path) -> None:
    run_small(pictures, tmp_path / "w", shard="1/2", suite="clean")
    (first, *_) = sorted((tmp_path / "w" / "shards").rglob("*.parquet"))
    first.write_bytes(b"PAR1")
    (damage,) = verify(Workspace(tmp_path / "w"))
    assert damage.file.endswith(first.name)


# -- compaction -----------------------------------------------------------------------------------------------


def test_compaction_joins_what_is_whole_and_gives_the_bytes_of_a_run(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shiftbench.runs.execute._complete", lambda *_: False)  # killed before it joins
    with pytest.raises(IncompleteRunError):
        run_small(pictures, tmp_path / "w")
    monkeypatch.undo()
    assert stored(tmp_path / "w") == {}
    done = compact(Workspace(tmp_path / "w"))
    assert (done.joined, done.catalogued) == (5, 5)
    run_small(pictures, tmp_path / "whole")
    assert stored(tmp_path / "w") == stored(tmp_path / "whole")
    assert not list((tmp_path / "w" / "shards").rglob("*.parquet"))


def test_compaction_leaves_what_is_not_whole_alone(pictures: Path, tmp_path: Path) -> None:
    run_small(pictures, tmp_path / "w", shard="1/2")
    before = {path: path.read_bytes() for path in (tmp_path / "w" / "shards").rglob("*.parquet")}
    done = compact(Workspace(tmp_path / "w"))
    assert done.joined == done.removed_blocks == 0
    assert {path: path.read_bytes() for path in (tmp_path / "w" / "shards").rglob("*.parquet")} == before


def test_compaction_clears_up_after_the_killed(made: Workspace) -> None:
    result = next(made.results())
    shard = local(made.block_path(result, Block(0, 1)))
    shard.parent.mkdir(parents=True)
    shutil.copy(local(made.predictions_path(result)), shard)
    young, old = (local(made.root) / "predictions" / f".x.parquet.{name}.tmp" for name in ("young", "old"))
    young.write_bytes(b"")
    old.write_bytes(b"")
    os.utime(old, (0, 0))
    before = stored(made.root)
    done = compact(made)
    assert (done.removed_blocks, done.removed_temporary) == (1, 1)
    assert not shard.exists() and young.exists() and not old.exists() and not list((made.root / "locks").iterdir())
    assert stored(made.root) == before


# -- export ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_accuracies_of_the_exported_table_equal_ours(made: Workspace, tmp_path: Path, suffix: str) -> None:
    """DuckDB over the long table, against the scores of the run."""
    path = tmp_path / f"all{suffix}"
    assert export_table(made, path, made.results()) == 600
    query = f"select classifier, setting, avg(correct::int), count(correct) from '{path}' group by all"
    theirs = {(row[0], row[1]): (row[2], row[3]) for row in duckdb.connect().execute(query).fetchall()}
    ours = {(name, setting): (score.value, score.n) for name, setting, score in sb.Run.open(made.root).scores("top1")}
    assert theirs == {result: pytest.approx(score) for result, score in ours.items()}
    assert {n for _, n in theirs.values()} == {59}


def test_one_image_over_all_classifiers(made: Workspace, tmp_path: Path) -> None:
    export_table(made, tmp_path / "one.csv", made.results(), top_k=3, images=["blue/007.png"])
    with (tmp_path / "one.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 10
    run = sb.Run.open(made.root)
    for row in rows:
        own = run.predictions(row["classifier"], row["setting"])
        at = list(own.ids).index("blue/007.png")
        assert row["label"] == "blue" and row["image"] == "blue/007.png"
        assert [row["top1"], row["top2"], row["top3"]] == [COLOURS.keys[k] for k in own.top[at]]
        assert np.float32(row["confidence"]) == own.confidence[at]


def test_a_skipped_picture_has_no_answer(made: Workspace, tmp_path: Path) -> None:
    export_table(made, tmp_path / "one.parquet", made.results(), top_k=5, images=["green/004.png"])
    for row in pq.read_table(tmp_path / "one.parquet").to_pylist():
        assert (row["top1"], row["top5"], row["confidence"], row["correct"]) == (None, None, None, None)
        assert row["label"] == "green"


def test_another_format_is_refused_before_anything_is_written(made: Workspace, tmp_path: Path) -> None:
    with raises(StoreError, found="all.xlsx"):
        export_table(made, tmp_path / "all.xlsx", made.results())
    assert not (tmp_path / "all.xlsx").exists()


def test_a_failed_export_leaves_no_half_table(made: Workspace, tmp_path: Path) -> None:
    paths = [local(path) for _, _, path in made.prediction_files()]
    results = list(made.results())
    paths[-1].write_bytes(b"PAR1")
    with pytest.raises(StoreError, match="damaged"):
        export_table(made, tmp_path / "all.csv", results)
    assert [path.name for path in tmp_path.iterdir()] == ["w"]
