"""The command line as a user types it, in processes of their own where start-up matters."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import shiftbench as sb
from shiftbench.cli import main
from shiftbench.cli.options import parse_data, parse_severities
from tests.commands import answer, call, output
from tests.runs.helpers import colour_folder

FACTORY = """
import shiftbench as sb
from shiftbench.labels.space import LabelSpace

def make():
    def brightest(images):
        return images.mean(axis=(1, 2)) / 20
    return sb.load_classifier(
        brightest, name="bright", labels=LabelSpace("colours", ("red", "green", "blue")),
        preprocessing=sb.Preprocessing(sb.Geometry(36, 32)),
    )

def make_wrong():
    return lambda images: -images.mean(axis=(1, 2)) / 20
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    colour_folder(root / "pictures", per_class=10)
    (root / "model.py").write_text(FACTORY)
    (root / "colours.txt").write_text("red\ngreen\nblue\n")
    return root


@pytest.fixture(scope="module")
def workspace(project: Path) -> Path:
    """One evaluation that the reading commands look at."""
    result = output(
        *("eval", f"{project}/model.py:make", "--suite", "corruptions", "--data", project / "pictures"),
        *("--labels", project / "colours.txt", "-w", project / "w", "--severity", "1,5"),
        *("--corruption", "gaussian_noise,contrast", "--quiet"),
    )
    assert "contrast" in result and "100.0 [88.4, 100.0]" in result
    return project / "w"


def test_eval_prints_json_and_nothing_else_on_stdout(project: Path, workspace: Path) -> None:
    result = call(
        *("eval", f"{project}/model.py:make", "--data", project / "pictures", "-w", workspace),
        *("--labels", project / "colours.txt", "--quiet", "--json"),
    )
    data = json.loads(result.stdout)
    assert data["scores"][0]["value"] == 1.0 and data["scores"][0]["n"] == 30
    assert data["problems"] == [] and data["warnings"] == []


def test_table_in_every_format(workspace: Path, tmp_path: Path) -> None:
    assert "100.0 [88.4, 100.0]" in call("table", "-w", workspace, "-s", "pictures").stdout
    rows = list(csv.DictReader(io.StringIO(call("table", "-w", workspace, "-f", "csv").stdout)))
    assert {row["setting"] for row in rows} >= {"pictures", "pictures-c.contrast.5"}
    assert call("table", "-w", workspace, "-f", "md").stdout.count("|") > 10
    assert r"\toprule" in call("table", "-w", workspace, "-f", "tex").stdout
    answer("table", "-w", workspace)
    assert call("table", "-w", workspace, "-o", tmp_path / "t.tex").exit_code == 0
    assert r"\bottomrule" in (tmp_path / "t.tex").read_text()


def test_table_of_corruption_errors(workspace: Path) -> None:
    """AlexNet's errors are ImageNet's: three colours are not divided by them."""
    text = call("table", "-w", workspace, "--mce").stdout
    assert "mean error" in " ".join(text.split()) and "AlexNet" not in text
    text = call("table", "-w", workspace, "--mce", "--baseline", "bright").stdout
    assert "mean CE over" in " ".join(text.split()) and "bright" in text
    data = answer("table", "-w", workspace, "--mce", "--relative", "--baseline", "bright")
    assert "relative CE" in {score["metric"].partition(" at")[0] for score in data["scores"]}
    assert call("table", "-w", workspace, "--mce", "-m", "top5").exit_code == 2
    assert call("table", "-w", workspace, "--relative").exit_code == 2


def test_everything_can_be_listed() -> None:
    """In a process of its own: other tests register pieces without a description."""
    code = """
import json, sys
from typer.testing import CliRunner
from shiftbench.cli.app import app
for what in ("suites", "settings", "corruptions", "metrics", "classifiers", "datasets", "spaces", "shifts"):
    rows = json.loads(CliRunner().invoke(app, ["list", what, "--json"]).stdout)
    assert len(rows) > 2 and all(row["name"] and row["about"] and ">>>" not in row["about"] for row in rows), what
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_check_classifier_and_data_set(project: Path) -> None:
    output("check", "classifier", f"{project}/model.py:make")
    data = call("check", "dataset", project / "pictures", "--labels", project / "colours.txt", "--json")
    assert data.exit_code == 0 and all(row["ok"] for row in json.loads(data.stdout))


def test_images_needed_is_enough_and_not_too_many() -> None:
    from scipy.stats import beta

    n = answer("images-needed", "2", "--accuracy", "80")["images"]

    def half_width(images: int) -> float:
        k = 0.8 * images
        low = beta.ppf(0.025, k, images - k + 1)
        high = beta.ppf(0.975, k + 1, images - k)
        return float(high - low) / 2

    assert half_width(n) <= 0.02 < half_width(n - 1)


def test_images_needed_to_tell_two_models_apart_give_the_power() -> None:
    """Simulated pairs of models on that many images, judged by the test of SciPy."""
    from scipy.stats import binomtest

    data = answer("images-needed", "--difference", "5", "--disagreement", "15", "--power", "0.9")
    assert data["power"] == 0.9 and data["disagreement"] == 15
    rng = np.random.default_rng(0)
    tries = 400
    shown = 0
    for differing in rng.binomial(data["images"], 0.15, tries):
        better = int(rng.binomial(differing, 10 / 15))
        shown += binomtest(better, int(differing)).pvalue <= 0.05
    assert 0.85 < shown / tries < 0.96
    assert answer("images-needed", "--difference", "5", "--disagreement", "15")["images"] < data["images"]


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("1", "--difference", "2", "--disagreement", "10"),
        ("--difference", "2"),
        ("--difference", "2", "--disagreement", "1"),
        ("--difference", "2", "--disagreement", "10", "--accuracy", "70"),
        ("--difference", "0", "--disagreement", "10"),
        ("1", "--power", "0.9"),
    ],
)
def test_images_needed_refuses_half_a_question(words: tuple[str, ...]) -> None:
    result = call("images-needed", *words)
    assert result.exit_code != 0 and not isinstance(result.exception, ZeroDivisionError)
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["eval", "nothing.onnx", "--data", "pictures", "--labels", "colours.txt"], ["nothing.onnx"]),
        (["eval", "model.py:make", "--suite", "imagnet-c"], ["imagnet-c", "did you mean 'imagenet-c'"]),
        (["eval", "model.py:make", "--suite", "imagenet-c"], ["imagenet-val", "--data"]),
        (["eval", "model.py:make", "--data", "no/such/folder"], ["no/such/folder"]),
        (["eval", "model.py:make", "--data", "pictures", "--per-class", "-3"], ["--per-class", "1 or more"]),
        (["eval", "model.py:make", "--data", "pictures", "--labels", "red,blue"], ["red,blue", "--labels folders"]),
        (["table", "-w", "elsewhere"], ["not a workspace", "elsewhere"]),
    ],
)
def test_errors_say_what_to_do_and_show_no_traceback(
    project: Path,
    arguments: list[str],
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "argv", ["shiftbench", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    shown = capsys.readouterr().err
    assert ended.value.code == 1 and "Traceback" not in shown
    for word in words:
        assert word in shown


def test_values_that_an_option_refuses_are_usage_errors(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "argv", ["shiftbench", "eval", "model.py:make", "--data", "pictures", "--sample", "0"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "--sample" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["eval"], ["eval", "x.onnx", "--severity", "a-b"], ["list", "nonsense"], ["table", "-f", "docx"]]
)
def test_wrong_usage_is_exit_code_two(arguments: list[str], workspace: Path) -> None:
    extra = ["-w", str(workspace)] if arguments[0] == "table" else []
    assert call(*arguments, *extra).exit_code == 2


def test_a_misspelt_command_is_answered_with_its_neighbours() -> None:
    assert "Did you mean 'eval'?" in call("evl").stderr
    assert "Did you mean 'effective'" in call("study", "efective").stderr


@pytest.mark.parametrize(("text", "expected"), [("3", (3,)), ("1-5", (1, 2, 3, 4, 5)), ("1,2.5", (1, 2.5))])
def test_severities(text: str, expected: tuple[float, ...]) -> None:
    assert parse_severities(text) == expected


def test_data_by_role() -> None:
    assert parse_data([]) is None and parse_data(["folder"]) == "folder"
    assert parse_data(["a=x", "b=y=z"]) == {"a": "x", "b": "y=z"}


def test_the_package_can_be_run_as_a_module() -> None:
    found = subprocess.run([sys.executable, "-m", "shiftbench", "--version"], capture_output=True, text=True)
    assert found.stdout.strip() == sb.__version__


def test_starting_is_light() -> None:
    """Importing the package and asking for help must not pull in what only some commands need."""
    heavy = "torch|onnxruntime|numba|cv2|scipy|pyarrow|PIL|pandas|timm|transformers"
    for code in ("import shiftbench", "import shiftbench.cli.app"):
        script = f"{code}; import sys; print(*sorted(m for m in {heavy.split('|')} if m in sys.modules))"
        found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert found.stdout.strip() == "", f"{code} imports {found.stdout}"
    numpy_free = "import shiftbench, sys; print('numpy' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", numpy_free], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_corruption_errors_of_the_public_table(reference_data: Path, tmp_path: Path) -> None:
    """A model that the testbed added after the paper counts only with --all-models, and that is noted."""
    lines = (reference_data / "imagenet-testbed" / "results_204x213.csv").read_text().splitlines()
    row = next(line for line in lines if line.startswith("resnet50,"))
    (tmp_path / "robustness_top1s.csv").write_text("\n".join([*lines, "resnet50_swav" + row.removeprefix("resnet50")]))
    typed = ("table", "--mce", "-r", tmp_path, "--family", "imagenet-c_on-disk")
    paper = answer(*typed)
    every = answer(*typed, "--all-models")
    assert len(every["rows"]) == len(paper["rows"]) + 1 == 201
    assert "the 204 models of the paper of 205 in the table" in paper["notes"]
