"""Damage to any file of a workspace: found when read and by ``verify``, removed by ``repair``, made again by eval.

The flips of single bits are exhaustive in the soak, and a sample over every file otherwise.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import shiftbench as sb
from shiftbench.cli.store import app as store_app
from shiftbench.errors import ShiftbenchError, StoreError
from shiftbench.store import maintenance, sealed
from shiftbench.store import workspace as workspace_module
from shiftbench.store.maintenance import Damage, repair, verify
from shiftbench.store.models import rename_model
from shiftbench.store.prediction_files import read_made_by
from shiftbench.store.run_records import RunHistory
from shiftbench.store.workspace import Workspace
from tests.runs.helpers import colour_folder
from tests.runs.test_evaluate import run_small

_PARTS = 4
_SETTINGS: dict[str, Any] = {"suite": "corruptions", "corruptions": ("gaussian_noise",), "severities": (5,)}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = colour_folder(tmp_path_factory.mktemp("data") / "pictures", per_class=3, size=36)
    (folder / "green" / "broken.png").write_bytes(b"no image")
    return folder


@pytest.fixture(scope="module")
def made(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two results, with every kind of file that a workspace has."""
    root = tmp_path_factory.mktemp("made") / "w"
    with pytest.warns(UserWarning):
        run = run_small(data, root, **_SETTINGS)
    run.workspace.record_metadata("pictures", _fingerprint(run.workspace), {"place": list("abcdefghij")})
    run.workspace.write_catalogue()
    rename_model(run.workspace, run.find_model("bright"), "brightest", set())
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "w"))


def _fingerprint(workspace: Workspace) -> str:
    return next(iter(workspace.results())).spec.dataset.fingerprint


def _files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file() and path.parent.name != "locks")


def _forget() -> None:
    for cache in (workspace_module._read_dataset, workspace_module._read_rows, workspace_module._read_space):
        cache.cache_clear()
    sealed._read_catalogue.cache_clear()


def _listing(workspace: Workspace) -> object:
    """The results with what is known of them, none of them read."""
    found = [(result, workspace.setting_record(result)) for result in workspace.results()]
    return [(one.classifier, one.setting, one.spec.text, repr(record)) for one, record in found]


def _first(workspace: Workspace, place: int = 0) -> object:
    """All values of a result."""
    result = list(workspace.results())[place]
    one = workspace.read(result)
    values = one.ids, one.labels.tolist(), one.top.tolist(), one.confidence.tolist(), one.space.names, one.space.keys
    return repr((result.setting, values, read_made_by(workspace.predictions_path(result))))


def _second(workspace: Workspace) -> object:
    return _first(workspace, 1)


def _images(workspace: Workspace) -> object:
    spec = next(iter(workspace.results())).spec
    name = spec.dataset.name
    fingerprint = spec.dataset.fingerprint
    return repr((workspace.problems(name, fingerprint), workspace.metadata(name, fingerprint)))


def _source(workspace: Workspace) -> object:
    (found,) = (
        workspace.source(result.spec.dataset.name, result.spec.dataset.fingerprint)
        for result in list(workspace.results())[:1]
    )
    if found is None:  # unknown, as in older workspaces: the report asks for the folder
        raise StoreError("no source")
    return found


def _models(workspace: Workspace) -> object:
    return [model.id for model in sb.Run.open(workspace.root).models]


def _behaviour(workspace: Workspace) -> object:
    """By which a run recognises a model."""
    return [workspace.files.read_json(path) for path in (workspace.root / "behaviour").glob("*.json")]


def _history(workspace: Workspace) -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return [record.text + record.started + repr(record.software) for record in RunHistory.of(workspace).records]
        except UserWarning as warning:
            raise StoreError(str(warning)) from None


View = Callable[[Workspace], object]
_VIEWS: tuple[View, ...] = (
    _listing,
    _first,
    _second,
    _images,
    _source,
    _models,
    _behaviour,
    _history,
)


def observed(root: Path, views: Sequence[View] = _VIEWS) -> dict[str, object]:
    """All that a workspace shows; what is refused with an explanation is None. Any other exception fails the test."""
    _forget()
    found: dict[str, object] = dict.fromkeys(view.__name__ for view in views)
    with suppress(ShiftbenchError):
        workspace = Workspace(root, create=False)
        for view in views:
            with suppress(ShiftbenchError):
                found[view.__name__] = view(workspace)
    return found


def views_of(path: Path, root: Path) -> list[View]:
    """Those that open a file: nothing else can change with its content. All learn the same from the catalogue."""
    if path.name == "catalogue.parquet":
        return [_listing]
    opened: set[str] = set()

    def noting(file: Any, *arguments: Any, **options: Any) -> Any:
        opened.add(str(file))
        return open(file, *arguments, **options)  # noqa: PTH123

    found = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(io, "open", noting)  # as pathlib calls it
        for view in _VIEWS:
            opened.clear()
            observed(root, [view])
            found += [view] if str(path) in opened else []
    return found


def check_flips(root: Path, bits: Callable[[Path], Iterator[int]]) -> int:
    """Flip bits one by one: all that is shown is as before, or refused and found by ``verify``. How many were tried."""
    everything = observed(root)
    tried = 0
    assert None not in everything.values()
    for path in _files(root):
        whole = path.read_bytes()
        views = views_of(path, root)
        assert views, f"nothing reads {path.relative_to(root)}"
        before = {view.__name__: everything[view.__name__] for view in views}
        for bit in bits(path):
            flipped = bytearray(whole)
            flipped[bit // 8] ^= 1 << bit % 8
            path.write_bytes(flipped)
            seen = observed(root, views)
            wrong = [name for name, value in seen.items() if value not in (None, before[name])]
            assert not wrong, f"bit {bit} of {path.relative_to(root)} changes {wrong} silently"
            if seen != before:
                reported = {one.file for one in verify(Workspace(root, create=False, damaged_too=True))}
                assert str(path.relative_to(root)) in reported, f"verify misses bit {bit} of {path.relative_to(root)}"
            tried += 1
        path.write_bytes(whole)
    assert observed(root) == everything
    return tried


@pytest.mark.reliability("bit flips")
def test_flips_of_some_bits_of_every_file(root: Path, record_property: Callable[[str, object], None]) -> None:
    def spread(path: Path) -> Iterator[int]:
        """Over the whole file, at every place in a byte."""
        size = path.stat().st_size * 8
        yield from range(sum(path.name.encode()) % 97, size, size // 8 + 1)

    kinds = {path.relative_to(root).parts[0] for path in _files(root)}
    assert kinds == {
        "behaviour",
        "catalogue.parquet",
        "datasets",
        "names.json",
        "predictions",
        "runs",
        "settings",
        "spaces",
        "workspace.json",
    }
    record_property("tries", check_flips(root, spread))


@pytest.mark.soak
@pytest.mark.reliability("bit flips")
@pytest.mark.parametrize("part", range(_PARTS))
def test_flips_of_all_bits_of_every_file(
    root: Path, part: int, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    """In parts of some minutes each, so that they can be run apart; ``verify`` reads the damaged file only."""

    def bits(path: Path) -> Iterator[int]:
        monkeypatch.setattr(maintenance, "_files", lambda workspace: [path])
        yield from range(part, path.stat().st_size * 8, _PARTS)

    record_property("tries", check_flips(root, bits))


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _replace_by_json(path: Path) -> None:
    path.write_text("null")


def _replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


_HARMS = (_truncate, _empty, _replace_by_json, _replace_by_folder)


@pytest.mark.reliability("damaged workspaces")
@pytest.mark.parametrize(
    "turn",
    [
        0,
        pytest.param(1, marks=pytest.mark.soak),
        pytest.param(2, marks=pytest.mark.soak),
        pytest.param(3, marks=pytest.mark.soak),
    ],
)
def test_every_file_can_be_harmed_repaired_and_made_again(
    data: Path, root: Path, turn: int, record_property: Callable[[str, object], None]
) -> None:
    before = observed(root)
    names = [str(path.relative_to(root)) for path in _files(root)]
    for number, name in enumerate(names):
        safe = root.with_name("safe")
        shutil.copytree(root, safe)
        _HARMS[(number + turn) % len(_HARMS)](root / name)
        after = observed(root)
        assert all(after[view] in (None, before[view]) for view in before), name
        workspace = Workspace(root, create=False, damaged_too=True)
        damage = list(verify(workspace))
        assert name in {one.file for one in damage}
        repair(workspace, damage)
        assert list(verify(Workspace(root, create=False))) == [] or name.startswith(("datasets", "spaces"))
        shutil.rmtree(root)
        safe.rename(root)
    record_property("tries", len(names))


def test_an_eval_makes_damaged_files_again(data: Path, root: Path) -> None:
    before = observed(root)
    for path in [
        *root.glob("predictions/*/*/*"),
        *root.glob("*/*/images.parquet"),
        *root.glob("*/*/record.json"),
        *root.glob("spaces/*"),
        *root.glob("settings/*"),
        *root.glob("*/*/problems/*"),
    ]:
        _truncate(path)
    _forget()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run_small(data, root, **_SETTINGS)
    after = observed(root)
    assert all(after[view] == before[view] for view in ("_listing", "_first", "_second"))
    assert list(verify(Workspace(root))) == []


# -- labels and predictions that others put there ------------------------------------------------------------------


@pytest.mark.reliability("silent-wrong attempts")
def test_edited_labels_are_refused(root: Path) -> None:
    (path,) = root.glob("datasets/*/images.parquet")
    table = pq.read_table(path)
    labels = (table.column("label").to_numpy() + 1) % 3
    pq.write_table(table.set_column(1, "label", pa.array(labels, pa.int32())), path)
    _forget()
    assert "images.parquet" in next(iter(verify(Workspace(root)))).file
    with pytest.raises(StoreError, match="damaged or was changed"):
        list(sb.Run.open(root).scores("top1"))


@pytest.mark.reliability("silent-wrong attempts")
@pytest.mark.parametrize("part", ["names", "keys"])
def test_edited_label_spaces_are_refused(root: Path, part: str) -> None:
    (path,) = root.glob("spaces/*.json")
    value = json.loads(path.read_text())
    value[part] = value[part][::-1]
    path.write_text(json.dumps(value))
    _forget()
    with pytest.raises(StoreError, match="damaged or was changed"):
        list(sb.Run.open(root).scores("top1"))


@pytest.mark.reliability("silent-wrong attempts")
@pytest.mark.parametrize("catalogued", [True, False])
def test_predictions_copied_over_others_are_refused(root: Path, catalogued: bool) -> None:
    if not catalogued:
        (root / "catalogue.parquet").unlink()
    (clean,), (noise,) = root.glob("predictions/*/pictures/*"), root.glob("predictions/*/*noise*/*")
    shutil.copy(noise, clean)
    assert [one.file for one in verify(Workspace(root))] == [str(clean.relative_to(root))]
    with pytest.raises(StoreError, match=r"another place|match its key"):
        list(sb.Run.open(root).scores("top1"))


@pytest.mark.reliability("silent-wrong attempts")
def test_predictions_in_the_folder_of_another_setting_or_model_are_refused(root: Path) -> None:
    (noise,) = root.glob("predictions/*/*noise*/*")
    shutil.copy(noise, next(root.glob("predictions/*/pictures")) / noise.name)
    shutil.copytree(root / "predictions/bright", root / "predictions/another")
    assert len(list(verify(Workspace(root)))) == 4
    with pytest.raises(StoreError, match="another place"):
        for result in Workspace(root).results():
            Workspace(root).read(result)


@pytest.mark.reliability("silent-wrong attempts")
def test_a_record_under_another_name_is_refused(root: Path) -> None:
    (folder,) = root.glob("datasets/*")
    shutil.copytree(folder, folder.with_name("other-0123456789abcdef"))
    assert {Path(one.file).name for one in verify(Workspace(root))} >= {"images.parquet", "record.json"}


# -- commands ------------------------------------------------------------------------------------------------------


def _call(*arguments: object) -> Any:
    return CliRunner().invoke(store_app, [*map(str, arguments)], env={"COLUMNS": "200"})


def test_repair_removes_what_is_damaged_and_says_how_to_go_on(root: Path, data: Path) -> None:
    (noise,) = root.glob("predictions/*/*noise*/*")
    others = {path: path.read_bytes() for path in _files(root) if path != noise}
    _truncate(noise)
    assert json.loads(_call("repair", root, "--dry-run", "--json", "-q").stdout)["results"] == [noise.stem]
    assert noise.exists()
    unanswered = _call("repair", root, "-q")
    assert isinstance(unanswered.exception, StoreError)
    assert noise.exists(), "nothing is removed without an answer"
    done = _call("repair", root, "-q", "--yes")
    assert done.exit_code == 0 and not noise.exists()
    assert "removed: 1 of" in done.stdout and "evaluate(" in done.stdout, "the call that made it"
    assert {path: path.read_bytes() for path in _files(root)} == others
    assert _call("verify", root, "-q").exit_code == 0


@pytest.mark.parametrize("harm", [Path.unlink, _truncate])
def test_a_lost_marker_is_restored(root: Path, harm: Callable[[Path], None]) -> None:
    before = (root / "workspace.json").read_bytes()
    harm(root / "workspace.json")
    with pytest.raises(StoreError):
        Workspace(root, create=False)
    assert "workspace.json" in _call("verify", root, "-q").stdout
    assert _call("repair", root, "-q", "--yes").exit_code == 0
    assert (root / "workspace.json").read_bytes() == before and not list(verify(Workspace(root)))


def test_a_pipe_in_place_of_a_file_is_named_not_opened(root: Path) -> None:
    (noise,) = root.glob("predictions/*/*noise*/*")
    _replace_by_pipe(noise)
    assert list(verify(Workspace(root))) == [Damage(str(noise.relative_to(root)), "it is not a file")]
    repair(Workspace(root), list(verify(Workspace(root))))
    assert not noise.exists()
