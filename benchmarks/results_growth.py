"""How opening a workspace grows with its number of results: `eval` of one more model, `table` and `report`.

python -m benchmarks.results_growth [--models 5,47,204] [--images 1000] [--folder DIR]

The workspaces are synthetic (``benchmarks.synthetic_testbed``): models in the 213 settings of the testbed. Workspaces
that ``--folder`` holds already, as ``DIR/<models>``, are used as they are. Every command runs in a process of its own.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.page import load_before, save, table
from benchmarks.synthetic_testbed import Size, fill

#: The name of the model that `eval` adds; its results are removed before the command runs.
_ADDED = "one-more-model"


@dataclass(frozen=True)
class Measured:
    """One command on one workspace."""

    command: str
    results: int
    wall_s: float
    cpu_s: float
    peak_mb: float

    @property
    def cpu_ms_per_result(self) -> float:
        return 1000 * self.cpu_s / self.results


def commands(workspace: Path, report: Path) -> dict[str, list[str]]:
    """The commands by name, as arguments of ``shiftbench``."""
    added = ["eval", "demo:squeezenet1_1", "--name", _ADDED, "--data", "demo", "--suite", "clean", "--quiet"]
    return {
        "eval, one more model": [*added, "-w", str(workspace)],
        "table": ["table", "-w", str(workspace)],
        "report": ["report", "-w", str(workspace), "-o", str(report), "--quiet"],
    }


def measure(name: str, arguments: list[str], results: int) -> Measured:
    """Run a command in a process of its own; its CPU time and memory are those of this process alone."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "shiftbench", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    if status:
        raise RuntimeError(f"shiftbench {' '.join(arguments)} failed with status {status}")
    return Measured(name, results, wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def measure_workspace(folder: Path, size: Size) -> list[Measured]:
    workspace = folder / str(size.models)
    if not (workspace / "workspace.json").exists():
        fill(workspace, size)
    shutil.rmtree(workspace / "predictions" / _ADDED, ignore_errors=True)
    found = []
    for name, arguments in commands(workspace, folder / "report.html").items():
        found.append(measure(name, arguments, size.results))
        shutil.rmtree(workspace / "predictions" / _ADDED, ignore_errors=True)
        print(found[-1], flush=True)
    return found


def markdown(measured: list[Measured], page_mb: float, load: str) -> str:
    rows = []
    for name in dict.fromkeys(entry.command for entry in measured):
        entries = [entry for entry in measured if entry.command == name]
        for entry in entries:
            rows.append(
                (
                    name,
                    f"{entry.results:,}",
                    f"{entry.wall_s:.1f} s",
                    f"{entry.cpu_s:.1f} s",
                    f"{entry.peak_mb:.0f} MB",
                    f"{entry.cpu_ms_per_result / entries[0].cpu_ms_per_result:.2f}",
                )
            )
    return (
        "Synthetic predictions of 1,000 images in each of the testbed's 213 settings. The ratio is the CPU time per "
        "result against that of the smallest workspace: 1 is linear, more is worse than linear; start-up makes it "
        f"smaller. The page of the largest workspace has {page_mb:.1f} MB. The load of the machine was {load}.\n\n"
        + table(("command", "results", "wall", "CPU", "peak memory", "ratio"), rows)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="5,47,204", help="sizes of the workspaces")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--folder", type=Path, help="keeps the workspaces; default: a temporary folder")
    options = parser.parse_args()
    load = load_before()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        measured: list[Measured] = []
        for models in options.models.split(","):
            measured += measure_workspace(folder, Size(int(models), options.images))
        page_mb = (folder / "report.html").stat().st_size / 1e6
    text = markdown(measured, page_mb, load)
    save("results_growth", "How a workspace grows", [asdict(entry) for entry in measured], text)
    print(text)


if __name__ == "__main__":
    main()
