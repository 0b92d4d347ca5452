"""Hugging Face folders and Parquet files, written by the datasets library itself."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from shiftbench.datasets import open_dataset
from shiftbench.datasets.stored import combine, digest_bytes
from shiftbench.errors import BadImageError, DatasetError, LabelError, MissingExtraError
from shiftbench.labels import label_space
from tests.datasets.makers import CIFAR_NAMES, assert_conforms, pixels, png
from tests.raised import raises

COUNT = 30


def library_dataset(names: list[str] | None = None) -> Any:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=names or CIFAR_NAMES),
            "year": datasets.Value("int64"),
        }
    )
    rows = {
        "image": [Image.fromarray(pixels(i)) for i in range(COUNT)],
        "label": [i % 10 for i in range(COUNT)],
        "year": [1990 + i for i in range(COUNT)],
    }
    return datasets.Dataset.from_dict(rows, features=features)


def check(dataset: Any) -> None:
    assert len(dataset) == COUNT and dataset.space.name == "cifar-10"
    assert dataset.labels.tolist() == [i % 10 for i in range(COUNT)]
    assert list(dataset.metadata["year"]) == [1990 + i for i in range(COUNT)]
    for i in (0, 11, COUNT - 1):
        np.testing.assert_array_equal(dataset.read(i).pixels, pixels(i))
    assert_conforms(dataset)
    assert len(pickle.dumps(dataset)) < 20_000


@pytest.mark.parametrize("shards", [1, 3])
def test_saved_to_disk(tmp_path: Path, shards: int) -> None:
    library_dataset().save_to_disk(str(tmp_path / "set"), num_shards=shards)
    dataset = open_dataset(tmp_path / "set")
    check(dataset)
    assert dataset.fingerprint == open_dataset(tmp_path / "set").fingerprint


def test_the_fingerprint_is_that_of_ids_labels_and_encoded_images(tmp_path: Path) -> None:
    """As in version 0.1.0, so that results of earlier runs stay valid, whatever the table's format."""
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=CIFAR_NAMES)})
    rows = {"image": [{"bytes": png(i), "path": None} for i in range(4)], "label": [3, 1, 2, 3]}
    saved = datasets.Dataset.from_dict(rows, features=features)
    saved.save_to_disk(str(tmp_path / "set"))
    saved.to_parquet(str(tmp_path / "set.parquet"))
    ids = ["000000", "000001", "000002", "000003"]
    labels = np.array([3, 1, 2, 3], np.int32)
    expected = combine(ids, labels, label_space("cifar-10"), [digest_bytes(png(i)) for i in range(4)])
    assert open_dataset(tmp_path / "set").fingerprint == expected
    assert open_dataset(tmp_path / "set.parquet").fingerprint == expected


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library_dataset().save_to_disk(str(tmp_path / "set"))
    library_dataset().to_parquet(str(tmp_path / "set.parquet"))
    monkeypatch.setitem(sys.modules, "datasets", None)
    check(open_dataset(tmp_path / "set.parquet"))
    with pytest.raises(MissingExtraError) as refused:
        open_dataset(tmp_path / "set")
    assert "shiftbench[huggingface]" in (refused.value.hint or "")


def test_a_selection_saved_to_disk(tmp_path: Path) -> None:
    library_dataset().select([5, 3, 20]).save_to_disk(str(tmp_path / "set"))
    dataset = open_dataset(tmp_path / "set")
    assert dataset.labels.tolist() == [5, 3, 0]
    np.testing.assert_array_equal(dataset.read(1).pixels, pixels(3))


def test_several_splits(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    whole = library_dataset()
    parts = datasets.DatasetDict({"train": whole, "test": whole.select(range(4))})
    parts.save_to_disk(str(tmp_path / "set"))
    with pytest.raises(DatasetError) as several:
        open_dataset(tmp_path / "set")
    assert several.value.found == "train, test"
    assert several.value.hint == f"open one split: {tmp_path / 'set' / 'test'}"
    assert len(open_dataset(tmp_path / "set" / "test")) == 4
    dataset = open_dataset(tmp_path / "set", split="test")
    assert len(dataset) == 4 and dataset.ids[0] == "test/000000"
    with raises(DatasetError, found="train, test"):
        open_dataset(tmp_path / "set", split="val")


@pytest.mark.parametrize("group", [None, 7])
def test_parquet_of_the_library(tmp_path: Path, group: int | None) -> None:
    path = tmp_path / "test-00000-of-00001.parquet"
    library_dataset().to_parquet(str(path), batch_size=group)
    check(open_dataset(path))
    check(open_dataset(tmp_path))


def test_hub_layout(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    whole = library_dataset()
    for part in range(2):
        whole.shard(2, part, contiguous=True).to_parquet(str(tmp_path / "data" / f"test-{part:05d}-of-00002.parquet"))
    whole.to_parquet(str(tmp_path / "data" / "train-00000-of-00001.parquet"))
    check(open_dataset(tmp_path, split="test"))
    with pytest.raises(DatasetError) as several:
        open_dataset(tmp_path)
    assert several.value.found == "test, train"
    assert several.value.hint == f"open one split: {tmp_path / 'test'}"


def test_a_split_of_tables_is_named_like_a_folder(tmp_path: Path) -> None:
    """Though there is no such folder: one way to name a split, whatever the layout."""
    library_dataset().to_parquet(str(tmp_path / "train-00000-of-00001.parquet"))
    library_dataset().select(range(4)).to_parquet(str(tmp_path / "test-00000-of-00001.parquet"))
    dataset = open_dataset(tmp_path / "test")
    assert len(dataset) == 4 and dataset.name == "test"
    assert dataset.fingerprint == open_dataset(tmp_path, split="test").fingerprint
    with pytest.raises(DatasetError):
        open_dataset(tmp_path / "validation")


def test_names_in_another_order_are_mapped(tmp_path: Path) -> None:
    backwards = CIFAR_NAMES[::-1]
    library_dataset(backwards).save_to_disk(str(tmp_path / "set"))
    dataset = open_dataset(tmp_path / "set")
    assert dataset.space.name == "cifar-10"
    assert dataset.labels.tolist() == [9 - i % 10 for i in range(COUNT)]


def test_own_names_are_a_space_of_their_own(tmp_path: Path) -> None:
    names = [f"part {i}" for i in range(10)]
    library_dataset(names).save_to_disk(str(tmp_path / "parts"))
    dataset = open_dataset(tmp_path / "parts")
    assert dataset.space.name == "parts" and dataset.space.keys == tuple(names)
    with pytest.raises(LabelError):
        open_dataset(tmp_path / "parts", space="cifar-10")


def table(**columns: Any) -> pa.Table:
    images = pa.array([{"bytes": png(i), "path": None} for i in range(3)])
    return pa.table({"image": images, **columns})


def test_plain_parquet_without_description(tmp_path: Path) -> None:
    pq.write_table(table(label=[0, 1, None]), tmp_path / "a.parquet")
    with raises(LabelError, found="2 folders from 0 to 1"):
        open_dataset(tmp_path / "a.parquet")
    dataset = open_dataset(tmp_path / "a.parquet", space="cifar-10")
    assert dataset.labels.tolist() == [0, 1, -1]
    pq.write_table(table(label=["n01440764", "n01443537", None]), tmp_path / "b.parquet")
    assert open_dataset(tmp_path / "b.parquet").labels.tolist() == [0, 1, -1]


def test_arrow_file_format(tmp_path: Path) -> None:
    with (
        pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink,
        pa.ipc.new_file(sink, table(label=[0, 1, 2]).schema) as out,
    ):
        out.write_table(table(label=[0, 1, 2]))
    np.testing.assert_array_equal(open_dataset(tmp_path / "a.arrow", space="cifar-10").read(2).pixels, pixels(2))


def test_raw_bytes_column_and_bad_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"img": [png(1), b"", None], "class": [0, 1, 2]}), tmp_path / "a.parquet")
    dataset = open_dataset(tmp_path / "a.parquet", space="cifar-10")
    np.testing.assert_array_equal(dataset.read(0).pixels, pixels(1))
    for i in (1, 2):
        with pytest.raises(BadImageError, match=f"00000{i}"):
            dataset.read(i)
    assert len(dataset.fingerprint) == 32


@pytest.mark.parametrize(
    ("columns", "words"),
    [({"picture_of": [1, 2, 3]}, "picture_of"), ({"label": [0, 1, 99]}, "0 to 9")],
)
def test_refused_tables(tmp_path: Path, columns: dict[str, Any], words: str) -> None:
    pq.write_table(table(**columns), tmp_path / "a.parquet")
    with pytest.raises((DatasetError, LabelError), match=words):
        open_dataset(tmp_path / "a.parquet", space="cifar-10")


def test_labels_outside_their_own_names(tmp_path: Path) -> None:
    described = {"info": {"features": {"label": {"names": ["a", "b"], "_type": "ClassLabel"}}}}
    odd = table(label=[0, 1, 2]).replace_schema_metadata({"huggingface": json.dumps(described)})
    pq.write_table(odd, tmp_path / "a.parquet")
    with pytest.raises(DatasetError) as outside:
        open_dataset(tmp_path / "a.parquet")
    assert (outside.value.found, outside.value.expected) == ("0 to 2", "0 to 1")


def test_broken_files(tmp_path: Path) -> None:
    for name in ("a.parquet", "a.arrow"):
        (tmp_path / name).write_bytes(b"PAR1 nonsense")
        with pytest.raises(DatasetError, match="can't be read as a table"):
            open_dataset(tmp_path / name)


def test_a_state_file_does_not_lead_elsewhere(tmp_path: Path) -> None:
    library_dataset().save_to_disk(str(tmp_path / "other"))
    library_dataset().save_to_disk(str(tmp_path / "set"))
    state = json.loads((tmp_path / "set" / "state.json").read_text())
    name = state["_data_files"][0]["filename"]
    for outside in (f"../other/{name}", str(tmp_path / "other" / name), "nothing.arrow"):
        state["_data_files"][0]["filename"] = outside
        (tmp_path / "set" / "state.json").write_text(json.dumps(state))
        with pytest.raises(DatasetError):
            open_dataset(tmp_path / "set")


def test_the_advice_for_several_splits_can_be_followed(tmp_path: Path) -> None:
    """On the command line, where there is no option for a split."""
    datasets = pytest.importorskip("datasets")
    datasets.DatasetDict(train=library_dataset(), test=library_dataset()).save_to_disk(str(tmp_path / "saved"))
    (tmp_path / "files").mkdir()
    for split in ("train", "test"):
        library_dataset().to_parquet(str(tmp_path / "files" / f"{split}-00000-of-00001.parquet"))
    for folder in ("saved", "files"):
        with pytest.raises(DatasetError) as caught:
            open_dataset(tmp_path / folder)
        advice = str(caught.value.hint).partition(": ")[2]
        assert "test" in Path(advice).name
        check(open_dataset(advice))
