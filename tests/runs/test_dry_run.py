"""Dry runs: what they count is what a run does, and nothing is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shiftbench as sb
from shiftbench.errors import ShiftbenchError
from tests.cli.test_eval import project
from tests.commands import call
from tests.runs.helpers import COLOURS, brightest_channel, colour_folder
from tests.runs.test_behaviour import READS, RIGHT, SMALL, WRONG

__all__ = ["project"]  # a fixture
OPTIONS: dict[str, Any] = {
    "suite": "corruptions",
    "corruptions": ["contrast", "fog"],
    "severities": [1, 2, 3, 4],
    "labels": COLOURS,
}


def model(name: str) -> sb.Classifier:
    return sb.load_classifier(
        brightest_channel, name=name, labels=COLOURS, preprocessing=sb.Preprocessing(sb.Geometry(36, 32))
    )


def test_a_plan_counts_what_the_run_does(tmp_path: Path) -> None:
    data = colour_folder(tmp_path / "photos", per_class=9)
    plan = sb.dry_run([model("a"), model("b")], data=data, workspace=tmp_path / "w", **OPTIONS)
    assert not (tmp_path / "w").exists()
    assert [(setting.name, setting.images, setting.models, setting.done) for setting in plan.settings[:2]] == [
        ("photos", 27, 2, 0),
        ("photos-c.contrast.1", 27, 2, 0),
    ]
    assert (len(plan.settings), plan.forward_passes, plan.done) == (9, 9 * 27 * 2, 0)
    assert plan.seconds > 0
    assert "486" in str(plan)
    run = sb.evaluate(model("a"), data=data, workspace=tmp_path / "w", progress=False, **OPTIONS)
    before = sorted((tmp_path / "w").rglob("*"))
    again = sb.dry_run([model("a"), model("b")], data=data, workspace=tmp_path / "w", **OPTIONS)
    assert sorted((tmp_path / "w").rglob("*")) == before
    assert (again.forward_passes, again.done) == (9 * 27, len(run.results) * 27)
    assert sb.dry_run(model("a"), data=data, workspace=run.workspace, **OPTIONS).seconds == 0


def test_results_of_a_changed_model_are_not_counted_as_done(tmp_path: Path) -> None:
    data = colour_folder(tmp_path / "photos", per_class=6)
    weights = tmp_path / "w.npy"
    place = tmp_path / "w"
    (tmp_path / "model.py").write_text(READS.format(weights=weights))
    np.save(weights, RIGHT)
    sb.evaluate(tmp_path / "model.py", data=data, workspace=place, **SMALL)
    done = []
    for matrix in (RIGHT, WRONG):
        np.save(weights, matrix)
        plan = sb.dry_run(tmp_path / "model.py", data=data, workspace=place, **SMALL)
        done.append((plan.done, plan.forward_passes))
    assert done == [(18, 0), (0, 18)]


def test_finished_blocks_of_an_interrupted_run_are_done(tmp_path: Path) -> None:
    data = colour_folder(tmp_path / "photos", per_class=40)  # eight blocks of 15 images
    sb.evaluate(model("a"), data=data, workspace=tmp_path / "w", progress=False, shard="1/2", **OPTIONS)
    plan = sb.dry_run([model("a"), model("b")], data=data, workspace=tmp_path / "w", **OPTIONS)
    assert (plan.done, plan.forward_passes) == (9 * 60, 9 * (60 + 120))


def test_predictions_of_a_design_are_done(tmp_path: Path) -> None:
    data = colour_folder(tmp_path / "photos", per_class=9)
    sb.evaluate(model("a"), data=data, workspace=tmp_path / "w", progress=False, design="one-pass", **OPTIONS)
    plan = sb.dry_run(model("a"), data=data, workspace=tmp_path / "w", **OPTIONS)
    assert (plan.done, plan.forward_passes) == (2 * 27, 7 * 27)


def test_a_design_has_fewer_passes(tmp_path: Path) -> None:
    data = colour_folder(tmp_path / "photos", per_class=9)
    plan = sb.dry_run(model("a"), data=data, workspace=tmp_path / "w", design="one-pass", **OPTIONS)
    assert plan.forward_passes == 2 * 27 and not plan.pilot


def test_a_width_plans_the_pilot_and_says_so(tmp_path: Path) -> None:
    data = colour_folder(tmp_path / "photos", per_class=80)
    designed = {"data": data, "workspace": tmp_path / "w", "design": "one-pass", **OPTIONS}
    plan = sb.dry_run(model("a"), width=1, **designed)
    assert plan.forward_passes == 2 * 200 and plan.pilot and "pilot" in str(plan)
    plan = sb.dry_run(model("a"), budget=300, **designed)
    assert plan.forward_passes == 300 and not plan.pilot


def test_a_model_that_fails_is_reported(tmp_path: Path) -> None:
    data = colour_folder(tmp_path / "photos", per_class=3)

    def broken(images: object) -> object:
        raise ValueError("no such layer")

    bad = sb.load_classifier(broken, name="bad", labels=COLOURS, preprocessing={"size": 32})
    with pytest.raises(ShiftbenchError) as error:
        sb.dry_run(bad, data=data, workspace=tmp_path / "w", labels=COLOURS)
    assert "no such layer" in str(error.value.found)


def test_on_the_command_line(project: Path, tmp_path: Path) -> None:
    words = ("eval", f"{project}/model.py:make", "--data", project / "pictures", "--labels", project / "colours.txt")
    shown = call(*words, "-w", tmp_path / "w", "--dry-run")
    assert shown.exit_code == 0 and "forward passes:  30" in shown.stdout, shown.output
    plan = json.loads(call(*words, "-w", tmp_path / "w", "--dry-run", "--json").stdout)
    assert plan["forward_passes"] == 30 and plan["settings"][0]["images"] == 30 and plan["seconds"] > 0
    assert not (tmp_path / "w").exists()
