"""`harden train`, `recipes`, `show` and `report --training` as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shiftbench.errors import StoreError
from shiftbench.reports.page.sections.training import training_curves
from tests.commands import answer, call, output

TINY = (
    "--set",
    'architecture={name="resnet-20", depth=8, width=4}',
    "--limit",
    "64",
    "--set",
    "train.batch_size=32",
    "--set",
    "train.epochs=2",
    "--data",
    "cifar-10-test",
    "--validation",
    "none",
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "small"
    result = call("harden", "train", "cifar-standard", *TINY, "--out", folder, "--seed", 3, "-q")
    assert result.exit_code == 0, result.output
    assert "2 epochs" in result.output and "hardened:" in result.output
    return folder


def test_train_then_eval(trained: Path, tmp_path: Path) -> None:
    again = call("harden", "train", "cifar-standard", *TINY, "--out", trained, "--seed", 3, "-q", "--json")
    assert [line["epoch"] for line in json.loads(again.stdout)["log"]] == [1, 2]
    scores = answer(
        "eval",
        f"hardened:{trained}",
        "--suite",
        "cifar-10-c",
        "--corruption",
        "fog",
        "--severity",
        3,
        "--sample",
        30,
        "-w",
        tmp_path / "ws",
        "-q",
    )["scores"]
    assert [(score["classifier"], score["setting"]) for score in scores] == [
        ("small", "cifar-10"),
        ("small", "cifar-10-c.fog.3"),
    ]


def test_the_recipe_that_was_followed_is_written(trained: Path) -> None:
    text = (trained / "recipe.toml").read_text()
    assert "seed = 3" in text and 'name = "resnet-20"' in text and "sample = 64" in text
    shown = call("harden", "show", trained / "recipe.toml")
    assert shown.stdout.strip() == text.strip()


def test_recipes_and_show() -> None:
    listed = answer("harden", "recipes")
    assert {"cifar-augmix", "imagenet-deepaugment", "dfr-standard"} <= {one["recipe"] for one in listed}
    assert "cifar-pgd" in call("harden", "recipes").output
    assert 'base = "cifar-standard"' in call("harden", "show", "cifar-augmix").stdout
    assert "epochs = 7" in call("harden", "show", "cifar-augmix", "--set", "train.epochs=7").stdout


def test_a_wrong_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = call("harden", "train", "cifar-augmix", "--set", "train.epoch=3")
    assert result.exit_code == 1 and "did you mean 'epochs'?" in str(result.exception)
    assert not list(tmp_path.iterdir())


def test_curves_reach_the_report(trained: Path, tmp_path: Path) -> None:
    [curve] = training_curves([trained])
    assert curve["name"] == "small" and curve["steps"] == [2, 4]
    assert set(curve["series"]) == {"loss", "accuracy", "lr"}
    assert training_curves([trained.parent]) == [curve]
    with pytest.raises(StoreError, match="no log"):
        training_curves([tmp_path])
    call("eval", f"hardened:{trained}", "--suite", "cifar", "--sample", 20, "-w", tmp_path / "ws", "-q")
    page = tmp_path / "page.html"
    output("report", "-w", tmp_path / "ws", "-o", page, "--training", trained, "-q")
    assert '"training":[{"name":"small"' in page.read_text().replace(" ", "")
