"""Versions of a model by id in every command; assumed preprocessing and provenance wherever numbers are shown."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
from matplotlib.text import Text

import shiftbench as sb
from shiftbench.errors import ShiftbenchError, StoreError, UnknownNameError
from shiftbench.store.run_records import Software, read_runs
from tests.commands import answer, call, output
from tests.reports.page.test_report_command import payload
from tests.runs.helpers import COLOURS, brightest_channel, colour_folder, darkest_channel
from tests.store.test_run_records import evaluate, model

OLD = Path(__file__).parents[1] / "store/fixtures/workspace-0.1/workspace"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two versions of "bright", and "dark" with assumed preprocessing."""
    root = tmp_path_factory.mktemp("identity")
    data = colour_folder(root / "pictures", per_class=6)
    dark = sb.load_classifier(darkest_channel, labels=COLOURS, name="dark")
    assert dark.assumed
    for classifier in (model(), model(crop=8), dark):
        evaluate(data, root / "w", classifier=classifier)
    return root / "w"


@pytest.fixture
def workspace(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "w"))


def ids(workspace: Path) -> list[str]:
    return sb.Run.open(workspace, ["bright"]).classifiers


UNKNOWN_MODEL = [
    ["table", "-c", "nosuch"], ["compare", "-c", "nosuch"], ["groups", "--by", "class", "-c", "nosuch"],
    ["calibrate", "-c", "nosuch"], ["detect", "-c", "nosuch"], ["report", "-c", "nosuch", "-o", "r.html"],
    ["figure", "reliability", "-c", "nosuch", "-o", "f.svg"],
    ["figure", "corruptions", "-c", "nosuch", "-o", "f.svg"], ["study", "agreement", "-c", "nosuch"],
    ["store", "export", "x.csv", "-c", "nosuch"], ["store", "log", "-c", "nosuch"], ["store", "remove", "nosuch"],
    ["store", "rename", "nosuch", "other"],
]  # fmt: skip


@pytest.mark.parametrize("command", UNKNOWN_MODEL, ids=lambda command: " ".join(command[:2]))
def test_an_unknown_model_is_an_error(made: Path, command: list[str], tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        done = call(*command, "-w", made)
    assert done.exit_code != 0 and isinstance(done.exception, UnknownNameError), done.output


@pytest.mark.parametrize(
    "command",
    [
        ["table"],
        ["compare"],
        ["groups", "--by", "class"],
        ["calibrate"],
        ["store", "export", "x.csv"],
        ["store", "remove"],
        ["report", "-o", "r.html"],
        ["figure", "reliability", "-o", "f.svg"],
        ["study", "agreement"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_an_unknown_setting_is_an_error(made: Path, command: list[str], tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        done = call(*command, "-w", made, "-s", "nosuch")
    assert done.exit_code != 0 and isinstance(done.exception, UnknownNameError), done.output


def test_an_empty_workspace(tmp_path: Path) -> None:
    sb.Workspace(tmp_path / "w")
    assert call("table", "-w", tmp_path / "w").exit_code == 0
    assert isinstance(call("table", "-w", tmp_path / "w", "-c", "bright").exception, StoreError)


@pytest.mark.parametrize("where", ["o.txt", "o.txt/w", "/proc/ws", "/dev/null"])
def test_a_workspace_that_cannot_be_is_explained(tmp_path: Path, where: str) -> None:
    (tmp_path / "o.txt").write_text("mine")
    (tmp_path / "p.csv").write_text("id,prediction,label\na,0,0\n")
    for command in (["table"], ["import", tmp_path / "p.csv", "-s", "x", "--labels", "cifar-10"]):
        assert isinstance(call(*command, "-w", tmp_path / where).exception, ShiftbenchError)
    assert (tmp_path / "o.txt").read_text() == "mine"


def test_two_versions_are_told_apart_everywhere(workspace: Path, tmp_path: Path) -> None:
    first, second = ids(workspace)
    for width in (80, 160):
        shown = output("table", "-w", workspace, columns=width)
        assert first in shown and second in shown and "preprocessing" in shown
        assert len(output("table", "-w", workspace, "-c", first, columns=width).splitlines()) < len(shown.splitlines())
        assert max(map(len, shown.splitlines())) <= width
    pairs = answer("compare", "-w", workspace, "-c", "bright")["comparisons"]
    assert [(pair["first"], pair["second_id"]) for pair in pairs] == [(first, second)]
    output("store", "export", tmp_path / "all.csv", "-w", workspace, "-q")
    rows = list(csv.DictReader((tmp_path / "all.csv").open()))
    assert {row["classifier"] for row in rows} == {first, second, "dark"}
    assert {row["id"]: row["assumed"] for row in rows}[first] == ""
    assert len([row for row in rows if row["id"] == first]) == 18
    output("report", "-w", workspace, "-c", second, "-o", tmp_path / "r.html", "-q")
    assert second in (tmp_path / "r.html").read_text()
    assert first in output("study", "agreement", "-w", workspace, "-c", "bright")


def test_ids_are_in_json_and_csv_though_names_suffice(made: Path) -> None:
    (score,) = answer("table", "-w", made, "-c", "dark")["scores"]
    assert score["classifier"] == "dark" and score["id"].startswith("dark@") and score["assumed"]
    assert "id,assumed" in output("table", "-w", made, "-f", "csv").splitlines()[0]


@pytest.mark.parametrize("format", ["text", "md", "tex"])
def test_assumed_preprocessing_is_marked_in_tables(made: Path, format: str) -> None:
    mark = "\\dagger" if format == "tex" else "†"
    for command in (["table"], ["compare"], ["study", "agreement"]):
        shown = output(*command, "-w", made, "-f", format)
        assert any("dark" in line and mark in line for line in shown.splitlines()) and "assumed" in shown
        assert mark not in output(*command, "-w", made, "-f", format, "-c", "bright")
    study = output("study", "reproducibility", "-w", made, "--x", "pictures", "--y", "pictures", "-f", format)
    assert mark in study
    assert "†" in sb.Run.open(made).table()._repr_html_()


def test_the_report_marks_it_in_results_methods_and_warnings(made: Path, tmp_path: Path) -> None:
    output("report", "-w", made, "-o", tmp_path / "r.html", "-q")
    page = payload(tmp_path / "r.html")
    models = {one["name"]: one for one in page["sections"]["results"]["models"]}  # type: ignore[index]
    assert models["dark"]["assumed"] and models["dark"]["id"].startswith("dark@")
    assert any("assumed" in warning for warning in page["warnings"])
    methods = {method["heading"]: method for method in page["sections"]["methods"]}  # type: ignore[attr-defined]
    assert "assumed" in " ".join(methods["Models"]["paragraphs"])
    assert not any("weights" in item for item in methods["Models"]["items"])


def test_a_later_run_that_gives_the_preprocessing_confirms_it(workspace: Path, made: Path) -> None:
    assumed = sb.load_classifier(darkest_channel, labels=COLOURS, name="dark")
    given = sb.load_classifier(darkest_channel, labels=COLOURS, name="dark", preprocessing=assumed.preprocessing)
    run = evaluate(made.parent / "pictures", workspace, classifier=given)
    assert run.model_facts()["dark"].assumed == []
    assert "†" not in output("table", "-w", workspace)


def test_provenance(made: Path) -> None:
    rows = answer("table", "-w", made, "--provenance")["rows"]
    assert len(rows) == 3 and all(row["made"].startswith("20") for row in rows)
    assert all(f"shiftbench {sb.__version__}" in row["versions"] for row in rows)
    assert {row["data"] for row in rows} == {str(made.parent / "pictures")}
    assert {row["cpu_features"] for row in rows} == {" ".join(Software.present().cpu_features)}
    for width in (80, 160):
        shown = output("table", "-w", made, "--provenance", columns=width)
        assert "numpy" in shown and max(map(len, shown.splitlines())) <= width


def test_results_of_different_versions_are_reported(workspace: Path) -> None:
    assert "different versions" not in output("table", "-w", workspace)
    record = sorted((workspace / "runs").glob("*.json"))[0]
    value = json.loads(record.read_text())
    value["software"]["versions"]["pillow"] = "1.0"
    del value["digest"]
    sb.Workspace(workspace).write_json(record, value)
    shown = output("table", "-w", workspace)
    assert "different versions" in shown and "pillow 1.0 and " in shown
    assert "different versions" not in output("table", "-w", workspace, "-c", "dark")


def test_a_workspace_without_records_is_read_as_ever(tmp_path: Path) -> None:
    old = Path(shutil.copytree(OLD, tmp_path / "old"))
    rows = answer("table", "-w", old, "--provenance")["rows"]
    assert rows and {row["versions"] for row in rows} == {"not recorded"}
    scores = answer("table", "-w", old)["scores"]
    assert all("@" in score["id"] and score["assumed"] is None for score in scores)
    assert answer("store", "log", "-w", old)["runs"] == []
    for command in (["store", "stats"], ["store", "verify", "-q"]):
        output(*command, "-w", old)


def test_the_log_has_dates_commands_models_and_versions(made: Path) -> None:
    runs = answer("store", "log", "-w", made)["runs"]
    assert [run["status"] for run in runs] == ["complete"] * 3
    assert runs[2]["models"][0]["id"].startswith("dark@") and runs[2]["software"]["versions"]["numpy"]
    for width in (80, 160):
        shown = output("store", "log", "-w", made, columns=width)
        assert "dark@" in shown and "evaluate(" in shown and max(map(len, shown.splitlines())) <= width
    assert len(answer("store", "log", "-w", made, "-c", "dark")["runs"]) == 1
    assert len(answer("store", "log", "-w", made, "-n", 2)["runs"]) == 2


def test_rename_one_version(workspace: Path) -> None:
    _, second = ids(workspace)
    done = answer("store", "rename", second, "cropped", "-w", workspace)
    assert done == {"before": second, "after": second.replace("bright", "cropped")}
    assert sb.Run.open(workspace).classifiers == ["bright", "cropped", "dark"]
    assert len(sb.Run.open(workspace, ["cropped"]).predictions()) == 18
    assert call("store", "rename", "cropped", "dark", "-w", workspace).exit_code != 0
    assert "0 damaged" in output("store", "verify", "-w", workspace, "-q")


def test_remove_one_version_and_compute_it_again(workspace: Path, made: Path) -> None:
    first, second = ids(workspace)
    before = {path.relative_to(workspace): path.read_bytes() for path in workspace.rglob("predictions/*/*/*.parquet")}
    planned = answer("store", "remove", second, "-w", workspace, "--dry-run")
    assert [result["id"] for result in planned["results"]] == [second] and not planned["removed"]
    assert call("store", "remove", second, "-w", workspace, text="n\n").exit_code == 1
    assert len(sb.Run.open(workspace).results) == 3
    output("store", "remove", second, "-w", workspace, text="y\n")
    run = sb.Run.open(workspace)
    assert run.classifiers == ["bright", "dark"]
    assert read_runs(run.workspace)[0][-1].models[0].removed == [result["key"] for result in planned["results"]]
    evaluate(made.parent / "pictures", workspace, classifier=model(crop=8))
    again = {path.relative_to(workspace): path.read_bytes() for path in workspace.rglob("predictions/*/*/*.parquet")}
    assert again == before
    assert sb.Run.open(workspace).classifiers == [first, second, "dark"]


def test_unfinished_results_are_removed_with_their_blocks(workspace: Path, made: Path) -> None:
    evaluate(made.parent / "pictures", workspace, classifier=model("half"), shard="1/2")
    assert list(workspace.glob("shards/half/*/*/*.parquet"))
    output("store", "remove", "half", "-w", workspace, "--yes")
    assert not list(workspace.glob("shards/half/*/*/*")) and len(sb.Run.open(workspace).results) == 3


def test_figures_mark_it_in_legends_and_notes(made: Path, tmp_path: Path) -> None:
    output("figure", "response", "-w", made, "-o", tmp_path / "f.svg")
    text = (tmp_path / "f.svg").read_text()
    assert text.count("†") >= 2 and "assumed" in text
    assert "†" in "".join(one.get_text() for one in sb.Run.open(made).plot.reliability().findobj(Text))
    output("figure", "response", "-w", made, "-o", tmp_path / "g.svg", "-c", "bright")


def test_functions_of_the_same_name_never_mix(tmp_path: Path) -> None:
    """The first hour's mistake: the mean over two versions was true of neither."""
    data = colour_folder(tmp_path / "pictures", per_class=6)
    for function in (brightest_channel, darkest_channel):
        evaluate(data, tmp_path / "w", classifier=sb.load_classifier(function, labels=COLOURS, name="net"))
    rows = answer("table", "-w", tmp_path / "w")["scores"]
    assert sorted(row["value"] for row in rows) == [0.0, 1.0] and len({row["classifier"] for row in rows}) == 2
