"""One error boundary: whatever goes wrong, a command prints a message, and a traceback only with ``--debug``."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from shiftbench.cli import main
from shiftbench.errors import ShiftbenchError, argument, naming_options
from shiftbench.store import workspace as workspace_module
from tests.commands import call
from tests.runs.helpers import colour_folder
from tests.runs.test_evaluate import run_small


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> object:
    monkeypatch.setattr(sys, "argv", ["shiftbench", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ZeroDivisionError("by zero"), "error: ZeroDivisionError: by zero"),
        (PermissionError(13, "Permission denied", "/x/y"), "error: Permission denied: /x/y"),
        (MemoryError(), "error: out of memory"),
        (UnicodeEncodeError("utf-8", "\udce4", 0, 1, "surrogates not allowed"), "error: UnicodeEncodeError"),
    ],
)
def test_any_exception_is_a_message(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], error: Exception, expected: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(workspace_module.Workspace, "__init__", fail)
    assert run(monkeypatch, "store", "stats") == 1
    shown = capfd.readouterr().err
    assert expected in shown and "Traceback" not in shown
    for place in (["--debug", "store", "stats"], ["store", "stats", "--debug"]):
        monkeypatch.setattr(sys, "argv", ["shiftbench", *place])
        with pytest.raises(type(error)):
            main()


def _shell(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from shiftbench.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=300, **options)  # type: ignore[call-overload, no-any-return]


@pytest.mark.reliability("output devices")
def test_a_full_disk_behind_standard_output() -> None:
    with Path("/dev/full").open("w") as full:
        done = _shell("list", "corruptions", stdout=full)
    assert done.returncode == 1 and "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


@pytest.mark.reliability("output devices")
def test_a_workspace_in_a_place_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "workspace.json").mkdir()
    done = _shell("table", "-w", tmp_path, stdout=subprocess.DEVNULL)
    assert done.returncode == 1 and "Traceback" not in done.stderr and done.stderr.startswith("error:")


@pytest.mark.reliability("silent-wrong attempts")
def test_a_workspace_deleted_or_replaced_during_a_run_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    from shiftbench.io.paths import GoneError
    from shiftbench.runs.compute import _BlockComputation

    data = colour_folder(tmp_path / "data", per_class=12)
    root = tmp_path / "w"
    original = _BlockComputation.compute

    for replaced in (False, True):

        def compute(self: _BlockComputation, results: object, replaced: bool = replaced) -> object:
            found = original(self, results)  # type: ignore[arg-type]
            shutil.rmtree(root)
            if replaced:
                workspace_module.Workspace(root)
            return found

        monkeypatch.setattr(_BlockComputation, "compute", compute)
        with pytest.warns(UserWarning, match="not recorded"), pytest.raises(GoneError):
            run_small(data, root, workers=1, suite="clean")
        assert ([path.name for path in root.iterdir()] == ["workspace.json"]) if replaced else not root.exists()
        monkeypatch.undo()
        run_small(data, root, workers=1, suite="clean")
        shutil.rmtree(root)


@pytest.mark.parametrize(
    ("words", "suggested"),
    [
        (["testset", "status", "my set"], ["shiftbench", "testset", "init", "my set", "--labels", "cifar-10"]),
        (
            ["gate", "new.onnx", "--against", "old models/baseline.parquet", "--data", "."],
            ["shiftbench", "gate", "pin", "MODEL", "-o", "old models/baseline.parquet"],
        ),
    ],
)
def test_suggested_commands_quote_paths_for_the_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], suggested: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call(*words)
    assert shlex.join(suggested) in " ".join(f"{done.output} {done.exception}".split())


def test_a_suggested_option_is_quoted_for_the_shell() -> None:
    with naming_options():
        assert shlex.split(argument("labels", "my classes.csv")) == ["--labels", "my classes.csv"]
        assert shlex.split(argument("data", {"day": "a b"})) == ["--data", "day=a b"]


@pytest.mark.parametrize("url", ["https://me:SECRET@localhost/m.onnx?t=SECRET", "https:/me:SECRET@host/m.onnx"])
def test_passwords_in_addresses_are_not_repeated(tmp_path: Path, url: str) -> None:
    failed = call("eval", url, "--data", tmp_path, "-w", tmp_path / "w")
    assert isinstance(failed.exception, ShiftbenchError)
    assert "SECRET" not in str(failed.exception)
