"""The store at a hundred million predictions: write, bytes per row, all accuracies, against CSV and pandas.

python -m benchmarks.store [--millions 100]
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.page import peak_memory_mb, save, table
from shiftbench.api import Run
from shiftbench.labels import label_space
from shiftbench.store.prediction_files import PredictionBlock, write_block
from shiftbench.store.spec import Json, ResultSpec
from shiftbench.store.workspace import Result, Workspace, space_key

IMAGES = 50_000
CLASSES = 1000
#: How much of it the slow baseline gets; its times are extrapolated, and marked so.
CSV_CELLS = 20


def synthetic(rng: np.random.Generator, labels: NDArray[np.int32], accuracy: float) -> PredictionBlock:
    """Like a real classifier: right in ``accuracy`` of the cases, else one of the class's few confusions."""
    confused = (labels + rng.choice([-1, 1, 2, 7, 40], len(labels))) % CLASSES
    elsewhere = rng.integers(0, CLASSES, len(labels))
    wrong = np.where(rng.random(len(labels)) < 0.7, confused, elsewhere)
    right = rng.random(len(labels)) < accuracy
    confidence = np.where(right, rng.beta(4, 1, len(labels)), rng.beta(2, 3, len(labels)))
    return PredictionBlock(np.where(right, labels, wrong).astype(np.int32)[:, None], confidence.astype(np.float32))


def fill(root: Path, results: int, labels: NDArray[np.int32]) -> tuple[float, float]:
    """Write all results; seconds of writing, seconds of making the synthetic numbers."""
    workspace, space = Workspace(root), label_space("imagenet-1k")
    ids = [f"{space.keys[label]}/ILSVRC2012_val_{i:08d}.JPEG" for i, label in enumerate(labels)]
    workspace.record_dataset("val", "0" * 32, space, ids, labels, {})
    rng = np.random.default_rng(0)
    writing = making = 0.0
    for i in range(results):
        begin = time.perf_counter()
        block = synthetic(rng, labels, rng.uniform(0.2, 0.9))
        made = time.perf_counter()
        spec = _spec(i, space_key(space))
        write_block(workspace.predictions_path(Result(f"m{i % 100:03d}", f"s{i // 100:03d}", spec)), block, spec, "x")
        making += made - begin
        writing += time.perf_counter() - made
    return writing, making


def _spec(i: int, space: str) -> ResultSpec:
    value: dict[str, Json] = {
        "classifier": {"classifier": f"m{i % 100:03d}", "fingerprint": "0" * 16},
        "dataset": {"name": "val", "fingerprint": "0" * 32},
        "space": space,
        "shift": {"shift": "none"},
        "reference": None,
        "metric": "top1",
        "provenance": "synthetic",
    }
    return ResultSpec.from_json(value)


def query_duckdb(root: Path) -> tuple[float, dict[str, float]]:
    import duckdb

    begin = time.perf_counter()
    connection = duckdb.connect()
    labels = root / "datasets" / "val-0000000000000000" / "images.parquet"
    rows = connection.execute(
        f"""
        with truth as (select row_number() over () - 1 as row, label from '{labels}')
        select filename, avg((p.top1 = t.label)::int) from
        read_parquet('{root}/predictions/*/*/*.parquet', filename=true, file_row_number=true) p
        join truth t on p.file_row_number = t.row group by filename
        """
    ).fetchall()
    return time.perf_counter() - begin, dict(rows)


def query_ours(root: Path) -> tuple[float, dict[str, float]]:
    begin = time.perf_counter()
    run = Run.open(root)
    scores = run.scores("top1")
    seconds = time.perf_counter() - begin
    return seconds, {f"{classifier}/{setting}": score.value for classifier, setting, score in scores}


def csv_baseline(folder: Path, root: Path, labels: NDArray[np.int32]) -> tuple[float, float, float]:
    """(write seconds, bytes, query seconds) for a few results as most scripts keep them: one CSV a result."""
    import pandas as pd

    workspace = Workspace(root)
    folder.mkdir()
    results = list(workspace.results())[:CSV_CELLS]
    writing = 0.0
    for i, result in enumerate(results):
        found = workspace.read(result)
        begin = time.perf_counter()
        frame = {
            "image": found.ids,
            "label": labels,
            "prediction": found.top[:, 0],
            "confidence": found.confidence,
        }
        pd.DataFrame(frame).to_csv(folder / f"{i}.csv", index=False)
        writing += time.perf_counter() - begin
    size = sum(path.stat().st_size for path in folder.iterdir())
    begin = time.perf_counter()
    for path in folder.iterdir():
        frame = pd.read_csv(path)
        (frame.label == frame.prediction).mean()
    return writing, size, time.perf_counter() - begin


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--millions", type=int, default=100)
    results = arguments.parse_args().millions * 1_000_000 // IMAGES
    labels = np.arange(CLASSES, dtype=np.int32).repeat(IMAGES // CLASSES)
    folder = Path(tempfile.mkdtemp(prefix="shiftbench-store-"))
    try:
        root = folder / "workspace"
        writing, making = fill(root, results, labels)
        size = sum(path.stat().st_size for path in (root / "predictions").rglob("*.parquet"))
        rows = results * IMAGES
        query, ours = query_ours(root)
        memory = peak_memory_mb()
        duck, theirs = query_duckdb(root)
        agree = max(abs(sorted(ours.values())[i] - sorted(theirs.values())[i]) for i in range(len(ours))) < 1e-12
        csv_write, csv_size, csv_query = csv_baseline(folder / "csv", root, labels)
        factor = results / CSV_CELLS
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    lines = [
        (
            "write",
            f"{writing:.1f} s",
            "-",
            f"{csv_write * factor:.0f} s *",
            f"{csv_write * factor / writing:.0f}x",
        ),
        (
            "bytes per row",
            f"{size / rows:.2f}",
            "-",
            f"{csv_size * factor / rows:.1f} *",
            f"{csv_size * factor / size:.0f}x",
        ),
        (
            "all accuracies (ours: with intervals and digests verified)",
            f"{query:.2f} s",
            f"{duck:.2f} s",
            f"{csv_query * factor:.0f} s *",
            f"{csv_query * factor / query:.0f}x",
        ),
    ]
    markdown = (
        f"{rows:,} synthetic predictions ({results} classifier-setting results of {IMAGES:,} images), top-1 class and "
        f"confidence. Peak memory of our writing and scoring: {memory:.0f} MB. All accuracies equal DuckDB's over "
        f"the same files: {'yes' if agree else 'NO'}. DuckDB reads without verifying anything.\n\n"
        + table(("", "shiftbench", "DuckDB on our files", "CSV + pandas", "gain over CSV"), lines)
        + f"\n\n\\* measured on {CSV_CELLS} results and extrapolated. Making the synthetic numbers took {making:.0f} s "
        "and is not counted."
    )
    data = {
        "rows": rows,
        "write_s": writing,
        "bytes_per_row": size / rows,
        "query_s": query,
        "duckdb_s": duck,
        "agree": agree,
    }
    save("store", "The store", data, markdown)
    print(markdown)


if __name__ == "__main__":
    main()
