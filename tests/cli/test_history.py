"""``shiftbench history``, and ``compare`` across workspaces."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import shiftbench as sb
from shiftbench.errors import ShiftbenchError
from shiftbench.metrics.paired import compare
from shiftbench.reports.models import history_table
from tests.commands import call
from tests.runs.helpers import colour_folder

MODEL = """
import numpy as np
import shiftbench as sb
from shiftbench.labels.space import LabelSpace

def scores(images):
    found = images.mean(axis=(1, 2)) / 20
    wrong = images.astype(np.int64).sum(axis=(1, 2, 3)) % 100 < WRONG
    return np.where(wrong[:, None], -found, found)

def make():
    return sb.load_classifier(
        scores, name="net", labels=LabelSpace("colours", ("red", "green", "blue")),
        preprocessing=sb.Preprocessing(sb.Geometry(36, 32)),
    )
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three versions of one model in workspace ``w``, the last of them in ``other``, too."""
    root = tmp_path_factory.mktemp("history")
    colour_folder(root / "photos", per_class=15)
    (root / "colours.txt").write_text("red\ngreen\nblue\n")
    for wrong, workspaces in ((0, ["w"]), (60, ["w"]), (20, ["w", "other"])):
        (root / "model.py").write_text(MODEL.replace("WRONG", str(wrong)))
        for name in workspaces:
            done = call(
                *("eval", f"{root}/model.py:make", "--data", root / "photos", "--labels", root / "colours.txt"),
                *("--suite", "corruptions", "--corruption", "contrast", "--severity", "1,2", "-w", root / name, "-q"),
            )
            assert done.exit_code == 0, done.output
    return root


def test_versions_in_order_of_their_first_run(project: Path) -> None:
    done = call("history", "net", "-w", project / "w", "--json")
    assert done.exit_code == 0, done.output
    versions = json.loads(done.stdout)["versions"]
    run = sb.Run.open(project / "w")
    assert [version["model"] for version in versions] == run.classifiers and len(versions) == 3
    first, second, third = (version["scores"] for version in versions)
    assert first["photos"]["value"] == 1.0 > third["photos"]["value"] > second["photos"]["value"]
    settings = [f"photos-c.contrast.{severity}" for severity in (1, 2)]
    mean = sum(run.predictions(versions[1]["model"], setting).correct.mean() for setting in settings) / 2
    assert second["photos-c"]["value"] == pytest.approx(mean)
    pair = compare(*(run.predictions(versions[i]["model"], "photos") for i in (1, 0)))
    assert versions[0]["change"] is None
    assert versions[1]["change"]["value"] == pytest.approx(pair.difference) and versions[1]["p"] == pytest.approx(
        pair.p
    )


def test_the_chart_has_a_line_per_version(project: Path) -> None:
    text = call("history", "-w", project / "w", columns=100).stdout
    assert text.count("●") == 6 and "photos-c" in text
    one = sb.Run.open(project / "w").classifiers[1]
    assert call("history", one, "-w", project / "w").stdout.count("●") == 0
    assert isinstance(call("history", "nosuch", "-w", project / "w").exception, ShiftbenchError)


def test_compare_across_workspaces(project: Path, tmp_path: Path) -> None:
    both = call("compare", "-w", project / "w", "-w", project / "other", "--setting", "photos", "--json")
    assert both.exit_code == 0, both.output
    pairs = json.loads(both.stdout)["comparisons"]
    assert len(pairs) == 6
    last = sb.Run.open(project / "w").classifiers[2]
    [same] = [one for one in pairs if (one["first"], one["second"]) == (last, "net")]
    assert same["difference"] == 0 and same["n"] == 45
    family = call("compare", "-w", project / "w", "-w", project / "other", "--setting", "photos-c", "--json")
    means = json.loads(family.stdout)["comparisons"]
    alone = json.loads(call("compare", "-w", project / "w", "--setting", "photos-c", "--json").stdout)["comparisons"]
    differences = {(mean["first"], mean["second"]): mean["difference"] for mean in means}
    assert len(means) == 6 and differences[last, "net"] == 0
    assert {key: differences[key] for key in [(one["first"], one["second"]) for one in alone]} == {
        (one["first"], one["second"]): one["difference"] for one in alone
    }
    # Two workspaces that have a name in common.
    copy = shutil.copytree(project / "other", tmp_path / "copy")
    words = ("compare", "-w", project / "other", "-w", copy, "--json")
    [pair] = json.loads(call(*words).stdout)["comparisons"]
    assert (pair["first"], pair["second"]) == (f"net ({project / 'other'})", f"net ({copy})")
    assert call(*words, "-w", copy).stdout == call(*words).stdout, "one workspace, given twice"


def test_unknown_names_in_several_workspaces(project: Path) -> None:
    words = ("compare", "-w", project / "w", "-w", project / "other")
    assert isinstance(call(*words, "-c", "nosuch").exception, ShiftbenchError)
    assert isinstance(call(*words, "-s", "nosuch").exception, ShiftbenchError)


def test_means_over_other_corruptions_are_marked(project: Path, tmp_path: Path) -> None:
    for wrong, severity in ((0, "1,2"), (60, "1,2"), (20, "2")):
        (tmp_path / "model.py").write_text(MODEL.replace("WRONG", str(wrong)))
        done = call(
            *("eval", f"{tmp_path}/model.py:make", "--data", project / "photos", "--labels", project / "colours.txt"),
            *("--suite", "corruptions", "--corruption", "contrast", "--severity", severity, "-w", tmp_path / "w", "-q"),
        )
        assert done.exit_code == 0, done.output
    table = history_table(sb.Run.open(tmp_path / "w"))
    assert [row["photos-c"].mark for row in table.shown] == ["*", "*", ""]
    assert [row["photos"].mark for row in table.shown] == ["", "", ""]
