"""Documents become typed records, or errors that name the key, what was found and what was expected."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from shiftbench.errors import DatasetError, ShiftbenchError
from shiftbench.io.schema import (
    Count,
    NonNegative,
    Positive,
    Probability,
    check_options,
    checked,
    decode,
    parse_toml,
    read_toml,
    to_toml,
)


class Train(msgspec.Struct, frozen=True):
    epochs: Count = 100
    keep: Literal["last", "best"] = "last"
    ema: Probability = 0.0
    milestones: tuple[float, ...] = ()
    clip: NonNegative = 0.0
    name: str | None = None
    mode: Literal["best"] | None = None


@dataclass(frozen=True)
class View:
    name: str
    severity: int = 3


class Document(msgspec.Struct, frozen=True):
    train: Train
    views: tuple[View, ...] = ()
    by_name: dict[str, Train] = {}


def test_a_document_becomes_a_record() -> None:
    found = decode({"train": {"epochs": 3, "milestones": [1, 2]}, "views": [{"name": "a"}]}, Document, "the recipe")
    assert found == Document(Train(3, milestones=(1.0, 2.0)), (View("a"),))


@pytest.mark.parametrize(
    ("document", "key", "found", "expected"),
    [
        ({}, "the recipe", "no train", "train"),
        ({"train": 3}, "train", "3", "table"),
        ({"train": {"epochs": "3"}}, "train.epochs", "'3'", "integer"),
        ({"train": {"epochs": True}}, "train.epochs", "True", "integer"),
        ({"train": {"epochs": 0}}, "train.epochs", "0", "integer >= 1"),
        ({"train": {"ema": 1.5}}, "train.ema", "1.5", "number <= 1.0"),
        ({"train": {"clip": float("inf")}}, "train.clip", "inf", "finite number"),
        ({"train": {"milestones": [1, "b"]}}, "train.milestones[1]", "'b'", "number"),
        ({"train": {"milestones": "b"}}, "train.milestones", "'b'", "list"),
        ({"train": {"name": 3}}, "train.name", "3", "string or nothing"),
        ({"train": {}, "views": [{"severity": 3}]}, "the recipe", "no views[0].name", "name"),
        ({"train": {}, "by_name": {"a": {"epochs": 0}}}, "by_name", "{'a': {'epochs': 0}}", "integer >= 1"),
        ("text", "invalid the recipe", "'text'", "table"),
    ],
)
def test_an_error_names_the_key_what_was_found_and_what_was_expected(
    document: object, key: str, found: str, expected: str
) -> None:
    with pytest.raises(DatasetError) as caught:
        decode(document, Document, "the recipe", DatasetError)
    assert key in caught.value.message
    assert (caught.value.found, caught.value.expected) == (found, expected)


@pytest.mark.parametrize(
    ("document", "found", "expected", "near"),
    [
        ({"trian": {}}, "trian", "train, views, by_name", "'train'"),
        ({"train": {"epoch": 3}}, "train.epoch", "epochs, keep, ema, milestones, clip, name", "'epochs'"),
        ({"train": {}, "views": [{"name": "a", "strength": 3}]}, "views[0].strength", "name, severity", None),
        ({"train": {}, "by_name": {"a": {"keeps": 3}}}, "by_name.a.keeps", "epochs, keep", "'keep'"),
        ({"train": {"keep": "lst"}}, "'lst'", "best or last", "'last'"),
        ({"train": {"mode": "bst"}}, "'bst'", "best", "'best'"),
    ],
)
def test_unknown_keys_and_choices_come_with_the_nearest_known_one(
    document: object, found: str, expected: str, near: str | None
) -> None:
    with pytest.raises(ShiftbenchError) as caught:
        decode(document, Document, "the recipe")
    assert caught.value.found == found and str(caught.value.expected).startswith(expected)
    assert caught.value.hint == (f"did you mean {near}?" if near else None)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
@pytest.mark.parametrize("kind", [Probability, NonNegative, Positive])
def test_numbers_that_are_not_finite_are_refused(kind: Any, value: float) -> None:
    with pytest.raises(ShiftbenchError):
        decode(value, kind, "the option")


def test_arguments_are_converted_to_the_annotated_types() -> None:
    @checked("the augmentation 'noise'", DatasetError)
    def noise(strength: Annotated[float, Meta(ge=0, le=1)], levels: tuple[float, ...] = (1.0,)) -> tuple[Any, ...]:
        return strength, levels

    assert noise(1, levels=[2]) == (1.0, (2.0,))  # type: ignore[arg-type]
    assert check_options({"strength": 1}, noise, "noise", DatasetError) == {"strength": 1.0, "levels": (1.0,)}
    with pytest.raises(DatasetError) as caught:
        noise(2)
    assert (caught.value.found, caught.value.expected) == ("2", "number <= 1.0")
    with pytest.raises(DatasetError) as caught:
        noise(strenght=1)  # type: ignore[call-arg]
    assert (caught.value.found, caught.value.hint) == ("strenght", "did you mean 'strength'?")
    with pytest.raises(DatasetError) as caught:
        noise()  # type: ignore[call-arg]
    assert caught.value.expected == "strength"


def test_toml_is_written_and_read(tmp_path: Path) -> None:
    tables = {"about": 'é "quoted"', "empty": [], "train": {"epochs": 3, "lr": 5e-4}, "views": [{"name": "a"}]}
    text = to_toml(tables)
    assert text.endswith('[train]\nepochs = 3\nlr = 0.0005\n\n[[views]]\nname = "a"\n')
    (tmp_path / "a.toml").write_text(text, encoding="utf-8")
    assert read_toml(tmp_path / "a.toml") == parse_toml(text, "a") == tables


def test_broken_toml_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b"[train\n")
    (tmp_path / "b.toml").write_bytes(b'a = "\xff"\n')
    for name in ("a.toml", "b.toml"):
        with pytest.raises(DatasetError, match=name):
            read_toml(tmp_path / name, DatasetError)
