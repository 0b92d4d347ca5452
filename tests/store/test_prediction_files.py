from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftbench.errors import StoreError
from shiftbench.store.prediction_files import PredictionBlock, read_block, read_made_by, read_spec, write_block
from shiftbench.store.spec import ResultSpec

SPEC = ResultSpec.from_json({"setting": "fog.3", "seed": 0})


def make_block(n: int = 50, k: int = 5, scores: bool = False, seed: int = 0) -> PredictionBlock:
    rng = np.random.default_rng(seed)
    return PredictionBlock(
        rng.integers(0, 1000, (n, k)).astype(np.int32),
        rng.random(n).astype(np.float32),
        rng.normal(size=(n, 7)).astype(np.float32) if scores else None,
    )


def test_round_trip(tmp_path: Path) -> None:
    block = make_block(scores=True)
    path = tmp_path / f"{SPEC.key}.parquet"
    write_block(path, block, SPEC, "shiftbench 0")
    back = read_block(path, scores=True)
    np.testing.assert_array_equal(back.top, block.top)
    np.testing.assert_allclose(back.confidence, block.confidence, atol=3e-4)
    assert back.scores is not None and block.scores is not None
    np.testing.assert_array_equal(back.scores, block.scores)
    assert read_spec(path) == SPEC
    assert read_made_by(path) == "shiftbench 0"


def test_confidences_move_by_at_most_a_hundredth_of_a_point(tmp_path: Path) -> None:
    """The bound that docs/reliability.md states."""
    confidence = np.unique(np.concatenate([np.linspace(0.001, 1, 200_001), 1 - np.logspace(-7, -1, 20_001)]))
    block = PredictionBlock(np.zeros((len(confidence), 1), np.int32), confidence.astype(np.float32))
    path = tmp_path / f"{SPEC.key}.parquet"
    write_block(path, block, SPEC, "shiftbench 0")
    moved = np.abs(read_block(path).confidence - block.confidence)
    assert 1.0e-4 < moved.max() < 1.1e-4


def test_only_what_is_asked_for_is_read(tmp_path: Path) -> None:
    write_block(tmp_path / "a.parquet", make_block(scores=True), SPEC, "x")
    classes = {f"top{k}" for k in range(1, 6)}
    assert set(pq.read_schema(tmp_path / "a.parquet").names) == classes | {"logit_confidence", "scores"}
    back = read_block(tmp_path / "a.parquet", top_k=1)
    assert back.top.shape == (50, 1) and back.scores is None and np.isfinite(back.confidence).all()
    assert np.isnan(read_block(tmp_path / "a.parquet", top_k=1, confidence=False).confidence).all()


def test_another_file_in_its_place_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_block(path, make_block(), SPEC, "x")
    assert len(read_block(path, key=SPEC.key)) == 50
    with pytest.raises(StoreError, match="does not match its key"):
        read_block(path, key=replace(SPEC, others={**SPEC.others, "seed": 7}).key)


def test_equal_blocks_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_block(tmp_path / name / "m" / "s" / "key.parquet", make_block(), SPEC, "x")
    assert (tmp_path / "a/m/s/key.parquet").read_bytes() == (tmp_path / "b/m/s/key.parquet").read_bytes()


@given(st.lists(st.floats(0, 1, width=32), min_size=2, max_size=40))
def test_confidence_keeps_its_order_and_its_ends(values: list[float]) -> None:
    """Saturated softmax outputs are the rule; their order must survive two bytes."""
    from shiftbench.store.prediction_files import _decode, _encode

    confidence = np.array(sorted(values), np.float32)
    block = PredictionBlock(np.zeros((len(values), 1), np.int32), confidence)
    back = _decode(_encode(block)).confidence
    assert (np.diff(back) >= 0).all()
    np.testing.assert_allclose(back, confidence, atol=3e-4)


def test_confidences_near_one_stay_distinct(tmp_path: Path) -> None:
    confidence = np.array([0.9990, 0.9995, 0.9999, 0.99999, 1.0], np.float32)
    write_block(tmp_path / "a", PredictionBlock(np.zeros((5, 1), np.int32), confidence), SPEC, "x")
    back = read_block(tmp_path / "a").confidence
    assert len(set(back.tolist())) == 5 and back[-1] == 1.0
    # the reason for the logit: half precision itself can't tell them apart
    assert len(set(confidence.astype(np.float16).tolist())) < 5


def test_skipped_rows_stay_skipped(tmp_path: Path) -> None:
    block = PredictionBlock(np.array([[3, 4], [-1, -1]], np.int32), np.array([0.5, np.nan], np.float32))
    write_block(tmp_path / "a", block, SPEC, "x")
    back = read_block(tmp_path / "a")
    assert back.top.tolist() == [[3, 4], [-1, -1]] and np.isnan(back.confidence[1])


def test_large_label_spaces_are_stored_whole(tmp_path: Path) -> None:
    block = PredictionBlock(np.array([[70_000]], np.int32), np.array([0.5], np.float32))
    write_block(tmp_path / "a", block, SPEC, "x")
    assert read_block(tmp_path / "a").top[0, 0] == 70_000


def test_an_empty_block_is_fine(tmp_path: Path) -> None:
    write_block(tmp_path / "a", make_block(0), SPEC, "x")
    assert len(read_block(tmp_path / "a")) == 0


@pytest.mark.parametrize("cut", [0, 1, 4, 100, -200, -8, -1])
def test_a_torn_file_is_found(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "a"
    write_block(path, make_block(), SPEC, "x")
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(StoreError, match="damaged"):
        read_block(path)


def test_every_flipped_byte_of_the_data_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a"
    block = make_block(200)
    write_block(path, block, SPEC, "x")
    whole = path.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for position in range(4, footer, 37):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        try:
            back = read_block(path)
        except StoreError:
            continue
        # bytes that carry nothing (page header padding) may change; the predictions may not
        np.testing.assert_array_equal(back.top, block.top)


def test_an_edited_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_block(path, make_block(), SPEC, "x")
    table = pq.read_table(path)
    better = table.set_column(0, "top1", pa.array(np.zeros(50, np.int16)))
    kept = {key: value for key, value in pq.read_metadata(path).metadata.items() if key.startswith(b"shiftbench.")}
    pq.write_table(better.replace_schema_metadata(kept), path)
    with pytest.raises(StoreError, match="digest"):
        read_block(path, top_k=1, confidence=False)


def test_a_foreign_parquet_file_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"top1": [1]}), tmp_path / "a")
    with pytest.raises(StoreError, match="no shiftbench metadata"):
        read_block(tmp_path / "a")
