"""What a Linux machine can show of Windows: the core works without what only POSIX systems have."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path, PureWindowsPath

import pytest

from shiftbench.classifiers.loading import split_spec
from shiftbench.datasets.manifest import leads_outside
from shiftbench.errors import ShiftbenchError
from shiftbench.io import atomic
from shiftbench.io.paths import place, split_kind
from shiftbench.jobs.detached import start_job
from tests.runs.helpers import colour_folder

#: Run by the parent and by its worker processes, which import the script anew.
WITHOUT_POSIX = """
import os, signal, sys, types

# Other packages choose their code by the system, so they are loaded before.
import asyncio, filelock, lazy_loader, msgspec, numpy, PIL.Image, platformdirs, rich.console, scipy.special, typer
import concurrent.futures.process, logging.handlers, multiprocessing.managers, pyarrow.parquet, scipy.stats

for name in ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog"):
    sys.modules[name] = None
for name in (
    "fork", "forkpty", "getuid", "geteuid", "getgid", "getegid", "killpg", "getpgid", "setsid", "sync", "mkfifo",
    "sched_getaffinity", "getloadavg", "statvfs", "chown", "nice", "O_DIRECTORY",
):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGCHLD", "setitimer"):
    if hasattr(signal, name):
        delattr(signal, name)
"""
EVALUATION = """
from shiftbench.jobs import executors

class Brightest:
    def __call__(self, images):
        return images.mean(axis=(1, 2)).astype("float32")[:, ::-1]

if __name__ == "__main__":
    import shiftbench as sb

    # A new process inherits no open file there.
    executors.reduction = types.SimpleNamespace()
    data, workspace, executor = sys.argv[1:]
    run = sb.evaluate(
        Brightest(), data=data, labels="folders", workspace=workspace,
        suite="corruptions", corruptions=["fog", "jpeg_compression"], severities=[3], executor=executor,
        workers=2, progress=False,
    )
    print(len(run.results))
"""
IMPORTS = """
import importlib, pkgutil
import shiftbench

#: Plug-ins and what needs an extra.
OPTIONAL = ("testsets", "hardening", "integrations", "published")
for package in pkgutil.iter_modules(shiftbench.__path__, "shiftbench."):
    if package.name.partition(".")[2] in (*OPTIONAL, "workshops", "__main__"):
        continue
    module = importlib.import_module(package.name)
    for child in pkgutil.walk_packages(getattr(module, "__path__", []), f"{package.name}."):
        if not any(part in child.name for part in (".kernels", "testset", "harden")):
            importlib.import_module(child.name)
print("imported")
"""


def run_without_posix(script: Path, code: str, *arguments: object) -> str:
    script.write_text(WITHOUT_POSIX + code, encoding="utf-8")
    words = [sys.executable, str(script), *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=script.parent, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_module_of_the_core_is_imported(tmp_path: Path) -> None:
    assert run_without_posix(tmp_path / "imports.py", IMPORTS) == "imported"


@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_an_evaluation_completes(tmp_path: Path, executor: str) -> None:
    data = colour_folder(tmp_path / "data", per_class=4)
    script = tmp_path / "evaluation.py"
    assert run_without_posix(script, EVALUATION, data, tmp_path / "w", executor) == "3"


def test_detached_runs_are_refused_where_there_are_no_sessions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHIFTBENCH_CACHE", str(tmp_path))
    monkeypatch.delattr(os, "setsid", raising=False)
    with pytest.raises(ShiftbenchError) as caught:
        start_job(["eval"])
    assert "without it" in str(caught.value.hint)
    assert list(tmp_path.rglob("*.log")) == []


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        ("C:\\images", ("", "C:\\images")),
        ("d:/images", ("", "d:/images")),
        ("unlabelled:C:\\images", ("unlabelled", "C:\\images")),
        ("C:\\own.toml:D:\\table.csv\\test", ("C:\\own.toml", "D:\\table.csv\\test")),
        ("unlabelled:images", ("unlabelled", "images")),
        ("images", ("", "images")),
    ],
)
def test_the_colon_of_a_drive_ends_no_kind(spec: str, parts: tuple[str, str]) -> None:
    assert split_kind(spec) == parts


@pytest.mark.parametrize("path", ["C:/images", "C://images", "c:\\images", "\\\\server\\share\\images"])
def test_paths_of_windows_are_no_urls(path: str) -> None:
    assert isinstance(place(path), Path)


@pytest.mark.parametrize("path", [r"C:\models\net.onnx", r"D:\net.py:build", "E:/net.onnx"])
def test_models_on_drives_are_files(path: str) -> None:
    key, argument = split_spec(path)
    assert (key, argument) == (PureWindowsPath(path.replace(".py:build", ".py")).suffix, path)


@pytest.mark.parametrize(
    "path", [r"..\secret.png", r"C:\secret.png", r"\secret.png", r"a\..\..\secret.png", "C:secret.png"]
)
def test_manifests_do_not_lead_out_of_their_folder_on_windows(path: str) -> None:
    assert leads_outside(path)


def test_a_file_that_somebody_reads_is_replaced_a_moment_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = iter([PermissionError(errno.EACCES, "in use"), PermissionError(errno.EACCES, "in use")])
    rename = Path.replace

    def replace(source: Path, target: Path) -> Path:
        for refusal in refusals:
            raise refusal
        return rename(source, target)

    monkeypatch.setattr(Path, "replace", replace)
    monkeypatch.setattr(atomic, "_REPLACE_ATTEMPTS", 3)
    atomic.write_bytes(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
