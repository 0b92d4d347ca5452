"""The typed spec: its JSON is the stored one, byte for byte."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from shiftbench.store.prediction_files import read_spec
from shiftbench.store.spec import JsonObject, ResultSpec, canonical_json
from shiftbench.store.workspace import Workspace

OLD = Path(__file__).parent / "fixtures/workspace-0.1/workspace"


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"source": None},
        {"images": 3, "of another version": {"a": [1, 2.0, None]}},
        {"shift": {"shift": "new kind", "strength": [1.5]}, "dataset": {"name": "d", "fingerprint": "f", "more": 1}},
        {"answers": "abc", "family": "f", "provenance": "p", "reference": None},
    ],
)
def test_json_comes_back_byte_for_byte(value: JsonObject) -> None:
    assert ResultSpec.from_json(value).text == canonical_json(value)


def test_stored_specs_are_typed() -> None:
    found = {result.setting: result.spec for result in Workspace(OLD, create=False).results(["network"])}
    fog, frame, attack = (found[f"colours-{name}"] for name in ("c.fog.2.5", "p.rotate.frame02", "pgd.l2.eps0.5"))
    assert (fog.shift.kind, fog.shift.corruption, fog.shift.severity, fog.source) == (
        "corruption",
        "fog",
        2.5,
        "in-memory",
    )
    assert (frame.shift.perturbation, frame.shift.frame, frame.shift.noise) == ("rotate", 2, False)
    assert (attack.shift.attack, attack.shift.eps, attack.shift.corruption) == ("pgd.l2.eps0.5", 0.5, None)
    assert found["colours"].shift.kind == "none" and found["colours"].geometry.rebuild().crop == 32
    assert found["colours"].classifier.geometry.rebuild() == found["colours"].geometry.rebuild()


def test_a_changed_field_is_written() -> None:
    spec = replace(ResultSpec.from_json({"images": 2}), provenance="line")
    assert json.loads(spec.text) == {"images": 2, "provenance": "line"}


def test_specs_read_from_files_and_from_the_catalogue_are_equal(tmp_path: Path) -> None:
    path = next(OLD.glob("predictions/network/colours/*.parquet"))
    spec = read_spec(path)
    assert spec.key == path.stem and ResultSpec.from_json(json.loads(spec.text)) == spec
