"""The examples in --help: every one is accepted by its command, and those that need no model are run."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer.main

from shiftbench.cli.app import app
from shiftbench.reports.images import set_tag
from shiftbench.settings.base import Member
from shiftbench.store.workspace import Workspace
from shiftbench.studies.testbed import known_models, known_settings
from tests.commands import call
from tests.latex import compile_latex
from tests.reports.recorded import record

#: Commands whose examples run on recorded predictions alone; `calibrate` needs scores of all classes.
RUN = ("study", "figure", "groups", "report", "reproduce", "table", "compare", "list")


def commands(command: Any) -> Iterator[Any]:
    if hasattr(command, "list_commands"):
        context = command.context_class(command)
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name))
    else:
        yield command


def examples() -> list[str]:
    found = []
    for command in commands(typer.main.get_command(app)):
        text = (command.help or "").replace("\b", "").replace("\\\n", " ")
        found += [" ".join(line.split()) for line in text.splitlines() if line.strip().startswith("shiftbench ")]
    return list(dict.fromkeys(found))


EXAMPLES = examples()
#: These need a dataset with factors, or run a model: test_data_factors.py and tests/studies/test_colours.py run them.
ELSEWHERE = ("shops.test", "study colours")
#: Compared with published numbers, which takes as many images.
LARGE = {"--published", "--own", "--check"}
RUNNABLE = [line for line in EXAMPLES if line.split()[1] in RUN and not any(words in line for words in ELSEWHERE)]


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 100 and len(RUNNABLE) > 30


def parsed(line: str) -> tuple[Any, list[str]]:
    """The command of an example, and its arguments."""
    arguments = shlex.split(line, comments=True)[1:]
    command: Any = typer.main.get_command(app)
    while hasattr(command, "list_commands"):
        default = getattr(command, "default_command", None)
        name = default if default and arguments[0] not in command.commands else arguments.pop(0)
        command = command.get_command(command.context_class(command), name)
    return command, arguments


@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example_is_accepted(line: str) -> None:
    """Option names, choices and required options, without running anything."""
    command, arguments = parsed(line)
    command.make_context("example", arguments)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the examples name: tables, a workspace, annotations."""
    root = tmp_path_factory.mktemp("examples")
    settings = [*known_settings(), "new"]
    paper = {name: info for name, info in known_models().items() if info.extra["in_paper"] == "1"}
    few = {*list(paper)[::4], "resnet50", "alexnet", *[i.base_model for i in list(paper.values())[::4]]}
    models = {name: info for name, info in paper.items() if name in few}
    rng = np.random.default_rng(0)
    skill = rng.uniform(0.4, 2.5, len(models))[:, None]
    ease = np.where([name.startswith("val") for name in settings], 0.6, rng.uniform(-1, 0, len(settings)))
    values = 100 / (1 + np.exp(-(skill + ease + rng.normal(0, 0.05, (len(models), len(settings))))))
    values[list(models).index("resnet50"), settings.index("imagenet-a")] = 0.0
    header = ",".join(["model", *settings])
    lines = [",".join([name, *(f"{v:.3f}" for v in row)]) for name, row in zip(models, values, strict=True)]
    (root / "imagenet-testbed").mkdir()
    table = "\n".join([header, *lines]) + "\n"
    (root / "imagenet-testbed" / "robustness_top1s.csv").write_text(table)
    (root / "results.csv").write_text(table)
    rows = [
        f"{name},{info.category},{info.base_model},{'more;larger' * bool(info.base_model)},25.6"
        for name, info in models.items()
    ]
    rows += ["b,standard,squeezenet1_1,larger,11.7", "c,standard,squeezenet1_1,augmentation,25.6"]
    (root / "models.csv").write_text("\n".join(["model,category,base_model,changes,size", *rows]) + "\n")
    (root / "map.csv").write_text("printed,model\nResNet-50,c\n")
    (root / "mine.csv").write_text("model,val,imagenet-sketch\nmine,76.0,30.0\n")
    (root / "annotations.csv").write_text("id,selected,shown\n" + "".join(f"{i},{i % 10},10\n" for i in range(1_000)))
    (root / "photographs.csv").write_text("id,photographer\n" + "".join(f"{i},p{i % 7}\n" for i in range(5_000)))
    _workspace(root / "WORKSPACE", fewer=10)  # than the published datasets have
    _workspace(root / "shiftbench-workspace", fewer=50)
    for name in ("W", "A", "B"):
        (root / name).symlink_to(root / "WORKSPACE")
    (root / "ImageNet" / "val").mkdir(parents=True)
    return root


def _workspace(root: Path, fewer: int) -> None:
    v2 = "imagenetv2-matched-frequency"
    for model, hits in (("squeezenet1_1", 0.58), ("b", 0.7), ("c", 0.76)):
        for setting, images, factor, space in (
            ("val", 50_000, 1.0, "imagenet-1k"),
            (v2, 10_000, 0.85, "imagenet-1k"),
            (f"{v2}-format-val", 10_000, 0.86, "imagenet-1k"),
            ("imagenet-a", 7_500, 0.1, "imagenet-a-200"),
            ("demo", 100, 0.95, "imagenet-1k"),
            ("new", 1_000, 0.8, "imagenet-1k"),
            ("hidden-split", 1_000, 0.9, "imagenet-1k"),
            ("imagenet-c.fog.3", 100, 0.5, "imagenet-1k"),
            ("imagenet-o", 200, 0.1, "imagenet-1k"),
        ):
            reference = None if setting in ("val", "demo") else "val"
            images = max(100, images // fewer)
            record(
                root,
                setting,
                images,
                int(images * hits * factor),
                model=model,
                space=space,
                reference=reference,
                confidence=hits,
                labels_of_model="imagenet-1k",
            )
        for corruption, severity in itertools.product(("fog", "gaussian_noise", "impulse_noise"), (3, 5)):
            name = f"demo-c.{corruption}.{severity}"
            member = Member("demo-c", corruption, float(severity))
            record(
                root,
                name,
                100,
                int(100 * hits / severity),
                model=model,
                reference="demo",
                member=member,
                source="in-memory",
            )
    workspace = Workspace(root)
    [dataset] = {result.spec.dataset for result in workspace.results(settings=["val"])}
    set_tag(workspace, dataset, str(50_000 // fewer - 1), "several objects", on=True)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Path:
    """A workspace as large as the published datasets: others are not placed among published models."""
    root = tmp_path_factory.mktemp("large")
    for name in ("imagenet-testbed", "results.csv", "models.csv", "mine.csv", "map.csv"):
        (root / name).symlink_to(folder / name)
    _workspace(root / "WORKSPACE", fewer=1)
    (root / "W").symlink_to(root / "WORKSPACE")
    return root


@pytest.mark.parametrize("line", RUNNABLE)
def test_an_example_runs(line: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(request.getfixturevalue("large" if LARGE & {*line.split()} else "folder"))
    result = call(*shlex.split(line, comments=True)[1:])
    # --check reports the papers' own contradictions with exit code 1.
    expected = (0, 1) if "--check" in line else (0,)
    unexpected = isinstance(result.exception, Exception)
    assert result.exit_code in expected and not unexpected, f"{result.output}\n{result.exception!r}"


@pytest.mark.slow
def test_the_tables_of_the_examples_are_compiled_by_latex(
    folder: Path, large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = []
    for line in RUNNABLE:
        if any("--format" in parameter.opts for parameter in parsed(line)[0].params) and "--json" not in line:
            monkeypatch.chdir(large if LARGE & {*line.split()} else folder)
            result = call(*shlex.split(line, comments=True)[1:], "-f", "tex")
            texts.append(f"% {line}\n{result.stdout}\n\\clearpage")
    assert len(texts) > 25 and sum("begin{tabular}" in text or "begin{longtable}" in text for text in texts) > 25
    compile_latex("\n".join(texts), tmp_path)
