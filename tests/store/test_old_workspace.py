"""A workspace of version 0.1.0 opens, verifies, is scored and continued; see ``fixtures/README.md``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import shiftbench as sb
from shiftbench.runs.compute import Evaluation
from shiftbench.store.maintenance import compact, verify
from tests.commands import output
from tests.store.fixtures.evaluations import evaluate

FIXTURES = Path(__file__).parent / "fixtures"
#: By version that wrote it: its format.
FORMATS = {"0.1": 1, "0.2": 2}


@pytest.fixture(params=FORMATS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def each(version: str, tmp_path: Path) -> Path:
    """A copy of a workspace of every format with the images, which are the same, in a folder of its own."""
    shutil.copytree(FIXTURES / "workspace-0.1", tmp_path / "old", ignore=shutil.ignore_patterns("workspace"))
    return Path(shutil.copytree(FIXTURES / f"workspace-{version}", tmp_path / "old", dirs_exist_ok=True))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A copy of the workspace of format 1."""
    return Path(shutil.copytree(FIXTURES / "workspace-0.1", tmp_path / "old"))


def stored(workspace: Path) -> dict[str, object]:
    files = {
        str(path.relative_to(workspace)): path.read_bytes() for path in workspace.glob("predictions/*/*/*.parquet")
    }
    labels = {str(path): pq.read_table(path).to_pydict() for path in workspace.glob("datasets/*/images.parquet")}
    return {**files, **labels}


def everything(workspace: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in workspace.rglob("*") if path.is_file()}


def test_every_key_is_the_hash_of_the_spec_and_nothing_is_damaged(each: Path, version: str) -> None:
    workspace = sb.Workspace(each / "workspace", create=False)
    found = {result.relative: result for result in workspace.results()}
    folder = each / "workspace/predictions"
    files = [path.relative_to(folder).with_suffix("") for path in folder.glob("*/*/*.parquet")]
    assert sorted(map(str, found)) == sorted(map(str, files)) and len(files) == 20
    assert list(verify(workspace)) == [] and workspace.files.required == (FORMATS[version] == 2)


def test_both_versions_made_the_same_numbers() -> None:
    one, two = (sb.Run.open(FIXTURES / f"workspace-{version}" / "workspace") for version in FORMATS)
    assert [(a, b, score.value) for a, b, score in one.scores()] == [
        (a, b, score.value) for a, b, score in two.scores()
    ]


def fail(*_: object) -> None:
    raise AssertionError("must not be called")


@pytest.mark.parametrize(
    "command",
    [
        ["table"],
        ["table", "--mce", "-s", "colours", "-s", "colours-c.fog.1", "-s", "colours-c.fog.5"],
        ["compare", "-s", "colours"],
        ["store", "verify"],
        ["store", "stats"],
    ],
    ids=" ".join,
)
def test_commands_read_it(each: Path, command: list[str]) -> None:
    where = [str(each / "workspace")] if command[0] == "store" else ["-w", str(each / "workspace")]
    output(*command, *where)


def test_the_report_shows_it_with_its_images(each: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    command = ["report", "-w", str(each / "workspace"), "-o", str(page), "--images", str(each / "colours"), "--json"]
    done = output(*command)
    assert json.loads(done)["images"] > 0 and page.stat().st_size > 10_000


def test_the_same_evaluation_finds_everything_complete(each: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = stored(each / "workspace")

    monkeypatch.setattr(Evaluation, "compute", fail)
    assert evaluate(each, each / "workspace") == 20
    assert stored(each / "workspace") == before


def test_reading_changes_no_byte(each: Path) -> None:
    before = everything(each / "workspace")
    run = sb.Run.open(each / "workspace")
    assert len(list(run.scores("top1"))) == 20 and list(verify(run.workspace)) == []
    assert everything(each / "workspace") == before


def test_the_first_write_gives_every_file_a_digest(old: Path) -> None:
    workspace = sb.Workspace(old / "workspace")
    scores = [(one, two, score.value) for one, two, score in sb.Run.open(old / "workspace").scores("top1")]
    assert not workspace.files.required
    compact(workspace)
    new = sb.Workspace(old / "workspace", create=False)
    assert workspace.files.required and new.files.required and list(verify(new)) == []
    assert [(one, two, score.value) for one, two, score in sb.Run.open(new).scores("top1")] == scores
    (old / "workspace/spaces/colours-18a5205fe25dea58.json").write_text('{"name": "colours"}')
    assert [Path(damage.file).parts[0] for damage in verify(sb.Workspace(old / "workspace"))] == ["spaces"]


def test_an_upgrade_that_was_killed_continues(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sb.Workspace, "write_marker", fail)
    with pytest.raises(AssertionError):
        compact(sb.Workspace(old / "workspace"))
    monkeypatch.undo()
    workspace = sb.Workspace(old / "workspace")
    assert not workspace.files.required and list(verify(workspace)) == []
    compact(workspace)
    assert list(verify(sb.Workspace(old / "workspace"))) == [] and sb.Workspace(old / "workspace").files.required


def test_a_run_goes_on_when_another_upgrades(old: Path) -> None:
    one = sb.Workspace(old / "workspace")
    other = sb.Workspace(old / "workspace")
    compact(one)
    other.check_present()
    marker = (old / "workspace" / "workspace.json").stat()
    other.record_source("colours", "0" * 16, ("data", "colours"))
    one.check_present()
    assert (old / "workspace" / "workspace.json").stat().st_ino == marker.st_ino and other.files.required
