"""``shiftbench testset``: the commands before annotation, from ``init`` to ``tasks``."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftbench.extend.commands import Commands, ExecutorOptions, Json, Quiet, TableOptions, Trust, choice, stoppable
from shiftbench.extend.errors import shell_command
from shiftbench.testsets.commands.options import DescriptorOptions, ProjectOptions, Workers, report, say

if TYPE_CHECKING:
    from shiftbench import Dataset
    from shiftbench.testsets.configuration import Configuration

app = Commands("")
WordNetFlag = Annotated[bool, "--wordnet", "Fill in definitions, links and near classes from the installed WordNet."]
WordNetFolder = Annotated[
    Path | None,
    "Folder of WordNet 3.0's data.noun and index.noun (default: $SHIFTBENCH_WORDNET, then where the package "
    "wordnet-base puts it).",
]
#: Annotators may notice that the shares of blurred candidates and of blurred controls differ by more than this.
_NOTICEABLE = 0.2
_DAY = {"formats": ["%Y-%m-%d"], "metavar": "DATE"}
Since = Annotated[datetime | None, _DAY, "Only images taken and uploaded from this day on."]
Until = Annotated[datetime | None, _DAY, "Only images taken and uploaded up to this day."]


def as_day(value: datetime | None) -> date | None:
    """The day of a date that Typer has read, for which it makes a time at midnight."""
    return None if value is None else value.date()


@app.command("init")
def init_command(
    at: ProjectOptions,
    labels: Annotated[str, "Classes: a name from `list spaces`, or a file (.csv: key, name, definition, link, near)."],
    name: Annotated[str | None, "Project name (default: name of the folder)."] = None,
    wordnet: WordNetFlag = False,
    wordnet_folder: WordNetFolder = None,
    grid: Annotated[int, "Images per grid, including controls."] = 48,
    annotators: Annotated[int, "Annotators per image."] = 10,
    lease: Annotated[float, "Minutes until an unanswered task is returned to the queue."] = 60,
    seed: Annotated[int, "Seed of grids and samples."] = 0,
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
    from shiftbench.labels import label_space
    from shiftbench.testsets import Project
    from shiftbench.testsets.configuration import configuration_for, read_classes

    name = name or at.folder.resolve().name
    if Path(labels).is_file():
        configuration = read_classes(Path(labels), name, seed=seed)
    else:
        configuration = configuration_for(label_space(labels), name, seed=seed)
    configuration = configuration.with_rules(grid=grid, annotators=annotators, lease_minutes=lease)
    if wordnet or wordnet_folder is not None:
        configuration = described_by_wordnet(configuration, wordnet_folder)
    project = Project.create(at.folder, configuration, database=at.database)
    values = {
        "folder": str(at.folder),
        "name": configuration.name,
        "classes": len(configuration.classes),
        "database": project.database.shown,
    }
    report(values, "created {folder}: {classes} classes, database {database}", json=json)
    if project.database.url.password is not None:
        say("the password is not stored: set SHIFTBENCH_DATABASE or ~/.pgpass for later commands")
    if not any(entry.definition for entry in configuration.classes):
        say("add class definitions to testset.toml: annotators read them")
    project.close()


def described_by_wordnet(configuration: Configuration, folder: Path | None) -> Configuration:
    """The configuration with what WordNet has, and a message on what it does not have."""
    from shiftbench.testsets.wordnet import WordNet, synsets_of, with_wordnet

    wordnet = WordNet.read(folder)
    described = with_wordnet(configuration, wordnet)
    synsets = synsets_of(wordnet, configuration.classes)
    say(
        f"WordNet {wordnet.version}: definitions and near classes of {len(synsets)} of {len(described.classes)} classes"
    )
    looked_up_by_name = []
    unknown = []
    for entry in described.classes:
        if entry.key not in synsets:
            unknown.append(entry.title)
        elif entry.key != synsets[entry.key].key:
            looked_up_by_name.append(entry.title)
    if looked_up_by_name:
        say(f"looked up by name, most frequent sense; check testset.toml: {', '.join(looked_up_by_name[:10])}")
    if unknown:
        say(f"not in WordNet, add definitions to testset.toml: {', '.join(unknown[:10])}")
    return described


@app.command("queries")
def queries_command(
    at: ProjectOptions,
    step: Annotated[int, {"min": 0, "max": 5}, "Expansion step, with all steps before it."] = 0,
    class_key: Annotated[list[str] | None, "--class", "Only this class (repeatable)."] = None,
    below: Annotated[int | None, "Only classes with fewer than N candidates in the pool, which need expansion."] = None,
    images: Annotated[int, {"min": 1}, "Images per class; doubled from step 2 on."] = 100,
    since: Since = None,
    until: Until = None,
    alternative: Annotated[list[str] | None, "CLASS=WORDS: a query chosen by hand, for step 5 (repeatable)."] = None,
    word: Annotated[
        list[str] | None, "Ask every query with this word (repeatable): art, origami, ... for renditions, or blurry."
    ] = None,
    wordnet_folder: WordNetFolder = None,
    *,
    table: TableOptions,
) -> None:
    """Write the query plan of ImageNetV2: what to search Flickr for, class by class.

    Every WordNet synonym of a class is one query for an equal share of its images, ordered by upload, from the year
    after ImageNet was collected. For classes that need more candidates: step 1 also adds a word of the parent class
    that appears in the definition, 2 doubles the images, 3 adds a year, 4 joins compound words, 5 adds --alternative.

    `search` asks Flickr for the queries of the file, and saves the answers for `import flickr:FOLDER`.

    \b
    Examples:
      shiftbench testset queries photos -o queries.csv
      shiftbench testset queries photos --step 2 --below 40 --json
      shiftbench testset queries photos --step 5 --class n03187595 --alternative n03187595=Wählscheibentelefon
      shiftbench testset queries renditions --word art --word cartoon --word origami -o queries.csv
    """
    from shiftbench.testsets.pool.entries import pool_counts
    from shiftbench.testsets.wordnet import SINCE, WordNet, query_plan

    by_hand: dict[str, list[str]] = defaultdict(list)
    for text in alternative or []:
        key, equals, words = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r} is not of the form CLASS=WORDS", param_hint="--alternative")
        by_hand[key].append(words)
    with at.opened() as project:
        classes = list(class_key or [])
        if below is not None:
            short_classes = [counts.class_key for counts in pool_counts(project) if counts.candidates < below]
            classes = [key for key in short_classes if not class_key or key in class_key]
            if not classes:
                say(f"no class has fewer than {below} candidates")
                return
        plan = query_plan(
            project.configuration,
            WordNet.read(wordnet_folder),
            step=step,
            classes=classes,
            images=images,
            since=as_day(since) or SINCE,
            until=as_day(until),
            alternatives=by_hand,
            words=word or (),
        )
    table.show(plan)


@app.command("search")
def search_command(
    at: ProjectOptions,
    plan: Annotated[Path, typer.Argument(help="Query plan (.csv), written by `queries`.")],
    answers: Annotated[Path, typer.Argument(help="Folder for Flickr's answers, a folder per class.")],
    *,
    table: TableOptions,
) -> None:
    """Search Flickr for the queries of a plan, with the API key of your account in SHIFTBENCH_FLICKR_KEY.

    Answers are saved as JSON with licence, author and dates; no image is fetched. One request at a time, one second
    apart (SHIFTBENCH_DOWNLOAD_PAUSE). If interrupted, rerun the same command; it resumes.

    \b
    Examples:
      shiftbench testset queries photos -o queries.csv
      shiftbench testset search photos queries.csv answers/
      shiftbench testset import photos flickr:answers/ --since 2012-07-11 --until 2013-07-11
    """
    from shiftbench.testsets.pool.flickr import read_plan, search_flickr, search_table

    with at.opened() as project, stoppable():
        outcomes = search_flickr(project, read_plan(plan, project), answers)
    table.show(search_table(outcomes))
    say(f"next: {shell_command('testset', 'import', at.folder, f'flickr:{answers}')}")


@app.command("filter")
def filter_command(
    source: Annotated[str, typer.Argument(help="Candidates: a folder of classes, a manifest, any dataset.")],
    target: Annotated[Path, typer.Argument(help="New folder for the remaining images.")],
    classifiers: Annotated[list[str], "--classifier", "-c", "Model to filter against (repeatable)."],
    recipe: Annotated[str, "imagenet-a or imagenet-o."] = "imagenet-a",
    labels: Annotated[str | None, "Classes of the new set: a name from `list spaces`, or a file."] = None,
    max_confidence: Annotated[float, "imagenet-a: maximum confidence in the true class, in any crop."] = 0.15,
    per_confusion: Annotated[
        int, "imagenet-a: maximum number of images with the same label and prediction; 0: no limit."
    ] = 15,
    min_confidence: Annotated[float, "imagenet-o: minimum confidence on images of unknown classes."] = 0.5,
    trust: Trust = False,
    workers: Workers = None,
    quiet: Quiet = False,
    *,
    table: TableOptions,
) -> None:
    """Keep images that fool models, by the recipe of ImageNet-A or ImageNet-O, for human review.

    The remaining images are written to TARGET/images, to be imported as candidates; the pool itself never contains
    model predictions. If interrupted, rerun the same command; it resumes.

    \b
    Examples:
      shiftbench testset filter downloads/ hard/ -c demo:efficientnet-lite0 -c demo:squeezenet1_1
      shiftbench testset import pets hard/images
      shiftbench testset filter strange/ odd/ -c timm:resnet50 --recipe imagenet-o --labels imagenet-o-200
    """
    from shiftbench import load_classifier, open_dataset
    from shiftbench.extend.datasets import find_label_space
    from shiftbench.testsets.filtration import filter_adversarially, filter_out_of_distribution

    choice(recipe, ("imagenet-a", "imagenet-o"), "--recipe")
    space = find_label_space(labels)
    classes = None if isinstance(space, str) else space
    computed = target / "computed"
    with stoppable():
        models = [load_classifier(spec, trust=trust) for spec in classifiers]
        if recipe == "imagenet-a":
            filtration = filter_adversarially(
                open_dataset(source),
                models,
                space=classes,
                max_confidence=max_confidence,
                per_confusion=per_confusion or None,
                folder=computed,
                workers=workers,
                show=not quiet,
            )
        else:
            # The images are of classes that the models do not know, so folders may have any name.
            filtration = filter_out_of_distribution(
                open_dataset(source, space="folders"),
                models,
                space=classes,
                min_confidence=min_confidence,
                folder=computed,
                workers=workers,
                show=not quiet,
            )
        images = filtration.write(target)
    table.show(filtration.funnel)
    for image, reason in filtration.unreadable[:5]:
        say(f"skipped: {image}: {reason}")
    say(f"{len(filtration.shortlist)} images in {images}; their predictions are in {target / 'review.csv'}")


@app.command("import")
def import_command(
    at: ProjectOptions,
    source: Annotated[
        str,
        typer.Argument(
            help="A folder, manifest (.csv, .jsonl), any dataset, or images to download: flickr:PATH, "
            "inaturalist:PATH, urls:PATH, or SCHEME:TARGET of a plug-in."
        ),
    ],
    reference: Annotated[
        bool, "--reference", "Import as reference images: an existing set to compare the new one with."
    ] = False,
    class_key: Annotated[str | None, "--class", "Class of all images in a folder without class folders."] = None,
    per_class: Annotated[int | None, "Import at most N images per class."] = None,
    since: Since = None,
    until: Until = None,
    name: Annotated[str | None, "Name of the source (default: its own name)."] = None,
    workers: Workers = None,
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
      shiftbench testset import pets cifar-10-test --reference --per-class 50
    """
    from shiftbench import open_dataset
    from shiftbench.datasets import per_class as some_per_class
    from shiftbench.testsets.pool.entries import import_images
    from shiftbench.testsets.reports import imported_table

    with at.opened() as project, stoppable():
        images: str | Dataset = source
        if per_class is not None:
            dataset = open_dataset(source, space=project.space)
            images = some_per_class(dataset, per_class, seed=project.configuration.seed)
        imported = import_images(
            project,
            images,
            "reference" if reference else "candidate",
            class_key=class_key,
            name=name,
            since=as_day(since),
            until=as_day(until),
            workers=workers,
            progress=not quiet,
        )
    table.show(imported_table(imported))
    if imported.new:
        say(f"next: {shell_command('testset', 'dedupe', at.folder, '--against', 'ORIGINAL')}, then tasks")


@app.command("keywords")
def keywords_command(
    at: ProjectOptions,
    source: Annotated[str, typer.Argument(help="A dataset with a column `keyword`, such as a manifest.")],
    *,
    table: TableOptions,
) -> None:
    """Label pool images with the keyword of the identical image of another dataset, as for CIFAR-10.1.

    Every CIFAR-10 image has an exact copy in Tiny Images, which is organised by keywords; its keyword is the sub-class
    that `sample --strategy keywords` matches. Images are compared by their pixels. The table shows the keywords of the
    references by class, beside the shares of CIFAR-10 and CIFAR-10.1 that paper 004 printed.

    \b
    Example:
      shiftbench testset keywords pets tiny-images/manifest.csv
    """
    from shiftbench import open_dataset
    from shiftbench.testsets.keywords import keyword_table, label_keywords

    with at.opened() as project:
        images, labelled = label_keywords(project, open_dataset(source, space="folders"))
        keywords = keyword_table(project)
    table.show(keywords)
    say(f"{labelled:,} of {images:,} images without a keyword got one; {images - labelled:,} have no copy")


@app.command("dedupe")
def dedupe_command(
    at: ProjectOptions,
    search: DescriptorOptions,
    against: Annotated[
        list[str] | None,
        "Original dataset to compare with, such as its training and its test set (repeatable). It is not "
        "imported, and is searched again by later calls.",
    ] = None,
    *,
    where: ExecutorOptions,
    quiet: Quiet = False,
    table: TableOptions,
) -> None:
    """Find candidates that are near-duplicates of original images or of each other, for human review.

    Candidates are compared with the imported references, with each other, and with the datasets of --against: name the
    whole training set and the whole test set of the original data.

    Exact nearest neighbours in l2 on pixels or features; neighbours are also compared by SSIM. Suspected candidates are
    not sampled until the pair has been judged on the review pages. Later calls search the same datasets in the same
    way, unless other options are given; the card of the frozen set names them.

    \b
    Examples:
      shiftbench testset dedupe pets --against cifar-10-train --against cifar-10-test
      shiftbench testset dedupe pets --by pixels --by demo:efficientnet-lite0 --threshold ssim=0.8
      on all machines of a Ray cluster, with the project in a shared folder
        shiftbench testset dedupe pets --by timm:resnet50 --executor ray --address HOST:6379
    """
    from shiftbench.testsets.pool.suspects import suspect_near_duplicates
    from shiftbench.testsets.revisions import unsearched

    with at.opened() as project, stoppable():
        queue, new_pairs = suspect_near_duplicates(
            project, against=against or (), show=not quiet, **search.options(), **where.options()
        )
        gap = unsearched(project)
    table.show(queue)
    if gap is not None:
        say(f"not searched: {gap}; name them with --against")
    say(f"{new_pairs} new pairs to judge: {shell_command('testset', 'review', at.folder)}")


@app.command("tasks")
def tasks_command(at: ProjectOptions, quiet: Quiet = False, json: Json = False) -> None:
    """Create annotation grids for new candidates, mixed with control images, and the copies that annotators see.

    Import all images first: candidates that are imported together fill whole grids.
    """
    from shiftbench.testsets.revisions import unsearched
    from shiftbench.testsets.tasks import make_tasks

    with at.opened() as project, stoppable():
        created = make_tasks(project, show=not quiet)
        rules = project.configuration.annotation
        gap = unsearched(project)
    values = {**asdict(created), "unsearched": gap}
    report(values, "{tasks} new grids with {candidates:,} candidates and {references:,} controls", json=json)
    if gap is not None:
        against = ("--against", "ORIGINAL_TRAIN", "--against", "ORIGINAL_TEST")
        say(f"{gap}: {shell_command('testset', 'dedupe', at.folder, *against)}")
    if created.few_references:
        short_classes = [f"{key}: {count}" for key, count in created.few_references.items()]
        say(
            f"few references for matched sampling ({', '.join(short_classes[:5])}); {rules.references_per_class} per "
            "class are recommended"
        )
    enlarged_shares = created.enlarged.values()
    if max(enlarged_shares, default=0) - min(enlarged_shares, default=0) > _NOTICEABLE:
        shares = " and ".join(f"{share:.0%} of the {role}s" for role, share in created.enlarged.items())
        say(
            f"{shares} are smaller than their copies of {rules.copy_pixels} pixels. Blurred copies tell controls from "
            "candidates: lower copy_pixels in testset.toml to the size of your references"
        )
