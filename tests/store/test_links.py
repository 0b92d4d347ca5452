"""Links in the workspace of a stranger: nothing behind them is removed, emptied or written."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import shiftbench as sb
from shiftbench.classifiers import load_classifier
from shiftbench.classifiers.options import write_sidecar
from shiftbench.errors import ClassifierError, StoreError
from shiftbench.hardening import load_recipe, train
from shiftbench.hardening.training.loop import TOP
from shiftbench.io.locks import file_lock
from shiftbench.io.paths import LinkedFolderError, remove_tree
from shiftbench.outputs.record import OutputRecord, write_files
from shiftbench.reports.summary import summarise
from shiftbench.reports.table import Column, Table
from shiftbench.store.maintenance import (
    Damage,
    compact,
    find_to_remove,
    remove_results,
    repair,
    verify,
    workspace_stats,
)
from shiftbench.store.unchecked import remove_unchecked_blocks
from shiftbench.store.workspace import Workspace
from tests.commands import output
from tests.runs.helpers import brightest_channel, colour_folder, write_onnx_model
from tests.runs.test_evaluate import run_small

pytestmark = pytest.mark.reliability("links in workspaces")

STATED = "size=32,resize=squash,interpolation=bilinear,mean=0.5,std=0.25,colour=rgb,outputs=logits"
#: Folders of a workspace that a stranger may replace by links, or add as links.
PLACES = (
    "datasets",
    "datasets/x",
    "datasets/x-0/problems",
    "spaces",
    "settings",
    "runs",
    "behaviour",
    "monitors",
    "predictions",
    "predictions/m",
    "predictions/m/s",
    "images",
    "images/m",
    "images/m/s",
    "shards",
    "shards/m",
    "shards/m/s",
    "shards/m/s/0",
    "locks",
)
#: Names that the commands look for.
FILES = ("settings.json", "0.parquet", "000.parquet", "000.images", "run.lock", "record.json", "images.parquet")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return colour_folder(tmp_path_factory.mktemp("data") / "pictures")


@pytest.fixture(scope="module")
def _made(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made")
    run_small(data, root, suite="clean")
    return root


@pytest.fixture
def root(_made: Path, tmp_path: Path) -> Path:
    shutil.copytree(_made, tmp_path / "hers")
    return tmp_path / "hers"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """My own files, which have the names of files of a workspace at every depth."""
    folder = tmp_path / "home"
    for depth in ("", "a", "a/b", "a/b/c"):
        (folder / depth).mkdir(parents=True, exist_ok=True)
        for name in FILES:
            (folder / depth / name).write_text("mine")
    return folder


def content(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def put_link(root: Path, place: str, home: Path) -> Path:
    link = root / place
    if link.is_dir():
        shutil.rmtree(link)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(home, target_is_directory=True)
    return link


def repair_all(root: Path) -> None:
    workspace = Workspace(root, create=False, damaged_too=True)
    repair(workspace, list(verify(workspace)))


def compact_all(root: Path) -> None:
    compact(Workspace(root, create=False))


def remove_all(root: Path) -> None:
    workspace = Workspace(root, create=False)
    remove_results(workspace, find_to_remove(workspace, (), ()))


@pytest.mark.parametrize("command", [repair_all, compact_all, remove_all])
@pytest.mark.parametrize("place", PLACES)
def test_nothing_behind_a_link_is_touched(root: Path, home: Path, place: str, command: Callable[[Path], None]) -> None:
    put_link(root, place, home)
    before = content(home)
    try:
        command(root)
    except StoreError as error:
        assert isinstance(error, LinkedFolderError), error
    assert content(home) == before


@pytest.mark.parametrize("place", PLACES)
def test_repair_removes_the_link_alone_and_then_the_rest(root: Path, home: Path, place: str, data: Path) -> None:
    link = put_link(root, place, home)
    before = content(home)
    [damage] = verify(Workspace(root, create=False))
    assert damage == Damage(place, damage.why)
    repair_all(root)
    assert not link.is_symlink()
    repair_all(root)
    run_small(data, root, suite="clean")
    assert list(verify(Workspace(root, create=False))) == []
    assert content(home) == before


@pytest.mark.parametrize("place", ["datasets", "locks", "predictions", "runs", "shards", "settings", "spaces"])
def test_a_run_writes_nothing_through_a_link(root: Path, home: Path, place: str, data: Path) -> None:
    put_link(root, place, home)
    before = content(home)
    with pytest.raises(LinkedFolderError) as caught:
        run_small(data, root, functions={"other": brightest_channel})
    assert str(root / place) in str(caught.value)
    assert content(home) == before


@pytest.mark.parametrize(
    "pattern", ["workspace.json", "datasets/*/*", "settings/*", "spaces/*", "runs/*", "predictions/*/*/*"]
)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_file_is_not_opened(root: Path, pattern: str, kind: str) -> None:
    """A pipe would be waited for forever, and zeros never end: without the check, this test does not end either."""
    replaced = sorted(root.glob(pattern))
    for path in replaced:
        path.unlink()
        if kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/zero")
    with suppress(StoreError):
        compact_all(root)
    with suppress(StoreError):
        workspace_stats(Workspace(root, create=False))
    with suppress(StoreError):
        summarise(sb.Run.open(root))
    workspace = Workspace(root, create=False, damaged_too=True)
    damaged_files = {damage.file for damage in verify(workspace)}
    assert {str(path.relative_to(root)) for path in replaced} <= damaged_files


def test_a_lock_that_is_a_link_does_not_empty_its_target(tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    (tmp_path / "a.lock").symlink_to(mine)
    with file_lock(tmp_path / "a.lock", wait=True) as is_held:
        assert is_held
    assert mine.read_text() == "mine"


def test_removing_a_linked_tree_removes_the_link(tmp_path: Path, home: Path) -> None:
    before = content(home)
    link = tmp_path / "link"
    link.symlink_to(home, target_is_directory=True)
    remove_tree(link)
    assert not link.is_symlink()
    assert content(home) == before


def test_a_workspace_may_itself_be_reached_by_a_link(root: Path, tmp_path: Path, data: Path) -> None:
    (tmp_path / "short").symlink_to(root, target_is_directory=True)
    run_small(data, tmp_path / "short", suite="clean")
    assert list(verify(Workspace(tmp_path / "short", create=False))) == []


def test_output_folders_with_links_are_refused(tmp_path: Path, home: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "fog").symlink_to(home, target_is_directory=True)
    record = OutputRecord(folder, "record.json", "a test", {"seed": 0})
    before = content(home)
    with pytest.raises(LinkedFolderError):
        write_files(record, [("fog/1.txt", lambda path: path.write_text("written"))])
    assert content(home) == before


def test_training_writes_nothing_through_a_link(tmp_path: Path, home: Path) -> None:
    before = content(home)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / TOP).symlink_to(home, target_is_directory=True)
    with pytest.raises(LinkedFolderError):
        train(load_recipe("cifar-standard"), tmp_path / "run", data=str(home))
    assert content(home) == before


@pytest.mark.parametrize("link", ["shards", "shards/m", "locks"])
def test_a_list_of_unchecked_blocks_removes_nothing_behind_a_link(link: str, root: Path, home: Path) -> None:
    """The next run removes the blocks that a killed run never compared; the list may come from a stranger."""
    put_link(root, link, home)
    (root / "locks").mkdir(exist_ok=True)
    names = ["shards/settings.json", "shards/a/settings.json", "shards/m/settings.json", "shards/m/a/0.parquet"]
    (root / "locks" / "unchecked-run-1-0.json").write_text(json.dumps(names))
    before = content(home)
    with pytest.raises(LinkedFolderError):
        remove_unchecked_blocks(Workspace(root, create=False, damaged_too=True))
    assert content(home) == before


@pytest.mark.parametrize("is_there", [True, False])
def test_a_description_is_not_written_through_a_link(tmp_path: Path, is_there: bool) -> None:
    """The link lies beside the model of a stranger; it may point to a file that does not exist yet."""
    model = tmp_path / "net.onnx"
    write_onnx_model(model)
    mine = tmp_path / "mine.txt"
    classifier = load_classifier(model, labels=["blue", "green", "red"], preprocessing=STATED)
    (tmp_path / "net.onnx.json").symlink_to(mine)
    if is_there:
        mine.write_text("mine")
    with pytest.raises(ClassifierError):
        write_sidecar(str(model), classifier)
    written = write_sidecar(str(model), classifier, force=True)
    assert not written.is_symlink()
    assert json.loads(written.read_text())["labels"] == ["blue", "green", "red"]
    assert (mine.read_text() if mine.exists() else None) == ("mine" if is_there else None)


def test_a_table_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("mine")
    (tmp_path / "table.csv").symlink_to(tmp_path / "mine.csv")
    Table([Column("a", "a")], [{"a": "b"}]).write(tmp_path / "table.csv")
    assert (tmp_path / "mine.csv").read_text() == "mine"
    assert not (tmp_path / "table.csv").is_symlink()


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize(
    "words", [("preview", "{image}", "-c", "contrast", "--size", "32", "-o"), ("harden", "gallery")]
)
def test_sheets_are_not_drawn_through_a_link(
    words: tuple[str, ...], tmp_path: Path, data: Path, is_there: bool
) -> None:
    mine = tmp_path / "mine.png"
    if is_there:
        mine.write_text("mine")
    (tmp_path / "sheet.png").symlink_to(mine)
    image = str(next(data.rglob("*.png")))
    command = [word.format(image=image) for word in words]
    further = ["-a", "speckle", "--columns", "1", "--size", "32"] if words[0] == "harden" else []
    output(*command, tmp_path / "sheet.png", *further)
    assert (mine.read_text() if mine.exists() else None) == ("mine" if is_there else None)
    assert not (tmp_path / "sheet.png").is_symlink()
