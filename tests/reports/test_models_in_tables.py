"""Which columns and records of a table hold models is declared, not read from the names of their keys."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

import shiftbench as sb
from shiftbench.reports.models import with_models
from shiftbench.reports.table import Column, ModelRecords, Table
from tests.reports.recorded import record


@dataclass(frozen=True)
class Race:
    winner: str
    #: A shift that happens to have the name of a model.
    first: str
    seconds: float


def test_only_declared_models_get_their_facts(tmp_path: Path) -> None:
    result = record(tmp_path, "photos", 100, 70, model="mine")
    run = sb.Run.open(tmp_path)
    columns = [
        Column("winner", "winner", "model", facts="winner_"),
        Column("first", "first shift"),
        Column("seconds", "s", "number"),
    ]
    races = [Race("mine", "mine", 1.5)]
    data = {
        "races": ModelRecords([vars(races[0])], {"winner": "winner_"}),
        "model": "mine",
        "shifts": [{"model": "mine"}],
    }
    table = with_models(Table(columns, races, data=data), run)

    [row] = csv.DictReader(io.StringIO(table.to_csv()))
    keys = ["winner", "first", "seconds", "winner_id", "winner_assumed", "winner_training_images"]
    assert list(row) == keys and row["winner_id"] == result.model_id
    answer = table.as_data()
    assert answer["races"][0]["winner_id"] == result.model_id and "first_id" not in answer["races"][0]
    assert answer["shifts"] == [{"model": "mine"}] and answer["model"] == "mine"


def test_a_repeated_model_is_marked_but_described_once(tmp_path: Path) -> None:
    record(tmp_path, "photos", 100, 70, model="mine")
    columns = [Column("model", "model", "model"), Column("base", "base", "model", facts=None)]
    table = with_models(Table(columns, [{"model": "mine", "base": "mine"}]), sb.Run.open(tmp_path))
    assert table.csv_keys == ["model", "base", "id", "assumed", "training_images"]
    assert sum(key.endswith("id") for key in table.rows[0]) == 1


def test_records_are_rows_with_their_fields_as_keys() -> None:
    table = Table([Column("winner", "winner", "model"), Column("seconds", "s", "number")], [Race("a", "fog", 2.0)])
    assert table.to_csv().splitlines() == ["winner,seconds", "a,2.0"]
    assert table.as_data()["rows"] == [{"winner": "a", "first": "fog", "seconds": 2.0}]
