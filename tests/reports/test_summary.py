"""The summary of a run: the right numbers, short enough for a terminal, and commands that run."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

import shiftbench as sb
from shiftbench.reports.summary import confusion_counts, summarise
from shiftbench.store.workspace import Workspace
from tests.commands import call
from tests.reports.page.making import run_colours
from tests.reports.recorded import record
from tests.runs.helpers import colour_folder


def test_numbers_are_those_of_the_tables(run: sb.Run) -> None:
    summary = summarise(run)
    assert [model.model for model in summary.models] == run.classifiers
    for one in summary.models:
        assert one.setting == "pictures"
        predictions = run.predictions(one.model, "pictures")
        assert one.accuracy.value == predictions.correct.mean()
        counts = confusion_counts(predictions)
        assert counts.sum() == 36 and np.trace(counts) == predictions.correct.sum()
        [family] = one.corruptions
        errors = run.corruption_table().as_data()["scores"]
        mean = next(e for e in errors if e["classifier"] == one.model and e["metric"].startswith("mean error"))
        assert family.mean.value == pytest.approx(1 - mean["value"])
        accuracies = [score.value for _, score in family.worst]
        assert len(accuracies) == 3 and accuracies == sorted(accuracies)
        by_class = [predictions.correct[predictions.labels == label].mean() for label in range(3)]
        assert one.worst_class is not None and one.worst_class.value == min(by_class)
        assert one.worst_class.low <= one.worst_class.value <= one.worst_class.high
        off = counts - np.diag(np.diag(counts))
        assert [pair.count for pair in one.confusions] == sorted(off[off > 0].tolist(), reverse=True)[:3]


def test_estimates_of_a_design_are_those_of_the_table(pictures: Path, tmp_path: Path) -> None:
    designed = run_colours(pictures, tmp_path / "w", design="one-pass", severities=(5,))
    table = {
        row["classifier"]: row["value"] for row in designed.corruption_table().rows if row["setting"] == "pictures-c"
    }
    for model in summarise(designed).models:
        assert model.corruptions[0].mean.value == pytest.approx(1 - table[model.model])
        assert all(0 <= score.value <= 1 for _, score in model.corruptions[0].worst)


def test_one_model_fits_a_terminal(run: sb.Run) -> None:
    text = summarise(sb.Run.open(run.workspace, ["unsure"])).to_text(80)
    assert len(text.splitlines()) <= 12
    assert all(len(line) <= 80 for line in text.splitlines() if not line.startswith("  shiftbench"))


def test_commands_run(run: sb.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for chosen in (run, sb.Run.open(run.workspace, ["bright"], ["pictures"])):
        commands = summarise(chosen).next_commands
        assert len(commands) == 3
        for command in commands:
            program, *arguments = shlex.split(command)
            result = call(*arguments)
            assert program == "shiftbench" and result.exit_code == 0, (command, result.output)


def test_one_clean_setting_leads_to_corruptions(tmp_path: Path) -> None:
    run = run_colours(colour_folder(tmp_path / "pictures", per_class=4), tmp_path / "w", suite="clean")
    typed = ["shiftbench", "eval", "model.onnx", "--data", str(tmp_path / "pictures")]
    found = summarise(run, command=[*typed, "-s", "clean", "--severity=1"]).next_commands
    assert [shlex.split(one)[1] for one in found] == ["report", "eval", "compare"]
    # An option that may be given once is not repeated.
    assert shlex.split(found[1]) == [*typed, "--suite", "corruptions", "--severity", "3"]


def test_models_are_compared_in_a_setting_that_they_share(tmp_path: Path) -> None:
    """The first model was evaluated on two datasets, the second on one of them: that one is shown for both."""
    record(tmp_path / "w", "day", 600, 480, model="first", space="cifar-10")
    record(tmp_path / "w", "messy", 300, 200, model="first", space="cifar-10")
    record(tmp_path / "w", "messy", 300, 210, model="second", space="cifar-10")
    run = sb.Run.open(tmp_path / "w")
    models = summarise(run).models
    assert [(model.model, model.setting) for model in models] == [("first", "messy"), ("second", "messy")]
    assert [model.accuracy.value for model in models] == pytest.approx([2 / 3, 0.7])
    assert summarise(run.select("first")).models[0].setting == "day"
    # Without a setting in common, each has its own, and says which.
    record(tmp_path / "w", "night", 300, 100, model="third", space="cifar-10")
    briefs = [model.brief for model in summarise(sb.Run.open(tmp_path / "w")).models]
    assert ["on day" in briefs[0], "on messy" in briefs[1], "on night" in briefs[2]] == [True, True, True]


def test_published_models_end_the_summary(tmp_path: Path) -> None:
    record(tmp_path / "w", "val", 50_000, 38_500)
    record(tmp_path / "w", "imagenetv2-matched-frequency", 10_000, 6_600, reference="val")
    summary = summarise(sb.Run.open(tmp_path / "w"))
    [placed] = summary.models[0].placements
    assert "0.9 points above the line of 67 published models" in placed.sentence
    assert any(placed.sentence in text and f", {placed.rank})" in text for _, text in summary.lines())
    # Of 67 published accuracies on this set, those above 66 %.
    better = sum(accuracy >= 0.66 for _, accuracy in placed.baseline.values.values())
    assert placed.rank == f"rank {better + 1} of 68"
    found = json.loads(json.dumps(summary.as_dict(), allow_nan=False))
    [entry] = found["models"][0]["published"]["placed"]
    assert entry["points_above_line"] == pytest.approx(0.92, abs=0.01) and entry["interval"][0] < 0.92


def test_an_empty_run_has_nothing_to_say(tmp_path: Path) -> None:
    assert summarise(sb.Run(Workspace(tmp_path / "w"), [])).to_text() == ""


def test_a_notebook_shows_the_summary(run: sb.Run) -> None:
    shown = sb.Run.open(run.workspace, ["unsure"])._repr_html_()
    assert all(text in shown for heading, text in summarise(run.select(["unsure"])).lines() if heading == "worst")
