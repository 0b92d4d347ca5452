from __future__ import annotations

import multiprocessing
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from shiftbench.errors import StoreError
from shiftbench.io.atomic import write_atomically, write_json
from shiftbench.io.locks import file_lock
from shiftbench.io.paths import local
from shiftbench.labels.space import LabelSpace, single_labels
from shiftbench.store.prediction_files import PredictionBlock, write_block
from shiftbench.store.predictions import Predictions, setting_rows
from shiftbench.store.spec import DatasetRef, ResultSpec, ShiftRecord
from shiftbench.store.workspace import Result, Workspace, space_key
from tests.raised import raises

ANIMALS = LabelSpace("animals", ("ant", "bee", "cat", "dog"))
PETS = LabelSpace("pets", ("cat", "dog"))


def test_a_folder_with_other_things_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(StoreError, match="not empty"):
        Workspace(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_run_killed_while_making_the_workspace_does_not_block_it(tmp_path: Path) -> None:
    (tmp_path / ".workspace.json.12345678.tmp").write_text("{")
    Workspace(tmp_path)
    assert (tmp_path / "workspace.json").exists()


def test_two_runs_that_make_a_workspace_at_once_have_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run looks before the first has made the workspace, and creates it after the first uses it."""
    looked = iter([FileNotFoundError()])
    first = Workspace(tmp_path)
    first.record_space(PETS)
    read = Workspace._read_format

    def look(self: Workspace) -> int:
        for error in looked:
            raise error
        return read(self)

    monkeypatch.setattr(Workspace, "_read_format", look)
    second = Workspace(tmp_path)
    first.check_present()
    second.check_present()
    assert [path.name for path in tmp_path.glob("*workspace.json*")] == ["workspace.json"]


def test_a_missing_workspace_is_not_made_by_readers(tmp_path: Path) -> None:
    with raises(StoreError, found="no such folder"):
        Workspace(tmp_path / "no", create=False)
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("create", [True, False])
def test_a_file_is_not_a_workspace(tmp_path: Path, create: bool) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(StoreError, match="a file"):
        Workspace(tmp_path / "notes.txt", create=create)


def test_another_format_is_refused(tmp_path: Path) -> None:
    write_json(tmp_path / "workspace.json", {"format": 99})
    with raises(StoreError, found=99, expected="1 or 2"):
        Workspace(tmp_path)


@pytest.mark.parametrize("name", ["timm:resnet50", "../../etc", ".hidden", "a/b", "ünï", "model v2 (best)", "100%"])
def test_any_name_is_one_safe_path_component(tmp_path: Path, name: str) -> None:
    store = Workspace(tmp_path / "w")
    path = local(store.predictions_path(Result(name, name, ResultSpec())))
    assert path.resolve().is_relative_to((tmp_path / "w" / "predictions").resolve())
    assert len(path.relative_to(tmp_path / "w" / "predictions").parts) == 3
    write_block(path, PredictionBlock(np.zeros((1, 1), np.int32), np.zeros(1, np.float32)), ResultSpec(), "x")
    assert [(result.classifier, result.setting) for result in store.results()] == [(name, name)]


def test_another_spec_is_another_file() -> None:
    specs = [ResultSpec(shift=ShiftRecord({"seed": seed})) for seed in (0, 1)]
    assert Result("m", "s", specs[0]).key != Result("m", "s", specs[1]).key
    first = {"a": 1, "b": 2}
    second = {"b": 2, "a": 1}
    assert ResultSpec.from_json(first).key == ResultSpec.from_json(second).key


def test_rows_of_a_setting_are_the_images_of_its_classes() -> None:
    labels = np.array([3, 0, 2, -1, 3], np.int32)
    used = setting_rows(labels, ANIMALS, PETS)
    assert used.rows.tolist() == [0, 2, 4] and used.labels.tolist() == [1, 0, 1]


def test_an_unlabelled_data_set_is_kept_whole() -> None:
    used = setting_rows(np.full(3, -1, np.int32), ANIMALS, PETS)
    assert used.rows.tolist() == [0, 1, 2] and used.labels.tolist() == [-1, -1, -1]


def test_predictions_come_back_with_ids_and_labels(tmp_path: Path) -> None:
    store = Workspace(tmp_path / "w")
    store.record_dataset("zoo", "f" * 32, ANIMALS, ["a", "b", "c", "d"], np.array([3, 0, 2, 3], np.int32), {})
    store.record_space(PETS)
    spec = ResultSpec(dataset=DatasetRef({"name": "zoo", "fingerprint": "f" * 32}), space=space_key(PETS))
    result = Result("m", "pets-only", spec)
    block = PredictionBlock(np.array([[1, 0], [1, 0], [-1, -1]], np.int32), np.array([0.9, 0.8, np.nan], np.float32))
    write_block(store.predictions_path(result), block, spec, "x")
    found = store.read(next(iter(store.results())))
    assert list(found.ids) == ["a", "c", "d"] and found.labels.tolist() == [1, 0, 1]
    assert found.valid.tolist() == [True, True, False] and found.correct.tolist() == [True, False]


def test_several_labels_come_back_over_the_settings_classes(tmp_path: Path) -> None:
    store = Workspace(tmp_path / "w")
    sets = [(0, 2), (1,), (2, 3), (3,)]
    labels = single_labels(sets)
    store.record_dataset("zoo", "f" * 32, ANIMALS, ["a", "b", "c", "d"], labels, {}, label_sets=sets)
    store.record_space(PETS)
    assert store.dataset("zoo", "f" * 32).label_sets == sets
    spec = ResultSpec(dataset=DatasetRef({"name": "zoo", "fingerprint": "f" * 32}), space=space_key(PETS))
    result = Result("m", "pets-only", spec)
    top = np.array([[0], [-1], [1]], np.int32)
    confidence = np.array([0.9, np.nan, 0.8], np.float32)
    write_block(store.predictions_path(result), PredictionBlock(top, confidence), spec, "x")
    found = store.read(result)
    assert list(found.ids) == ["a", "c", "d"], "the bee is no pet"
    assert found.label_sets == [(0,), (0, 1), (1,)] and found.labels.tolist() == [0, -1, 1]
    assert found.multi_hot.tolist() == [[True, False], [True, True], [False, True]]
    assert found.readable.tolist() == [True, False, True] == found.valid.tolist()


def test_a_data_set_of_one_label_an_image_is_written_as_before(tmp_path: Path) -> None:
    """What older versions read and write: no further column, no further file."""
    store = Workspace(tmp_path / "w")
    store.record_dataset("zoo", "f" * 32, ANIMALS, ["a"], np.array([3], np.int32), {})
    store.record_metadata("zoo", "f" * 32, {})
    [folder] = (tmp_path / "w" / "datasets").iterdir()
    assert sorted(path.name for path in folder.iterdir()) == ["images.parquet", "record.json"]
    assert pq.read_schema(folder / "images.parquet").names == ["id", "label"]
    assert store.metadata("zoo", "f" * 32) == {} and store.dataset("zoo", "f" * 32).label_sets is None


def test_further_columns_are_kept_and_renewed(tmp_path: Path) -> None:
    store = Workspace(tmp_path / "w")
    store.record_dataset("zoo", "f" * 32, ANIMALS, ["a", "b", "c"], np.array([3, 0, 2], np.int32), {})
    store.record_metadata("zoo", "f" * 32, {"cage": [1, None, "x\udc80"], "year": [2019, 2020, 2021]})
    assert store.metadata("zoo", "f" * 32) == {"cage": ["1", None, "x?"], "year": ["2019", "2020", "2021"]}
    store.record_space(PETS)
    spec = ResultSpec(dataset=DatasetRef({"name": "zoo", "fingerprint": "f" * 32}), space=space_key(PETS))
    assert store.columns_of(spec, ["a", "c"])["year"] == ["2019", "2021"], "only the images of the setting"
    store.record_metadata("zoo", "f" * 32, {"cage": ["7", "8", "9"]})
    assert store.metadata("zoo", "f" * 32) == {"cage": ["7", "8", "9"]}
    store.record_metadata("zoo", "f" * 32, {})
    assert store.metadata("zoo", "f" * 32) == {"cage": ["7", "8", "9"]}, "a run that knows none leaves them"


def test_the_same_columns_are_not_written_twice_and_torn_ones_are_written_anew(tmp_path: Path) -> None:
    store = Workspace(tmp_path / "w")
    store.record_metadata("zoo", "f" * 32, {"cage": ["7"]})
    [path] = (tmp_path / "w" / "datasets").glob("*/metadata.parquet")
    before = path.stat().st_mtime_ns
    store.record_metadata("zoo", "f" * 32, {"cage": ["7"]})
    assert path.stat().st_mtime_ns == before
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(StoreError, match="damaged or was changed"):
        store.metadata("zoo", "f" * 32)
    store.record_metadata("zoo", "f" * 32, {"cage": ["7"]})
    assert store.metadata("zoo", "f" * 32) == {"cage": ["7"]}


def test_a_part_of_predictions_says_so(tmp_path: Path) -> None:
    whole = Predictions(
        "m",
        "s",
        PETS,
        ["a", "b", "c"],
        np.array([0, 1, -1], np.int32),
        np.array([[0], [1], [1]], np.int32),
        np.array([0.5, 0.6, 0.7], np.float32),
        ResultSpec(provenance="zoo"),
        np.eye(3, 2, dtype=np.float32),
        [(0,), (1,), (0, 1)],
    )
    part = whole.part(np.array([True, False, True]), "two of them")
    assert list(part.ids) == ["a", "c"] and part.labels.tolist() == [0, -1] and part.label_sets == [(0,), (0, 1)]
    assert part.provenance == "zoo; two of them" and whole.provenance == "zoo"
    assert part.scores is not None and part.scores.tolist() == [[1, 0], [0, 0]]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, 1)

    def fail(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, fail)
    assert path.read_text().strip() == "1" and len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_another_run_makes_meanwhile_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "w"
    is_dir = Path.is_dir

    def is_dir_for_a_moment(path: Path) -> bool:
        answer = is_dir(path)
        if path == root:
            with suppress(FileExistsError):
                root.mkdir()
        return answer

    monkeypatch.setattr(Path, "is_dir", is_dir_for_a_moment)
    assert Workspace(root).marker_path.is_file()


def _hold_and_die(path: Path, ready: Any) -> None:
    with file_lock(path, wait=True):
        ready.set()
        os._exit(9)


def test_a_claim_ends_with_its_owner(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    with file_lock(lock, wait=False) as first, file_lock(lock, wait=False) as second:
        assert first and not second
    spawn = multiprocessing.get_context("spawn")
    ready = spawn.Event()
    process = spawn.Process(target=_hold_and_die, args=(lock, ready))
    process.start()
    process.join(300)
    assert ready.is_set()
    with file_lock(lock, wait=False) as mine:
        assert mine
