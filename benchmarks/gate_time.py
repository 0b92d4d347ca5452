"""Wall time of a gate on the demo's ResNet-8: on the full grid, by one pass, and with a limit of forward passes.

    python -m benchmarks.gate_time [--per-class 20]

The candidate is the network with its logits rounded. Every gate has a workspace of its own, in which the baseline was
evaluated before, and decides the default policy; all of them run one after the other on the same images.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.page import load_before, save, table

_MODELS = """
import numpy as np
import shiftbench as sb


def candidate():
    network = sb.load_classifier("demo:resnet8-cifar10", threads=1)

    def rounded(images):
        return np.round(2 * network.scores(images)) / 2

    return rounded
"""

_NAMES = {
    "full": "full grid, as before",
    "one-pass": "`--design one-pass`",
    "passes": "`--passes 2000`",
}


def _shiftbench(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "shiftbench", *map(str, arguments), "--quiet"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _gate(folder: Path, kind: str, data: list[object]) -> dict[str, Any]:
    design: list[object] = ["--design", "one-pass"] if kind == "one-pass" else []
    workspace = folder / kind
    baseline = folder / f"{kind}.parquet"
    pinned = _shiftbench("gate", "pin", "demo:resnet8-cifar10", *data, *design, "-w", workspace, "-o", baseline)
    if pinned.returncode:
        raise RuntimeError(pinned.stderr)
    limit: list[object] = ["--passes", 2000] if kind == "passes" else []
    began = time.monotonic()
    judged = _shiftbench(
        "gate",
        f"{folder / 'models.py'}:candidate",
        "--against",
        baseline,
        *data,
        *limit,
        "-w",
        workspace,
        "--json",
    )
    seconds = time.monotonic() - began
    result = json.loads(judged.stdout)
    return {"kind": kind, "seconds": seconds, "verdict": result["verdict"], "images": result["images"]}


def main(per_class: int) -> None:
    load = load_before()
    data: list[object] = ["--data", "cifar-10-test", "--per-class", per_class]
    folder = Path(tempfile.mkdtemp())
    rows = []
    try:
        (folder / "models.py").write_text(_MODELS)
        for kind in _NAMES:
            rows.append(_gate(folder, kind, data))
            print(rows[-1], flush=True)
    finally:
        shutil.rmtree(folder)
    images = 10 * per_class
    passes = {"full": 76 * images, "one-pass": 2 * images}
    shown = []
    for row in rows:
        count = passes.get(row["kind"], row["images"])
        shown.append([_NAMES[row["kind"]], f"{count:,}", f"{row['seconds']:.1f}", row["verdict"]])
    text = (
        f"The demo's ResNet-8 with rounded logits against the network itself, on {images} test images of CIFAR-10 "
        "under 15 corruptions at 5 severities; the default policy. The baseline was evaluated before; a gate "
        f"evaluates the candidate, in a process of its own. Load {load}.\n\n"
        + table(["gate", "forward passes", "seconds", "verdict"], shown)
    )
    save("gate_time", "Wall time of a gate", rows, text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--per-class", type=int, default=20)
    main(parser.parse_args().per_class)
