"""004's follow-ups by recipes: on sets that differ and sets that do not, and by the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from shiftbench.datasets import from_arrays
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import open_named
from shiftbench.datasets.subset import take
from shiftbench.errors import ClassifierError
from shiftbench.hardening.experiments.base import load_experiment, plan_runs
from shiftbench.hardening.followups import ORIGINS, discriminate_by_recipe, train_on_half, trained_by
from shiftbench.hardening.recipe import Recipe, load_recipe
from shiftbench.hardening.training.train import train
from shiftbench.testsets.followups.splits import SplitComparison, cross_validation_splits, measure_splits
from tests.hardening.training.conftest import TINY


@pytest.fixture
def tiny() -> Callable[..., Recipe]:
    return lambda *changes: load_recipe("cifar-standard", [*TINY, "data.sample=0", "train.epochs=2", *changes])


def part(count: int, which: int) -> Dataset:
    """Real images, of which no two parts share any."""
    return take(open_named("cifar-10-test"), range(200 * which, 200 * which + count))


def test_a_network_sees_a_difference_where_there_is_one(tiny: Callable[..., Recipe], tmp_path: Path) -> None:
    recipe = tiny("train.epochs=4", "train.batch_size=16", "augmentations=[]")
    old = part(80, 2)
    images = np.stack([old.read(i).pixels for i in range(80)])
    new = from_arrays(255 - images // 2, old.labels, space="cifar-10")
    brighter = discriminate_by_recipe(part(80, 1), new, recipe, tmp_path, name="r", folds=2)
    assert brighter.sees_a_difference and brighter.n == 2 * (brighter.n // 2)
    runs = sorted(path.name for path in tmp_path.iterdir())
    assert len(runs) == 2 and all(
        json.loads((tmp_path / run / "classifier.json").read_text())["labels"]["keys"] == ["old", "new"] for run in runs
    )


def test_splits_and_halves_by_the_trainer(tiny: Callable[..., Recipe], tmp_path: Path) -> None:
    learnt = part(80, 3)
    original = part(40, 4)
    new = part(40, 5)
    splits = cross_validation_splits(learnt, original, folds=2)
    measured = measure_splits(trained_by(tiny(), tmp_path), learnt, original, splits, new, model="tiny")
    assert [one.test_set for one in measured] == ["original", "split 1", "split 2", "new"]
    assert [one.n for one in measured] == [40, 40, 40, 40] and len(list(tmp_path.iterdir())) == 3
    assert set(SplitComparison(measured).accuracies("tiny")) == {"original", "split 1", "split 2", "new"}
    table = train_on_half(learnt, new, tiny(), tmp_path, draws=1)
    assert [row["n"] for row in table.rows] == [20, 20] and table.rows[0]["change"] is None
    # The network of the whole training set is used again.
    assert len(list(tmp_path.iterdir())) == 4


def test_a_run_starts_from_the_weights_of_another(tiny: Callable[..., Recipe], tmp_path: Path) -> None:
    first = train(tiny("train.epochs=1"), tmp_path / "first", data=part(60, 6), progress=False).folder
    frozen = tiny("train.epochs=1", "optimizer.lr=0.0", f"train.start={first}", "train.batch_size=40")
    origins = from_arrays(np.zeros((40, 32, 32, 3), np.uint8), np.arange(40) % 2, space=ORIGINS)
    recipe = trained_by(frozen, tmp_path / "second")
    recipe(origins)
    (folder,) = (tmp_path / "second").iterdir()
    before = load_file(first / "model.safetensors")
    after = load_file(folder / "model.safetensors")
    assert np.array_equal(before["stem.0.weight"], after["stem.0.weight"])
    assert before["head.linear.weight"].shape == (10, 16) and after["head.linear.weight"].shape == (2, 16)
    with pytest.raises(ClassifierError, match="do not fit"):
        train(tiny(f"train.start={first}", "architecture.width=8"), tmp_path / "third", data=part(60, 6))


def test_the_grid_of_the_paper_has_175_settings(tmp_path: Path) -> None:
    experiment = load_experiment("hyper-parameters")
    variants = experiment.at("paper").variants
    # The values that 004 starts from are one of them.
    assert len(variants) == len({variant.name for variant in variants}) == 7 * 5 * 5
    runs = {run.variant: run.recipe for run in plan_runs(experiment, "tiny", tmp_path)}
    assert len(runs) == 4 and runs["lr=0.05-dropout=0.3-weight_decay=0.001"].optimizer.weight_decay == 1e-3
    assert runs["start"].optimizer.lr == 0.1 and runs["start"].architecture.options["dropout"] == 0.3
