"""``shiftbench eval`` as a user types it: warnings as exit codes, own classes, JSON beside text."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import shiftbench as sb
from shiftbench.cli.app import app
from tests.runs.helpers import COLOURS, brightest_channel, colour_folder, darkest_channel

MODEL = """
import shiftbench as sb
from shiftbench.labels.space import LabelSpace

SMALL = sb.Preprocessing(sb.Geometry(36, 32))

def make(sign=1, names=("red", "green", "blue")):
    return sb.load_classifier(
        lambda images: sign * images.mean(axis=(1, 2)) / 20, name="bright" if sign > 0 else "dark",
        labels=LabelSpace("colours", names), preprocessing=SMALL,
    )

def make_wrong():
    return make(-1)
"""


def call(*arguments: object, columns: int = 120) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": str(columns)})


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    colour_folder(root / "pictures", per_class=10)
    (root / "model.py").write_text(MODEL)
    (root / "colours.txt").write_text("red\ngreen\nblue\n")
    return root


def evaluated(project: Path, factory: str, workspace: Path, *more: object) -> Result:
    return call(
        *("eval", f"{project}/model.py:{factory}", "--data", project / "pictures", "-w", workspace),
        *("--labels", project / "colours.txt", "--quiet", *more),
    )


def test_strict_is_silent_where_nothing_is_wrong(project: Path, tmp_path: Path) -> None:
    assert evaluated(project, "make", tmp_path / "w", "--strict").exit_code == 0


def test_strict_prints_and_stores_everything_before_it_fails(project: Path, tmp_path: Path) -> None:
    plain = evaluated(project, "make_wrong", tmp_path / "w", "--json")
    strict = evaluated(project, "make_wrong", tmp_path / "w", "--json", "--strict")
    assert (plain.exit_code, strict.exit_code) == (0, 3)
    data = json.loads(strict.stdout)
    assert data == json.loads(plain.stdout)
    assert {one["code"] for one in data["warnings"]} <= {"permuted-labels", "chance-level"} and data["warnings"]
    assert evaluated(project, "make_wrong", tmp_path / "new", "--strict").exit_code == 3
    assert len(sb.Run.open(tmp_path / "new").results) == 1


def test_strict_counts_skipped_images(tmp_path: Path, project: Path) -> None:
    data = colour_folder(tmp_path / "pictures", per_class=8)
    (data / "red" / "000.png").write_bytes(b"")
    options = ("--data", data, "--labels", project / "colours.txt", "-q", "-w", tmp_path / "w", "--json", "--strict")
    result = call("eval", f"{project}/model.py:make", *options)
    assert result.exit_code == 3
    assert [one["code"] for one in json.loads(result.stdout)["warnings"]] == ["skipped-images"]


def test_a_strict_call_in_python_carries_the_run(project: Path, tmp_path: Path) -> None:
    with pytest.raises(sb.StrictRunError) as caught, warnings.catch_warnings():
        warnings.simplefilter("error", sb.ResultWarning)
        sb.evaluate(
            [sb.load_classifier(f, name=f.__name__, labels=COLOURS) for f in (brightest_channel, darkest_channel)],
            data=project / "pictures",
            workspace=tmp_path / "w",
            labels=COLOURS,
            progress=False,
            strict=True,
        )
    assert len(caught.value.run.results) == 2
    assert any(one.code in ("permuted-labels", "chance-level") for one in caught.value.warnings)
