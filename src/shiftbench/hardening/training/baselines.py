"""Baselines that are fitted and not trained step by step (004), by a recipe like any other.

``[architecture]`` names the baseline and its options; of the rest of the recipe, ``[data]`` and ``train.seed`` count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from shiftbench.datasets.base import Dataset
from shiftbench.hardening.architectures.baselines import (
    FisherVectorOptions,
    RandomFeatureOptions,
    fit_fisher_vectors,
    fit_random_features,
    save_baseline,
)
from shiftbench.hardening.architectures.baselines.classifier import BaselineClassifier, checked_options
from shiftbench.hardening.classifier import BASELINE, Finished, describe, save_finished
from shiftbench.hardening.errors import RecipeError
from shiftbench.hardening.recipe import Recipe
from shiftbench.hardening.training.checkpoint import refuse_other
from shiftbench.hardening.training.data import open_training_set
from shiftbench.hardening.training.log import read_log, write_log
from shiftbench.hardening.training.loop import Trained


class BaselineKind(NamedTuple):
    options: type[RandomFeatureOptions] | type[FisherVectorOptions]
    fit: Callable[..., BaselineClassifier]


BASELINES = {
    "random-features": BaselineKind(RandomFeatureOptions, fit_random_features),
    "fisher-vectors": BaselineKind(FisherVectorOptions, fit_fisher_vectors),
}


def check_baseline(recipe: Recipe) -> None:
    """Refuse invalid options, and what only step-by-step training could follow."""
    baseline_options(recipe)
    meant = {
        "augmentations": recipe.augmentations,
        "views": recipe.views,
        "batch_augmentations": recipe.batch_augmentations,
        "copies": recipe.copies,
    }
    for key, parts in meant.items():
        if parts:
            raise RecipeError(
                f"{recipe.architecture.name} is fitted once, without augmentations",
                found=f"[[{key}]] with {parts[0].name!r}",
                hint="architecture.flips=true adds mirrored images",
            )


def baseline_options(recipe: Recipe) -> RandomFeatureOptions | FisherVectorOptions:
    """The options of [architecture], for images of the recipe's size."""
    name = recipe.architecture.name
    given = {"size": recipe.data.size, **recipe.architecture.options}
    return checked_options(BASELINES[name].options, given, f"the baseline {name!r}")


def fit_baseline(
    recipe: Recipe, folder: Path, name: str, data: str | Dataset | None, finished: Finished | None, show: bool
) -> Trained:
    dataset = open_training_set(data if data is not None else recipe.data.train, recipe.data)
    if finished is not None:
        refuse_other(folder, finished.recipe, finished.fingerprint, recipe, dataset.fingerprint)
        return Trained(folder, read_log(folder))
    options, fit = baseline_options(recipe), BASELINES[recipe.architecture.name].fit
    began = time.monotonic()
    classifier = fit(dataset, seed=recipe.train.seed, options=options, name=name, show=show)
    save_baseline(classifier, folder / BASELINE)
    log = [{"epoch": 1, "step": 1, "seconds": round(time.monotonic() - began, 3)}]
    write_log(folder, log)
    about = describe(name, recipe, dataset.space, {**dataset.describe(), "with_copies": len(dataset)})
    save_finished(folder, recipe, {**about, "preprocessing": classifier.preprocessing.describe()})
    return Trained(folder, log)
