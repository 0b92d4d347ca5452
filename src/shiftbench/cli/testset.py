"""``shiftbench testset``: build a test set, from candidates to a frozen set for evaluation."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftbench.cli import testset_follow_up
from shiftbench.cli.console import errors, output, print_json, stoppable
from shiftbench.cli.options import ExecutorOptions, Json, Level, Quiet, TableOptions, grouped
from shiftbench.cli.testset_candidates import (
    Since,
    Until,
    WordNetFlag,
    WordNetFolder,
    as_day,
    described_by_wordnet,
    keywords_command,
    queries_command,
)
from shiftbench.cli.testset_filter import filter_command
from shiftbench.cli.testset_options import (
    Database,
    DescriptorOptions,
    Folder,
    SetName,
    SetOptions,
    only_set,
    opened,
    parse_options,
    report,
    say,
)
from shiftbench.cli.testset_serve import ADDRESS, PORT, review_command, serve_command
from shiftbench.cli.testset_study import study_command

if TYPE_CHECKING:
    from shiftbench.datasets.base import Dataset
    from shiftbench.testsets import Project
    from shiftbench.testsets.configuration import Configuration

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Build a test set: candidates, annotation, selection frequencies, sampling, review, freezing.\n\n"
    "Typical order: init, import (candidates, and --reference), tasks, invite, serve, status, sample, review, freeze; "
    "then `shiftbench eval MODEL --suite testset:DIR`, and `follow-up`.",
)


@app.command("init")
def init_command(
    folder: Folder,
    labels: Annotated[
        str,
        typer.Option(help="Classes: a name from `list spaces`, or a file (.csv: key, name, definition, link, near)."),
    ],
    name: Annotated[str | None, typer.Option(help="Project name (default: name of the folder).")] = None,
    wordnet: WordNetFlag = False,
    wordnet_folder: WordNetFolder = None,
    database: Database = None,
    grid: Annotated[int, typer.Option(help="Images per grid, including controls.")] = 48,
    annotators: Annotated[int, typer.Option(help="Annotators per image.")] = 10,
    lease: Annotated[float, typer.Option(help="Minutes until an unanswered task is returned to the queue.")] = 60,
    seed: Annotated[int, typer.Option(help="Seed of grids and samples.")] = 0,
    json: Json = False,
) -> None:
    """Create a project: a folder with testset.toml, images and a database.

    The database is a file in the folder, or PostgreSQL by URL. A password in the URL is not stored.

    \b
    Examples:
      shiftbench testset init pets --labels cifar-10
      shiftbench testset init photos --labels imagenet-1k --wordnet
      shiftbench testset init pets --labels classes.csv --database postgresql+psycopg://lead:...@db/pets
    """
    from shiftbench.testsets import Project

    configuration = _configuration(labels, name or folder.resolve().name, seed)
    configuration = configuration.with_rules(grid=grid, annotators=annotators, lease_minutes=lease)
    if wordnet or wordnet_folder is not None:
        configuration = described_by_wordnet(configuration, wordnet_folder)
    project = Project.create(folder, configuration, database=database)
    made = {"folder": str(folder), "name": configuration.name, "classes": len(configuration.classes),
            "database": project.database.shown}  # fmt: skip
    report(made, "created {folder}: {classes} classes, database {database}", json=json)
    if project.configuration.database != (database or os.environ.get("SHIFTBENCH_DATABASE") or "sqlite"):
        say("the password is not stored: set SHIFTBENCH_DATABASE or ~/.pgpass for later commands")
    if not any(entry.definition for entry in configuration.classes):
        say("add class definitions to testset.toml: annotators read them")
    project.close()


def _configuration(labels: str, name: str, seed: int) -> Configuration:
    from shiftbench.labels import label_space
    from shiftbench.testsets.configuration import configuration_for, read_classes

    if Path(labels).is_file():
        return read_classes(Path(labels), name, seed=seed)
    return configuration_for(label_space(labels), name, seed=seed)


@app.command("import")
@grouped
def import_command(
    folder: Folder,
    source: Annotated[
        str,
        typer.Argument(
            help="A folder, manifest (.csv, .jsonl), any dataset, or images to download: flickr:PATH, "
            "inaturalist:PATH, urls:PATH, or SCHEME:TARGET of a plug-in."
        ),
    ],
    reference: Annotated[
        bool,
        typer.Option("--reference", help="Import as reference images: an existing set to compare the new one with."),
    ] = False,
    class_key: Annotated[
        str | None, typer.Option("--class", help="Class of all images in a folder without class folders.")
    ] = None,
    per_class: Annotated[int | None, typer.Option(help="Import at most N images per class.")] = None,
    since: Since = None,
    until: Until = None,
    name: Annotated[str | None, typer.Option(help="Name of the source (default: its own name).")] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", "-j", min=1, help="Number of workers (default: one per core).")
    ] = None,
    database: Database = None,
    quiet: Quiet = False,
    *,
    table: TableOptions,
) -> None:
    """Add images to the pool, as candidates or references.

    Each image is stored once, by content; broken ones are reported and skipped. If interrupted, rerun the same command;
    it resumes. Columns of a manifest are stored: source, query, keyword, date, licence, author, url, and any others.

    \b
    Examples:
      shiftbench testset import pets downloads/manifest.csv
      shiftbench testset import pets photos/tabbies --class cat
      shiftbench testset import pets flickr:answers/ --since 2012-07-11 --until 2013-07-11
      shiftbench testset import pets inaturalist:observations.csv
      shiftbench testset import pets cifar-10-train --reference --per-class 50
    """
    from shiftbench.testsets.pool.import_images import import_images
    from shiftbench.testsets.reports import imported_table

    with opened(folder, database) as project, stoppable():
        done = import_images(
            project, _chosen(project, source, per_class), "reference" if reference else "candidate",
            class_key=class_key, name=name, since=as_day(since), until=as_day(until), workers=workers,
            progress=not quiet, console=errors,
        )  # fmt: skip
    table.show(imported_table(done))
    if done.new:
        say(f"next: shiftbench testset tasks {folder}")


def _chosen(project: Project, source: str, per_class: int | None) -> str | Dataset:
    if per_class is None:
        return source
    from shiftbench.datasets.catalogue import open_dataset
    from shiftbench.datasets.subset import per_class as some

    return some(open_dataset(source, space=project.space), per_class, seed=project.configuration.seed)


@app.command("tasks")
def tasks_command(folder: Folder, database: Database = None, json: Json = False) -> None:
    """Create annotation grids for new candidates, mixed with control images.

    Import all images first: candidates that are imported together fill whole grids.
    """
    from shiftbench.testsets.revisions import unsearched
    from shiftbench.testsets.tasks import make_tasks

    with opened(folder, database) as project:
        made = make_tasks(project)
        wished = project.configuration.annotation.references_per_class
        gap = unsearched(project)
    found = {**asdict(made), "unsearched": gap}
    report(found, "{tasks} new grids with {candidates:,} candidates and {references:,} controls", json=json)
    if gap is not None:
        say(f"{gap}: shiftbench testset dedupe {folder} --against ORIGINAL_TRAIN --against ORIGINAL_TEST")
    if made.few_references:
        few = ", ".join(f"{key}: {count}" for key, count in list(made.few_references.items())[:5])
        say(f"few references for matched sampling ({few}); {wished} per class are recommended")


@app.command("invite")
def invite_command(
    folder: Folder,
    names: Annotated[list[str] | None, typer.Argument(help="Names of people; one link each.")] = None,
    role: Annotated[str, typer.Option(help="annotator, reviewer or lead.")] = "annotator",
    people: Annotated[int, typer.Option(help="Number of additional links without names.")] = 0,
    days: Annotated[float, typer.Option(help="Days until the links expire.")] = 30,
    base: Annotated[
        str | None, typer.Option(help="Base URL of the pages (default: where `serve` last served them).")
    ] = None,
    database: Database = None,
    json: Json = False,
) -> None:
    """Create personal invitation links. They are shown only once; the database stores their hashes."""
    from shiftbench.testsets.accounts import invite

    with opened(folder, database) as project:
        served = folder / ADDRESS
        base = base or (served.read_text().strip() if served.is_file() else f"http://localhost:{PORT}")
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
app.command("filter")(filter_command)
app.command("queries")(queries_command)
app.command("keywords")(keywords_command)
app.command("study")(study_command)
app.add_typer(testset_follow_up.app, name="follow-up")


@app.command("dedupe")
@grouped
def dedupe_command(
    folder: Folder,
    search: DescriptorOptions,
    against: Annotated[
        list[str] | None,
        typer.Option(
            help="Original dataset to compare with, such as its training and its test set (repeatable). It is not "
            "imported, and is searched again by later calls."
        ),
    ] = None,
    database: Database = None,
    *,
    where: ExecutorOptions,
    quiet: Quiet = False,
    table: TableOptions,
) -> None:
    """Find candidates that are near-duplicates of original images or of each other, for human review.

    Candidates are compared with the imported references, with each other, and with the datasets of --against: name the
    whole training set and the whole test set of the original data.

    Exact nearest neighbours in l2 on pixels or features; neighbours are also compared by SSIM. Suspected candidates are
    not sampled until the pair has been judged on the review pages.

    \b
    Examples:
      shiftbench testset dedupe pets --against cifar-10-train --against cifar-10-test
      shiftbench testset dedupe pets --by pixels --by demo:efficientnet-lite0 --threshold ssim=0.8
      on all machines of a Ray cluster, with the project in a shared folder
        shiftbench testset dedupe pets --by timm:resnet50 --executor ray --address HOST:6379
    """
    from shiftbench.testsets.pool.suspects import suspect_near_duplicates
    from shiftbench.testsets.revisions import unsearched

    with opened(folder, database) as project, stoppable():
        queue, new = suspect_near_duplicates(
            project, against=against or (), show=not quiet, **search.options(), **where.options()
        )
        gap = unsearched(project)
    table.show(queue)
    if gap is not None:
        say(f"not searched: {gap}; name them with --against")
    say(f"{new} new pairs to judge: shiftbench testset review {folder}")


@app.command("status")
def status_command(folder: Folder, database: Database = None, level: Level = 0.95, json: Json = False) -> None:
    """Show the progress of the project: pool, annotation, annotators, classes, sets."""
    from shiftbench.testsets.annotation import progress
    from shiftbench.testsets.frequencies import annotator_quality, class_summaries
    from shiftbench.testsets.pool.entries import pool_counts
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
    name: Annotated[str, typer.Argument(help="Name of the annotator.")],
    because: Annotated[str, typer.Option(help="Reason; recorded in the audit log.")],
    readmit: Annotated[bool, typer.Option("--readmit", help="Undo an exclusion.")] = False,
    database: Database = None,
    json: Json = False,
) -> None:
    """Stop counting an annotator's answers. They are kept, and the tasks go to others."""
    from shiftbench.testsets import accounts

    with opened(folder, database) as project:
        person = accounts.find_person(project, name)
        change = accounts.readmit if readmit else accounts.exclude
        count = change(project, person.id, because)
    done = {"annotator": name, "excluded": not readmit, "tasks": count}
    report(done, f"{{annotator}}: {{tasks}} tasks {'count again' if readmit else 'returned to the queue'}", json=json)


@app.command("pay")
@grouped
def pay_command(folder: Folder, database: Database = None, *, table: TableOptions) -> None:
    """List recruited annotators: platform and worker id, tasks, minutes, control images, completion code, pay."""
    from shiftbench.testsets.recruiting import pay_table

    with opened(folder, database) as project:
        found = pay_table(project)
    table.show(found)


@app.command("frequencies")
def frequencies_command(
    folder: Folder,
    file: Annotated[Path | None, typer.Option("--output", "-o", help="Write a file: .csv, .json or .parquet.")] = None,
    database: Database = None,
    level: Level = 0.95,
    json: Json = False,
) -> None:
    """Show selection frequencies of all images, with Clopper-Pearson intervals."""
    from shiftbench.testsets.frequencies import selection_frequencies, write_frequencies
    from shiftbench.testsets.reports import frequency_table

    with opened(folder, database) as project:
        if file is not None:
            report({"file": str(write_frequencies(project, file, level=level))}, "written: {file}", json=json)
            return
        table = frequency_table(selection_frequencies(project), level=level)
    TableOptions(json=json).show(table)


@app.command("answers")
def answers_command(
    folder: Folder,
    file: Annotated[Path, typer.Option("--output", "-o", help="File to write: .csv or .parquet.")],
    database: Database = None,
    json: Json = False,
) -> None:
    """Export every answer to every image: annotator, time, seconds, class, image, selected or not, remarks."""
    from shiftbench.testsets.frequencies import write_answers

    with opened(folder, database) as project:
        report({"file": str(write_answers(project, file))}, "written: {file}", json=json)


@app.command("sample")
@grouped
def sample_command(
    folder: Folder,
    strategy: Annotated[
        str | None, typer.Option(help="matched-frequency, threshold, top-images or keywords; required for a new set.")
    ] = None,
    set_name: SetName = None,
    per_class: Annotated[int | None, typer.Option(help="Images per class (default: 10, or as before).")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed (default: that of the project, or as before).")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            help="Option of the strategy (repeatable): threshold=0.6, overrides.nail=0.5, min_annotations=5.",
        ),
    ] = None,
    note: Annotated[str, typer.Option(help="Note stored with the revision.")] = "",
    database: Database = None,
    *,
    table: TableOptions,
) -> None:
    """Sample a set, or its next revision, in which marked images are replaced and the others stay.

    The same seed gives the same set. A new set is named after its strategy, unless --set is given.

    \b
    Examples:
      shiftbench testset sample pets --strategy matched-frequency
      shiftbench testset sample pets --strategy threshold --option threshold=0.7 --option overrides.frog=0.5
      shiftbench testset sample pets --set threshold          # the next revision
    """
    from shiftbench.testsets.reports import sampling_table
    from shiftbench.testsets.revisions import sample, unsearched
    from shiftbench.testsets.sampling.base import make_sampling

    if strategy is None and option:
        raise typer.BadParameter("requires --strategy", param_hint="--option")
    with opened(folder, database) as project:
        chosen = None if strategy is None else make_sampling(strategy, **parse_options(option or []))
        name = set_name or strategy or only_set(project)
        revision, changed = sample(project, name, chosen, per_class=per_class, seed=seed, note=note)
        gap = unsearched(project)
    table.show(sampling_table(revision))
    if gap is not None:
        say(f"NOT SEARCHED: {gap}; see shiftbench testset dedupe {folder} --against")
    if not changed:
        say(f"nothing changed: revision {revision.number} is still the latest")


@app.command("mark")
def mark_command(
    folder: Folder,
    image: Annotated[str, typer.Argument(help="Digest of the image, or a prefix of it.")],
    near_duplicate: Annotated[
        bool, typer.Option("--near-duplicate", help="Mark as a near-duplicate instead of blacklisting.")
    ] = False,
    class_key: Annotated[str | None, typer.Option("--class", help="Class, if it is a candidate of several.")] = None,
    note: Annotated[str, typer.Option(help="Reason.")] = "",
    database: Database = None,
    json: Json = False,
) -> None:
    """Remove a candidate from all sets; the next revision replaces it."""
    from shiftbench.testsets.review import MarkKind, find_candidate, mark

    with opened(folder, database) as project:
        entry = find_candidate(project, image, class_key)
        kind: MarkKind = "near-duplicate" if near_duplicate else "blacklist"
        done = {"mark": mark(project, entry, kind, note), "entry": entry, "kind": kind, "note": note}
    report(done, "marked; create the next revision with `sample`", json=json)


@app.command("diff")
@grouped
def diff_command(
    folder: Folder,
    old: Annotated[int, typer.Argument(help="Number of a revision.")],
    new: Annotated[int, typer.Argument(help="Number of a later revision.")],
    chosen: SetOptions,
    table: TableOptions,
) -> None:
    """Show the images added and removed between two revisions, with reasons."""
    from shiftbench.testsets.reports import difference_table
    from shiftbench.testsets.revisions import difference

    with chosen.opened(folder) as (project, name):
        change = difference(project, name, old, new)
    table.show(difference_table(change))


@app.command("freeze")
@grouped
def freeze_command(
    folder: Folder,
    chosen: SetOptions,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            help="Defect to accept, named on the card (repeatable): short (classes with too few images), unreviewed "
            "(classes), unsearched (candidates not compared with all original data)."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Make the latest revision final: image files with a fingerprint and a dataset card, ready for evaluation.

    Every class must have been reviewed, no image may be left to replace, and the candidates must have been compared
    with the original data (dedupe --against).
    """
    from shiftbench.testsets.freeze import DEFECTS, freeze

    unknown = [one for one in allow or [] if one not in DEFECTS]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r} is not one of {', '.join(DEFECTS)}", param_hint="--allow")
    with chosen.opened(folder) as (project, name):
        frozen = freeze(project, name, allow=allow or ())
    names = ("name", "revision", "images", "fingerprint", "references", "reference_fingerprint", "sampling")
    done = {"folder": str(frozen.folder), "set": frozen.set_name, **{name: getattr(frozen, name) for name in names}}
    report(done, "frozen: {images:,} images in {folder}, fingerprint {fingerprint}", json=json)
    say(f"evaluate: shiftbench eval MODEL --suite testset:{folder} -w WORKSPACE")
    if frozen.references:
        say(f"compare:  shiftbench study reproducibility -w WORKSPACE --x {frozen.project}-reference --y {frozen.name}")


@app.command("export")
def export_command(
    folder: Annotated[Path, typer.Argument(help="Project folder, or folder of a frozen set.")],
    target: Annotated[Path, typer.Argument(help="New folder.")],
    format: Annotated[
        str, typer.Option("--format", "-f", help="folder, webdataset, huggingface, coco or croissant.")
    ] = "folder",
    set_name: SetName = None,
    json: Json = False,
) -> None:
    """Export a frozen set, with its dataset card, in a common layout."""
    from shiftbench.testsets.export import export
    from shiftbench.testsets.frozen import frozen_sets, one_frozen

    frozen = one_frozen(frozen_sets(folder), set_name)
    written = str(export(frozen, format, target))
    report({"folder": written, "format": format, "set": frozen.set_name, "images": frozen.images},
           "written: {folder}", json=json)  # fmt: skip


@app.command("log")
@grouped
def log_command(
    folder: Folder,
    last: Annotated[int, typer.Option(help="Number of entries.")] = 50,
    database: Database = None,
    *,
    table: TableOptions,
) -> None:
    """Show the audit log, newest entries first."""
    from shiftbench.testsets.audit import audit_log
    from shiftbench.testsets.reports import audit_table

    with opened(folder, database) as project:
        lines = audit_log(project, last=last)
    table.show(audit_table(lines))
