"""A rehearsed collection: simulated workers at real pages, and every figure recomputed from their log.

    python -m benchmarks.rehearsal [--classes 20] [--workers 100] ...

See ``scripts/rehearsal.py``. It ends with an error if a figure differs from that of the log. ``--folder`` keeps the
project, whose pages can be measured afterwards.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
from scripts.rehearsal import Size, rehearse

from benchmarks.page import load_before, save

MEDIUM = Size(classes=10, candidates=40, references=20, workers=60, annotators=5, grid=24, per_class=8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in vars(MEDIUM).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    parser.add_argument("--folder", type=Path, help="where everything is kept; default: a temporary folder")
    parser.add_argument("--dry", action="store_true", help="write nothing")
    options = parser.parse_args()
    load = load_before()
    size = Size(**{name: getattr(options, name) for name in vars(MEDIUM)})
    lines = []
    started = time.perf_counter()

    def say(text: str) -> None:
        line = f"- after {time.perf_counter() - started:,.0f} s: {text}"
        lines.append(line)
        print(line, flush=True)

    with tempfile.TemporaryDirectory() as temporary:
        log = rehearse(size, options.folder or Path(temporary) / "rehearsal", say=say)
    seconds = time.perf_counter() - started
    cpu_seconds = _cpu_seconds()
    waits = np.percentile(log.waits, [50, 99])
    text = (
        f"{size.classes:,} classes with {size.candidates} candidates and {size.references} references each, "
        f"{size.workers:,} simulated workers, grids of {size.grid} images, {size.annotators} workers per grid, "
        f"{size.threads} at a time, on SQLite. It took {seconds:,.0f} s and {cpu_seconds:,.0f} s of CPU, of the "
        f"workers and the server together, beside other work: load average {load}, {os.getloadavg()[0]:.1f} at the "
        f"end. The page of a grid took {1000 * waits[0]:.0f} ms, at the 99th percentile {1000 * waits[1]:.0f} ms. "
        "What the rehearsal says:\n\n" + "\n".join(lines)
    )
    print(text)
    if not options.dry:
        data = {
            "size": vars(size),
            "seconds": seconds,
            "cpu_seconds": cpu_seconds,
            "answers": len(log.answers),
            "waits": waits.tolist(),
        }
        save("rehearsal", "A rehearsed collection", data, text)


def _cpu_seconds() -> float:
    """The CPU time of this process, and of the server that it ended."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime


if __name__ == "__main__":
    main()
