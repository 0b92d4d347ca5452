"""``testset.toml``: the settings of a test-set project, in a file that people read and edit."""

from __future__ import annotations

import csv
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from shiftbench import LabelSpace
from shiftbench.extend.errors import shell_command
from shiftbench.extend.io import write_atomically
from shiftbench.extend.options import Count, decode, read_toml, to_toml
from shiftbench.labels import load_label_space
from shiftbench.testsets.errors import WorkshopError

FILE = "testset.toml"
_COMMENT = """\
# A shiftbench test-set project. Definitions, links and near classes can be edited at any time; changed annotation rules
# apply to new tasks. `id` ties this folder to its database.
"""
_Natural = Annotated[int, Meta(ge=0)]


@dataclass(frozen=True)
class ClassDefinition:
    """One class: what annotators read above the grid, and which classes are easily confused with it.

    Attributes:
        key: Key of the class.
        name: Name that annotators see.
        definition: What counts as this class.
        link: A page that explains it.
        near: Keys of classes that are easily confused with it.
    """

    key: str
    name: str = ""
    definition: str = ""
    link: str = ""
    near: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return self.name or self.key


@dataclass(frozen=True)
class AnnotationRules:
    """How tasks are made. The defaults are those of ImageNetV2 (paper 004, appendix C.1.1)."""

    #: Images per grid, including controls.
    grid: Count = 48
    #: Different annotators per image.
    annotators: Count = 10
    #: Minimum number of reference images per grid, of the class and of near classes.
    positive_controls: _Natural = 3
    negative_controls: _Natural = 3
    #: Reference images per class that get a selection frequency; needed for matched sampling.
    references_per_class: _Natural = 20
    lease_minutes: Annotated[float, Meta(ge=0.01)] = 60.0
    #: The longer side of the copies that annotators see, and how all images get the same size: "crop" shows the square
    #: centre of the image; "pad" the whole image on a grey square, whose margins show its aspect ratio; "resize" the
    #: whole image in the aspect ratio that most references have, as in paper 004.
    copy_pixels: Annotated[int, Meta(ge=16)] = 500
    copy_fit: Literal["crop", "pad", "resize"] = "resize"
    #: Labelled references shown above each grid, from those that are in no grid; 0 for none, as in paper 004.
    examples: _Natural = 0


#: What earlier versions did, which wrote no such keys: a collection that has begun must not change.
_EARLIER_RULES = {"copy_fit": "crop", "examples": 4}


@dataclass(frozen=True)
class Instructions:
    """What annotators read, and what the dataset card says about them. The rules are ImageNet's (paper 004, C.1.1).

    Attributes:
        text: Rules, shown with every grid.
        review: What reviewers remove, shown with every class. The criteria are those of ImageNetV2 (paper 004, C.3.2).
        consent: Shown before the first task.
        contact: Whom to ask, shown on every page: a name, an email address or both.
        recruiting: How annotators were recruited, for the card.
        pay: What they were paid, for the card.
        citation: How to cite the set, for the card.
    """

    text: str = (
        "Select all images that show the class, regardless of occlusions, other objects, and clutter or text in the "
        "scene. Do not select drawings or paintings."
    )
    review: str = (
        "Blacklist images that are not representative of the class; cartoons, paintings, drawings or renderings; "
        "images that clearly differ in distribution from the references; and images that are unclear, blurry, severely "
        "occluded, overly edited, or show only a small object of the class."
    )
    consent: str = (
        "Your answers, and when you gave them, are stored under the name of your account and used to build and publish "
        "a test set. You may stop at any time."
    )
    contact: str = ""
    recruiting: str = ""
    pay: str = ""
    citation: str = ""


@dataclass(frozen=True)
class Recruiting:
    """Rules for people recruited by a crowd platform (``testset serve --recruit``).

    Attributes:
        tasks_per_worker: Grids that one person may answer in all; 0 for no limit.
        tasks_per_assignment: Grids of one assignment (MTurk) or submission (Prolific); 0 for no limit.
        minimum_seconds: A grid can be submitted only after this time.
        qualification: Share of controls of the first grid that must be correct to continue; 0 for no qualification.
        control_limit: Share of the controls of all grids that must be correct from the second grid on; 0 for no limit.
        signed_links: Whether links must have a signature of the worker's id, made with the project's signing key.
        completion_code: Code that a platform expects, such as Prolific's; empty for one code per assignment.
        completion_url: HTTPS page of another platform that takes people back at the end; {code}, {worker} and
            {assignment} are replaced. Prolific and MTurk need none.
        pay_per_task: Amount per grid.
        currency: Its currency.
    """

    tasks_per_worker: _Natural = 0
    tasks_per_assignment: _Natural = 0
    minimum_seconds: Annotated[float, Meta(ge=0)] = 0.0
    qualification: Annotated[float, Meta(ge=0, le=1)] = 0.0
    control_limit: Annotated[float, Meta(ge=0, le=1)] = 0.0
    signed_links: bool = False
    completion_code: str = ""
    completion_url: Annotated[str, Meta(pattern="^(https://.*)?$")] = ""
    pay_per_task: Annotated[float, Meta(ge=0)] = 0.0
    currency: str = "USD"


@dataclass(frozen=True)
class Configuration:
    """The content of ``testset.toml``. ``id`` ties the folder to its database.

    Attributes:
        name: Name of the test set.
        classes: Its classes.
        labels: Name of the label space.
        seed: Seed of all random numbers.
        database: URL of the database.
        annotation: Rules of the annotation.
        instructions: What annotators read.
        recruiting: Rules for recruited people.
        id: Ties the folder to its database.
    """

    name: str
    classes: tuple[ClassDefinition, ...]
    labels: str = ""
    seed: int = 0
    database: str = "sqlite"
    annotation: AnnotationRules = AnnotationRules()
    instructions: Instructions = Instructions()
    recruiting: Recruiting = Recruiting()
    id: str = field(default_factory=lambda: secrets.token_hex(8))

    def __post_init__(self) -> None:
        check_name(self.name, "project")
        keys = {entry.key for entry in self.classes}
        if len(keys) < 2:
            raise WorkshopError("a test set needs at least two classes", found=", ".join(keys) or "none")
        for entry in self.classes:
            unknown = [near for near in entry.near if near not in keys or near == entry.key]
            if unknown:
                raise WorkshopError(
                    f"invalid near class of {entry.key!r}", found=unknown[0], expected="another class key"
                )
            if not entry.key or set(entry.key) & set("/\\\0") or entry.key.startswith("."):
                raise WorkshopError(
                    "invalid class key",
                    found=repr(entry.key),
                    expected="a folder name without slash or leading dot",
                )
        rules = self.annotation
        decode(asdict(rules), AnnotationRules, FILE, WorkshopError, "annotation")
        if rules.grid <= rules.positive_controls + rules.negative_controls:
            raise WorkshopError(
                "the controls leave no room for candidates",
                found=f"{rules.positive_controls} + {rules.negative_controls} controls in a grid of {rules.grid}",
            )

    @cached_property
    def space(self) -> LabelSpace:
        keys = tuple(entry.key for entry in self.classes)
        return LabelSpace(self.labels or self.name, keys, tuple(entry.title for entry in self.classes))

    def class_of(self, key: str) -> ClassDefinition:
        """A class by its key."""
        return self.classes[self.space.index(key)]

    def near(self, key: str) -> tuple[str, ...]:
        """The classes that negative control images of a class are taken from."""
        return self.class_of(key).near or tuple(entry.key for entry in self.classes if entry.key != key)

    def with_rules(self, **rules: Any) -> Configuration:
        """The same with other rules of annotation."""
        return replace(self, annotation=replace(self.annotation, **rules))


def configuration_for(space: LabelSpace, name: str, *, seed: int = 0) -> Configuration:
    """The classes of a label space, without definitions."""
    classes = tuple(ClassDefinition(key, title) for key, title in zip(space.keys, space.names, strict=True))
    return Configuration(name, classes, labels=space.name, seed=seed)


def read_classes(path: Path, name: str, *, seed: int = 0) -> Configuration:
    """The classes of a file. A .csv may also have the columns definition, link and near (keys joined by ``|``)."""
    space = load_label_space(path)
    rows: dict[str, Mapping[str, str]] = {}
    if path.suffix.lower() == ".csv":
        reader = csv.DictReader(path.read_text(encoding="utf-8-sig").splitlines())
        rows = dict(zip(space.keys, reader, strict=True))
    classes = []
    for key, title in zip(space.keys, space.names, strict=True):
        # A line that is too long has a column None, and one that is too short the value None.
        row = {column: (value or "").strip() for column, value in rows.get(key, {}).items() if column}
        near_keys = [near_key.strip() for near_key in row.get("near", "").split("|")]
        near = tuple(near_key for near_key in near_keys if near_key)
        classes.append(ClassDefinition(key, title, row.get("definition", ""), row.get("link", ""), near))
    return Configuration(name, tuple(classes), labels=space.name, seed=seed)


def read_configuration(folder: Path) -> Configuration:
    """The configuration of a project; raises WorkshopError if the folder is none, or the file is invalid."""
    path = folder / FILE
    try:
        values = read_toml(path, WorkshopError)
    except FileNotFoundError:
        raise WorkshopError(
            f"{folder} is not a test-set project",
            found=f"no {FILE}" if folder.is_dir() else "no such folder",
            hint=f"create one: {shell_command('testset', 'init', folder, '--labels', 'cifar-10')}",
        ) from None
    if "id" not in values:
        # A fresh id would be generated, and would not match the database.
        raise WorkshopError(f"missing key in {path}", found="no id", expected="id")
    rules = values.get("annotation")
    if isinstance(rules, dict):
        values["annotation"] = {**_EARLIER_RULES, **rules}
    return decode(values, Configuration, str(path), WorkshopError)


def write_configuration(folder: Path, configuration: Configuration) -> None:
    """Write ``testset.toml``; what is empty in a class is left out."""
    values = asdict(configuration)
    classes = [_without_empty(entry) for entry in values.pop("classes")]
    # In TOML, tables follow the plain values.
    for name in ("annotation", "instructions", "recruiting"):
        values[name] = values.pop(name)
    values["classes"] = classes
    text = _COMMENT + to_toml(values)
    write_atomically(folder / FILE, lambda path: path.write_text(text, encoding="utf-8", newline="\n"))


def _without_empty(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if value or key == "key"}


def check_name(name: str, what: str) -> None:
    """Projects and sets give their names to folders, settings and commands, so other characters are refused."""
    alphanumeric = name.replace("-", "").replace("_", "").replace(".", "")
    if not (alphanumeric.isalnum() and name.isascii()) or len(name) > 60 or name.startswith((".", "-")):
        raise WorkshopError(
            f"invalid {what} name",
            found=repr(name[:80]),
            expected="at most 60 letters, digits, hyphens, underscores and dots",
        )
