"""The folder of a finished run, which ``hardened:FOLDER`` loads as a classifier like any other.

recipe.toml         the recipe as it was followed
model.safetensors   the weights, without the normalisation
classifier.json     name, classes, preprocessing, what it was trained on
images.npy          a key of each training image, to find those that it is evaluated on
log.jsonl           one line per epoch
model.onnx          the network as a graph, after `harden finetune`
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
from torch import nn

from shiftbench import Classifier, LabelSpace, Preprocessing, __version__
from shiftbench.classifiers import Options
from shiftbench.errors import ClassifierError
from shiftbench.extend.classifiers import from_module
from shiftbench.extend.datasets import TrainedOn
from shiftbench.extend.io import digest, file_digest, write_atomically, write_bytes, write_json
from shiftbench.extend.jobs import save_array
from shiftbench.extend.options import to_toml
from shiftbench.hardening.architectures.base import build
from shiftbench.hardening.architectures.baselines import load_baseline
from shiftbench.hardening.architectures.own import OWN, load_own
from shiftbench.hardening.recipe import Recipe, load_recipe
from shiftbench.hardening.training.data import evaluation_preprocessing

RECIPE = "recipe.toml"
WEIGHTS = "model.safetensors"
BASELINE = "baseline.npz"
ABOUT = "classifier.json"
IMAGES = "images.npy"
#: The files whose digests the description holds.
_SEALED = (RECIPE, WEIGHTS, BASELINE, IMAGES)
#: The ONNX graph that `harden finetune` writes into the folder.
EXPORT = "model.onnx"


@dataclass(frozen=True)
class Finished:
    """The content of a finished run's folder."""

    folder: Path
    recipe: Recipe
    #: The content of classifier.json.
    description: Mapping[str, Any]

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the images that it was trained on."""
        return str(self.description["data"]["fingerprint"])

    @property
    def trained_on(self) -> TrainedOn:
        """The images that it was trained on; without keys, if the run wrote none."""
        data = self.description["data"]
        keys = None
        if (self.folder / IMAGES).is_file():
            keys = np.load(self.folder / IMAGES, mmap_mode="r", allow_pickle=False)
        return TrainedOn(self.fingerprint, int(data.get("images", 0)), keys, data.get("keys", "content"))

    @property
    def space(self) -> LabelSpace:
        labels = self.description["labels"]
        return LabelSpace(labels["name"], tuple(labels["keys"]), tuple(labels["names"]))


def describe(name: str, recipe: Recipe, space: LabelSpace, data: Mapping[str, object]) -> dict[str, Any]:
    """The content of classifier.json."""
    return {
        "name": name,
        "architecture": recipe.architecture.name,
        "labels": {"name": space.name, "keys": list(space.keys), "names": list(space.names)},
        "preprocessing": evaluation_preprocessing(recipe.data).describe(),
        "data": dict(data),
        "made_by": f"shiftbench {__version__}, torch {torch.__version__}",
    }


def save_network(
    folder: Path,
    state: Mapping[str, Any],
    recipe: Recipe,
    description: Mapping[str, Any],
    seen: TrainedOn | None = None,
) -> None:
    """Writes the weights first and the description last, because a folder with a description counts as finished."""
    weights = {key: value.detach().cpu().contiguous() for key, value in state.items()}
    write_bytes(folder / WEIGHTS, save(weights), durable=True)
    save_finished(folder, recipe, description, seen)


def save_finished(folder: Path, recipe: Recipe, description: Mapping[str, Any], seen: TrainedOn | None) -> None:
    """Writes the recipe, the keys of the training images, and last the description."""
    write_recipe(folder, recipe)
    keys = None if seen is None else seen.keys
    if seen is not None and keys is not None:
        write_atomically(folder / IMAGES, lambda path: save_array(path, keys))
        description = {**description, "data": {**description["data"], "keys": seen.by}}
    digests = {name: file_digest(folder / name) for name in _SEALED if (folder / name).is_file()}
    sealed = {**description, "digests": digests}
    write_json(folder / ABOUT, {**sealed, "digest": digest("finished run", sealed)})


def write_recipe(folder: Path, recipe: Recipe) -> None:
    text = to_toml(recipe.as_dict())
    write_bytes(folder / RECIPE, text.encode(), durable=True)


def read_finished(folder: str | Path) -> Finished | None:
    """The content of a finished run's folder; None if the run is not finished. Raises if the description is damaged."""
    folder = Path(folder)
    if not (folder / ABOUT).is_file() or not (folder / RECIPE).is_file():
        return None
    try:
        description = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        finished = Finished(folder, load_recipe(folder / RECIPE), description)
        # Every entry that is used later is read once, so that a missing one is reported here.
        _ = finished.fingerprint, finished.space, description["name"], description["preprocessing"]
    except (ValueError, KeyError, TypeError) as error:
        raise ClassifierError(f"{folder / ABOUT} is damaged", found=f"{type(error).__name__}: {error}") from error
    _check_digests(finished)
    return finished


def _check_digests(finished: Finished) -> None:
    """Raise ClassifierError if a file of the folder has changed since the training. Version 0.1 wrote no digests."""
    sealed = {key: value for key, value in finished.description.items() if key != "digest"}
    if "digests" not in sealed and "digest" not in finished.description:
        return
    if finished.description.get("digest") != digest("finished run", sealed):
        raise ClassifierError(f"{finished.folder / ABOUT} is damaged or was changed")
    for name, expected in sealed["digests"].items():
        path = finished.folder / name
        found = file_digest(path) if path.is_file() else "no file"
        if found != expected:
            raise ClassifierError(f"{path} is damaged or was changed", found=found, expected=expected)


def load_hardened(target: str, options: Options) -> Classifier:
    """``hardened:FOLDER``: the classifier that `harden train` left in the folder."""
    finished = read_finished(target)
    if finished is None:
        begun = (Path(target) / "checkpoint.pt").is_file()
        raise ClassifierError(
            f"{target} holds no trained model",
            found="a run that is not finished" if begun else "no finished run",
            expected=f"a folder with {ABOUT} and {WEIGHTS}, as `shiftbench harden train` leaves it",
            hint="give the same `harden train` again: it continues" if begun else None,
        )
    classifier = _load(finished, options)
    # Training reads image files as an evaluation does by default.
    classifier.sources = {"exif": "file", "alpha": "file", **classifier.sources}
    classifier.trained_on = finished.trained_on
    classifier.trained_with = trained_with(finished.recipe)
    return classifier


#: Augmentations and schemes, and the corruption of a test set that each of them does to training images.
_CORRUPTIONS = {
    "speckle": ("speckle_noise",),
    "gaussian-noise": ("gaussian_noise",),
    "stability": ("gaussian_noise",),
    "stylize": ("style_transfer",),
    "GaussianBlur": ("gaussian_blur",),
    "ColorJitter": ("brightness", "contrast", "saturate"),
}


def trained_with(recipe: Recipe) -> tuple[str, ...]:
    """The corruptions that a recipe does to its training images, which its network must not be judged by alone.

    >>> trained_with(load_recipe("cifar-speckle"))
    ('speckle_noise',)
    """
    parts = [recipe.scheme, *recipe.augmentations, *recipe.views, *recipe.copies]
    names: list[str] = []
    for part in parts:
        names += _CORRUPTIONS.get(part.name, ())
        names += _CORRUPTIONS.get(str(part.options.get("transform", "")), ())
    return tuple(dict.fromkeys(names))


def _load(finished: Finished, options: Options) -> Classifier:
    if (finished.folder / BASELINE).is_file():
        return load_baseline(finished.folder / BASELINE, name=options.name)
    options = replace(
        options, labels=options.labels or finished.space, name=options.name or str(finished.description["name"])
    )
    options = options.over(Preprocessing.from_dict(finished.description["preprocessing"]), "file")
    network = _network(finished, options)
    try:
        network.load_state_dict(load_file(finished.folder / WEIGHTS))
    except (OSError, RuntimeError, SafetensorError) as error:
        raise ClassifierError(
            f"the weights in {finished.folder} do not fit", found=str(error).strip()[:300], hint="train it again"
        ) from error
    architecture = finished.recipe.as_dict()["architecture"]
    weights = digest("hardened", architecture, len(finished.space), file_digest(finished.folder / WEIGHTS))
    return from_module(network, options, name=options.name, weights=weights)


def _network(finished: Finished, options: Options) -> nn.Module:
    """The network of a finished run, before it gets its weights."""
    architecture = finished.recipe.architecture
    if architecture.name == OWN:
        assert options.preprocessing is not None
        source = str(architecture.options.get("source", ""))
        export = finished.folder / EXPORT
        return load_own(source, finished.space, options.preprocessing, export=export, trust=options.trust)
    # The initial weights would be overwritten: they are not downloaded again, and their file may be gone.
    network_options = dict(architecture.options)
    network_options.pop("pretrained", None)
    network_options.pop("weights", None)
    return build(architecture.name, classes=len(finished.space), **network_options)
