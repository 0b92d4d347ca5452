"""Every command of the core works, or names its extra, where nothing but the core and onnxruntime is installed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer.main
from PIL import Image

from shiftbench.classifiers.demo import Graph
from shiftbench.cli.app import app
from shiftbench.cli.commands import CORE

#: What extras install; the core must not need any of it.
EXTRAS = (
    "torch",
    "torchvision",
    "timm",
    "transformers",
    "cv2",
    "sqlalchemy",
    "alembic",
    "argon2",
    "matplotlib",
    "fastapi",
    "uvicorn",
    "starlette",
    "ray",
    "sklearn",
    "pandas",
    "polars",
    "datasets",
    "onnx",
    "onnxscript",
    "jinja2",
    "h5py",
    "resvg_py",
    "art",
    "tomlkit",
    "safetensors",
    "accelerate",
    "lightning",
    "mlflow",
    "wandb",
    "tensorboard",
    "boto3",
)
WORKSHOPS = ("shiftbench.testsets", "shiftbench.hardening")
TABLES = "-r results.csv -m models.csv"


@dataclass(frozen=True)
class Case:
    """How a command is called, and what it then does: it exits with a code, or names the extra that it needs."""

    arguments: str = ""
    extra: str | None = None
    code: int = 0


#: Every command of the core, in the order in which they run in one folder. Commands that need a network, or a run in
#: the background, only show their help.
CASES = {
    "eval": Case("a.onnx b.onnx c.onnx --data photos --suite corruptions --corruption fog --severity 1,3 -q"),
    "import": Case("predictions.csv --setting photos --data photos --labels folders -w imported"),
    "table": Case(),
    "compare": Case("-s photos"),
    "history": Case(),
    # So few images leave rules undecided.
    "gate run": Case("b.onnx --against a.onnx --data photos --suite clean -w gate -q", code=2),
    "gate pin": Case("a.onnx --data photos --suite clean -w gate -o pinned.json -q"),
    "groups": Case("--by group --table groups.csv -s photos"),
    "detect": Case("--in photos --out photos-c.fog.3"),
    "calibrate": Case("-s photos"),
    "images-needed": Case("0.02"),
    "study fit": Case(f"{TABLES} --x val --y v2"),
    "study effective": Case(f"{TABLES} --x val --y v2 --resamples 20"),
    "study relative": Case(f"{TABLES} --y v2"),
    "study interventions": Case(f"{TABLES} --shift v2"),
    "study correlate": Case(f"{TABLES} --synthetic noise --natural v2"),
    "study reproducibility": Case("-r results.csv --x val --y v2 --n-x 50000 --n-y 10000"),
    "study gap": Case("-w shiftbench-workspace --x photos --y photos-c.fog.3"),
    "study bins": Case("--setting photos --frequencies frequencies.csv"),
    "study difficulty": Case("--second 0.5,0.8 --n-x 500 --n-y 500"),
    "study agreement": Case("-s photos"),
    "study hypotheses": Case(f"{TABLES} -s v2 -s noise --x val"),
    "study many-faces": Case(TABLES),
    "study confusion": Case("-s photos"),
    # Tags are given in the live report, which needs an extra: an error says so.
    "study tags": Case(code=1),
    "study colours": Case("a.onnx --data photos -q"),
    "figure scatter": Case(f"{TABLES} --x val --y v2 -o f.svg", "figures"),
    "figure robustness": Case(f"{TABLES} --shift v2 -o f.svg", "figures"),
    "figure corruptions": Case("-o f.svg", "figures"),
    "figure heatmap": Case("-o f.svg", "figures"),
    "figure mce": Case("-o f.svg", "figures"),
    "figure size": Case("-m models.csv -o f.svg", "figures"),
    "figure bars": Case("-o f.svg", "figures"),
    "figure confusion": Case("-s photos -o f.svg", "figures"),
    "figure reliability": Case("-s photos -o f.svg", "figures"),
    "figure response": Case("-o f.svg", "figures"),
    "figure correlations": Case(f"{TABLES} -o f.svg", "figures"),
    "figure rank": Case("-r results.csv --x val --y v2 -o f.svg", "figures"),
    "figure bins": Case("--setting photos --frequencies frequencies.csv -o f.svg", "figures"),
    "report": Case("-o report.html -q"),
    "serve": Case("--port 0", "web"),
    "baselines get": Case("--help"),
    "reproduce": Case("004"),
    "corrupt": Case("photos corrupted --corruption fog --severity 3 -q"),
    "preview": Case("photos/dark/0.png -o preview.png"),
    "list": Case("suites"),
    "describe": Case("a.onnx"),
    "doctor": Case("a.onnx --data photos -q"),
    "check corruption": Case("fog"),
    "check shift": Case("imagenet-c.fog.3 --suite imagenet-c"),
    "check metric": Case("top1 --replicates 20"),
    "check suite": Case("imagenet-c"),
    "check sink": Case("tensorboard", "integrations"),
    "check classifier": Case("a.onnx --labels classes.txt"),
    "check attack": Case("a.onnx --labels classes.txt", "torch"),
    "check dataset": Case("photos --labels folders"),
    "data labels": Case("photos"),
    "data check": Case("photos --labels folders"),
    "data factors": Case("factors.csv protocol.toml"),
    "data icons": Case("--help"),
    "store stats": Case("shiftbench-workspace"),
    "store verify": Case("shiftbench-workspace"),
    "store repair": Case("shiftbench-workspace"),
    "store compact": Case("shiftbench-workspace"),
    "store export": Case("export.csv"),
    "store log": Case(),
    "store rename": Case("c renamed"),
    "store remove": Case("renamed --yes"),
    "cache list": Case(),
    "cache clear": Case("--yes"),
    "jobs list": Case(),
    "jobs attach": Case("--help"),
    "jobs cancel": Case("--help"),
    "launch slurm": Case("--jobs 2 -- a.onnx --data photos"),
    "launch k8s": Case("--jobs 2 --image shiftbench -- a.onnx --data photos"),
    "demo": Case(extra="demo"),
}
#: Commands whose output proves that results were computed, stored and shown.
SMOKE = (
    "eval",
    "table",
    "report",
    "data check",
    "describe",
    "corrupt",
    "list",
    "check corruption",
    "check metric",
    "check suite",
)


def write_model(path: Path, bias: float) -> None:
    """An ONNX file with two outputs, dark and light, by the mean brightness of an image."""
    graph = Graph((32, 32))
    weight = np.array([[-1, -1, -1], [1, 1, 1]], np.float32)
    graph.ending(graph.dense(graph.mean("images"), weight, np.array([0, bias], np.float32))).save(path)


def prepare(folder: Path) -> None:
    """Two classes of images, models, and the tables that studies read."""

    def write(name: str, lines: Iterable[str]) -> None:
        (folder / name).write_text("\n".join(lines) + "\n")

    generator = np.random.default_rng(0)
    images = []
    for name, level in (("dark", 90), ("light", 150)):
        (folder / "photos" / name).mkdir(parents=True)
        for i in range(24):
            pixels = generator.normal(level, 30, (32, 32, 3)) + generator.normal(0, 40)
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / "photos" / name / f"{i}.png")
            images.append((f"{name}/{i}.png", name, i))
    for name, bias in (("a", 0.0), ("b", 0.6), ("c", -0.6)):
        write_model(folder / f"{name}.onnx", bias)
    write("classes.txt", ["dark", "light"])
    write("predictions.csv", ["model,id,prediction", *(f"m,{image_id},{name}" for image_id, name, _ in images)])
    write("groups.csv", ["id,group", *(f"{image_id},{i % 2}" for image_id, _, i in images)])
    write("frequencies.csv", ["id,frequency", *(f"{image_id},{i / 24}" for image_id, _, i in images)])
    accuracies = ["a,60,47,20,30,80", "b,70,58,30,35,85", "c,80,70,41,40,90", "d,75,63,35,37,87"]
    accuracies += ["e,76,69,50,44,88", "f,78,72,55,46,89"]
    write("results.csv", ["model,val,v2,noise,imagenet-r,val-on-imagenet-r-classes", *accuracies])
    described = ["a,standard,,", "b,standard,,", "c,standard,,", "d,standard,,", "e,more_data,b,larger"]
    write("models.csv", ["model,category,base_model,changes", *described, "f,more_data,c,larger"])
    rows = ["path,kind,light,part"]
    for image_id, name, i in images:
        light = "day" if i % 2 else "night"
        part = "train" if i % 3 else "test"
        rows.append(f"photos/{image_id},{name},{light},{part}")
    write("factors.csv", rows)
    (folder / "protocol.toml").write_text(PROTOCOL)


PROTOCOL = """
name = "shops"
label = "kind"
[base]
light = ["day"]
[shifts.night]
light = ["night"]
[parts]
column = "part"
train = ["train"]
test = ["test"]
shifted = ["test"]
"""


def leaves(command: Any, path: str) -> Iterator[str]:
    """The commands of the core below a command; plug-ins add others, which are not in ``commands``."""
    if not hasattr(command, "list_commands"):
        yield path
        return
    for name in command.commands:
        yield from leaves(command.commands[name], f"{path} {name}")


def test_every_command_of_the_core_is_called() -> None:
    root: Any = typer.main.get_command(app)
    commands = [path for name in CORE for path in leaves(root.get_command(None, name), name)]
    assert commands == list(CASES)


@dataclass(frozen=True)
class Answer:
    """What a command did; ``kind`` is "exit", "extra", "error" (one of ours) or "fault"."""

    kind: str
    code: int
    text: str
    message: str


def run(folder: Path, absent: Sequence[str], names: Sequence[str]) -> dict[str, Answer]:
    lines = [[*name.split(), *CASES[name].arguments.split()] for name in names]
    done = subprocess.run(
        [sys.executable, "-m", "tests.cli.core_alone", *absent],
        input=json.dumps(lines),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    answers = [Answer(**json.loads(line)) for line in done.stdout.splitlines()]
    assert len(answers) == len(lines), done.stderr
    return dict(zip(names, answers, strict=True))


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    folder = tmp_path_factory.mktemp("core")
    prepare(folder)
    return run(folder, EXTRAS, list(CASES))


@pytest.mark.parametrize("name", CASES)
def test_a_command_works_or_names_its_extra(name: str, answers: dict[str, Answer]) -> None:
    answer = answers[name]
    case = CASES[name]
    if case.extra is not None:
        assert answer.kind == "extra", answer.text
        assert f"pip install 'shiftbench[{case.extra}]'" in answer.message
    else:
        assert answer.kind == ("error" if case.code == 1 else "exit"), answer.text
        assert answer.code == case.code, answer.text


def test_numbers_come_with_intervals(answers: dict[str, Answer]) -> None:
    for name in ("eval", "table"):
        assert re.search(r"\d\d\.\d+ \[\d+\.\d+, \d+\.\d+\]", answers[name].text), answers[name].text


def test_the_core_works_without_the_workshops(tmp_path: Path) -> None:
    prepare(tmp_path)
    for name, answer in run(tmp_path, [*EXTRAS, *WORKSHOPS], SMOKE).items():
        assert (answer.kind, answer.code) == ("exit", 0), (name, answer.text)
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_a_command_of_an_absent_workshop_says_what_is_missing(tmp_path: Path) -> None:
    program = """
from tests.cli.core_alone import hide
hide(["shiftbench.testsets", "shiftbench.hardening"])
import sys
from shiftbench.cli import main
sys.argv = ["shiftbench", *sys.argv[1:]]
main()
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}

    def shiftbench(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", program, *words]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    assert "Build a new test set" in shiftbench("--help").stdout
    assert "near-duplicates" in shiftbench("data", "--help").stdout
    for words in (("testset", "status", "."), ("harden", "list"), ("data", "duplicates", "a", "b")):
        done = shiftbench(*words)
        assert done.returncode == 1, words
        assert "No module named 'shiftbench." in done.stderr and "Traceback" not in done.stderr
