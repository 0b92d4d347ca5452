"""Write requirements-dev.lock: every package of constraints.txt with the sha256 of its file.

The file is for the Python and the platform of the machine that runs this script, and the registry is the one that pip
is configured with. torch is left out: its CPU build has no fixed origin, so it is installed separately, by the version
in constraints.txt.

    python scripts/lock.py
    pip install --no-deps --require-hashes -r requirements-dev.lock
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
#: Packages that are installed separately.
_LEFT_OUT = ("torch",)


def resolve() -> dict[str, Any]:
    """The report of pip on what it would install, without installing it."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        options = ["--dry-run", "--ignore-installed", "--no-deps", "--quiet", "--report", str(report)]
        subprocess.run(
            [sys.executable, "-m", "pip", "install", *options, "-r", str(ROOT / "constraints.txt")], check=True
        )
        return dict(json.loads(report.read_text()))


def lock_lines(report: dict[str, Any]) -> list[str]:
    """The lines of the lock file, from a report of pip."""
    lines = []
    for package in report["install"]:
        metadata = package["metadata"]
        name = metadata["name"].lower().replace("_", "-")
        if name not in _LEFT_OUT:
            sha256 = package["download_info"]["archive_info"]["hashes"]["sha256"]
            lines.append(f"{name}=={metadata['version']} --hash=sha256:{sha256}")
    return sorted(lines)


def main() -> None:
    """Write the file from a report of pip, if its path is given, or from what pip would install now."""
    if len(sys.argv) > 1:
        report = json.loads(Path(sys.argv[1]).read_text())
    else:
        report = resolve()
    machine = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    lines = [f"# By scripts/lock.py, for {machine}.", *lock_lines(report)]
    (ROOT / "requirements-dev.lock").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
