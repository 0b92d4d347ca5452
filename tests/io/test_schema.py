"""Documents become typed records, or errors that name the key, what was found and what was expected."""

from __future__ import annotations

import functools
from collections.abc import Callable
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
        ({"train": {}, "by_name": {"a": {"epochs": 0}}}, "by_name.a.epochs", "0", "integer >= 1"),
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


def noise(
    kind: object,
    strength: Annotated[float, Meta(ge=0, le=1)],
    levels: tuple[float, ...] = (1.0,),
    file: str | Path | View | None = None,
    fill: Count | tuple[int, int, int] = 1,
) -> None: ...


@pytest.mark.parametrize("factory", [noise, functools.partial(noise, levels=(1.0,))])
def test_options_are_converted_to_the_annotated_types(factory: Callable[..., None]) -> None:
    found = check_options({"strength": 1, "levels": [2]}, factory, "noise", given=["kind"])
    assert found == {"strength": 1.0, "levels": (2.0,), "file": None, "fill": 1}
    # Of a union that msgspec does not know, or crashes on, anything passes.
    assert check_options({"strength": 1, "file": Path("a")}, factory, "noise", given=["kind"])["file"] == Path("a")


@pytest.mark.parametrize(
    ("options", "found", "expected", "hint"),
    [
        ({"strength": 2}, "2", "number <= 1.0", None),
        ({"strenght": 1}, "strenght", "strength, levels, file, fill", "did you mean 'strength'?"),
        ({"kind": 1}, "kind", "strength, levels, file, fill", None),
        ({}, "no strength", "strength", None),
    ],
)
def test_options_that_a_factory_does_not_take(
    options: dict[str, object], found: str, expected: str, hint: str | None
) -> None:
    with pytest.raises(DatasetError) as caught:
        check_options(options, noise, "noise", DatasetError, given=["kind"])
    assert (caught.value.found, caught.value.expected, caught.value.hint) == (found, expected, hint)


def test_a_factory_that_takes_anything_is_left_to_itself() -> None:
    def anything(**options: object) -> None: ...

    assert check_options({"a": 1}, anything, "anything") == {"a": 1}


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


def test_keys_with_many_dots_are_nested_too_deeply() -> None:
    """The parser of Python reads them; whatever shows or compares the tables later would end in a RecursionError."""
    assert parse_toml("[a" + ".a" * 90 + "]\nb = 1", "x.toml")
    with pytest.raises(ShiftbenchError, match=r"x\.toml is nested too deeply"):
        parse_toml("[a" + ".a" * 50_000 + "]\nb = 1", "x.toml")
