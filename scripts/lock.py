"""Writes requirements-dev.lock: every package of constraints.txt with the sha256 of its file.

For Python and platform of the machine that runs it; the registry is the one that pip is configured with. torch is left
out: its CPU build has no fixed origin, so it is installed apart, by the version in constraints.txt.

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

ROOT = Path(__file__).parents[1]
_APART = ("torch",)


def resolve() -> dict[str, object]:
    """What pip would install, without installing it."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        options = ["--dry-run", "--ignore-installed", "--no-deps", "--quiet", "--report", str(report)]
        subprocess.run(
            [sys.executable, "-m", "pip", "install", *options, "-r", str(ROOT / "constraints.txt")], check=True
        )
        found: dict[str, object] = json.loads(report.read_text())
    return found


def lock_lines(report: dict[str, object]) -> list[str]:
    packages: list[dict[str, dict[str, object]]] = report["install"]  # type: ignore[assignment]
    lines = []
    for one in packages:
        name, version = str(one["metadata"]["name"]).lower().replace("_", "-"), one["metadata"]["version"]
        archive: dict[str, dict[str, str]] = one["download_info"]["archive_info"]  # type: ignore[assignment]
        if name not in _APART:
            lines.append(f"{name}=={version} --hash=sha256:{archive['hashes']['sha256']}")
    return sorted(lines)


if __name__ == "__main__":
    report = json.loads(Path(sys.argv[1]).read_text()) if len(sys.argv) > 1 else resolve()
    about = f"# By scripts/lock.py, for Python {platform.python_version()} on {platform.system()} {platform.machine()}."
    (ROOT / "requirements-dev.lock").write_text("\n".join([about, *lock_lines(report)]) + "\n")
