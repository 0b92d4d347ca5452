"""``shiftbench testset queries`` and ``keywords``, and what ``init`` and ``import`` share with them."""

from __future__ import annotations

from collections import defaultdict
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftbench.cli.options import TableOptions, grouped
from shiftbench.cli.testset_options import Database, Folder, opened, say

if TYPE_CHECKING:
    from shiftbench.testsets.configuration import Configuration

WordNetFlag = Annotated[
    bool, typer.Option("--wordnet", help="Fill in definitions, links and near classes from the installed WordNet.")
]
WordNetFolder = Annotated[
    Path | None,
    typer.Option(
        help="Folder of WordNet 3.0's data.noun and index.noun (default: $SHIFTBENCH_WORDNET, then where the package "
        "wordnet-base puts it)."
    ),
]
Since = Annotated[
    datetime | None, typer.Option(formats=["%Y-%m-%d"], help="Only images taken and uploaded from this day on.")
]
Until = Annotated[
    datetime | None, typer.Option(formats=["%Y-%m-%d"], help="Only images taken and uploaded up to this day.")
]


def as_day(value: datetime | None) -> date | None:
    return None if value is None else value.date()


def described_by_wordnet(configuration: Configuration, folder: Path | None) -> Configuration:
    """The configuration with what WordNet has, and a message on what it does not have."""
    from shiftbench.testsets.wordnet import WordNet, synsets_of, with_wordnet

    wordnet = WordNet.read(folder)
    described = with_wordnet(configuration, wordnet)
    known = synsets_of(wordnet, configuration.classes)
    say(f"WordNet {wordnet.version}: definitions and near classes of {len(known)} of {len(described.classes)} classes")
    named = [entry.title for entry in described.classes if entry.key in known and entry.key != known[entry.key].key]
    if named:
        say(f"looked up by name, most frequent sense; check testset.toml: {', '.join(named[:10])}")
    unknown = [entry.title for entry in described.classes if entry.key not in known]
    if unknown:
        say(f"not in WordNet, add definitions to testset.toml: {', '.join(unknown[:10])}")
    return described


@grouped
def queries_command(
    folder: Folder,
    step: Annotated[int, typer.Option(min=0, max=5, help="Expansion step, with all steps before it.")] = 0,
    class_key: Annotated[list[str] | None, typer.Option("--class", help="Only this class (repeatable).")] = None,
    below: Annotated[
        int | None, typer.Option(help="Only classes with fewer than N candidates in the pool, which need expansion.")
    ] = None,
    images: Annotated[int, typer.Option(min=1, help="Images per class; doubled from step 2 on.")] = 100,
    since: Since = None,
    until: Until = None,
    alternative: Annotated[
        list[str] | None, typer.Option(help="CLASS=WORDS: a query chosen by hand, for step 5 (repeatable).")
    ] = None,
    wordnet_folder: WordNetFolder = None,
    database: Database = None,
    *,
    table: TableOptions,
) -> None:
    """Write the query plan of ImageNetV2: what to search Flickr for, class by class.

    Every WordNet synonym of a class is one query for an equal share of its images, ordered by upload, from the year
    after ImageNet was collected. For classes that need more candidates: step 1 also adds a word of the parent class
    that appears in the definition, 2 doubles the images, 3 adds a year, 4 joins compound words, 5 adds --alternative.

    Save the answers of flickr.photos.search as JSON in one folder per class, and import them with flickr:FOLDER.

    \b
    Examples:
      shiftbench testset queries photos -o queries.csv
      shiftbench testset queries photos --step 2 --below 40 --json
      shiftbench testset queries photos --step 5 --class n03187595 --alternative n03187595=Wählscheibentelefon
    """
    from shiftbench.testsets.pool.entries import pool_counts
    from shiftbench.testsets.queries import SINCE, query_plan
    from shiftbench.testsets.wordnet import WordNet

    by_hand: dict[str, list[str]] = defaultdict(list)
    for text in alternative or []:
        key, equals, words = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r} is not of the form CLASS=WORDS", param_hint="--alternative")
        by_hand[key].append(words)
    with opened(folder, database) as project:
        chosen = list(class_key or [])
        if below is not None:
            chosen = [
                one.class_key
                for one in pool_counts(project)
                if one.candidates < below and (not class_key or one.class_key in class_key)
            ]
            if not chosen:
                say(f"no class has fewer than {below} candidates")
                return
        plan = query_plan(
            project.configuration, WordNet.read(wordnet_folder), step=step, classes=chosen, images=images,
            since=as_day(since) or SINCE, until=as_day(until), alternatives=by_hand,
        )  # fmt: skip
    table.show(plan)


@grouped
def keywords_command(
    folder: Folder,
    source: Annotated[str, typer.Argument(help="A dataset with a column `keyword`, such as a manifest.")],
    database: Database = None,
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
    from shiftbench.datasets.catalogue import open_dataset
    from shiftbench.testsets.keywords import keyword_table, label_keywords

    with opened(folder, database) as project:
        done = label_keywords(project, open_dataset(source, space="folders"))
        found = keyword_table(project)
    table.show(found)
    say(f"{done.labelled:,} of {done.images:,} images without a keyword got one; {done.without:,} have no copy")
