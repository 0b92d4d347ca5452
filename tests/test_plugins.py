"""Third parties bring their own pieces through entry points, in packages of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = """
import numpy as np
from shiftbench.classifiers.function import from_function
from shiftbench.classifiers.loading import classifier_loaders
from shiftbench.metrics.accuracy import proportion
from shiftbench.metrics.base import Needs, metric
from shiftbench.settings.base import Setting, suite
from shiftbench.shifts.corruptions.api import Corruption
from shiftbench.shifts.corruptions.catalogue import corruption

@corruption("darker", group="digital")
def darker(image, severity, draws):
    return (image * (1 - 0.15 * severity)).astype("uint8")

@metric("confident_mistakes", needs=Needs(top_k=1), higher_is_better=False)
def confident_mistakes(predictions, *, level=0.95):
    \"\"\"The share of images that are wrong at a confidence above 0.9.\"\"\"
    wrong = ~predictions.correct & (predictions.confidence[predictions.valid] > 0.9)
    return proportion("confident_mistakes", int(wrong.sum()), predictions, n=len(wrong), level=level)

@suite("night")
def night(options):
    \"\"\"Our own pictures by day and, darkened, by night.\"\"\"
    return [Setting("day", "data"), Setting("night", "data", Corruption("darker", 4), reference="day")]

@classifier_loaders.register("channel")
def channel(target, options):
    \"\"\"The brightest channel.\"\"\"
    return from_function(lambda images: images.mean(axis=(1, 2)) / 20, options)
"""


#: One process for several listings.
LIST = """
import json, sys
from typer.testing import CliRunner
from shiftbench.cli.app import app
for what in sys.argv[1:]:
    print(json.dumps(json.loads(CliRunner().invoke(app, ["list", what, "--json"]).stdout)))
"""


def install(site: Path, module: str, source: str, entry_points: str | None = None) -> None:
    """What pip leaves behind: a module and a folder of metadata."""
    (site / f"{module}.py").write_text(source)
    info = site / f"{module}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points or f"[shiftbench.plugins]\n{module} = {module}\n")


def shiftbench(site: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from shiftbench.cli import main; main()", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=120)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "site").mkdir()
    return tmp_path / "site"


def test_every_kind_of_piece_can_come_from_a_plugin(site: Path, tmp_path: Path) -> None:
    from tests.runs.helpers import colour_folder

    install(site, "night_plugin", PLUGIN)
    data = colour_folder(tmp_path / "pictures", per_class=4)
    pieces = {"corruptions": "darker", "metrics": "confident_mistakes", "suites": "night"}
    listed = subprocess.run(
        [sys.executable, "-c", LIST, *pieces],
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    )
    for name, rows in zip(pieces.values(), map(json.loads, listed.stdout.splitlines()), strict=True):
        assert name in {row["name"] for row in rows}
    run = shiftbench(
        site,
        "eval",
        "channel:any",
        "--suite",
        "night",
        "--data",
        str(data),
        "--labels",
        "folders",
        "-w",
        "w",
        "--json",
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stderr
    assert {score["setting"] for score in json.loads(run.stdout)["scores"]} == {"day", "night"}
    table = shiftbench(site, "table", "-w", "w", "-m", "confident_mistakes", "--json", cwd=tmp_path)
    assert "confident_mistakes" in table.stdout


def test_a_broken_plugin_is_named(site: Path, tmp_path: Path) -> None:
    install(site, "broken_plugin", "import no_such_module")
    result = shiftbench(site, "list", "suites", cwd=tmp_path)
    assert result.returncode == 1
    assert "broken_plugin" in result.stderr and "no_such_module" in result.stderr
    assert "Traceback" not in result.stderr


def test_threads_that_look_up_at_once_all_see_the_plugins(site: Path, tmp_path: Path) -> None:
    install(site, "slow_plugin", "import time\ntime.sleep(0.5)\n" + PLUGIN)
    program = """
from concurrent.futures import ThreadPoolExecutor
from shiftbench.metrics.base import metrics
from shiftbench.shifts.corruptions.catalogue import CORRUPTIONS
with ThreadPoolExecutor(4) as pool:
    asked = [(metrics, "confident_mistakes"), (CORRUPTIONS, "darker")] * 2
    print(all(pool.map(lambda one: one[1] in one[0], asked)))
"""
    environment = {**os.environ, "PYTHONPATH": str(site)}
    found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert found.stdout == "True\n", found.stderr


COMMAND_TABLE = """
COMMANDS = {
    "greet": ("greeting_commands:greet", "Greet somebody."),
    "data greet": ("greeting_commands:greet", "Greet a dataset."),
    "data check": ("greeting_commands:greet", "Replace a command of the core."),
    "eval": ("greeting_commands:greet", "Replace another command of the core."),
}
"""
COMMAND = """
from typing import Annotated
import typer
def greet(name: Annotated[str, typer.Argument()], times: Annotated[int, "-n", "How often."] = 1):
    print(" ".join(["hello"] * times), name)
"""
COMMAND_POINTS = "[shiftbench.commands]\ngreetings = {}:COMMANDS\n"


def test_commands_can_come_from_a_plugin(site: Path, tmp_path: Path) -> None:
    install(site, "greeting_table", COMMAND_TABLE, COMMAND_POINTS.format("greeting_table"))
    (site / "greeting_commands.py").write_text("raise RuntimeError('imported to show help')")
    overview = shiftbench(site, "--help", cwd=tmp_path)
    assert "Greet somebody." in overview.stdout and "Replace" not in overview.stdout and overview.stderr == ""
    assert overview.stdout.index("greet ") < overview.stdout.index("demo ")
    group = shiftbench(site, "data", "--help", cwd=tmp_path)
    assert "Greet a dataset." in group.stdout and "Replace" not in group.stdout
    broken = shiftbench(site, "greet", "Anna", cwd=tmp_path)
    assert broken.returncode == 1 and "greeting_commands:greet" in broken.stderr and "Traceback" not in broken.stderr

    (site / "greeting_commands.py").write_text(COMMAND)
    assert shiftbench(site, "greet", "Anna", "-n", "2", cwd=tmp_path).stdout == "hello hello Anna\n"
    assert shiftbench(site, "data", "greet", "Bo", cwd=tmp_path).stdout == "hello Bo\n"
    assert "Identify a published dataset" in shiftbench(site, "data", "check", "--help", cwd=tmp_path).stdout


def test_a_broken_table_of_commands_is_named_and_hides_no_other(site: Path, tmp_path: Path) -> None:
    install(site, "broken_table", "import no_such_module", COMMAND_POINTS.format("broken_table"))
    overview = shiftbench(site, "--help", cwd=tmp_path)
    assert overview.returncode == 0 and "Build a new test set" in overview.stdout
    assert "greetings" in overview.stderr and "no_such_module" in overview.stderr
    assert shiftbench(site, "list", "spaces", cwd=tmp_path).stderr == ""
