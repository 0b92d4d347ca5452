"""The example plug-in of docs/plugins.md, built as a wheel and installed into a fresh environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

import shiftbench

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "plugins" / "shiftbench-example"


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment with the plug-in, which finds the libraries of this one."""
    folder = tmp_path_factory.mktemp("plugin")
    source = folder / "source"
    shutil.copytree(EXAMPLE, source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    built = run(*pip, "wheel", "--no-deps", "--no-index", "--no-build-isolation", "-w", folder, source, cwd=folder)
    assert built.returncode == 0, built.stderr
    created = run(sys.executable, "-m", "venv", "--without-pip", folder / "env", cwd=folder)
    assert created.returncode == 0, created.stderr
    python = folder / "env" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    (wheel,) = folder.glob("*.whl")
    installed = run(*pip, "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    assert installed.returncode == 0, installed.stderr
    # No network is needed: the package itself and its libraries are those of the environment that runs the tests.
    paths = [str(Path(shiftbench.__file__).parents[1]), sysconfig.get_paths()["purelib"]]
    asked = run(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])", cwd=folder)
    Path(asked.stdout.strip(), "shiftbench-tests.pth").write_text("\n".join(paths))
    return python


def test_the_example_passes_its_own_tests(python: Path, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE / "tests", tmp_path / "tests")
    done = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", cwd=tmp_path)
    assert done.returncode == 0 and "3 passed" in done.stdout, done.stdout + done.stderr


def test_the_example_brings_a_command(python: Path, tmp_path: Path) -> None:
    records = np.zeros((3, 1 + 3 * 32**2), np.uint8)
    records[:, 0] = [0, 1, 1]
    records.tofile(tmp_path / "images.raw")
    overview = run(python, "-m", "shiftbench", "--help", cwd=tmp_path)
    assert "Inspect raw files." in overview.stdout, overview.stderr
    summary = run(python, "-m", "shiftbench", "raw", "summary", "images.raw", "--json", cwd=tmp_path)
    assert [row["images"] for row in json.loads(summary.stdout)] == [1, 2], summary.stderr
    check = run(python, "-m", "shiftbench", "check", "dataset", "images.raw", "--json", cwd=tmp_path)
    assert check.returncode == 0 and all(row["ok"] for row in json.loads(check.stdout)), check.stderr
