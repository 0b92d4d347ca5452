"""``shiftbench testset``: build a test set, from candidates to a frozen set for evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shiftbench.extend.commands import (
    Commands,
    Json,
    Level,
    ModelNames,
    TableOptions,
    WorkspacePath,
    choice,
    output,
    print_json,
)
from shiftbench.extend.errors import shell_command
from shiftbench.testsets.commands import candidates, follow_up, serve
from shiftbench.testsets.commands.options import (
    ProjectOptions,
    SetName,
    SetOptions,
    only_set,
    parse_options,
    report,
    say,
)

#: Commands on annotations and sets.
sets = Commands("")


@sets.command("status")
def status_command(at: ProjectOptions, level: Level = 0.95, json: Json = False) -> None:
    """Show the progress of the project: pool, annotation, annotators, classes, sets."""
    from shiftbench.testsets.annotation import progress
    from shiftbench.testsets.frequencies import annotator_quality, class_summaries
    from shiftbench.testsets.pool.entries import pool_counts
    from shiftbench.testsets.reports import class_table, pool_table, progress_table, quality_table, revision_table
    from shiftbench.testsets.revisions import revisions, set_names, set_status

    with at.opened() as project:
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


@sets.command("frequencies")
def frequencies_command(
    at: ProjectOptions,
    file: Annotated[Path | None, "--output", "-o", "Write a file: .csv, .json or .parquet."] = None,
    level: Level = 0.95,
    json: Json = False,
) -> None:
    """Show selection frequencies of all images, with Clopper-Pearson intervals."""
    from shiftbench.testsets.frequencies import selection_frequencies, write_frequencies
    from shiftbench.testsets.reports import frequency_table

    with at.opened() as project:
        if file is not None:
            report({"file": str(write_frequencies(project, file, level=level))}, "written: {file}", json=json)
            return
        table = frequency_table(selection_frequencies(project), level=level)
    TableOptions(json=json).show(table)


@sets.command("answers")
def answers_command(
    at: ProjectOptions,
    file: Annotated[Path, "--output", "-o", "File to write: .csv or .parquet."],
    anonymous: Annotated[
        bool,
        "--anonymous/--names",
        "Write pseudonyms, the same in every export of the project, or the names of accounts and worker ids.",
    ] = True,
    json: Json = False,
) -> None:
    """Export every answer to every image: annotator, time, seconds, class, image, selected or not, remarks.

    Comments are exported as they were written: read them before you publish the file.
    """
    from shiftbench.testsets.frequencies import write_answers

    with at.opened() as project:
        report({"file": str(write_answers(project, file, names=not anonymous))}, "written: {file}", json=json)


@sets.command("verify")
def verify_command(at: ProjectOptions, *, table: TableOptions) -> None:
    """Verify the database, the answers, the counts and the image files; exit code 1 if something is damaged."""
    from shiftbench.testsets.reports import damage_table
    from shiftbench.testsets.verify import verify

    with at.opened() as project:
        damages = verify(project)
    table.show(damage_table(damages))
    if damages:
        raise typer.Exit(1)


@sets.command("sample")
def sample_command(
    at: ProjectOptions,
    strategy: Annotated[
        str | None, "matched-frequency, threshold, top-images or keywords; required for a new set."
    ] = None,
    set_name: SetName = None,
    per_class: Annotated[int | None, "Images per class (default: 10, or as before)."] = None,
    seed: Annotated[int | None, "Seed (default: that of the project, or as before)."] = None,
    option: Annotated[
        list[str] | None,
        "--option",
        "Option of the strategy (repeatable): threshold=0.6, overrides.nail=0.5, min_annotations=5 (default: 10, or "
        "all that the project asks for).",
    ] = None,
    note: Annotated[str, "Note stored with the revision."] = "",
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
    from shiftbench.testsets.sampling import make_sampling

    if strategy is None and option:
        raise typer.BadParameter("requires --strategy", param_hint="--option")
    with at.opened() as project:
        sampling = None
        if strategy is not None:
            options = parse_options(option or [])
            sampling = make_sampling(strategy, **options)
            annotators = project.configuration.annotation.annotators
            if "min_annotations" not in options and getattr(sampling, "min_annotations", 0) > annotators:
                # The strategy's default asks for more answers than any image of this project gets.
                sampling = make_sampling(strategy, **options, min_annotations=annotators)
        name = set_name or strategy or only_set(project)
        revision, changed = sample(project, name, sampling, per_class=per_class, seed=seed, note=note)
        gap = unsearched(project)
    table.show(sampling_table(revision))
    if gap is not None:
        say(f"NOT SEARCHED: {gap}; see {shell_command('testset', 'dedupe', at.folder)} --against")
    if not changed:
        say(f"nothing changed: revision {revision.number} is still the latest")


@sets.command("mark")
def mark_command(
    at: ProjectOptions,
    image: Annotated[str, typer.Argument(help="Digest of the image, or a prefix of it.")],
    near_duplicate: Annotated[bool, "--near-duplicate", "Mark as a near-duplicate instead of blacklisting."] = False,
    class_key: Annotated[str | None, "--class", "Class, if it is a candidate of several."] = None,
    note: Annotated[str, "Reason."] = "",
    undo: Annotated[bool, "--undo", "Withdraw the marks of the image."] = False,
    json: Json = False,
) -> None:
    """Remove a candidate from all sets; the next revision replaces it."""
    from shiftbench.testsets.review import MarkKind, find_candidate, mark, marked_images, withdraw_mark

    with at.opened() as project:
        entry = find_candidate(project, image, class_key)
        if undo:
            marks = marked_images(project, entry=entry)
            for marked_image in marks:
                withdraw_mark(project, marked_image.id)
            report({"entry": entry, "withdrawn": len(marks)}, "{withdrawn} marks withdrawn", json=json)
            return
        kind: MarkKind = "near-duplicate" if near_duplicate else "blacklist"
        number = mark(project, entry, kind, note)
    values = {"mark": number, "entry": entry, "kind": kind, "note": note}
    report(values, "marked; create the next revision with `sample`", json=json)


@sets.command("diff")
def diff_command(
    of_set: SetOptions,
    old: Annotated[int, typer.Argument(help="Number of a revision.")],
    new: Annotated[int, typer.Argument(help="Number of a later revision.")],
    table: TableOptions,
) -> None:
    """Show the images added and removed between two revisions, with reasons."""
    from shiftbench.testsets.reports import difference_table
    from shiftbench.testsets.revisions import difference

    with of_set.opened() as (project, name):
        table.show(difference_table(difference(project, name, old, new)))


@sets.command("freeze")
def freeze_command(
    of_set: SetOptions,
    allow: Annotated[
        list[str] | None,
        "Defect to accept, named on the card (repeatable): short (classes with too few images), unreviewed "
        "(classes), unsearched (candidates not compared with all original data).",
    ] = None,
    json: Json = False,
) -> None:
    """Make the latest revision final: image files with a fingerprint and a dataset card, ready for evaluation.

    Every class must have been reviewed, no image may be left to replace, and the candidates must have been compared
    with the original data (dedupe --against).
    """
    from shiftbench.testsets.freeze import DEFECTS, freeze

    for defect in allow or []:
        choice(defect, DEFECTS, "--allow")
    with of_set.opened() as (project, name):
        frozen = freeze(project, name, allow=allow or ())
    values = {
        "folder": str(frozen.folder),
        "set": frozen.set_name,
        "name": frozen.name,
        "revision": frozen.revision,
        "images": frozen.images,
        "fingerprint": frozen.fingerprint,
        "references": frozen.references,
        "reference_fingerprint": frozen.reference_fingerprint,
        "sampling": frozen.sampling,
    }
    report(values, "frozen: {images:,} images in {folder}, fingerprint {fingerprint}", json=json)
    say(f"evaluate: {shell_command('eval', 'MODEL', '--suite', f'testset:{of_set.folder}', '-w', 'WORKSPACE')}")
    if frozen.references:
        sides = ("--x", f"{frozen.project}-reference", "--y", frozen.name)
        say(f"compare:  {shell_command('study', 'reproducibility', '-w', 'WORKSPACE', *sides)}")


@sets.command("export")
def export_command(
    folder: Annotated[Path, typer.Argument(help="Project folder, or folder of a frozen set.")],
    target: Annotated[Path, typer.Argument(help="New folder.")],
    format: Annotated[str, "--format", "-f", "folder, webdataset, huggingface, coco or croissant."] = "folder",
    set_name: SetName = None,
    json: Json = False,
) -> None:
    """Export a frozen set, with its dataset card, in a common layout."""
    from shiftbench.testsets.export import export
    from shiftbench.testsets.frozen import frozen_sets, one_frozen

    frozen = one_frozen(frozen_sets(folder), set_name)
    written = export(frozen, format, target)
    values = {"folder": str(written), "format": format, "set": frozen.set_name, "images": frozen.images}
    report(values, "written: {folder}", json=json)


@sets.command("study")
def study_command(
    at: ProjectOptions,
    workspace: WorkspacePath,
    page: Annotated[Path | None, "--output", "-o", "Write everything to one HTML file."] = None,
    parts: Annotated[Path | None, "Folder for the tables as CSV and the figures as SVG."] = None,
    classifier: ModelNames = None,
    share: Annotated[float, "Share of images that count as hard."] = 0.05,
    seed: Annotated[int | None, "Seed of the sheets (default: that of the project)."] = None,
    level: Level = 0.95,
    json: Json = False,
) -> None:
    """Study the frozen sets of a project: the tables, figures and sheets of ImageNetV2's paper.

    For every set: accuracies on references and new images with gaps and ranks (top-1 and top-5), linear and probit
    scatter plots with their lines, accuracy by selection frequency, the impact of revisions, the hardest images; and
    over all sets the impact of the sampling strategy, and a sheet to guess the original set from. Uses the predictions
    of the workspace; no model is run.

    \b
    Examples:
      shiftbench eval MODEL ... --suite testset:pets -w WORKSPACE
      shiftbench testset study pets -w WORKSPACE -o study.html --parts study/
    """
    from shiftbench.testsets.study import study_sets

    with at.opened() as project:
        study = study_sets(project, workspace, classifiers=classifier or (), share=share, level=level, seed=seed)
    if page is not None:
        say(f"written: {study.write_html(page)}")
    if parts is not None:
        say(f"written: {len(study.write_folder(parts))} files in {parts}")
    if json:
        tables = {"summary": study.summary, **study.tables}
        print_json({"notes": study.notes, **{title: table.as_data() for title, table in tables.items()}})
        return
    output.print(study.summary)
    for note in study.notes:
        say(f"note: {note}")


app = Commands(
    "Build a test set: candidates, annotation, selection frequencies, sampling, review, freezing.\n\n"
    "Typical order: init, import (candidates, and --reference), dedupe, tasks, invite, serve, status, sample, review, "
    "freeze; then `shiftbench eval MODEL --suite testset:DIR`, and `follow-up`.",
)
for commands in (candidates.app, serve.app, sets):
    # Without a name of its own, a group's commands stand directly below `testset`.
    app.add_typer(commands)
app.add_typer(follow_up.app, name="follow-up")
