"""Beyond one machine: a billion predictions in the store, and the Ray engine against the local ones.

python -m benchmarks.scale [--models 100 --settings 200 --images 50000] [--only store|engines|readers] [--folder DIR]

The billion needs 3 GB in ``--folder`` and some minutes. Every query runs in a process of its own, so that its
peak memory is its own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.page import peak_memory_mb, save, saved, table
from shiftbench.labels import label_space
from shiftbench.store.prediction_files import PredictionBlock, write_block
from shiftbench.store.spec import Json, ResultSpec
from shiftbench.store.workspace import Result, Workspace, space_key

CLASSES = 1000
#: How much of it the slow baseline gets; its figures are extrapolated, and marked so.
CSV_CELLS = 10
_CONFUSIONS = 5


@dataclass(frozen=True)
class Size:
    models: int
    settings: int
    images: int

    @property
    def results(self) -> int:
        return self.models * self.settings

    @property
    def predictions(self) -> int:
        return self.results * self.images


# -- a synthetic testbed -------------------------------------------------------------------------------------


def labels_of(images: int) -> NDArray[np.int32]:
    """Sorted by class, as folders are."""
    return np.sort(np.arange(images) % CLASSES).astype(np.int32)


def synthetic(rng: np.random.Generator, labels: NDArray[np.int32], ease: NDArray[np.float64]) -> PredictionBlock:
    """Like a real classifier: right with the probability that ``ease`` says, else mostly at a class's neighbours."""
    right = rng.random(len(labels)) < 1 / (1 + np.exp(-ease))
    neighbours = (labels + rng.integers(1, _CONFUSIONS + 1, len(labels))) % CLASSES
    wrong = np.where(rng.random(len(labels)) < 0.7, neighbours, rng.integers(0, CLASSES, len(labels)))
    # Surer where it is easy, and surer when right: both as in real networks, neither exactly.
    logit = 0.8 * ease + np.where(right, 1.0, -0.7) + rng.normal(0, 1, len(labels))
    top = np.where(right, labels, wrong).astype(np.int32)
    return PredictionBlock(top[:, None], (1 / (1 + np.exp(-logit))).astype(np.float32))


def write_model(root: Path, size: Size, model: int) -> tuple[float, list[int]]:
    """All settings of one model; (seconds of writing, how many are right in each setting)."""
    workspace, space = Workspace(root), space_key(label_space("imagenet-1k"))
    labels, rng = labels_of(size.images), np.random.default_rng([size.images, model])
    hard = np.random.default_rng(0).normal(0, 1.5, size.images)
    skill = 0.5 + 2.5 * model / size.models
    writing, hits = 0.0, []
    for setting in range(size.settings):
        block = synthetic(rng, labels, skill - 3 * setting / size.settings - hard)
        hits.append(int((block.top[:, 0] == labels).sum()))
        spec = _spec(model, setting, size.images, space)
        begin = time.perf_counter()
        result = Result(f"model-{model:04d}", f"setting-{setting:04d}", spec)
        write_block(workspace.predictions_path(result), block, spec, "benchmark")
        writing += time.perf_counter() - begin
    return writing, hits


def _spec(model: int, setting: int, images: int, space: str) -> ResultSpec:
    """As long as a real one."""
    provenance = f"setting-{setting:04d}; val ({images} images, 00000000); over imagenet-1k (1000); seed 0"
    crop: dict[str, Json] = {
        "resize": 256,
        "crop": 224,
        "resize_rule": "shorter",
        "interpolation": "bilinear",
        "antialias": True,
    }
    value: dict[str, Json] = {
        "classifier": {"classifier": f"model-{model:04d}", "fingerprint": "0" * 32, "geometry": crop, "scale": [0, 1]},
        "dataset": {"name": "val", "fingerprint": "0" * 32},
        "images": images,
        "geometry": crop,
        "shift": {"shift": "synthetic", "number": setting, "generator": "shiftbench-1", "seed": 0},
        "source": "in-memory",
        "space": space,
        "reference": "val",
        "metric": "top1",
        "provenance": provenance,
        "family": provenance,
    }
    return ResultSpec.from_json(value)


def fill(root: Path, size: Size) -> dict[str, float]:
    """Write the testbed; how many are right in each result is kept aside, to hold the scores against."""
    workspace, space, labels = Workspace(root), label_space("imagenet-1k"), labels_of(size.images)
    ids = [f"{space.keys[label]}/ILSVRC2012_val_{i:08d}.JPEG" for i, label in enumerate(labels)]
    workspace.record_dataset("val", "0" * 32, space, ids, labels, {})
    begin = time.perf_counter()
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        done = list(pool.map(write_model, [root] * size.models, [size] * size.models, range(size.models)))
    np.save(root.parent / "hits.npy", np.array([hits for _, hits in done]))
    return {"wall_s": time.perf_counter() - begin, "writing_s": sum(seconds for seconds, _ in done)}


# -- queries, each in a process of its own --------------------------------------------------------------------


def stage_catalogue(root: Path) -> dict[str, Any]:
    return {"results": Workspace(root).write_catalogue()}


def stage_stats(root: Path) -> dict[str, Any]:
    from shiftbench.store.maintenance import workspace_stats

    return workspace_stats(Workspace(root)).as_dict()


def stage_verify(root: Path) -> dict[str, Any]:
    from shiftbench.store.maintenance import verify

    return {"damaged": len(list(verify(Workspace(root))))}


def stage_scores(root: Path) -> dict[str, Any]:
    """All accuracies with intervals, against what was written."""
    from shiftbench.api import Run

    scores = Run.open(root).scores("top1")
    hits = np.load(root.parent / "hits.npy").reshape(-1)
    found = np.array([round(score.value * score.n) for _, _, score in scores])
    return {"scores": len(scores), "agree": bool(np.array_equal(found, hits))}


def stage_model(root: Path) -> dict[str, Any]:
    """One model in all settings."""
    from shiftbench.api import Run

    return {"scores": len(Run.open(root, ["model-0000"]).scores("top1"))}


def stage_image(root: Path) -> dict[str, Any]:
    """One image over all models, in one setting."""
    return {"rows": _export_one(root, ["setting-0000"])}


def stage_image_everywhere(root: Path) -> dict[str, Any]:
    """One image over all models and all settings."""
    return {"rows": _export_one(root, [])}


def _export_one(root: Path, settings: list[str]) -> int:
    from shiftbench.store.export import export_table

    workspace = Workspace(root)
    results = list(workspace.results((), settings))
    dataset = results[0].spec.dataset
    image = workspace.dataset(dataset.name, dataset.fingerprint).ids[7]
    return export_table(workspace, root.parent / "one.csv", results, images=[image])


STAGES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "scores, no catalogue": stage_scores,
    "catalogue": stage_catalogue,
    "stats": stage_stats,
    "verify": stage_verify,
    "scores": stage_scores,
    "model": stage_model,
    "image": stage_image,
    "image everywhere": stage_image_everywhere,
}


def in_own_process(stage: str, root: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.scale", "--stage", stage, "--folder", str(root)]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def run_stage(stage: str, root: Path) -> None:
    begin = time.perf_counter()
    found = STAGES[stage](root)
    print(json.dumps({**found, "seconds": time.perf_counter() - begin, "peak_mb": peak_memory_mb()}))


def csv_baseline(root: Path, results: int) -> dict[str, float]:
    """One CSV a result, as most scripts keep them: extrapolated to all results."""
    import pandas as pd

    folder, workspace = root.parent / "csv", Workspace(root)
    folder.mkdir()
    chosen = list(workspace.results(["model-0000"]))[:CSV_CELLS]
    factor, writing = results / len(chosen), 0.0
    for i, result in enumerate(chosen):
        own = workspace.read(result)
        frame = pd.DataFrame(
            {"image": own.ids, "label": own.labels, "prediction": own.top[:, 0], "confidence": own.confidence}
        )
        begin = time.perf_counter()
        frame.to_csv(folder / f"{i}.csv", index=False)
        writing += time.perf_counter() - begin
    size = sum(path.stat().st_size for path in folder.iterdir())
    begin = time.perf_counter()
    for path in folder.iterdir():
        frame = pd.read_csv(path)
        (frame.label == frame.prediction).mean()
    return {"write_s": writing * factor, "bytes": size * factor, "query_s": (time.perf_counter() - begin) * factor}


def store_benchmark(size: Size, folder: Path | None) -> dict[str, Any]:
    place = Path(tempfile.mkdtemp(prefix="shiftbench-scale-", dir=folder))
    try:
        root = place / "workspace"
        written = fill(root, size)
        stages = {stage: in_own_process(stage, root) for stage in STAGES}
        peer = csv_baseline(root, size.results)
        on_disk = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return {
        "size": {"models": size.models, "settings": size.settings, "images": size.images},
        "predictions": size.predictions,
        "bytes": on_disk,
        "write": written,
        "stages": stages,
        "csv": peer,
    }


def store_markdown(data: dict[str, Any]) -> str:
    size, stages, peer = data["size"], data["stages"], data["csv"]
    n = data["predictions"]

    def line(title: str, stage: str, against: str = "-") -> tuple[str, str, str, str]:
        found = stages[stage]
        return (title, f"{found['seconds']:.2f} s", f"{found['peak_mb']:.0f} MB", against)

    rows = [
        ("write (seconds of one core)", f"{data['write']['writing_s']:.1f} s", "-", f"{peer['write_s']:.0f} s *"),
        ("on disk", f"{data['bytes'] / 1e9:.3f} GB, {data['bytes'] / n:.2f} bytes per row", "-", _gb(peer["bytes"])),
        line("all accuracies with intervals, digests verified", "scores", f"{peer['query_s']:.0f} s *"),
        line("the same, without the catalogue", "scores, no catalogue"),
        line("every column of every file verified", "verify"),
        line("statistics of the workspace", "stats"),
        line("one model in all settings", "model"),
        line("one image over all models, one setting", "image"),
        line("one image over all models and settings", "image everywhere"),
    ]
    agree = stages["scores"]["agree"] and stages["scores, no catalogue"]["agree"] and not stages["verify"]["damaged"]
    return (
        f"{n:,} synthetic predictions: {size['models']} models x {size['settings']} settings x {size['images']:,} "
        "images, top-1 class and confidence (the five best classes take about twice as much). Every count of right "
        f"answers equals what was written: {'yes' if agree else 'NO'}. Each line is a process of its own.\n\n"
        + table(("", "time or size", "peak memory", "CSV + pandas"), rows)
        + f"\n\n\\* measured on {CSV_CELLS} results and extrapolated. Making and writing the numbers took "
        f"{data['write']['wall_s']:.0f} s on two processes."
    )


def _gb(count: float) -> str:
    return f"{count / 1e9:.2f} GB *"


# -- engines --------------------------------------------------------------------------------------------------


def engines_benchmark(severities: tuple[int, ...], repeats: int) -> dict[str, Any]:
    """A real network on real photographs: the same run by threads, processes and Ray on the same cores."""
    import ray

    from shiftbench.jobs.ray_executor import RayExecutor

    engines: dict[str, tuple[Any, int | None]] = {
        "threads, 1": ("threads", 1),
        "threads, 2": ("threads", 2),
        "processes, 2": ("processes", 2),
        "ray, 1": (RayExecutor(workers=1), None),
        "ray, 2": (RayExecutor(workers=2), None),
    }
    # Started before the clock: a cluster is there already.
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        _timed_run("threads", 2, severities[:1])  # compiles and caches what the first run would pay for
        # Interleaved, so that a change of the machine's load hits all engines alike.
        runs = [
            {name: _timed_run(engine, workers, severities) for name, (engine, workers) in engines.items()}
            for _ in range(repeats)
        ]
    finally:
        ray.shutdown()
    seconds = {name: min(run[name][0] for run in runs) for name in engines}
    predictions, blocks = runs[0]["threads, 1"][1:]
    return {"seconds": seconds, "predictions": predictions, "blocks": blocks, "repeats": repeats}


def _timed_run(
    engine: Any, workers: int | None, severities: tuple[int, ...], classifier: Any = "demo:squeezenet1_1"
) -> tuple[float, int, int]:
    import shiftbench as sb
    from shiftbench.runs.plan import block_count

    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        run = sb.evaluate(
            classifier,
            "corruptions",
            "demo",
            folder,
            severities=severities,
            executor=engine,
            workers=workers,
            progress=False,
        )
        seconds = time.perf_counter() - begin
        images = run.results[0].spec.images
        return seconds, images * len(run.results), block_count(images)


def engines_markdown(data: dict[str, Any]) -> str:
    seconds, n = data["seconds"], data["predictions"]
    rows = [
        (name, f"{own:.1f} s", f"{n / own:.0f}/s", f"{own / seconds['threads, ' + name[-1]] - 1:+.0%}")
        for name, own in seconds.items()
    ]
    each = seconds["threads, 1"] / data["blocks"]
    return (
        f"{n:,} predictions of demo:squeezenet1_1 on the demo photographs under corruptions, in {data['blocks']} "
        f"blocks of about {each:.0f} s; best of {data['repeats']}. Ray was running already; its workers start and "
        "load the classifier within the time.\n\n"
        + table(("engine, workers", "time", "predictions", "against threads"), rows)
    )


# -- readers --------------------------------------------------------------------------------------------------

#: Images per second of the stand-in for a GPU.
_ANSWERS = 2500


class StandIn:
    """What a worker sees of a GPU: one batch at a time, each for a while in which the processor is free."""

    def __init__(self) -> None:
        self._turn = threading.Lock()

    def __reduce__(self) -> Any:
        return StandIn, ()

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        with self._turn:
            time.sleep(len(images) / _ANSWERS)
        return images.reshape(len(images), -1)[:, :CLASSES].astype(np.float32)


def readers_benchmark(severities: tuple[int, ...], repeats: int) -> dict[str, Any]:
    """Does it pay to have pictures made ready by another? For a stand-in for a GPU, and for a network on the cores."""
    import ray

    import shiftbench as sb
    from shiftbench.jobs.ray_executor import RayExecutor, Resources

    stand_in = sb.load_classifier(
        StandIn(), labels="imagenet-1k", name="stand-in", preprocessing=sb.Preprocessing(sb.Geometry(256, 224))
    )
    ways: dict[str, tuple[Any, Any]] = {
        "simulated GPU: a worker of 1 CPU": (stand_in, RayExecutor(workers=1)),
        "simulated GPU: a worker of 2 CPUs": (stand_in, RayExecutor(workers=1, resources=Resources(cpus=2))),
        "simulated GPU: a worker and a reader of 1 CPU": (stand_in, RayExecutor(workers=1, reader_cpus=1)),
        "network: two workers": ("demo:squeezenet1_1", RayExecutor(workers=2)),
        "network: a worker and a reader of 1 CPU": ("demo:squeezenet1_1", RayExecutor(workers=1, reader_cpus=1)),
    }
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        _timed_run("threads", 2, severities[:1])
        runs = [
            {
                name: (
                    _timed_run(engine, None, severities[:1], classifier),
                    _timed_run(engine, None, severities, classifier),
                )
                for name, (classifier, engine) in ways.items()
            }
            for _ in range(repeats)
        ]
    finally:
        ray.shutdown()
    (_, fewer, _), (_, more, _) = next(iter(runs[0].values()))
    seconds = {name: min(run[name][1][0] for run in runs) - min(run[name][0][0] for run in runs) for name in ways}
    return {"seconds": seconds, "predictions": more - fewer, "repeats": repeats}


def readers_markdown(data: dict[str, Any]) -> str:
    seconds, n = data["seconds"], data["predictions"]
    first = {name.split(":")[0]: own for name, own in reversed(seconds.items())}
    rows = [
        (name, f"{own:.1f} s", f"{n / own:.0f}/s", f"{own / first[name.split(':')[0]]:.2f}x")
        for name, own in seconds.items()
    ]
    return (
        f"Readers on Ray, which decode and shift images for the workers of their machine: {n:,} predictions on the "
        f"demo photographs under corruptions, as the difference of a long and a short run, so that starting workers "
        f"does not count; best of {data['repeats']}. The simulated GPU returns {_ANSWERS:,} images per second, one "
        f"batch at a time, without using the processor ({n / _ANSWERS:.1f} s in all); there is no GPU here. Where the "
        "network itself needs the cores, a reader takes one from it.\n\n"
        + table(("model: workers", "time", "predictions", "relative to the first"), rows)
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--models", type=int, default=100)
    arguments.add_argument("--settings", type=int, default=200)
    arguments.add_argument("--images", type=int, default=50_000)
    arguments.add_argument("--only", choices=["store", "engines", "readers"])
    arguments.add_argument("--severities", default="1,3,5", help="Of the engines' run; fewer make it shorter.")
    arguments.add_argument("--repeats", type=int, default=2)
    arguments.add_argument("--folder", type=Path, help="Where the synthetic workspace is made, and removed.")
    arguments.add_argument("--stage", choices=list(STAGES), help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.stage:
        run_stage(given.stage, given.folder)
        return
    data = saved("scale")
    if given.only in (None, "store"):
        data["store"] = store_benchmark(Size(given.models, given.settings, given.images), given.folder)
    severities = tuple(int(one) for one in given.severities.split(","))
    if given.only in (None, "engines"):
        data["engines"] = engines_benchmark(severities, given.repeats)
    if given.only in (None, "readers"):
        data["readers"] = readers_benchmark(severities, given.repeats)
    parts = [store_markdown(data["store"])] if "store" in data else []
    parts += [engines_markdown(data["engines"])] if "engines" in data else []
    parts += [readers_markdown(data["readers"])] if "readers" in data else []
    save("scale", "Beyond one machine", data, "\n\n".join(parts))
    print("\n\n".join(parts))


if __name__ == "__main__":
    main()
