"""A rehearsed collection: simulated workers at real pages, and every figure recomputed from their log.

    python -m benchmarks.rehearsal [--classes 20] [--workers 100] ...

See ``scripts/rehearsal.py``. It ends with an error if a figure differs from that of the log.
"""

from __future__ import annotations

import argparse
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
    parser.add_argument("--dry", action="store_true", help="write nothing")
    options = parser.parse_args()
    load = load_before()
    size = Size(**{name: getattr(options, name) for name in vars(MEDIUM)})
    lines = []

    def say(text: str) -> None:
        lines.append(f"- {text}")
        print(text, flush=True)

    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        log = rehearse(size, Path(folder) / "rehearsal", say=say)
    seconds = time.perf_counter() - started
    waits = np.percentile(log.waits, [50, 99])
    text = (
        f"{size.classes} classes with {size.candidates} candidates and {size.references} references each, "
        f"{size.workers} simulated workers, {size.annotators} per grid, {size.threads} at a time, on SQLite: "
        f"{seconds:.0f} s, load average {load}. The page of a grid took {1000 * waits[0]:.0f} ms, at the 99th "
        f"percentile {1000 * waits[1]:.0f} ms. What the rehearsal says:\n\n" + "\n".join(lines)
    )
    print(text)
    if not options.dry:
        data = {"size": vars(size), "seconds": seconds, "answers": len(log.answers), "waits": waits.tolist()}
        save("rehearsal", "A rehearsed collection", data, text)


if __name__ == "__main__":
    main()
