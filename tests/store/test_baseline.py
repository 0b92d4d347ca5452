"""Baseline files: what comes out is what went in, and damage is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shiftbench.errors import StoreError
from shiftbench.store.baseline import GateBaseline, read_baseline, write_baseline
from shiftbench.store.prediction_files import PredictionBlock, as_stored
from tests.metrics.making import changed, predictions


def baseline() -> GateBaseline:
    rng = np.random.default_rng(0)
    found = {}
    for setting, rows, fingerprint in (
        ("val", range(40), "a"),
        ("val-c", range(10, 40), "a"),
        ("other", range(7), "b"),
    ):
        made = predictions(
            rng.integers(-1, 3, len(rows)),
            rng.integers(0, 3, len(rows)),
            setting=setting,
            ids=[f"{row}.png" for row in rows],
            space="test-3",
            dataset={"name": "d", "fingerprint": fingerprint},
        )
        confidence = np.where(made.top[:, 0] < 0, np.nan, rng.random(len(rows))).astype(np.float32)
        found[setting] = replace(made, confidence=confidence)
    found["val-c"] = replace(found["val-c"], labels=found["val"].labels[10:])
    return GateBaseline("net@1234", found, {"suite": "corruptions", "seed": 3})


def test_predictions_come_back(tmp_path: Path) -> None:
    before = baseline()
    write_baseline(tmp_path / "b.parquet", before)
    after = read_baseline(tmp_path / "b.parquet")
    assert (after.model, after.configuration) == (before.model, before.configuration)
    assert list(after.predictions) == list(before.predictions)
    for name, one in before.predictions.items():
        found = after.predictions[name]
        assert (found.ids, found.spec, found.space.keys) == (one.ids, one.spec, one.space.keys)
        np.testing.assert_array_equal(found.labels, one.labels)
        np.testing.assert_array_equal(found.top, one.top[:, :1])
        # As a workspace would have kept them.
        np.testing.assert_array_equal(found.confidence, as_stored(PredictionBlock(one.top, one.confidence)).confidence)


def test_equal_predictions_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_baseline(tmp_path / name, baseline())
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("damage", ["truncated", "flipped", "no baseline", "text", "missing", "later format"])
def test_damage_is_found(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "b.parquet"
    write_baseline(path, baseline())
    content = bytearray(path.read_bytes())
    if damage == "truncated":
        path.write_bytes(content[:-20])
    elif damage == "flipped":
        content[60] ^= 255
        path.write_bytes(content)
    elif damage == "no baseline":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"image": ["x"]}), path)
    elif damage == "text":
        path.write_text("not a table")
    elif damage == "missing":
        path.unlink()
    else:
        path.write_bytes(bytes(content).replace(b'"format":1', b'"format":9'))
    with pytest.raises(StoreError):
        read_baseline(path)


def test_other_specs_stay_other_specs(tmp_path: Path) -> None:
    one = baseline().predictions["val"]
    write_baseline(tmp_path / "b", GateBaseline("net@1", {"val": changed(one, images=41)}, {}))
    assert read_baseline(tmp_path / "b").predictions["val"].spec.images == 41


def test_a_series_keeps_its_first_baseline_through_many_pins(tmp_path: Path) -> None:
    first = replace(baseline(), series="main", pins=("net@1234",))
    current = first
    for number in range(3):
        changed_predictions = {}
        for name, result in current.predictions.items():
            changed_predictions[name] = replace(result, top=(result.top + 1) % 3)
        following = GateBaseline(f"net@{number}", changed_predictions, current.configuration, "main")
        write_baseline(tmp_path / "b.parquet", following.after(current))
        current = read_baseline(tmp_path / "b.parquet")
    assert current.pins == ("net@1234", "net@0", "net@1", "net@2") and current.series == "main"
    assert current.first is not None and current.first.model == "net@1234"
    for name, result in first.predictions.items():
        kept = current.first.predictions[name]
        np.testing.assert_array_equal(kept.top[:, 0], result.top[:, 0])
        assert list(kept.ids) == list(result.ids)
        assert kept.spec == result.spec
        assert (current.predictions[name].top != kept.top).any()
