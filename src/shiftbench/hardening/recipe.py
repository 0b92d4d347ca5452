"""Recipes: what is trained, on what data and how, as a TOML file with everything that decides the result.

Each table of the file is a record here, and each key one of its fields; unknown keys and wrong values are errors before
anything is trained. ``[architecture]``, ``[scheme]`` and the lists of augmentations hold a name and the options of what
the name stands for. ``base = "cifar-standard"`` starts from another recipe and states only the differences: keys
replace keys, a list replaces the whole list, and a part with another name replaces the part.
"""

from __future__ import annotations

import importlib
import json
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, Struct, structs

from shiftbench.errors import UnknownNameError
from shiftbench.extend.options import Count, NonNegative, decode, parse_toml
from shiftbench.hardening.errors import RecipeError

#: The tables that hold a name and its options.
_PARTS = ("architecture", "scheme")
#: The lists of such tables.
_LISTS = ("augmentations", "views", "batch_augmentations", "copies")
#: Keys that do not decide the weights, like [sources]: training data is identified by its content, not its location.
_FREE = (
    "about",
    "data.train",
    "data.validation",
    "data.memory_gb",
    "train.checkpoint_seconds",
    "train.log_seconds",
    "train.rank_timeout",
)


class Part(Struct, frozen=True):
    """A network, scheme or augmentation by name, with its options."""

    name: str
    options: Mapping[str, Any] = {}


class TrainingData(Struct, frozen=True):
    """The training data, and how images become inputs."""

    #: A path or a dataset name, as everywhere: `cifar-10-train`, `icons/style.train`, FOLDER.
    train: str = ""
    #: Evaluated after every epoch; optional.
    validation: str = ""
    #: The label space, if the data does not state it; "folders": the data's own classes.
    labels: str = ""
    #: The preprocessing of a model that had one before, in the words of `--preprocess`; ``size`` is then its input, and
    #: resize, mean and std are not used. `harden finetune` writes it.
    preprocessing: dict[str, object] = {}
    #: Side of the network's input.
    size: int = 32
    #: Short side before the centre crop in evaluation; 0: the whole image is resized to the input.
    resize: int = 0
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    #: Augmentations get images of their original size; the first one (resized-crop) brings them to the input's size.
    uncropped: bool = False
    #: Further copies of the training data on disk, as `harden augment` writes them, with the same class folders.
    extra: tuple[str, ...] = ()
    #: At most this many images, in total or per class; 0: all. The same images for every seed.
    sample: int = 0
    per_class: int = 0
    #: Training steps of an image-to-image network that an augmentation needs and that is not given.
    network_steps: int = 1000
    #: Allow classes without a training image.
    empty_classes: bool = False
    #: Decoded images are kept in memory up to this size; beyond it they are read again in every epoch.
    memory_gb: float = 4.0
    #: Shuffle chunks of 1,024 neighbouring images, and images only within this many of them, so that shards are read
    #: nearly in order; 0: shuffle all images. Parquet files are read by row groups instead of chunks, always.
    window: Annotated[int, Meta(ge=0)] = 0


class Loss(Struct, frozen=True):
    """``cross-entropy`` for one label per image, ``binary`` for multi-label data."""

    name: str = "cross-entropy"
    smoothing: float = 0.0


class Optimizer(Struct, frozen=True):
    """The optimizer and its settings."""

    #: The name of one of timm's optimizers: sgd, adam, adamw, lamb, lion, ...
    name: str = "sgd"
    lr: NonNegative = 0.1
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: NonNegative = 5e-4
    #: The learning rate of all layers but the last, as a multiple of ``lr``: below 1 for fine-tuning.
    backbone_factor: NonNegative = 1.0
    #: Each layer's learning rate as a multiple of the next one's (timm's layer decay); 1: the same for all.
    layer_decay: Annotated[float, Meta(gt=0, le=1)] = 1.0
    #: Apply weight decay to biases and norms, too, as the papers do.
    decay_norms: bool = True
    #: Further keyword arguments of timm's optimizer.
    options: dict[str, Any] = {}
    #: Gradients are scaled down to this norm; 0: no clipping.
    clip: NonNegative = 0.0


class Schedule(Struct, frozen=True):
    """Learning rates as functions of the step, so that nothing is stored or resumed; ``epochs`` may be fractions.

    The warm-up rises in a straight line to the full rate; ``cosine`` then falls at every step, ``step`` by a factor at
    each milestone, which is counted in epochs from the beginning, warm-up included (as in 003); ``linear`` by the same
    factor in a straight line to each milestone. ``poly`` (of power 0.5) and ``tanh`` are timm's, in steps.
    """

    name: Literal["constant", "cosine", "step", "linear", "poly", "tanh"] = "cosine"
    warmup_epochs: NonNegative = 0.0
    #: cosine, poly, tanh: the learning rate at the end.
    floor: NonNegative = 1e-6
    #: step, linear: the epochs at which the rate falls, or has fallen, and by what factor.
    milestones: tuple[float, ...] = ()
    factor: Annotated[float, Meta(gt=0, le=1)] = 0.1

    def __post_init__(self) -> None:
        if self.name in ("step", "linear") and list(self.milestones) != sorted(self.milestones):
            raise RecipeError("invalid schedule.milestones", found=self.milestones, expected="ascending epochs")

    def rate(self, step: int, *, highest: float, epochs: int, steps_per_epoch: int) -> float:
        """The learning rate of a step, counted from 0.

        >>> cosine = Schedule("cosine", floor=0.0)
        >>> [round(cosine.rate(s, highest=1.0, epochs=2, steps_per_epoch=2), 3) for s in range(4)]
        [1.0, 0.854, 0.5, 0.146]
        """
        warm = self.warmup_epochs * steps_per_epoch
        if step < warm:
            return highest * (step + 1) / math.ceil(warm)
        total = epochs * steps_per_epoch
        if self.name == "constant":
            return highest
        if self.name == "step":
            passed = sum(step >= epoch * steps_per_epoch for epoch in self.milestones)
            return float(highest * self.factor**passed)
        if self.name == "linear":
            # Between two milestones the rate falls in a straight line, by the factor.
            milestone_steps = [warm, *(epoch * steps_per_epoch for epoch in self.milestones)]
            rates = [highest * self.factor**passed for passed in range(len(milestone_steps))]
            return float(np.interp(step + 1, milestone_steps, rates))
        if self.name == "cosine":
            share_done = min(1.0, (step - warm) / max(1.0, total - warm))
            return self.floor + (highest - self.floor) * 0.5 * (1 + math.cos(math.pi * share_done))
        schedule = _timm_schedule(self.name, highest, self.floor, max(1, int(total - warm)))
        return float(schedule._get_lr(int(step - warm))[0])


@lru_cache(maxsize=8)
def _timm_schedule(name: str, highest: float, floor: float, steps: int) -> Any:
    """A schedule of timm in steps. timm asks for an optimizer, so it gets one with a single number to train."""
    import torch

    optimizer = torch.optim.SGD([torch.zeros(1)], highest)
    factory = timm_part("scheduler").create_scheduler_v2
    return factory(optimizer, name, num_epochs=steps, min_lr=floor, decay_rate=0.5)[0]


def timm_part(name: str) -> Any:
    """A module of timm. timm is imported only when it is needed, because it is slow to import."""
    from shiftbench.extend.classifiers import import_timm

    import_timm()
    return importlib.import_module(f"timm.{name}")


class Train(Struct, frozen=True):
    """Epochs, batches and seed."""

    epochs: Count = 100
    #: Images per step of the optimizer, over all devices.
    batch_size: Annotated[int, Meta(ge=2)] = 128
    #: Parts of a batch: computed one after the other (gradient accumulation), on as many devices, or both. The result
    #: depends on the parts, which batch norms see one at a time, and not on the devices.
    splits: Count = 1
    seed: int = 0
    #: auto: bfloat16 on GPUs that have it, float16 with loss scaling on older ones, float32 on a CPU.
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    #: Batch norms see a part of the batch (part), the parts on all devices (sync; GPUs only), or the views of each
    #: image apart from each other (split; for the scheme jsd).
    batch_norm: Literal["part", "sync", "split"] = "part"
    #: torch.compile: true, or the name of a backend ("eager", "cudagraphs").
    compile: bool | str = False
    channels_last: bool = True
    #: Let cuDNN try its algorithms for each new size of input and take the fastest, which need not be the same in
    #: every run: weights then differ in the last bits.
    cudnn_benchmark: bool = False
    #: Where GPUs multiply float32 numbers in TF32, which is faster and less exact: nowhere, in convolutions (torch's
    #: default), or in matrix products as well.
    tf32: Literal["none", "convolutions", "all"] = "convolutions"
    #: Compute the activations of the backward pass again instead of keeping them (networks of timm), for networks
    #: that do not fit into memory; the weights are the same but for rounding.
    checkpoint_gradients: bool = False
    #: Number of last epochs without the batch augmentations, such as mixup; 0: none.
    epochs_unmixed: Annotated[int, Meta(ge=0)] = 0
    #: How often each image comes in a batch, augmented differently; an epoch then has fewer different images.
    repeats: Count = 1
    #: Decay of a running mean of the weights, which is then what is saved; 0: none.
    ema: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    #: Let the decay rise from 0 (timm's warm-up).
    ema_warmup: bool = False
    #: Weights to start from: the folder of a finished run, or a file of weights. Tensors of another shape, such as the
    #: head for other classes, begin anew.
    start: str = ""
    #: Save the weights of the last epoch, or of the best one by accuracy on the validation data.
    keep: Literal["last", "best"] = "last"
    #: Also keep the weights of this many epochs with the best accuracy on the validation data, in top/.
    top: Annotated[int, Meta(ge=0)] = 0
    #: With copies: as many steps as without them, so that variants differ in their data only.
    equal_steps: bool = False
    #: Seconds between checkpoints within an epoch; one is also written after every epoch.
    checkpoint_seconds: NonNegative = 300.0
    #: Seconds between lines about loss and speed within an epoch, on the terminal and to the trackers; 0: none.
    log_seconds: NonNegative = 60.0
    #: Seconds after which ranks no longer wait for one that does not answer, because its machine has vanished.
    rank_timeout: Annotated[float, Meta(gt=0)] = 1800.0


class Recipe(Struct, frozen=True):
    """All tables of a recipe."""

    architecture: Part
    about: str = ""
    data: TrainingData = TrainingData()
    loss: Loss = Loss()
    scheme: Part = Part("standard")
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    train: Train = Train()
    #: Augmentations of every image, in this order.
    augmentations: tuple[Part, ...] = ()
    #: Augmentations of the further views, on top, for schemes that compare several views of an image.
    views: tuple[Part, ...] = ()
    #: Augmentations of a batch and its targets.
    batch_augmentations: tuple[Part, ...] = ()
    #: Each entry adds a copy of all training images, augmented once and kept: DeepAugment.
    copies: tuple[Part, ...] = ()
    #: Where each constant is from, by its key: a section of a paper, a script, or "own choice". A key whose value is
    #: changed, by a recipe with this base or by --set, loses its source.
    sources: dict[str, str] = {}

    def as_dict(self) -> dict[str, object]:
        """The tables of the TOML file, in which the name of a part stands among its options."""

        def table(value: object) -> object:
            if isinstance(value, Part):
                return {"name": value.name, **value.options}
            if isinstance(value, tuple):
                return [table(part) for part in value]
            if isinstance(value, Struct):
                return structs.asdict(value)
            return value

        return {key: table(value) for key, value in structs.asdict(self).items()}


# Reading


#: TOML files that come with the package, by folder.
Builtin = Literal["recipes", "experiments", "finetuning"]


def recipe_names() -> list[str]:
    """The recipes that come with the package."""
    return builtin_names("recipes")


def builtin_names(kind: Builtin) -> list[str]:
    """The names of the files of one kind that come with the package, such as its recipes."""
    folder = resources.files("shiftbench.hardening").joinpath(kind)
    file_names = [entry.name for entry in folder.iterdir()]
    return sorted(name.removesuffix(".toml") for name in file_names if name.endswith(".toml"))


def recipe_text(which: str | Path, kind: Builtin = "recipes") -> str:
    """The TOML of a recipe (or experiment) of the package, or of a file."""
    if str(which) in builtin_names(kind):
        return resources.files("shiftbench.hardening").joinpath(f"{kind}/{which}.toml").read_text(encoding="utf-8")
    path = Path(which)
    kind_name = kind.removesuffix("s")
    if path.suffix != ".toml" and not path.is_file():
        raise UnknownNameError(kind_name, str(which), builtin_names(kind))
    if not path.is_file():
        expected = f"a .toml file, or the name of a built-in {kind_name}"
        raise RecipeError(f"{kind_name} not found: {path}", expected=expected)
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path} is not valid TOML", found=error) from error


def load_recipe(which: str | Path, changes: Mapping[str, object] | Iterable[str] = ()) -> Recipe:
    """A recipe by name or file, with changes: ``{"train.epochs": 3}`` or ``["train.epochs=3"]``.

    Args:
        which: Name of a recipe, or a TOML file.
        changes: Entries to change.
    """
    return recipe_from(changed(tables_of(which), changes))


def tables_of(which: str | Path, kind: Builtin = "recipes", above: tuple[str, ...] = ()) -> dict[str, Any]:
    """The tables of a recipe or experiment, laid over the tables of its base.

    ``above`` names the recipes that have this one as their base; raises if this one is among them.
    """
    if str(which) in above:
        raise RecipeError(f"{kind} are each other's base", found=" -> ".join([*above, str(which)]))
    tables = parse_toml(recipe_text(which, kind), which, RecipeError)
    base = tables.pop("base", None)
    if base is None:
        return tables
    # A file beside this one comes before a built-in recipe of the same name.
    beside = Path(which).parent / str(base)
    base_tables = tables_of(beside if beside.is_file() else str(base), kind, (*above, str(which)))
    return _sourced(base_tables, over(base_tables, tables), tables.get("sources", {}))


def _sourced(before: Mapping[str, object], after: dict[str, object], restated: Iterable[str] = ()) -> dict[str, object]:
    """``after`` without the sources of values that it changes, except for the keys whose source is stated anew."""
    sources = after.get("sources")
    if not isinstance(sources, dict):
        return after
    old = flat(before)
    new = flat(after)
    valid = {}
    for key, source in sources.items():
        inherited = f"sources.{key}" in old and key not in restated
        if not inherited or old.get(key) == new.get(key):
            valid[key] = source
    return {**after, "sources": valid}


def over(base: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    """Tables laid over other tables: keys replace keys, a list the whole list, a part of another name the part."""
    tables = dict(base)
    for key, value in changes.items():
        base_value = base.get(key)
        if not isinstance(value, dict) or not isinstance(base_value, dict):
            tables[key] = value
            continue
        # The options of another network or scheme mean nothing to this one.
        replaced = key in _PARTS and value.get("name", base_value.get("name")) != base_value.get("name")
        tables[key] = value if replaced else over(base_value, value)
    return tables


def recipe_from(tables: Mapping[str, Any]) -> Recipe:
    """A recipe from the tables of a TOML file; every key and value is checked."""
    with_options = dict(tables)
    for key in _PARTS:
        if key in with_options:
            with_options[key] = _nested(with_options[key])
    for key in _LISTS:
        if isinstance(with_options.get(key), list | tuple):
            with_options[key] = [_nested(part) for part in with_options[key]]
    return decode(with_options, Recipe, "the recipe", RecipeError)


def _nested(part: object) -> object:
    """``{"name": "augmix", "severity": 1}`` or ``"augmix"`` with the options in a table of their own."""
    if isinstance(part, str):
        return {"name": part}
    if not isinstance(part, Mapping):
        return part
    nested: dict[str, object] = {"options": {key: value for key, value in part.items() if key != "name"}}
    if "name" in part:
        nested["name"] = part["name"]
    return nested


def changed(tables: Mapping[str, object], changes: Mapping[str, object] | Iterable[str]) -> dict[str, object]:
    """The same tables with some keys set. Lists are indexed by number: ``views.0.severity``.

    >>> changed({"train": {"epochs": 100}}, ["train.epochs=3"])
    {'train': {'epochs': 3}}
    """
    out: dict[str, object] = json.loads(json.dumps(tables))
    for change in changes.items() if isinstance(changes, Mapping) else changes:
        pair = key_value(change) if isinstance(change, str) else change
        if pair is None:
            raise RecipeError("invalid change of a recipe", found=change, expected="KEY=VALUE", hint="train.epochs=3")
        key, value = pair
        *path, last = key.split(".")
        table: Any = out
        for word in path:
            if isinstance(table, list):
                table = table[_position(table, word, key)]
            else:
                table = table.setdefault(word, {})
            if not isinstance(table, dict | list):
                raise RecipeError(f"no such key: {key}", found=f"{word!r} is a value, not a table")
        if isinstance(table, list):
            table[_position(table, last, key)] = value
        else:
            table[last] = value
    return _sourced(tables, out)


def key_value(text: str) -> tuple[str, object] | None:
    """``key=value`` as typed on the command line: the value is TOML, anything else is a string. None if not a pair.

    >>> key_value("severity=1"), key_value("fill=random"), key_value("scale=[0.5, 1]"), key_value("3")
    (('severity', 1), ('fill', 'random'), ('scale', [0.5, 1]), None)
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        return None
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def _position(entries: Sequence[object], word: str, key: str) -> int:
    """The index that a word of a key stands for; raises if the list has no such entry."""
    if not word.isdigit() or int(word) >= len(entries):
        raise RecipeError(f"no such key: {key}", found=word, expected=f"a number below {len(entries)}")
    return int(word)


# Comparing


def differing_keys(first: Recipe, second: Recipe) -> list[str]:
    """The keys by which two recipes would give different weights.

    >>> short, long = (Recipe(Part("wrn-40-2"), train=Train(epochs=n)) for n in (1, 2))
    >>> differing_keys(short, long)
    ['train.epochs']
    """
    first_values = flat({**first.as_dict(), "sources": {}})
    second_values = flat({**second.as_dict(), "sources": {}})
    differing = []
    for key in {**first_values, **second_values}:
        if key not in _FREE and first_values.get(key) != second_values.get(key):
            differing.append(key)
    return differing


def flat(value: object, where: str = "") -> dict[str, object]:
    """Nested tables as one table with dotted keys; ``where`` is the key of ``value`` itself.

    >>> flat({"train": {"epochs": 3}, "views": [{"name": "augmix"}]})
    {'train.epochs': 3, 'views.0.name': 'augmix'}
    """
    if isinstance(value, dict):
        items: Iterable[tuple[str, object]] = value.items()
    elif isinstance(value, list | tuple) and any(isinstance(entry, dict) for entry in value):
        items = ((str(i), entry) for i, entry in enumerate(value))
    else:
        return {where: list(value) if isinstance(value, tuple) else value}
    values: dict[str, object] = {}
    for word, entry in items:
        values |= flat(entry, f"{where}.{word}".lstrip("."))
    return values
