"""Manifests with metadata columns, and paths that try to leave their folder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from shiftbench.datasets import open_dataset
from shiftbench.errors import DatasetError, LabelError
from tests.datasets.makers import assert_conforms, pixels, png


def pictures(root: Path) -> Path:
    (root / "img").mkdir(parents=True)
    for i in range(3):
        (root / "img" / f"{i}.png").write_bytes(png(i))
    return root


ROWS = [("img/2.png", "frog", "FR"), ("img/0.png", "cat", "US"), ("img/1.png", "", "US")]


def write(path: Path, rows: list[tuple[str, str, str]]) -> Path:
    if path.suffix == ".jsonl":
        text = "\n".join(json.dumps({"path": p, "label": c or None, "country": k}) for p, c, k in rows)
    else:
        mark = "," if path.suffix == ".csv" else "\t"
        text = "\n".join(mark.join(row) for row in [("path", "label", "country"), *rows])
    path.write_text(text + "\n", encoding="utf-8-sig")
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
def test_rows_in_order_with_metadata(tmp_path: Path, suffix: str) -> None:
    path = write(pictures(tmp_path) / f"list{suffix}", ROWS)
    dataset = open_dataset(path, space="cifar-10")
    assert list(dataset.ids) == ["img/2.png", "img/0.png", "img/1.png"]
    assert dataset.labels.tolist() == [6, 3, -1] and dataset.name == "list"
    assert dict(dataset.metadata) == {"country": ["FR", "US", "US"]}
    np.testing.assert_array_equal(dataset.read(0).pixels, pixels(2))
    assert_conforms(dataset, reopen=lambda: open_dataset(path, space="cifar-10"))


def test_all_three_forms_have_one_fingerprint(tmp_path: Path) -> None:
    pictures(tmp_path)
    prints = {
        open_dataset(write(tmp_path / f"list{s}", ROWS), space="cifar-10").fingerprint
        for s in (".csv", ".tsv", ".jsonl")
    }
    assert len(prints) == 1


@pytest.mark.parametrize(
    "path", ["../secret.png", "img/../../secret.png", "/etc/passwd", "C:\\secret.png", "\\\\host\\x.png", "..\\x.png"]
)
def test_paths_stay_below_the_folder(tmp_path: Path, path: str) -> None:
    pictures(tmp_path / "in")
    manifest = write(tmp_path / "in" / "list.csv", [(path, "cat", "")])
    with pytest.raises(DatasetError) as refused:
        open_dataset(manifest, space="cifar-10")
    assert refused.value.found == path


def test_unless_allowed(tmp_path: Path) -> None:
    pictures(tmp_path / "in")
    outside = pictures(tmp_path / "out") / "img" / "1.png"
    manifest = write(tmp_path / "in" / "list.csv", [(str(outside), "cat", ""), ("../out/img/2.png", "dog", "")])
    dataset = open_dataset(manifest, space="cifar-10", allow_outside=True)
    np.testing.assert_array_equal(dataset.read(0).pixels, pixels(1))
    np.testing.assert_array_equal(dataset.read(1).pixels, pixels(2))


def test_another_root_and_label_column(tmp_path: Path) -> None:
    pictures(tmp_path / "pictures")
    (tmp_path / "list.csv").write_text("file,label,wnid\nimg/0.png,x,n01440764\nimg/1.png,y,n01443537\n")
    dataset = open_dataset(tmp_path / "list.csv", root=tmp_path / "pictures", label="wnid")
    assert dataset.space.name == "imagenet-1k" and dataset.labels.tolist() == [0, 1]
    assert dict(dataset.metadata) == {"label": ["x", "y"]}
    assert dataset.read(1).pixels.shape == (12, 16, 3)


def test_integers_with_gaps_written_as_floats(tmp_path: Path) -> None:
    pictures(tmp_path)
    (tmp_path / "a.jsonl").write_text('{"path": "img/0.png", "label": 3.0}\n\n{"path": "img/1.png", "label": 4}\n')
    assert open_dataset(tmp_path / "a.jsonl", space="cifar-10").labels.tolist() == [3, 4]


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("a.csv", "", "lacks a column"),
        ("a.csv", "name,label\nx,cat\n", "one named path"),
        ("a.csv", "path,kind\nx.png,cat\n", "one named label"),
        ("a.csv", "path,label\nx.png,cat,extra\n", "line 2"),
        ("a.csv", "path,label\nx.png\n", "line 2"),
        ("a.csv", "path,label\nx.png,cat\nx.png,cat\n", "twice"),
        ("a.csv", "path,label\n,cat\n", "no path"),
        ("a.csv", "path,label,label\nx.png,cat,dog\n", "have one name"),
        ("a.csv", "path,label\nx.png,\n", "no line"),
        ("a.csv", "path,label\nx.png,unicorn\n", "unicorn"),
        ("a.jsonl", '{"path": "x.png"', "not JSON"),
        ("a.jsonl", '["x.png"]', "not an object"),
    ],
)
def test_refused(tmp_path: Path, file: str, text: str, words: str) -> None:
    (tmp_path / file).write_text(text)
    with pytest.raises((DatasetError, LabelError), match=words):
        open_dataset(tmp_path / file, space="cifar-10")


def test_names_of_the_label_column(tmp_path: Path) -> None:
    pictures(tmp_path)
    (tmp_path / "named.csv").write_text("path,class_name\nimg/0.png,cat\nimg/1.png,frog\n")
    assert open_dataset(tmp_path / "named.csv", space="cifar-10").labels.tolist() == [3, 6]
    # Beside another column that states the class, the names are metadata, as before they were known.
    (tmp_path / "both.csv").write_text("path,class_name,target\nimg/0.png,Felis,cat\n")
    both = open_dataset(tmp_path / "both.csv", space="cifar-10")
    assert both.labels.tolist() == [3] and dict(both.metadata) == {"class_name": ["Felis"]}
