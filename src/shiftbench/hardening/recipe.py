"""Recipes: what is trained, on what, and how, as a TOML file that says everything which decides the result.

Each table of the file is a dataclass here, and each key one of its fields. An unknown key is refused with the nearest
known one, before anything is trained. ``[architecture]``, ``[scheme]`` and the lists of augmentations hold a name and
the options of what the name stands for. ``base = "cifar-standard"`` begins with another recipe and says only what
differs: keys replace keys, a list replaces the whole list, and a part of another name replaces the part.
"""

from __future__ import annotations

import difflib
import inspect
import json
import tomllib
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from shiftbench.errors import ShiftbenchError, UnknownNameError
from shiftbench.hardening.key_values import key_value
from shiftbench.hardening.schedules import Schedule


class RecipeError(ShiftbenchError):
    """A recipe that can't be followed as it is written."""


@dataclass(frozen=True)
class Part:
    """Something by name, with its options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Data:
    """What is trained on and how pictures become inputs."""

    #: A path or a name, as everywhere: `cifar-10-train`, `icons/style.train`, FOLDER.
    train: str = ""
    #: Looked at after every epoch; may be left out.
    validation: str = ""
    #: The label space where the data does not tell; "folders": the data's own classes.
    labels: str = ""
    #: The side of the network's input.
    size: int = 32
    #: The short side before the centre crop in evaluation; 0: the whole picture is resized to the input.
    resize: int = 0
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    #: Augmentations get pictures of their own size; the first of them (resized-crop) brings them to the input's.
    uncropped: bool = False
    #: Further copies of the training data on disk, as `harden augment` writes them, with the same class folders.
    extra: tuple[str, ...] = ()
    #: Only so many images, or so many of each class; 0: all. The same ones for every seed.
    sample: int = 0
    per_class: int = 0
    #: Where an augmentation needs an image-to-image network and none is given: trained on the training images, so long.
    network_steps: int = 1000
    #: Classes without a training image are an error, unless this is true.
    empty_classes: bool = False
    #: Decoded pictures are kept in memory up to this; beyond it they are read anew in every epoch.
    memory_gb: float = 4.0


@dataclass(frozen=True)
class Loss:
    """``cross-entropy`` (one label an image) or ``binary`` (several)."""

    name: str = "cross-entropy"
    smoothing: float = 0.0


@dataclass(frozen=True)
class Optimizer:
    """``sgd``, ``adam`` or ``adamw``."""

    name: str = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 5e-4
    #: The learning rate of all layers but the last, as a multiple of ``lr``: below 1 for fine-tuning.
    backbone_factor: float = 1.0
    #: Gradients are scaled down to this norm; 0: they are not.
    clip: float = 0.0

    def __post_init__(self) -> None:
        if self.name not in ("sgd", "adam", "adamw"):
            raise UnknownNameError("optimizer", self.name, ("sgd", "adam", "adamw"))
        _at_least("optimizer", self, lr=0.0, weight_decay=0.0, backbone_factor=0.0, clip=0.0)


@dataclass(frozen=True)
class Train:
    """How long, in what portions, from which seed."""

    epochs: int = 100
    batch_size: int = 128
    seed: int = 0
    #: Decay of a running mean of the weights, which is then what is kept; 0: none.
    ema: float = 0.0
    #: "last", or "best" by accuracy on the validation data.
    keep: str = "last"
    #: With copies: so many steps as without them, so that variants differ in their data and not in their length.
    equal_steps: bool = False
    #: A checkpoint at every epoch's end, and within an epoch after so many seconds.
    checkpoint_seconds: float = 300.0

    def __post_init__(self) -> None:
        _at_least("train", self, epochs=1, batch_size=2, ema=0.0, checkpoint_seconds=0.0)
        if self.ema >= 1:
            raise RecipeError("a running mean that never moves", found=f"train.ema = {self.ema}", expected="below 1")
        if self.keep not in ("last", "best"):
            raise UnknownNameError("choice of weights (train.keep)", self.keep, ("last", "best"))


@dataclass(frozen=True)
class Recipe:
    """All tables of a recipe."""

    architecture: Part
    about: str = ""
    data: Data = field(default_factory=Data)
    loss: Loss = field(default_factory=Loss)
    scheme: Part = field(default_factory=lambda: Part("standard"))
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Schedule = field(default_factory=Schedule)
    train: Train = field(default_factory=Train)
    #: On every image, in this order.
    augmentations: tuple[Part, ...] = ()
    #: For schemes of several views: what the further views get on top.
    views: tuple[Part, ...] = ()
    #: On a batch, with its targets.
    batch_augmentations: tuple[Part, ...] = ()
    #: Each adds a copy of all training images, augmented once and kept: DeepAugment.
    copies: tuple[Part, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """As a TOML file has it: a part is its name among its options."""
        out: dict[str, Any] = {}
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, Part):
                out[one.name] = _plain_part(value)
            elif isinstance(value, tuple):
                out[one.name] = [_plain_part(part) for part in value]
            else:
                out[one.name] = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
        return out


def _plain_part(part: Part) -> dict[str, Any]:
    return {"name": part.name, **part.options}


def _at_least(table: str, values: Any, **least: float) -> None:
    for key, bound in least.items():
        if getattr(values, key) < bound:
            raise RecipeError(f"{table}.{key} is too small", found=getattr(values, key), expected=f"at least {bound:g}")


# Reading


def recipe_names() -> list[str]:
    """The recipes that come with the package."""
    folder = resources.files("shiftbench.hardening.recipes")
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def recipe_text(which: str | Path) -> str:
    """The TOML of a recipe of the package, or of a file."""
    if str(which) in recipe_names():
        return (resources.files("shiftbench.hardening.recipes") / f"{which}.toml").read_text(encoding="utf-8")
    path = Path(which)
    if path.suffix != ".toml" and not path.is_file():
        raise UnknownNameError("recipe", str(which), recipe_names())
    if not path.is_file():
        raise RecipeError(f"there is no recipe {path}", expected="a .toml file, or a name of `harden recipes`")
    return path.read_text(encoding="utf-8")


def load_recipe(which: str | Path, changes: Mapping[str, Any] | Iterable[str] = ()) -> Recipe:
    """A recipe by name or file, with changes: ``{"train.epochs": 3}`` or ``["train.epochs=3"]``."""
    return recipe_from(changed(_tables(which), changes))


def _tables(which: str | Path, above: tuple[str, ...] = ()) -> dict[str, Any]:
    """The tables of a recipe over those of the recipe that it begins with."""
    if str(which) in above:
        raise RecipeError("recipes begin with each other", found=" -> ".join([*above, str(which)]))
    try:
        own = tomllib.loads(recipe_text(which))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecipeError(f"{which} is not TOML", found=error) from error
    base = own.pop("base", None)
    if base is None:
        return own
    beside = Path(which).parent / str(base)
    return _over(_tables(beside if beside.is_file() else str(base), (*above, str(which))), own)


def _over(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for key, value in own.items():
        below = base.get(key)
        if not isinstance(value, dict) or not isinstance(below, dict):
            out[key] = value
            continue
        # The options of another network or scheme mean nothing to this one.
        another = key in ("architecture", "scheme") and value.get("name", below.get("name")) != below.get("name")
        out[key] = value if another else _over(below, value)
    return out


def recipe_from(tables: Mapping[str, Any]) -> Recipe:
    """From the tables of a TOML file; every key is checked."""
    made: Recipe = _dataclass(Recipe, tables, "")
    return made


def changed(tables: Mapping[str, Any], changes: Mapping[str, Any] | Iterable[str]) -> dict[str, Any]:
    """The same tables with some keys set. Lists are reached by number: ``views.0.severity``.

    >>> changed({"train": {"epochs": 100}}, ["train.epochs=3"])
    {'train': {'epochs': 3}}
    """
    pairs = changes.items() if isinstance(changes, Mapping) else map(_parse_change, changes)
    out: dict[str, Any] = json.loads(json.dumps(tables))
    for key, value in pairs:
        *path, last = key.split(".")
        place: Any = out
        for word in path:
            place = _step_into(place, word, key)
        if isinstance(place, list):
            place[_position(place, last, key)] = value
        else:
            place[last] = value
    return out


def _parse_change(text: str) -> tuple[str, Any]:
    found = key_value(text)
    if found is None:
        raise RecipeError("a change has the form KEY=VALUE", found=text, hint="train.epochs=3")
    return found


def _step_into(place: Any, word: str, key: str) -> Any:
    if isinstance(place, list):
        return place[_position(place, word, key)]
    below = place.setdefault(word, {})
    if not isinstance(below, dict | list):
        raise RecipeError(f"{key!r} names nothing that can be set", found=f"{word!r} is a value, not a table")
    return below


def _position(place: Sequence[Any], word: str, key: str) -> int:
    if not word.isdigit() or int(word) >= len(place):
        raise RecipeError(f"{key!r} names nothing", found=word, expected=f"a number below {len(place)}")
    return int(word)


def _dataclass(kind: type[Any], values: Mapping[str, Any], where: str) -> Any:
    """A table as its dataclass, with every key known and every value of its type."""
    hints = get_type_hints(kind)
    known = {one.name: one for one in fields(kind)}
    check_keys(f"the recipe's table [{where}]" if where else "the recipe", values, known, where)
    lacking = [n for n, f in known.items() if n not in values and f.default is MISSING and f.default_factory is MISSING]
    if lacking:
        raise RecipeError(f"the recipe lacks [{lacking[0]}]", hint='[architecture] with name = "wrn-40-2", for example')
    made = {key: _value(hints[key], value, f"{where}.{key}".lstrip(".")) for key, value in values.items()}
    return kind(**made)


def check_keys(what: str, found: Iterable[str], known: Iterable[str], where: str = "") -> None:
    """Every key is known; else the nearest one is named."""
    allowed = list(known)
    for key in found:
        if key in allowed:
            continue
        near = difflib.get_close_matches(key, allowed, n=1, cutoff=0.5)
        raise RecipeError(
            f"{what} has an unknown key",
            found=f"{where}.{key}".lstrip("."),
            expected=", ".join(allowed) or "no options",
            hint=f"did you mean {near[0]!r}?" if near else None,
        )


def _value(hint: Any, value: Any, where: str) -> Any:
    if hint is Part:
        return _part(value, where)
    if is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, dict):
            raise RecipeError(f"[{where}] is a table", found=repr(value))
        return _dataclass(hint, value, where)
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise RecipeError(f"{where} is a list", found=repr(value))
        return tuple(_value(get_args(hint)[0], one, f"{where}.{i}") for i, one in enumerate(value))
    return _scalar(hint, value, where)


def _scalar(hint: Any, value: Any, where: str) -> Any:
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if float in kinds and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    # A truth value is an int for Python, and a mistake here.
    if isinstance(value, kinds) and (bool in kinds) == isinstance(value, bool):
        return value
    raise RecipeError(f"{where} has a value of another kind", found=repr(value), expected=kinds[0].__name__)


def _part(value: Any, where: str) -> Part:
    if isinstance(value, str):
        return Part(value)
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise RecipeError(f"[{where}] needs a name", found=repr(value), expected='name = "..." and options')
    return Part(value["name"], {key: option for key, option in value.items() if key != "name"})


def check_options(part: Part, kind: str, factory: Callable[..., Any], given_by_us: Sequence[str] = ()) -> None:
    """The options of a part are arguments of its factory; one that takes any is left to itself."""
    parameters = inspect.signature(factory).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        return
    check_keys(f"the {kind} {part.name!r}", part.options, [name for name in parameters if name not in given_by_us])


# Writing and comparing


def to_toml(tables: Mapping[str, Any]) -> str:
    """TOML of plain tables, lists of tables, and values.

    >>> print(to_toml({"about": "x", "train": {"epochs": 3}, "views": [{"name": "augmix"}]}))
    about = "x"
    <BLANKLINE>
    [train]
    epochs = 3
    <BLANKLINE>
    [[views]]
    name = "augmix"
    <BLANKLINE>
    """
    lines = [f"{key} = {_toml(value)}" for key, value in tables.items() if not _is_table(value)]
    for key, value in tables.items():
        for table in value if isinstance(value, list) and _is_table(value) else [value] * isinstance(value, dict):
            lines += ["", f"[[{key}]]" if isinstance(value, list) else f"[{key}]"]
            lines += [f"{name} = {_toml(one)}" for name, one in table.items()]
    return "\n".join(lines).lstrip("\n") + "\n"


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


#: Keys that do not decide the weights: what data is trained on is known by its content, not by its place.
_FREE = ("about", "data.train", "data.validation", "data.memory_gb", "train.checkpoint_seconds")


def differing_keys(one: Recipe, other: Recipe) -> list[str]:
    """The keys by which two recipes would give different weights.

    >>> short, long = (Recipe(Part("wrn-40-2"), train=Train(epochs=n)) for n in (1, 2))
    >>> differing_keys(short, long)
    ['train.epochs']
    """
    first, second = _flat(one.as_dict()), _flat(other.as_dict())
    keys = [key for key in {**first, **second} if key not in _FREE]
    return [key for key in keys if first.get(key) != second.get(key)]


def _flat(value: Any, where: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        items: Iterable[tuple[str, Any]] = value.items()
    elif isinstance(value, list | tuple) and any(isinstance(one, dict) for one in value):
        items = ((str(i), one) for i, one in enumerate(value))
    else:
        return {where: list(value) if isinstance(value, tuple) else value}
    return {key: one for word, below in items for key, one in _flat(below, f"{where}.{word}".lstrip(".")).items()}
