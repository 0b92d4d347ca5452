"""Small files that expand to gigabytes are refused before they are unpacked, and leave nothing in the cache."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shiftbench.classifiers.recorded import read_columns
from shiftbench.datasets.arrays import open_array, read_npz
from shiftbench.datasets.factors import read_table as read_factors
from shiftbench.datasets.huggingface import open_huggingface
from shiftbench.errors import DatasetError, ShiftbenchError
from shiftbench.io import cache, parquet
from shiftbench.io.cache import unpacked
from shiftbench.io.parquet import ExpansionError, read_parquet
from shiftbench.labels import label_space
from shiftbench.studies.results import _parquet_lines as read_results

pytestmark = pytest.mark.reliability("bombs")


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHIFTBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def cached_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"]


def repeated(value: object, times: int) -> pa.Array:
    """A column that states a value once, however often it occurs."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(times, np.int32)), pa.array([value]))


def write(path: Path, columns: dict[str, object]) -> Path:
    pq.write_table(pa.table(columns), path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 20_000
    return path


def test_a_table_of_few_bytes_that_stands_for_many_images(tmp_path: Path) -> None:
    """Read without the dictionary, one row group would take 20 GB of memory."""
    image = b"no image " + bytes(1_000_000)
    path = write(tmp_path / "images.parquet", {"image": repeated(image, 20_000), "label": np.zeros(20_000, np.int64)})
    dataset = open_huggingface(path, space=label_space("cifar-10"))
    assert dataset._bytes(19_999) == image


def test_images_in_structs_are_read_as_before(tmp_path: Path) -> None:
    images = [{"bytes": b"first", "path": "a.png"}, {"bytes": b"second", "path": "b.png"}, {"bytes": None, "path": "c"}]
    pq.write_table(pa.table({"image": images, "label": [0, 1, 0], "note": ["x", None, "x"]}), tmp_path / "i.parquet")
    dataset = open_huggingface(tmp_path / "i.parquet", space=label_space("cifar-10"))
    assert [dataset._bytes(0), dataset._bytes(1)] == [b"first", b"second"]
    assert dataset.metadata["note"] == ["x", None, "x"]


@pytest.mark.parametrize("kind", ["text", "list", "struct"])
def test_predictions_that_expand_too_far(tmp_path: Path, kind: str) -> None:
    """The footer states the size of the dictionary, 100 kB, not that of its 50,000 rows."""
    column: pa.Array = repeated("x" * 100_000, 50_000)
    if kind == "list":
        column = pa.ListArray.from_arrays(np.arange(50_001, dtype=np.int32), column)
    elif kind == "struct":
        column = pa.StructArray.from_arrays([column], ["a"])
    path = write(tmp_path / "predictions.parquet", {"id": column, "prediction": np.zeros(50_000, np.int64)})
    with pytest.raises(ExpansionError):
        read_columns(path)


@pytest.mark.parametrize("read", [read_factors, read_results])
def test_tables_of_factors_and_results_expand_no_further(tmp_path: Path, read: Callable[[Path], object]) -> None:
    path = write(tmp_path / "table.parquet", {"model": repeated("x" * 100_000, 50_000)})
    with pytest.raises(ExpansionError):
        read(path)


def test_too_many_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "rows.parquet", {"label": np.zeros(1_000_000, np.int64)})
    assert read_parquet(path).num_rows == 1_000_000
    with pytest.raises(ExpansionError):
        read_parquet(path, most_bytes=4_000_000)
    monkeypatch.setattr(parquet, "MOST_ROWS", 999_999)
    with pytest.raises(ExpansionError):
        read_parquet(path)


def test_values_of_a_fixed_size_that_expand_too_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow writes them out in the batch that it returns, so that batches must be small."""
    monkeypatch.setattr(parquet, "_BATCH_BYTES", 1 << 20)
    indices = pa.array(np.zeros(5000, np.int32))
    values = pa.DictionaryArray.from_arrays(indices, pa.array([b"x" * 100_000], pa.binary(100_000)))
    pq.write_table(pa.table({"id": values}), tmp_path / "fixed.parquet", compression="zstd", store_schema=False)
    assert parquet.batch_rows(pq.read_metadata(tmp_path / "fixed.parquet")) == 10
    with pytest.raises(ExpansionError):
        read_parquet(tmp_path / "fixed.parquet", most_bytes=4_000_000)


def test_lists_that_expand_too_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "_BATCH_BYTES", 1 << 20)
    numbers = pa.ListArray.from_arrays(
        pa.array(np.arange(0, 2_000_001, 100_000).astype(np.int32)), np.zeros(2_000_000, np.int32)
    )
    path = write(tmp_path / "lists.parquet", {"id": numbers})
    assert parquet.batch_rows(pq.read_metadata(path)) == 2
    with pytest.raises(ExpansionError):
        read_parquet(path, most_bytes=4_000_000)


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_texts_that_are_stored_as_differences(tmp_path: Path, encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other writers choose these encodings, of which Arrow reads no dictionaries."""
    texts = [f"images/{number}.png" for number in range(1000)]
    table = pa.table({"id": texts, "image": [text.encode() for text in texts], "label": [0] * 1000})
    kinds = {"id": encoding, "image": encoding, "label": "PLAIN"}
    pq.write_table(table, tmp_path / "t.parquet", use_dictionary=False, column_encoding=kinds)
    assert read_parquet(tmp_path / "t.parquet").equals(table)
    dataset = open_huggingface(tmp_path / "t.parquet", space=label_space("cifar-10"), image="image")
    assert dataset._bytes(999) == b"images/999.png"
    table = pa.table({"id": ["x" * 100_000] * 100})
    pq.write_table(table, tmp_path / "bomb.parquet", use_dictionary=False, column_encoding={"id": encoding})
    with pytest.raises(ExpansionError):
        read_parquet(tmp_path / "bomb.parquet", most_bytes=4_000_000)


def test_row_groups_of_images_that_expand_too_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "_BATCH_BYTES", 1 << 20)
    images = [bytes(100_000) + bytes([number]) for number in range(100)]
    path = tmp_path / "images.parquet"
    pq.write_table(pa.table({"image": images, "label": [0] * 100}), path, compression="zstd", use_dictionary=False)
    dataset = open_huggingface(path, space=label_space("cifar-10"))
    assert dataset._bytes(99) == images[99]
    monkeypatch.setattr(parquet, "MOST_BYTES", 4_000_000)
    with pytest.raises(ExpansionError):
        open_huggingface(path, space=label_space("cifar-10"))._bytes(0)


def test_an_empty_table(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([], pa.string()), "b": pa.array([], pa.int8())}), tmp_path / "e.parquet")
    table = read_parquet(tmp_path / "e.parquet", ["b", "a"])
    assert (table.num_rows, table.column_names) == (0, ["b", "a"])


def npz(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return path


def npy(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def announced(shape: str, kind: str) -> bytes:
    """An npy file with a header that announces far more than there is."""
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(100)


def test_headers_that_announce_too_much(tmp_path: Path) -> None:
    """NumPy would ask for the memory before it reads."""
    (tmp_path / "scores.npy").write_bytes(announced("(20000000000, 3)", "<f4"))
    files = [tmp_path / "scores.npy", npz(tmp_path / "scores.npz", scores=announced("(20000000000, 3)", "<f4"))]
    for file in files:
        with pytest.raises(ShiftbenchError) as caught:
            read_columns(file)
        assert file.name in str(caught.value)
    with pytest.raises(DatasetError):
        read_npz(npz(tmp_path / "labels.npz", labels=announced("(20000000000,)", "|i1")), "labels")


def test_arrays_that_expand_too_far(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "ALWAYS_UNPACKED", 1 << 20)
    images = npy(np.zeros((1000, 64, 64, 3), np.uint8))
    path = npz(tmp_path / "bomb.npz", images=images, labels=npy(np.zeros(1000, np.int64)))
    with pytest.raises(ExpansionError):
        open_array(path, space=label_space("cifar-10"))
    assert cached_files(own_cache) == []
    monkeypatch.setattr(cache, "ALWAYS_UNPACKED", 1 << 28)
    assert open_array(path, space=label_space("cifar-10")).array.shape == (1000, 64, 64, 3)


@pytest.mark.parametrize("harm", ["header", "objects", "checksum"])
def test_arrays_that_cannot_be_used_leave_nothing_in_the_cache(tmp_path: Path, own_cache: Path, harm: str) -> None:
    array = np.random.default_rng(0).integers(0, 255, (1000, 40, 40, 3), np.uint8)
    data = npy(array)
    if harm == "header":
        data += bytes(1 << 20)
    elif harm == "objects":
        data = data.replace(b"'|u1'", b"'|O' ")
    path = npz(tmp_path / "a.npz", images=data)
    if harm == "checksum":
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 255
        path.write_bytes(content)
    with pytest.raises(DatasetError):
        read_npz(path, "images")
    assert cached_files(own_cache) == []


def test_archives_that_expand_too_far(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "ALWAYS_UNPACKED", 1 << 20)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/1.png", bytes(20 << 20))
    with pytest.raises(ExpansionError):
        unpacked(tmp_path / "bomb.zip")
    assert cached_files(own_cache) == []


def test_damaged_archives_leave_nothing_in_the_cache(tmp_path: Path, own_cache: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bad.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/1.png", np.random.default_rng(0).bytes(100_000))
        archive.writestr("a/2.png", np.random.default_rng(1).bytes(100_000))
    content = bytearray((tmp_path / "bad.zip").read_bytes())
    content[150_000] ^= 255
    (tmp_path / "bad.zip").write_bytes(content)
    with pytest.raises(ShiftbenchError):
        unpacked(tmp_path / "bad.zip")
    assert cached_files(own_cache) == []
