"""What a finished run leaves: a folder that ``hardened:FOLDER`` loads as a classifier like any other.

recipe.toml         the recipe as it was followed
model.safetensors   the weights, without the normalisation
classifier.json     name, classes, preprocessing, what it was trained on
images.npy          a key of each training image, to find those that it is evaluated on
log.jsonl           one line per epoch
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from shiftbench._version import __version__
from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.options import Options
from shiftbench.classifiers.preprocessing import Normalisation, Preprocessing
from shiftbench.classifiers.torch_ import from_module
from shiftbench.datasets.overlap import TrainedOn
from shiftbench.errors import ClassifierError
from shiftbench.hardening.architectures.base import build
from shiftbench.hardening.architectures.baselines import load_baseline
from shiftbench.hardening.recipe import Recipe, load_recipe
from shiftbench.hardening.training.data import evaluation_geometry
from shiftbench.io.atomic import write_atomically, write_bytes, write_json
from shiftbench.io.hashing import digest, file_digest
from shiftbench.io.schema import to_toml
from shiftbench.jobs.blocks import save_array
from shiftbench.labels.space import LabelSpace

RECIPE, WEIGHTS, BASELINE, ABOUT = "recipe.toml", "model.safetensors", "baseline.npz", "classifier.json"
IMAGES = "images.npy"


@dataclass(frozen=True)
class Finished:
    """A finished run's folder, read."""

    folder: Path
    recipe: Recipe
    about: Mapping[str, Any]

    @property
    def fingerprint(self) -> str:
        """Of the images it was trained on."""
        return str(self.about["data"]["fingerprint"])

    @property
    def trained_on(self) -> TrainedOn:
        data, path = self.about["data"], self.folder / IMAGES
        keys = np.load(path, mmap_mode="r", allow_pickle=False) if path.is_file() else None
        return TrainedOn(self.fingerprint, int(data.get("images", 0)), keys, data.get("keys", "content"))

    @property
    def space(self) -> LabelSpace:
        labels = self.about["labels"]
        return LabelSpace(labels["name"], tuple(labels["keys"]), tuple(labels["names"]))


def describe(name: str, recipe: Recipe, space: LabelSpace, data: Mapping[str, object]) -> dict[str, Any]:
    normalisation = Normalisation(mean=recipe.data.mean, std=recipe.data.std)
    return {
        "name": name,
        "architecture": recipe.architecture.name,
        "labels": {"name": space.name, "keys": list(space.keys), "names": list(space.names)},
        "preprocessing": Preprocessing(evaluation_geometry(recipe.data), normalisation).describe(),
        "data": dict(data),
        "made_by": f"shiftbench {__version__}, torch {torch.__version__}",
    }


def save_network(
    folder: Path, state: Mapping[str, Any], recipe: Recipe, about: Mapping[str, Any], seen: TrainedOn | None = None
) -> None:
    """The weights first and the description last: a folder with a description is finished."""
    weights = {key: value.detach().cpu().contiguous() for key, value in state.items()}
    write_bytes(folder / WEIGHTS, save(weights), durable=True)
    save_finished(folder, recipe, about, seen)


def save_finished(folder: Path, recipe: Recipe, about: Mapping[str, Any], seen: TrainedOn | None) -> None:
    write_recipe(folder, recipe)
    if seen is not None and (keys := seen.keys) is not None:
        write_atomically(folder / IMAGES, lambda path: save_array(path, keys))
        about = {**about, "data": {**about["data"], "keys": seen.by}}
    write_json(folder / ABOUT, about)


def write_recipe(folder: Path, recipe: Recipe) -> None:
    text = to_toml(recipe.as_dict())
    write_bytes(folder / RECIPE, text.encode(), durable=True)


def read_finished(folder: str | Path) -> Finished | None:
    """None where a run is not finished."""
    folder = Path(folder)
    if not (folder / ABOUT).is_file() or not (folder / RECIPE).is_file():
        return None
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        found = Finished(folder, load_recipe(folder / RECIPE), about)
        _ = found.fingerprint, found.space, about["name"], about["preprocessing"]
    except (ValueError, KeyError, TypeError) as error:
        raise ClassifierError(f"{folder / ABOUT} is damaged", found=f"{type(error).__name__}: {error}") from error
    return found


def load_hardened(target: str, options: Options) -> Classifier:
    """``hardened:FOLDER``: what `harden train` left there."""
    finished = read_finished(target)
    if finished is None:
        there = "a run that is not finished" if (Path(target) / "checkpoint.pt").is_file() else "no finished run"
        raise ClassifierError(
            f"{target} holds no trained model",
            found=there,
            expected=f"a folder with {ABOUT} and {WEIGHTS}, as `shiftbench harden train` leaves it",
            hint="give the same `harden train` again: it continues" if there.startswith("a run") else None,
        )
    classifier = _load(finished, options)
    # Training reads image files as an evaluation does by default.
    classifier.sources = {"exif": "file", "alpha": "file", **classifier.sources}
    classifier.trained_on = finished.trained_on
    return classifier


def _load(finished: Finished, options: Options) -> Classifier:
    if (finished.folder / BASELINE).is_file():
        return load_baseline(finished.folder / BASELINE, name=options.name)
    options = replace(
        options, labels=options.labels or finished.space, name=options.name or str(finished.about["name"])
    ).over(Preprocessing.from_dict(finished.about["preprocessing"]), "file")
    # Weights that it began with are overwritten: they are not downloaded again, nor has their file to be there still.
    own = {
        key: one for key, one in finished.recipe.architecture.options.items() if key not in ("pretrained", "weights")
    }
    network = build(finished.recipe.architecture.name, classes=len(finished.space), **own)
    try:
        network.load_state_dict(load_file(finished.folder / WEIGHTS))
    except (OSError, RuntimeError, SafetensorError) as error:
        raise ClassifierError(
            f"the weights in {finished.folder} do not fit", found=str(error).strip()[:300], hint="train it again"
        ) from error
    architecture = finished.recipe.as_dict()["architecture"]
    weights = digest("hardened", architecture, len(finished.space), file_digest(finished.folder / WEIGHTS))
    return from_module(network, options, name=options.name, weights=weights)
