"""``testset.toml``: what a test-set project is, in a file that people read and edit."""

from __future__ import annotations

import csv
import json
import secrets
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from shiftbench.io.atomic import write_atomically
from shiftbench.labels import load_label_space
from shiftbench.labels.space import LabelSpace
from shiftbench.testsets.errors import WorkshopError

FILE = "testset.toml"


@dataclass(frozen=True)
class ClassDefinition:
    """One class: what annotators read above the grid, and which classes are easily confused with it."""

    key: str
    name: str = ""
    definition: str = ""
    #: A page that explains the class, such as its article in an encyclopedia.
    link: str = ""
    #: Keys of near classes; control images that do not belong are taken from these. Empty: any other class.
    near: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return self.name or self.key


@dataclass(frozen=True)
class AnnotationRules:
    """How tasks are made. The defaults are those of ImageNetV2 (paper 004, appendix C.1.1)."""

    #: Images in a grid, controls included.
    grid: int = 48
    #: Different annotators for each image.
    annotators: int = 10
    #: Reference images of the class, and of a near class, in each grid: at least so many.
    positive_controls: int = 3
    negative_controls: int = 3
    #: Reference images of each class that are to get a selection frequency; needed for matched sampling.
    references_per_class: int = 20
    lease_minutes: float = 60.0
    #: The longer side of the copies that annotators see.
    copy_pixels: int = 500


@dataclass(frozen=True)
class Configuration:
    """All of ``testset.toml``. ``id`` ties the folder to its database."""

    name: str
    classes: tuple[ClassDefinition, ...]
    labels: str = ""
    seed: int = 0
    database: str = "sqlite"
    annotation: AnnotationRules = AnnotationRules()
    id: str = field(default_factory=lambda: secrets.token_hex(8))

    def __post_init__(self) -> None:
        _check(self)

    @property
    def space(self) -> LabelSpace:
        keys = tuple(entry.key for entry in self.classes)
        return LabelSpace(self.labels or self.name, keys, tuple(entry.title for entry in self.classes))

    def class_of(self, key: str) -> ClassDefinition:
        return self.classes[self.space.index(key)]

    def near(self, key: str) -> tuple[str, ...]:
        """The classes whose images don't belong, yet could be taken for it."""
        return self.class_of(key).near or tuple(entry.key for entry in self.classes if entry.key != key)

    def with_rules(self, **rules: Any) -> Configuration:
        return replace(self, annotation=replace(self.annotation, **rules))


def configuration_for(space: LabelSpace, name: str, **options: Any) -> Configuration:
    """The classes of a label space, still without definitions."""
    classes = tuple(ClassDefinition(key, title) for key, title in zip(space.keys, space.names, strict=True))
    return Configuration(name, classes, labels=space.name, **options)


def read_classes(path: Path, name: str, **options: Any) -> Configuration:
    """The classes of a file: of a .csv also definition, link and near (keys joined by ``|``)."""
    space = load_label_space(path)
    described: dict[str, Mapping[str, str]] = {}
    if path.suffix.lower() == ".csv":
        rows = csv.DictReader(path.read_text(encoding="utf-8-sig").splitlines())
        described = dict(zip(space.keys, rows, strict=True))
    classes = []
    for key, title in zip(space.keys, space.names, strict=True):
        row = {column: (value or "").strip() for column, value in described.get(key, {}).items() if column}
        near = tuple(other.strip() for other in row.get("near", "").split("|") if other.strip())
        classes.append(ClassDefinition(key, title, row.get("definition", ""), row.get("link", ""), near))
    return Configuration(name, tuple(classes), labels=space.name, **options)


def read_configuration(folder: Path) -> Configuration:
    path = folder / FILE
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise WorkshopError(
            f"{folder} is not a test-set project",
            found=f"no {FILE}" if folder.is_dir() else "no such folder",
            hint=f"make one: shiftbench testset init {folder} --labels cifar-10",
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise WorkshopError(f"{path} is not valid TOML", found=error) from error
    return _from_values(values, path)


def write_configuration(folder: Path, configuration: Configuration) -> None:
    text = _to_toml(configuration)
    write_atomically(folder / FILE, lambda path: _write(path, text))


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _from_values(values: Mapping[str, Any], path: Path) -> Configuration:
    known = {"name", "id", "labels", "seed", "database"}
    _refuse_unknown(values, known | {"annotation", "classes"}, path, "")
    rules = values.get("annotation", {})
    _refuse_unknown(rules, {entry.name for entry in fields(AnnotationRules)}, path, "annotation.")
    classes = []
    for entry in values.get("classes", ()):
        _refuse_unknown(entry, {item.name for item in fields(ClassDefinition)}, path, "classes.")
        classes.append(ClassDefinition(**{**entry, "near": tuple(entry.get("near", ()))}))
    missing = {"name", "id"} - set(values)
    if missing:
        raise WorkshopError(f"{path} lacks {', '.join(sorted(missing))}")
    plain = {key: values[key] for key in known & set(values)}
    return Configuration(classes=tuple(classes), annotation=AnnotationRules(**rules), **plain)


def _refuse_unknown(values: Mapping[str, Any], known: set[str], path: Path, prefix: str) -> None:
    unknown = sorted(set(values) - known)
    if unknown:
        raise WorkshopError(
            f"{path} has an entry that means nothing", found=prefix + unknown[0], expected=", ".join(sorted(known))
        )


def check_name(name: str, what: str) -> None:
    """Projects and sets give their names to folders, settings and commands."""
    plain = name.replace("-", "").replace("_", "").replace(".", "")
    if not (plain.isalnum() and name.isascii()) or len(name) > 60 or name.startswith((".", "-")):
        raise WorkshopError(
            f"{what} can't be called that", found=repr(name[:80]), expected="letters, digits, - _ and ., at most 60"
        )


def _check(configuration: Configuration) -> None:
    check_name(configuration.name, "a project")
    keys = {entry.key for entry in configuration.classes}
    if len(keys) < 2:
        raise WorkshopError("a test set needs at least two classes", found=", ".join(keys) or "none")
    for entry in configuration.classes:
        strange = [near for near in entry.near if near not in keys or near == entry.key]
        if strange:
            raise WorkshopError(f"{strange[0]!r} can't be a near class of {entry.key!r}", expected="another class")
        if not entry.key or entry.key in (".", "..") or set(entry.key) & set("/\\\0") or entry.key.startswith("."):
            raise WorkshopError("a class key names a folder", found=entry.key, expected="no slash, no leading dot")
    rules = configuration.annotation
    least = {"grid": 1, "annotators": 1, "positive_controls": 0, "negative_controls": 0, "references_per_class": 0,
             "lease_minutes": 0.01, "copy_pixels": 16}  # fmt: skip
    for name, bound in least.items():
        value = getattr(rules, name)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or value < bound:
            raise WorkshopError(f"bad value of annotation.{name}", found=value, expected=f"at least {bound:g}")
    if rules.grid <= rules.positive_controls + rules.negative_controls:
        raise WorkshopError(
            "the controls leave no room for candidates",
            found=f"{rules.positive_controls} + {rules.negative_controls} controls in a grid of {rules.grid}",
        )


def _to_toml(configuration: Configuration) -> str:
    """Every entry is a text, a number or a list of texts, so that TOML's syntax is JSON's."""
    lines = [
        "# A test-set project of shiftbench. Edit definitions, links and near classes at any time; the rules of",
        "# annotation hold for tasks made from then on. `id` ties this folder to its database.",
    ]
    lines += [_entry(key, getattr(configuration, key)) for key in ("name", "id", "labels", "seed", "database")]
    lines += ["", "[annotation]", *(_entry(k, v) for k, v in asdict(configuration.annotation).items())]
    for item in configuration.classes:
        given = {k: v for k, v in asdict(item).items() if v or k == "key"}
        lines += ["", "[[classes]]", *(_entry(k, v) for k, v in given.items())]
    return "\n".join(lines) + "\n"


def _entry(key: str, value: str | float | Sequence[str]) -> str:
    shown = list(value) if isinstance(value, tuple) else value
    return f"{key} = {json.dumps(shown, ensure_ascii=False)}".replace("\x7f", "\\u007f")
