"""``shiftbench describe``: facts with their sources, and the sidecar that states them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from shiftbench.classifiers import load_classifier
from tests.classifiers.networks import Small
from tests.classifiers.test_onnx import export
from tests.commands import answer, call, output
from tests.datasets.makers import class_folders

torch = pytest.importorskip("torch")

STATED = "size=32,resize=squash,interpolation=bicubic,mean=0.5,std=0.25,colour=rgb"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return export(Small(), torch.zeros(2, 3, 32, 32), tmp_path / "small.onnx")


def describe(*arguments: object) -> Any:
    return answer("describe", *arguments)


def sources(found: Any) -> dict[str, str]:
    return {fact["name"]: fact["source"] for fact in found["facts"]}


def test_each_fact_has_its_source(model: Path) -> None:
    found = describe(model, "--preprocess", "mean=0.5")
    assert found["classes"] == 3
    assert "resize" in found["assumed"] and "mean" not in found["assumed"]
    assert {"mean": "given", "layout": "file", "outputs": "measured", "std": "assumed"}.items() <= sources(
        found
    ).items()


def test_the_command_that_confirms_can_be_copied(model: Path) -> None:
    model.parent.joinpath("my models").mkdir()
    model = model.rename(model.parent / "my models" / "small net.onnx")
    shown = " ".join(output("describe", model, columns=400).split())
    command = shown.partition("`")[2].partition("`")[0]
    assert shlex.split(command) == ["shiftbench", "describe", str(model), "--write"]


def test_a_sidecar_that_repeats_what_was_given_is_no_new_version(model: Path, tmp_path: Path) -> None:
    data = class_folders(tmp_path / "pets", ["cat", "dog", "owl"], each=2)
    given = ("--preprocess", STATED)
    shared = ("--data", data, "-w", tmp_path / "w", "-q")
    first = answer("eval", model, *shared, *given)
    describe(model, "--data", data, *given, "--write")
    second = answer("eval", model, *shared)
    assert [score["id"] for score in second["scores"]] == [score["id"] for score in first["scores"]]
    assert second["warnings"] == []


def test_what_is_written_is_stated_from_then_on(model: Path) -> None:
    found = describe(model, "--preprocess", STATED, "--write")
    again = describe(model)
    assert again["assumed"] == []
    assert sources(again)["mean"] == "sidecar"
    assert again["fingerprint"] == found["fingerprint"]
    first = load_classifier(model, labels=["a", "b", "c"])
    assert first.preprocessing.normalisation.mean == (0.5, 0.5, 0.5)
    refused = call("describe", model, "--write")
    assert refused.exit_code == 1
    assert describe(model, "--preprocess", "mean=0.4", "--write", "--force")["written"]
    assert load_classifier(model, labels=["a", "b", "c"]).preprocessing.normalisation.mean == (0.4, 0.4, 0.4)


def test_a_file_of_another_kind_beside_the_model_is_explained(model: Path) -> None:
    before = len(describe(model)["notes"])
    model.with_suffix(".json").write_text('{"epochs": 3}')
    assert len(describe(model)["notes"]) == before + 1


@pytest.mark.parametrize("columns", [80, 160])
def test_it_fits_the_terminal(model: Path, columns: int) -> None:
    result = output("describe", model, columns=columns)
    assert max(map(len, result.splitlines())) <= columns


def test_only_a_file_gets_a_sidecar(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def classifier():\n    return lambda images: images.mean(axis=(1, 2))\n")
    result = call("describe", f"{tmp_path / 'mine.py'}:classifier", "--write")
    assert result.exit_code == 1
