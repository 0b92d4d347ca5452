"""Selection frequencies from tables, and accuracy in bins of them against a plain loop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shiftbench.studies import StudyError
from shiftbench.studies.reproducibility import accuracy_by_frequency, bins_of, matched_frequencies, read_frequencies
from tests.metrics.making import with_hits
from tests.raised import raises


def written(folder: Path, text: str) -> Path:
    path = folder / "frequencies.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "text",
    [
        "id,selection_frequency\na,0.7\nb,1\nc,\n",
        "Image,Frequency\na,0.7\nb,1.0\n",
        "image_id,selected,shown\na,7,10\nb,4,4\nc,0,0\n",
        "id,selection_frequency\na,0.7\nb,1\na,0.7\n",
    ],
)
def test_every_shape_of_table(tmp_path: Path, text: str) -> None:
    assert read_frequencies(written(tmp_path, text)) == {"a": 0.7, "b": 1.0}


def test_parquet_and_a_column_of_another_name(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["a", "b"], "share": [0.25, None]}), tmp_path / "f.parquet")
    assert read_frequencies(tmp_path / "f.parquet", "share") == {"a": 0.25}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,selection_frequency\na,70\n", "line 2: invalid"),
        ("id,selection_frequency\na,often\n", "is not a number"),
        ("id,selection_frequency\na,0.1\na,0.2\n", "two frequencies for one image"),
        ("name,selection_frequency\na,0.1\n", "no column of image ids"),
        ("id,selected\na,3\n", "no column of selection frequencies"),
    ],
)
def test_bad_tables(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        read_frequencies(written(tmp_path, text))


def test_missing_table_and_other_ids(tmp_path: Path) -> None:
    with raises(StudyError, expected="a .csv or .parquet file"):
        read_frequencies(tmp_path / "none.csv")
    with raises(StudyError, found="images a, b; frequencies of x", expected="the same ids in both"):
        matched_frequencies({"x": 0.5}, ["a", "b"])


def test_bins_against_a_loop() -> None:
    rng = np.random.default_rng(0)
    shares = np.round(rng.random(300), 1)
    hits = {name: rng.random(300) < skill * shares for name, skill in (("weak", 0.6), ("strong", 1.0))}
    ids = [f"p{i}" for i in range(300)]
    # Half of the images were annotated, in another order, with some that were not evaluated.
    frequencies = {name: float(share) for name, share in reversed(list(zip(ids, shares, strict=True))[:150])}
    frequencies["elsewhere"] = 0.5
    found = bins_of([with_hits(row, classifier=name, ids=ids) for name, row in hits.items()], frequencies)
    for name, row in hits.items():
        for place, one in enumerate(found.by_model[name]):
            low = place / 5
            high = (place + 1) / 5
            inside = [i for i in range(150) if low <= shares[i] < high or (high == 1.0 and shares[i] == 1.0)]
            assert one.images == len(inside)
            assert one.accuracy == pytest.approx(np.mean([row[i] for i in inside]))
    means = [np.mean([found.by_model[name][i].accuracy or 0.0 for name in hits]) for i in range(5)]
    assert [one.accuracy for one in found.mean] == pytest.approx(means)
    assert found.notes == ("150 images have no selection frequency and are left out",)
    assert [name for name, _ in found.with_mean()] == ["mean of 2 models", "weak", "strong"]


@pytest.mark.parametrize("edges", [(0.0,), (0.0, 0.5), (0.1, 1.0), (0.0, 0.5, 0.5, 1.0)])
def test_impossible_edges(edges: tuple[float, ...]) -> None:
    with pytest.raises(StudyError, match="invalid bins"):
        bins_of([with_hits([True])], {"image-0": 0.5}, edges=edges)


def test_frequency_bins() -> None:
    frequency = np.array([0.0, 0.2, 0.39, 0.4, 0.6, 0.79, 0.8, 1.0])
    bins = accuracy_by_frequency([[1, 0, 1, 0, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1, 1]], frequency)
    assert [one.images for one in bins] == [1, 2, 1, 2, 2]
    assert [one.accuracy for one in bins] == [0.5, 0.25, 0.0, 1.0, 1.0]
    assert all(one.low is not None and one.high is not None and one.low <= one.high for one in bins)
    with raises(StudyError, found="1 for 2 images"):
        accuracy_by_frequency([1, 0], [0.5])
    with raises(StudyError, expected="0 to 1, none missing"):
        accuracy_by_frequency([1, 0], [0.5, np.nan])
