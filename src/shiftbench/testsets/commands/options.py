"""What the `testset` commands share: the project, the set, and messages on stderr."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from shiftbench.extend.commands import errors, print_json

if TYPE_CHECKING:
    from shiftbench.testsets import Project

Folder = Annotated[Path, typer.Argument(help="Project folder.")]
Database = Annotated[
    str | None,
    "--database",
    "Database URL, such as postgresql+psycopg://USER@HOST/DATABASE (default: SHIFTBENCH_DATABASE, then testset.toml).",
]
Workers = Annotated[int | None, "--workers", "-j", {"min": 1}, "Number of workers (default: one per core)."]
SetName = Annotated[str | None, "--set", "-s", "Name of the set (default: the only one of the project)."]


@dataclass(frozen=True)
class ProjectOptions:
    """A project and its database."""

    panel: ClassVar[str] = "Project"
    folder: Folder
    database: Database = None

    def opened(self) -> AbstractContextManager[Project]:
        return opened(self.folder, self.database)


@dataclass(frozen=True)
class SetOptions:
    """A set of a project."""

    panel: ClassVar[str] = "Project"
    folder: Folder
    set_name: SetName = None
    database: Database = None

    @contextmanager
    def opened(self) -> Iterator[tuple[Project, str]]:
        """The project and the name of the set."""
        with opened(self.folder, self.database) as project:
            yield project, self.set_name or only_set(project)


@dataclass(frozen=True)
class DescriptorOptions:
    """How images are searched for near-duplicates."""

    panel: ClassVar[str] = "Search"
    by: Annotated[
        list[str] | None,
        "What to search by (repeatable): pixels, pixels-normalised, a model, for its features, or ssim, among images "
        "of near classes. Default: pixels and pixels-normalised.",
    ] = None
    k: Annotated[int | None, "--k", {"min": 1}, "Nearest neighbours per image and descriptor (default: 30)."] = None
    threshold: Annotated[list[str] | None, "Threshold of a metric: ssim=0.9, pixels=12 (repeatable)."] = None
    flips: Annotated[bool, "--flips", "Also search for mirror images."] = False

    def options(self) -> dict[str, Any]:
        """The arguments of ``find_near_duplicates`` that the user has stated; it has defaults for the others."""
        thresholds = parse_options(self.threshold or [])
        arguments: dict[str, Any] = {
            "by": self.by,
            "k": self.k,
            "thresholds": {metric: float(value) for metric, value in thresholds.items()},
            "flips": self.flips,
        }
        return {name: value for name, value in arguments.items() if value}


@contextmanager
def opened(folder: Path, database: str | None) -> Iterator[Project]:
    """A context with the project of a folder, which is closed at the end."""
    from shiftbench.testsets import Project

    project = Project.open(folder, database=database)
    try:
        yield project
    finally:
        project.close()


def only_set(project: Project) -> str:
    """The name of the only set of a project."""
    from shiftbench.testsets.revisions import set_names

    names = set_names(project)
    if len(names) != 1:
        choices = f"one of {', '.join(names)}" if names else "no sets yet; create one with sample --strategy"
        raise typer.BadParameter(f"name a set ({choices})", param_hint="--set")
    return names[0]


def say(text: str) -> None:
    """Print a message for people on stderr, as it is: names may hold what would be markup."""
    errors.print(text, highlight=False, markup=False, soft_wrap=True)


def report(values: Mapping[str, object], message: str, *, json: bool) -> None:
    """What a command did: as JSON on stdout, or as a message, which names some of the values."""
    if json:
        print_json(values)
    else:
        say(message.format(**values))


def parse_options(values: list[str]) -> dict[str, Any]:
    """The options of a repeated flag, with values as JSON has them; a dotted name is an entry of a table.

    >>> parse_options(["threshold=0.6", "overrides.nail=0.5", "balanced=true"])
    {'threshold': 0.6, 'overrides': {'nail': 0.5}, 'balanced': True}
    """
    import json

    options: dict[str, Any] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals:
            raise typer.BadParameter(f"{value!r} is not of the form NAME=VALUE", param_hint="--option")
        try:
            parsed = json.loads(text)
        except ValueError:
            parsed = text
        table: object = options
        key = name
        group, dot, entry = name.partition(".")
        if dot and entry:
            table = options.setdefault(group, {})
            key = entry
        # A name may also be taken by a plain value: threshold=0.5 leaves no table for threshold.nail=0.6.
        if not isinstance(table, dict) or key in table:
            raise typer.BadParameter(f"{name} is given twice", param_hint="--option")
        table[key] = parsed
    return options
