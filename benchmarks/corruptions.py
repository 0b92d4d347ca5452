"""Every corruption and severity at 224 px: ours against imagecorruptions-imaug, one process on one core each.

python -m benchmarks.corruptions [--quick]

The peer is installed into an environment of its own (benchmarks/.env-imaug), because its dependencies and its
module name would clash with others. Both sides get the same number of repeats, in rounds that alternate, and
the least time of each counts, which other load on the machine disturbs the least; the load is reported.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.page import save, table
from shiftbench.arrays import Pixels
from shiftbench.shifts.corruptions.api import Corruption
from shiftbench.shifts.corruptions.catalogue import corruptions

HERE = Path(__file__).parent
PEER = HERE / ".env-imaug"
PEER_PACKAGE = "imagecorruptions-imaug==1.1.5"
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA", "NUMEXPR", "VECLIB_MAXIMUM")}
#: The project's goal for the 15 benchmark corruptions together, one core, mean over severities.
GOAL_MS = 15.0

_PHOTOGRAPH = """
import sys, numpy as np
from PIL import Image
from skimage import data
picture = Image.fromarray(data.astronaut()).resize((256, 256), Image.BILINEAR).crop((16, 16, 240, 240))
np.save(sys.argv[1], np.array(picture))
"""

_PEER_TIMES = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import cv2, numpy as np
from imagecorruptions import corrupt
cv2.setNumThreads(1)
image, names, repeats = np.load(sys.argv[1]), sys.argv[3].split(","), int(sys.argv[4])
times = {}
for name in names:
    times[name] = []
    for severity in range(1, 6):
        try:
            corrupt(image, severity=severity, corruption_name=name)
            best = float("inf")
            for _ in range(repeats):
                begin = time.perf_counter()
                corrupt(image, severity=severity, corruption_name=name)
                best = min(best, time.perf_counter() - begin)
            times[name].append(1e3 * best)
        except Exception as error:
            print(name, severity, type(error).__name__, error, file=sys.stderr)
            times[name].append(None)
json.dump(times, open(sys.argv[2], "w"))
"""

_FIRST_CALLS = """
import time
begin = time.perf_counter()
import numpy as np
from shiftbench.shifts.corruptions.api import corrupt
from shiftbench.shifts.corruptions.catalogue import corruptions
image = np.zeros((224, 224, 3), np.uint8)
for name in corruptions("all"):
    corrupt(image, name, 3)
print(time.perf_counter() - begin)
"""


def peer_python() -> Path:
    """The peer's interpreter; its environment is built on the first run."""
    python = PEER / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not (PEER / "complete").exists():
        print(f"building the peer's environment in {PEER}", flush=True)
        venv.create(PEER, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "-q", PEER_PACKAGE, "setuptools<81"], check=True)
        (PEER / "complete").touch()
    return python


def on_one_core(command: list[str | Path], **more: str) -> str:
    """Run a program on one core with one thread, and return what it prints."""
    core = max(os.sched_getaffinity(0))
    done = subprocess.run(
        command,
        env={**os.environ, **ONE_THREAD, **more},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    return done.stdout


def our_times(image: Pixels, repeats: int) -> dict[str, list[float]]:
    """Milliseconds of the fast seeded path, by corruption and severity."""
    import cv2

    cv2.setNumThreads(1)
    times: dict[str, list[float]] = {}
    for name in corruptions("all"):
        times[name] = []
        for severity in range(1, 6):
            shift = Corruption(name, severity, {"frost_textures": "procedural"} if name == "frost" else {})
            shift(image, image_id="warm-up", seed=0)
            best = float("inf")
            for i in range(repeats):
                begin = time.perf_counter()
                shift(image, image_id=str(i), seed=0)
                best = min(best, time.perf_counter() - begin)
            times[name].append(1e3 * best)
    return times


def work(image: Pixels, rounds: int, worker: int) -> int:
    """The 15 corruptions at all severities, ``rounds`` times; how many images were made."""
    import cv2

    cv2.setNumThreads(1)
    made = 0
    for i in range(rounds):
        for name in corruptions():
            for severity in range(1, 6):
                options = {"frost_textures": "procedural"} if name == "frost" else {}
                Corruption(name, severity, options)(image, image_id=f"{worker}-{i}", seed=0)
                made += 1
    return made


def throughput(image: Pixels, rounds: int) -> dict[str, float]:
    """Images per second with one worker, two threads and two processes, all warmed up."""
    rates = {}
    pools: dict[str, tuple[Any, int]] = {
        "1 worker": (ThreadPoolExecutor(1), 1),
        "2 threads": (ThreadPoolExecutor(2), 2),
        "2 processes": (ProcessPoolExecutor(2), 2),
    }
    for name, (pool, workers) in pools.items():
        with pool:
            list(pool.map(work, [image] * workers, [1] * workers, range(workers)))
            best = 0.0
            for _ in range(3):
                begin = time.perf_counter()
                made = sum(pool.map(work, [image] * workers, [rounds] * workers, range(workers)))
                best = max(best, made / (time.perf_counter() - begin))
            rates[name] = best
    return rates


def first_call() -> float:
    """Seconds of a new process for one call of all 19; nothing is compiled at run time."""
    return min(float(on_one_core([sys.executable, "-c", _FIRST_CALLS])) for _ in range(3))


def measure(quick: bool) -> dict[str, Any]:
    python, repeats = peer_python(), "2" if quick else "6"
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        photograph, times = Path(folder) / "photograph.npy", Path(folder) / "times.json"
        on_one_core([python, "-c", _PHOTOGRAPH, photograph])
        sides: dict[str, list[str | Path]] = {
            "ours_ms": [sys.executable, "-m", "benchmarks.corruptions", "--times", photograph, times, repeats],
            "peer_ms": [python, "-c", _PEER_TIMES, photograph, times, ",".join(corruptions("all")), repeats],
        }
        rounds: dict[str, list[dict[str, list[float | None]]]] = {side: [] for side in sides}
        for _ in range(1 if quick else 2):
            for side, command in sides.items():
                on_one_core(command)
                rounds[side].append(json.loads(times.read_text()))
        return {
            **{side: least(found) for side, found in rounds.items()},
            "images_per_second": throughput(np.load(photograph), 1 if quick else 3),
            "first_call_s": None if quick else first_call(),
            "load": [load, os.getloadavg()[0]],
        }


def least(rounds: list[dict[str, list[float | None]]]) -> dict[str, list[float | None]]:
    """The least time over the rounds; None where the peer failed."""
    return {
        name: [
            None if any(t is None for t in times) else min(t for t in times if t is not None)
            for times in zip(*(found[name] for found in rounds), strict=True)
        ]
        for name in rounds[0]
    }


def report(found: dict[str, Any]) -> str:
    rows, totals = [], {"ours": 0.0, "peer": 0.0}
    for name in corruptions("all"):
        ours, peer = found["ours_ms"][name], found["peer_ms"][name]
        known = [t for t in peer if t is not None]
        mean, theirs = float(np.mean(ours)), float(np.mean(known)) if known else float("nan")
        if name in corruptions():
            totals["ours"] += mean
            totals["peer"] += theirs
        cells = [f"{a:.2f}" for a in ours]
        rows.append((name, *cells, f"**{mean:.2f}**", f"{theirs:.1f}", f"{theirs / mean:.1f}x"))
    ratio = totals["peer"] / totals["ours"]
    rows.append(
        ("**the 15 together**", *[""] * 5, f"**{totals['ours']:.2f}**", f"{totals['peer']:.1f}", f"{ratio:.1f}x")
    )
    rates = found["images_per_second"]
    one = rates["1 worker"]
    speed = [(name, f"{rate:.0f}", f"{rate / one:.2f}x") for name, rate in rates.items()]
    text = (
        "Milliseconds for one 224 x 224 photograph on one core: severities 1 to 5 and their mean, the mean of "
        f"{PEER_PACKAGE.replace('==', ' ')} (the fastest peer that runs all 19 today), and the ratio. "
        f"The goal is {GOAL_MS:.0f} ms for the 15 of the benchmark together.\n\n"
    )
    busy = max(found["load"]) - 1
    if busy > 0.5:
        text += (
            f"**The machine was busy with other work meanwhile (load {max(found['load']):.1f} on {os.cpu_count()} "
            "cores): least times are still telling, the scaling to two workers is not.**\n\n"
        )
    text += table(("", "1", "2", "3", "4", "5", "mean", "peer", "ratio"), rows)
    text += "\n\nCorrupted images per second (15 corruptions, all severities):\n\n"
    text += table(("", "images/s", "against one"), speed)
    if found["first_call_s"]:
        text += f"\n\nThe first call of all 19 in a new process takes {found['first_call_s']:.1f} s, imports included."
    return text


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="fewer repeats, no first call")
    arguments.add_argument("--times", nargs=3, help=argparse.SUPPRESS)
    chosen = arguments.parse_args()
    if chosen.times:  # the measuring process that this script starts on one core
        photograph, result, repeats = chosen.times
        Path(result).write_text(json.dumps(our_times(np.load(photograph), int(repeats))))
        return
    found = measure(chosen.quick)
    markdown = report(found)
    save("corruptions", "Corruptions", found, markdown)
    print(markdown)


if __name__ == "__main__":
    main()
