"""``shiftbench report`` as a user types it."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from typer.testing import Result

import shiftbench as sb
from shiftbench.cli.report import parse_images
from shiftbench.errors import ShiftbenchError, StoreError, UnknownNameError
from shiftbench.reports.page.payload import Page
from shiftbench.store.workspace import Workspace
from tests.commands import answer, output
from tests.commands import call as shiftbench
from tests.raised import raises
from tests.reports.page.making import results_of

call = partial(shiftbench, "report")


def payload(file: Path) -> Page:
    inside = file.read_text("utf-8").split('id="payload">', 1)[1].split("</script", 1)[0]
    page: Page = json.loads(inside)
    return page


def test_a_workspace_becomes_a_file(run: sb.Run, pictures: Path, tmp_path: Path) -> None:
    file = tmp_path / "r.html"
    result = output(
        "report", "-w", run.workspace.root, "-o", file, "--images", pictures, "--title", "Colours", "--quiet"
    )
    assert f"{file}: " in result.replace("\n", "") and "2 models, 10 settings" in result.replace("\n", " ")
    assert file.as_uri() in result.replace("\n", "")
    page = payload(file)
    assert page["title"] == "Colours" and {"failures", "methods"} <= set(page["sections"])


def test_json_prints_a_summary_and_nothing_else(run: sb.Run, tmp_path: Path) -> None:
    file = tmp_path / "r.html"
    result = call("-w", run.workspace.root, "-o", file, "--failures", 2, "--json", "-c", "unsure", "-s", "pictures")
    written = json.loads(result.stdout)
    assert written["bytes"] == file.stat().st_size and (written["models"], written["settings"]) == (1, 1)
    # Two mistakes, each as the original and as the model saw it; the workspace knows where the images were.
    assert written["mistakes"] == 2 and written["images"] == 4


def test_a_published_table_needs_no_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("model,val,v2\na,76.1,63.3\nb,56.5,44\nc,60,50\n")
    (tmp_path / "m.csv").write_text("model,category\na,standard\nb,standard\nc,more_data\n")
    result = call("--data", "t.csv", "--models", "m.csv", "--json")
    written = json.loads(result.stdout)
    assert (written["path"], written["models"], written["settings"]) == ("report.html", 3, 2)
    results = results_of(payload(tmp_path / "report.html"))
    assert [m["fitted"] for m in results["models"]] == [True, True, False]
    other = answer("report", "--data", "t.csv", "--models", "m.csv", "--baseline", "more_data")
    assert other["models"] == 3
    results = results_of(payload(tmp_path / "report.html"))
    assert [m["fitted"] for m in results["models"]] == [False, False, True]


def test_the_testbed_is_small_and_whole(reference_data: Path, tmp_path: Path) -> None:
    folder = reference_data / "imagenet-testbed"
    written = answer("report", "--data", folder, "-w", _empty(tmp_path), "-o", tmp_path / "r.html")
    assert (written["models"], written["settings"]) == (204, 252) and written["bytes"] < 2_500_000


def _empty(folder: Path) -> Path:
    Workspace(folder / "empty")
    return folder / "empty"


def test_bad_input_is_named(run: sb.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # A table is shown beside the default workspace, if the folder has one.
    with pytest.raises(StoreError, match="holds no finished results"):
        raise_from(call("-w", _empty(tmp_path), "-o", tmp_path / "r.html"))
    with pytest.raises(StoreError, match="not a workspace"):
        raise_from(call("-w", tmp_path / "nothing", "-o", tmp_path / "r.html"))
    with raises(UnknownNameError, name="brigth"):
        raise_from(call("-w", run.workspace.root, "-c", "brigth", "-o", tmp_path / "r.html"))
    with pytest.raises(UnknownNameError, match=r"pictures-c\.frost\.3"):
        raise_from(call("-w", run.workspace.root, "-s", "pictures-c.frost.4", "-o", tmp_path / "r.html"))
    with raises(ShiftbenchError, found="r.pdf"):
        raise_from(call("-w", run.workspace.root, "-o", tmp_path / "r.pdf"))
    (tmp_path / "mixed.csv").write_text("model,val,v2\na,76.1,0.633\nb,56.5,0.44\n")
    with pytest.raises(ShiftbenchError, match="--unit percent"):
        raise_from(call("--data", tmp_path / "mixed.csv", "-o", tmp_path / "r.html"))
    as_said = call("--data", tmp_path / "mixed.csv", "--unit", "percent", "-o", tmp_path / "r.html", "--json")
    assert json.loads(as_said.stdout)["models"] == 2
    missing = call("-w", run.workspace.root, "--images", tmp_path / "gone", "-o", tmp_path / "r.html")
    assert missing.exit_code == 2 and "--images" in missing.output
    level = call("-w", run.workspace.root, "--level", 95, "-o", tmp_path / "r.html")
    assert isinstance(level.exception, ShiftbenchError)


def raise_from(result: Result) -> None:
    assert result.exception is not None, result.output
    raise result.exception


def test_images_by_name_and_without(tmp_path: Path) -> None:
    (tmp_path / "a=b").mkdir()
    (tmp_path / "val").mkdir()
    found = parse_images([f"imagenet-val={tmp_path / 'val'}", str(tmp_path / "val"), str(tmp_path / "a=b")])
    assert found == {"imagenet-val": [tmp_path / "val"], "": [tmp_path / "val", tmp_path / "a=b"]}


def test_help_is_quick_and_needs_no_web_server() -> None:
    """The commands are there without loading what they use."""
    code = (
        "import sys; from shiftbench.cli.app import app\n"
        "assert not {'fastapi', 'uvicorn', 'scipy', 'torch', 'pyarrow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.soak
def test_the_demo_ends_with_the_report(tmp_path: Path) -> None:
    result = shiftbench("demo", "-w", tmp_path / "w", "--severity", "3", "--json")
    report = json.loads(result.stdout)["report"]
    assert report["path"] == str(tmp_path / "w" / "report.html") and report["bytes"] < 3_000_000
    assert (report["models"], report["corruption_families"]) == (4, 1) and report["images"] > 100
