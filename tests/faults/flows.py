"""What is interrupted: each flow has a state to begin with, a step that fails, and what must be there in the end.

A step is repeated after its failure, and then gives what it gives without one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Flow(NamedTuple):
    """All but the modules, which are imported once for all runs, take the folder."""

    modules: tuple[str, ...]
    prepare: Callable[[Path], None]
    step: Callable[[Path], None]
    outcome: Callable[[Path], object]


def _files(folder: Path, pattern: str) -> dict[str, str]:
    # A killed writer leaves its temporary file, which `store compact` removes; the driver checks all other failures.
    found = (path for path in sorted(folder.rglob(pattern)) if path.is_file() and path.suffix != ".tmp")
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def _colours(root: Path) -> None:
    from tests.runs.helpers import colour_folder

    colour_folder(root / "data", per_class=2, size=32)


def _evaluate(root: Path) -> None:
    from tests.runs.test_evaluate import run_small

    options = {"corruptions": ("contrast",), "severities": (3,), "workers": 1}
    run_small(root / "data", root / "w", **options)  # type: ignore[arg-type]


def _evaluated(root: Path) -> object:
    import shiftbench as sb
    from shiftbench.store.maintenance import verify

    run = sb.Run.open(root / "w")
    damage = [one for one in verify(run.workspace) if not one.file.startswith("runs")]
    scores = [(model, setting, score.value, score.n) for model, setting, score in run.scores("top1")]
    return damage, scores, _files(root / "w" / "predictions", "*.parquet"), _files(root / "w" / "datasets", "*")


def _corrupt(root: Path) -> None:
    from shiftbench.shifts.write import write_corruptions

    write_corruptions(root / "data", root / "out", names=("contrast",), severities=(1,), workers=1)


def _corrupted(root: Path) -> object:
    return _files(root / "out", "*")


def _project(root: Path) -> None:
    from shiftbench.testsets.project import Project
    from tests.testsets.helpers import PETS, small_configuration

    Project.create(root / "p", small_configuration(), database="sqlite")
    for number, name in enumerate(PETS.keys):
        _picture(root / "pets" / name / "a.png", number)
        _picture(root / "pets" / name / "b.png", number + 10)


def _picture(path: Path, seed: int) -> None:
    from PIL import Image

    from tests.outputs.helpers import scene

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(scene(seed)).save(path)


def _import(root: Path) -> None:
    from shiftbench.testsets.pool.entries import import_images
    from shiftbench.testsets.project import Project

    import_images(Project.open(root / "p"), root / "pets")


def _imported(root: Path) -> object:
    from shiftbench.testsets.pool.entries import pool_dataset
    from shiftbench.testsets.project import Project

    dataset = pool_dataset(Project.open(root / "p"), "candidate")
    return sorted(dataset.ids), dataset.fingerprint


def _sampled(root: Path) -> None:
    from shiftbench.testsets.project import Project
    from shiftbench.testsets.revisions import sample
    from shiftbench.testsets.sampling import make_sampling
    from tests.testsets.helpers import annotators, by_share, fill, small_configuration, work

    project = Project.create(root / "p", small_configuration(), database="sqlite")
    fill(project)
    work(project, annotators(project, 3), by_share)
    sample(project, "easy", make_sampling("threshold", threshold=0.3, min_annotations=3), per_class=3)


def _freeze(root: Path) -> None:
    from shiftbench.testsets.errors import FrozenError
    from shiftbench.testsets.freeze import freeze, require_frozen
    from shiftbench.testsets.project import Project

    project = Project.open(root / "p")
    try:
        freeze(project, "easy", allow=("unreviewed", "unsearched"))
    except FrozenError:  # the failure came after the last step
        require_frozen(project, "easy")


def _frozen(root: Path) -> object:
    from shiftbench.testsets.freeze import require_frozen
    from shiftbench.testsets.project import Project

    frozen = require_frozen(Project.open(root / "p"), "easy")
    names = (path.name for path in (root / "p" / "frozen").iterdir())
    return frozen.fingerprint, sorted(name for name in names if not name.startswith("."))  # a killed freeze is kept


def _train(root: Path) -> None:

    from shiftbench.datasets.catalogue import open_dataset
    from shiftbench.hardening.recipe import load_recipe
    from shiftbench.hardening.training.train import train

    small = ['architecture={name="resnet-20", depth=8, width=4}', 'data.validation=""', "train.batch_size=3"]
    recipe = load_recipe("cifar-standard", [*small, "train.epochs=2"])
    data = open_dataset(root / "data", space="folders")
    train(recipe, root / "out", data=data, progress=False, name="net", device="cpu")


def _trained(root: Path) -> object:
    return _files(root / "out", "model.safetensors")


FLOWS = {
    "evaluation": Flow(("shiftbench.store.maintenance", "tests.runs.test_evaluate"), _colours, _evaluate, _evaluated),
    "corrupt": Flow(("shiftbench.shifts.write", "tests.runs.helpers"), _colours, _corrupt, _corrupted),
    "import": Flow(("tests.testsets.helpers",), _project, _import, _imported),
    "freeze": Flow(("shiftbench.testsets.freeze", "tests.testsets.helpers"), _sampled, _freeze, _frozen),
    "training": Flow(("shiftbench.hardening.training.train", "tests.runs.helpers"), _colours, _train, _trained),
}
