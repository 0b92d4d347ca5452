"""``shiftbench testset``: build a test set, from candidates to a frozen set that models are evaluated on."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftbench.cli import testset_follow_up
from shiftbench.cli.console import errors, output, print_json, stoppable
from shiftbench.cli.table import show_report
from shiftbench.cli.testset_curation import dedupe_command, filter_command
from shiftbench.cli.testset_serve import review_command, serve_command

if TYPE_CHECKING:
    from shiftbench.testsets import Project
    from shiftbench.testsets.configuration import Configuration

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Build a test set: candidates, annotation, selection frequencies, sampling, review, a frozen set.\n\n"
    "The way: init, import (candidates, and --reference), tasks, invite, serve, status, sample, review, freeze; then "
    "`shiftbench eval MODEL --suite testset:DIR`, and `follow-up`.",
)

Folder = Annotated[Path, typer.Argument(help="The project's folder.")]
Database = Annotated[
    str | None,
    typer.Option(
        "--database", help="Default: SHIFTBENCH_DATABASE, then testset.toml. postgresql+psycopg://USER@HOST/DATABASE"
    ),
]
SetName = Annotated[str | None, typer.Option("--set", "-s", help="The set's name; not needed where there is one.")]
Format = Annotated[str, typer.Option("--format", "-f", help="text, md, csv, tex or json.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="A file: .md, .csv, .tex, .json or .txt.")]
Json = Annotated[bool, typer.Option("--json", help="The same as --format json.")]
Level = Annotated[float, typer.Option(help="Level of the intervals.")]


@contextlib.contextmanager
def opened(folder: Path, database: str | None) -> Iterator[Project]:
    from shiftbench.testsets import Project

    project = Project.open(folder, database=database)
    try:
        yield project
    finally:
        project.close()


@app.command("init")
def init_command(
    folder: Folder,
    labels: Annotated[
        str,
        typer.Option(help="The classes: a name of `list spaces`, or a file (.csv: key, name, definition, link, near)."),
    ],
    name: Annotated[str | None, typer.Option(help="Default: the folder's name.")] = None,
    database: Database = None,
    grid: Annotated[int, typer.Option(help="Images in a grid, controls included.")] = 48,
    annotators: Annotated[int, typer.Option(help="Different annotators for each image.")] = 10,
    lease: Annotated[float, typer.Option(help="Minutes that a task may be held.")] = 60,
    seed: Annotated[int, typer.Option(help="Seed of grids and samples.")] = 0,
) -> None:
    """Make a project: a folder with testset.toml, a store of pictures and a database.

    The database is a file in the folder, or PostgreSQL by URL. A password in the URL is used, and not written down.

    \b
    Examples:
      shiftbench testset init pets --labels cifar-10
      shiftbench testset init pets --labels classes.csv --database postgresql+psycopg://lead:...@db/pets
    """
    from shiftbench.testsets import Project

    configuration = _configuration(labels, name or folder.resolve().name, seed)
    configuration = configuration.with_rules(grid=grid, annotators=annotators, lease_minutes=lease)
    project = Project.create(folder, configuration, database=database)
    _say(f"made {folder}: {len(configuration.classes)} classes, database {project.database.shown}")
    if project.configuration.database != (database or os.environ.get("SHIFTBENCH_DATABASE") or "sqlite"):
        _say("the password is not stored: give SHIFTBENCH_DATABASE, or a ~/.pgpass, to later commands")
    if not any(entry.definition for entry in configuration.classes):
        _say("write definitions of the classes into testset.toml: annotators read them")
    project.close()


def _configuration(labels: str, name: str, seed: int) -> Configuration:
    from shiftbench.labels import label_space
    from shiftbench.testsets.configuration import configuration_for, read_classes

    if Path(labels).is_file():
        return read_classes(Path(labels), name, seed=seed)
    return configuration_for(label_space(labels), name, seed=seed)


@app.command("import")
def import_command(
    folder: Folder,
    source: Annotated[
        str, typer.Argument(help="A folder, manifest (.csv, .jsonl), any data set, or SCHEME:TARGET of a plug-in.")
    ],
    reference: Annotated[
        bool,
        typer.Option("--reference", help="As reference images: an existing set that the new one is compared with."),
    ] = False,
    class_key: Annotated[
        str | None, typer.Option("--class", help="The class of all pictures below a folder without class folders.")
    ] = None,
    per_class: Annotated[int | None, typer.Option(help="Only so many images of each class.")] = None,
    name: Annotated[str | None, typer.Option(help="What the source is called; default: its own name.")] = None,
    workers: Annotated[int | None, typer.Option("--workers", "-j", help="Default: one a core.")] = None,
    database: Database = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
    json: Json = False,
) -> None:
    """Add pictures to the pool, as candidates or as references.

    Each picture is kept once, by its content; broken ones are named and left out. Stopped at any moment, the same
    command continues. Columns of a manifest are kept: source, query, keyword, date, licence, author, url, and any
    others.

    \b
    Examples:
      shiftbench testset import pets downloads/manifest.csv
      shiftbench testset import pets photos/tabbies --class cat
      shiftbench testset import pets cifar-10-train --reference --per-class 50
    """
    from shiftbench.testsets.pool.import_images import import_pictures
    from shiftbench.testsets.reports import imported_table

    with opened(folder, database) as project, stoppable():
        done = import_pictures(
            project, _chosen(project, source, per_class), "reference" if reference else "candidate",
            class_key=class_key, name=name, workers=workers, progress=not quiet, console=errors,
        )  # fmt: skip
    show_report(imported_table(done), "json" if json else "text", None)
    if done.new:
        _say(f"when all is imported: shiftbench testset tasks {folder}")


def _chosen(project: Project, source: str, per_class: int | None) -> Any:
    if per_class is None:
        return source
    from shiftbench.datasets.catalogue import open_dataset
    from shiftbench.datasets.subset import per_class as some

    return some(open_dataset(source, space=project.space), per_class, seed=project.configuration.seed)


@app.command("tasks")
def tasks_command(folder: Folder, database: Database = None) -> None:
    """Put candidates that are in no grid yet into grids, with control images among them.

    Import first, then make grids: candidates that come in one go fill whole grids.
    """
    from shiftbench.testsets.tasks import make_tasks

    with opened(folder, database) as project:
        made = make_tasks(project)
        wished = project.configuration.annotation.references_per_class
    _say(f"{made.tasks} new grids with {made.candidates:,} candidates and {made.references:,} controls")
    if made.few_references:
        few = ", ".join(f"{key}: {count}" for key, count in list(made.few_references.items())[:5])
        _say(f"few references for matched sampling ({few}); wished are {wished} a class")


@app.command("invite")
def invite_command(
    folder: Folder,
    names: Annotated[list[str] | None, typer.Argument(help="For whom: one link a name.")] = None,
    role: Annotated[str, typer.Option(help="annotator, reviewer or lead.")] = "annotator",
    people: Annotated[int, typer.Option(help="So many links without names.")] = 0,
    days: Annotated[float, typer.Option(help="How long a link is valid.")] = 30,
    base: Annotated[str, typer.Option(help="Where the pages are served.")] = "http://localhost:8780",
    database: Database = None,
    json: Json = False,
) -> None:
    """Make personal links. Each stands for one person, and is shown only now: the database keeps its hash."""
    from shiftbench.testsets.accounts import invite

    with opened(folder, database) as project:
        wanted = [*(names or []), *([""] * people)] or [""]
        made = [invite(project, role, name, days=days) for name in wanted]  # type: ignore[arg-type]
    links = [
        {"name": link.name, "role": link.role, "link": f"{base.rstrip('/')}/join/{link.token}",
         "expires": link.expires_at.isoformat()}
        for link in made
    ]  # fmt: skip
    if json:
        print_json(links)
        return
    for link in links:
        output.print(f"{link['name'] or link['role']}: {link['link']}", highlight=False, soft_wrap=True, markup=False)


app.command("serve")(serve_command)
app.command("review")(review_command)
app.command("dedupe")(dedupe_command)
app.command("filter")(filter_command)
app.add_typer(testset_follow_up.app, name="follow-up")


@app.command("status")
def status_command(folder: Folder, database: Database = None, level: Level = 0.95, json: Json = False) -> None:
    """How far everything is: the pool, the annotation, the annotators, the sets."""
    from shiftbench.testsets.annotation import progress
    from shiftbench.testsets.frequencies import annotator_quality, class_summaries
    from shiftbench.testsets.pool.counts import pool_counts
    from shiftbench.testsets.reports import class_table, pool_table, progress_table, quality_table, revision_table
    from shiftbench.testsets.revisions import revisions, set_names, set_status

    with opened(folder, database) as project:
        statuses = [set_status(project, name) for name in set_names(project)]
        tables = {
            "pool": pool_table(pool_counts(project)),
            "annotation": progress_table(progress(project)),
            "annotators": quality_table(annotator_quality(project), level=level),
            "classes": class_table(class_summaries(project, level=level)),
            "sets": revision_table(revisions(project), statuses),
        }
    if json:
        print_json({name: table.as_data() for name, table in tables.items()})
        return
    for table in tables.values():
        if table.rows:
            output.print(table)
            output.print()


@app.command("exclude")
def exclude_command(
    folder: Folder,
    name: Annotated[str, typer.Argument(help="The annotator.")],
    because: Annotated[str, typer.Option(help="Why; it is kept in the audit log.")],
    readmit: Annotated[bool, typer.Option("--readmit", help="Take an exclusion back.")] = False,
    database: Database = None,
) -> None:
    """Make an annotator's answers not count. They are kept, and their tasks go to others."""
    from shiftbench.testsets import accounts

    with opened(folder, database) as project:
        person = accounts.find_person(project, name)
        change = accounts.readmit if readmit else accounts.exclude
        count = change(project, person.id, because)
    _say(f"{name}: {count} tasks {'count again' if readmit else 'went back to the queue'}")


@app.command("frequencies")
def frequencies_command(
    folder: Folder,
    file: Annotated[Path | None, typer.Option("--output", "-o", help="All images: .csv, .json or .parquet.")] = None,
    database: Database = None,
    level: Level = 0.95,
    json: Json = False,
) -> None:
    """How many of its annotators selected each image, with Clopper-Pearson intervals."""
    from shiftbench.testsets.frequencies import selection_frequencies, write_frequencies
    from shiftbench.testsets.reports import frequency_table

    with opened(folder, database) as project:
        if file is not None:
            _say(f"written: {write_frequencies(project, file, level=level)}")
            return
        table = frequency_table(selection_frequencies(project), level=level)
    show_report(table, "json" if json else "text", None)


@app.command("sample")
def sample_command(
    folder: Folder,
    strategy: Annotated[
        str | None, typer.Option(help="matched-frequency, threshold, top-images or keywords; needed the first time.")
    ] = None,
    set_name: SetName = None,
    per_class: Annotated[int | None, typer.Option(help="Images a class; 10 the first time.")] = None,
    seed: Annotated[int | None, typer.Option(help="Default: the project's.")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", help="Of the strategy: threshold=0.6, overrides.nail=0.5, min_annotations=5 ..."),
    ] = None,
    note: Annotated[str, typer.Option(help="Kept with the revision.")] = "",
    database: Database = None,
    format: Format = "text",
    file: Output = None,
    json: Json = False,
) -> None:
    """Sample a set, or its next revision: images that were marked are replaced, the others stay.

    The same seed gives the same set. A set is called by its strategy, unless --set says otherwise.

    \b
    Examples:
      shiftbench testset sample pets --strategy matched-frequency
      shiftbench testset sample pets --strategy threshold --option threshold=0.7 --option overrides.frog=0.5
      shiftbench testset sample pets --set threshold          # the next revision
    """
    from shiftbench.testsets.reports import sampling_table
    from shiftbench.testsets.revisions import sample
    from shiftbench.testsets.sampling.base import make_sampling

    if strategy is None and option:
        raise typer.BadParameter("options belong to a --strategy", param_hint="--option")
    with opened(folder, database) as project:
        chosen = None if strategy is None else make_sampling(strategy, **parse_options(option or []))
        name = set_name or strategy or only_set(project)
        revision, changed = sample(project, name, chosen, per_class=per_class, seed=seed, note=note)
    show_report(sampling_table(revision), "json" if json else format, file)
    if not changed:
        _say(f"nothing changed: revision {revision.number} stays the latest")


def parse_options(values: list[str]) -> dict[str, Any]:
    """
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
        group, _, key = name.partition(".")
        if key:
            options.setdefault(group, {})[key] = parsed
        else:
            options[group] = parsed
    return options


@app.command("mark")
def mark_command(
    folder: Folder,
    image: Annotated[str, typer.Argument(help="The digest of the picture, or the beginning of it.")],
    near_duplicate: Annotated[
        bool, typer.Option("--near-duplicate", help="Not black-listed, but a duplicate.")
    ] = False,
    class_key: Annotated[str | None, typer.Option("--class", help="Where it is a candidate of several.")] = None,
    note: Annotated[str, typer.Option(help="Why.")] = "",
    database: Database = None,
) -> None:
    """Take a candidate out of all sets; the next revision has another image in its place."""
    from shiftbench.testsets.review import find_candidate, mark

    with opened(folder, database) as project:
        entry = find_candidate(project, image, class_key)
        mark(project, entry, "near-duplicate" if near_duplicate else "blacklist", note)
    _say("marked; `sample` makes the next revision")


@app.command("diff")
def diff_command(
    folder: Folder,
    old: Annotated[int, typer.Argument(help="A revision.")],
    new: Annotated[int, typer.Argument(help="A later one.")],
    set_name: SetName = None,
    database: Database = None,
    format: Format = "text",
    file: Output = None,
    json: Json = False,
) -> None:
    """What came and went between two revisions, and why."""
    from shiftbench.testsets.reports import difference_table
    from shiftbench.testsets.revisions import difference

    with opened(folder, database) as project:
        change = difference(project, set_name or only_set(project), old, new)
    show_report(difference_table(change), "json" if json else format, file)


@app.command("freeze")
def freeze_command(
    folder: Folder,
    set_name: SetName = None,
    allow_short: Annotated[
        bool, typer.Option("--allow-short", help="Although some classes have fewer images than wished.")
    ] = False,
    database: Database = None,
) -> None:
    """Make the latest revision final: files with a fingerprint, and a card. Only then may models see it."""
    from shiftbench.testsets.freeze import freeze

    with opened(folder, database) as project:
        frozen = freeze(project, set_name or only_set(project), allow_short=allow_short)
    _say(f"frozen: {frozen.images:,} images in {frozen.folder}, fingerprint {frozen.fingerprint}")
    _say(f"evaluate: shiftbench eval MODEL --suite testset:{folder} -w WORKSPACE")
    if frozen.references:
        _say(
            f"compare:  shiftbench study reproducibility -w WORKSPACE --x {frozen.project}-reference --y {frozen.name}"
        )


@app.command("export")
def export_command(
    folder: Annotated[Path, typer.Argument(help="The project's folder, or that of one frozen set.")],
    target: Annotated[Path, typer.Argument(help="A new folder.")],
    format: Annotated[str, typer.Option("--format", "-f", help="folder, webdataset or huggingface.")] = "folder",
    set_name: SetName = None,
) -> None:
    """Write a frozen set, with its card, in a layout that others read."""
    from shiftbench.testsets.export import export
    from shiftbench.testsets.frozen import frozen_sets, one_frozen

    frozen = one_frozen(frozen_sets(folder), set_name)
    _say(f"written: {export(frozen, format, target)}")


@app.command("log")
def log_command(
    folder: Folder,
    last: Annotated[int, typer.Option(help="So many lines.")] = 50,
    database: Database = None,
    json: Json = False,
) -> None:
    """Who did what, when; the newest first."""
    from shiftbench.testsets.audit import audit_log
    from shiftbench.testsets.reports import audit_table

    with opened(folder, database) as project:
        table = audit_table(audit_log(project, last=last))
    show_report(table, "json" if json else "text", None)


def only_set(project: Project) -> str:
    """The name of the set where there is one, and so no doubt."""
    from shiftbench.testsets.revisions import set_names

    names = set_names(project)
    if len(names) != 1:
        known = ", ".join(names) if names else "none yet: sample one with --strategy"
        raise typer.BadParameter(f"which set? ({known})", param_hint="--set")
    return names[0]


def _say(text: str) -> None:
    errors.print(text, highlight=False, markup=False, soft_wrap=True)
