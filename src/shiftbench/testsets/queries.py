"""The query plan of ImageNetV2: what to ask Flickr for, class by class (004 appendix C.1.1).

Every WordNet synonym of a class is one query, for an equal share of the class's images, in order of upload, because
sorting by relevance may depend on models. Classes with too few candidates are expanded step by step:

| step | change |
|---|---|
| 0 | 100 images per class, taken and uploaded from 2012-07-11 to 2013-07-11 |
| 1 | also each synonym with a word of the parent class that appears in the definition |
| 2 | 200 images per class |
| 3 | until 2014-07-11 |
| 4 | also compound synonyms in one word: "dialphone" for "dial phone" |
| 5 | also words chosen by hand, such as translations |
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date

from shiftbench.reports.table import Column, Table
from shiftbench.testsets.configuration import ClassDefinition, Configuration
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.wordnet import Synset, WordNet, synsets_of

SINCE, UNTIL, LATER = date(2012, 7, 11), date(2013, 7, 11), date(2014, 7, 11)
STEPS = range(6)
_SHOWN = 40
_FIELDS = (
    "class", "name", "step", "query", "images", "taken_from", "taken_until", "uploaded_from", "uploaded_until", "sort"
)  # fmt: skip


def query_plan(
    configuration: Configuration,
    wordnet: WordNet,
    *,
    step: int = 0,
    classes: Sequence[str] = (),
    images: int = 100,
    since: date = SINCE,
    until: date | None = None,
    alternatives: Mapping[str, Sequence[str]] | None = None,
) -> Table:
    """One row per query. A class that WordNet does not have is asked for by its name, with a note.

    Args:
        configuration: Classes of a project.
        wordnet: The dictionary.
        step: Expansion step, with all steps before it.
        classes: Only these classes (default: all).
        images: Images per class before step 2, which doubles them.
        since: First day.
        until: Last day (default: that of the step).
        alternatives: Words chosen by hand for step 5, by class.
    """
    if step not in STEPS:
        raise WorkshopError("unknown expansion step", found=step, expected="0 to 5")
    for key in (*classes, *(alternatives or {})):
        configuration.space.index(key)  # an error for an unknown class
    chosen = [entry for entry in configuration.classes if not classes or entry.key in classes]
    synsets = synsets_of(wordnet, chosen)
    most = images * (2 if step >= 2 else 1)
    days = (since.isoformat(), (until or (LATER if step >= 3 else UNTIL)).isoformat())
    rows = []
    for entry in chosen:
        by_hand = (alternatives or {}).get(entry.key, ()) if step >= 5 else ()
        queries = list(dict.fromkeys([*_queries(entry, synsets.get(entry.key), wordnet, step), *by_hand]))
        each = -(-most // len(queries))
        rows += [
            dict(zip(_FIELDS, (entry.key, entry.title, step, one, each, *days, *days, "date-posted-asc"), strict=True))
            for one in queries
        ]
    unknown = [entry.title for entry in chosen if entry.key not in synsets]
    notes = [f"not in WordNet, asked for by name: {', '.join(unknown[:10])}"] if unknown else []
    return Table(
        [Column(key, key.replace("_", " "), "count" if key == "images" else "text") for key in _FIELDS],
        rows,
        most=_SHOWN,
        title="Query plan",
        lead=[f"{len(rows):,} queries for {len(chosen):,} classes, {most} images per class, {days[0]} to {days[1]}"],
        notes=notes,
    )


def _queries(entry: ClassDefinition, synset: Synset | None, wordnet: WordNet, step: int) -> list[str]:
    synonyms = [entry.title] if synset is None else list(synset.words)
    queries = list(synonyms)
    if step >= 1 and synset is not None:
        queries += [f"{one} {word}" for one in synonyms for word in parent_words(wordnet, synset) if word not in one]
    if step >= 4:
        queries += [one.replace(" ", "") for one in synonyms if " " in one]
    return queries


def parent_words(wordnet: WordNet, synset: Synset) -> list[str]:
    """The words of parent classes that appear in the definition of a class.

    Args:
        wordnet: The dictionary.
        synset: The class.
    """
    gloss = set(re.findall(r"\w+", synset.gloss.lower()))
    names = [name for key in synset.parents for name in wordnet.synsets[key].words]
    words = [word.lower() for name in names for word in name.split()]
    return [word for word in dict.fromkeys(words) if word in gloss]
