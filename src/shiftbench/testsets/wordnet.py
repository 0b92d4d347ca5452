"""WordNet's nouns: definitions, synonyms and tree distances of classes, and ImageNetV2's query plan (004 C.1.1).

The dictionary is read from where it is installed, as the Debian package wordnet-base or from Princeton's archive; no
part of it comes with this package. ImageNet's class keys are synsets of version 3.0. Other classes are looked up by
name, in the most frequent sense of the word: check what `testset init --wordnet` wrote to testset.toml.

The query plan says what to ask Flickr for. Every synonym of a class is one query, for an equal share of the class's
images, in order of upload, because sorting by relevance may depend on models. Classes with too few candidates are
expanded in five steps, which docs/test-set-candidates.md lists.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from urllib.parse import quote_plus

from shiftbench.reports.table import Column, Table
from shiftbench.testsets.configuration import ClassDefinition, Configuration
from shiftbench.testsets.errors import WorkshopError

FOLDERS = ("/usr/share/wordnet", "/usr/local/WordNet-3.0/dict", "/usr/share/wordnet-3.0/dict")
#: The environment variable that names the folder with data.noun and index.noun.
VARIABLE = "SHIFTBENCH_WORDNET"
#: Near classes per class: 004 compared candidates with the five closest classes.
NEAR = 5
SINCE, UNTIL, LATER = date(2012, 7, 11), date(2013, 7, 11), date(2014, 7, 11)
_SYNSET_KEY = re.compile(r"n\d{8}")
_SHOWN = 40
_FIELDS = (
    "class",
    "name",
    "step",
    "query",
    "images",
    "taken_from",
    "taken_until",
    "uploaded_from",
    "uploaded_until",
    "sort",
)


@dataclass(frozen=True)
class Synset:
    """A meaning: its WordNet id such as n02121620, its synonyms (the most common first), its definition without
    examples, and the keys of its hypernyms."""

    key: str
    words: tuple[str, ...]
    gloss: str
    parents: tuple[str, ...]

    @classmethod
    def parse(cls, line: str) -> Synset:
        """``offset file n words (word id)* pointers (symbol offset part source)* | gloss``; words in hex."""
        data, _, gloss = line.partition("|")
        fields = data.split()
        count = int(fields[3], 16)
        words = tuple(dict.fromkeys(word.replace("_", " ") for word in fields[4 : 4 + 2 * count : 2]))
        start = 5 + 2 * count
        pointers = [fields[start + 4 * i : start + 4 * i + 3] for i in range(int(fields[start - 1]))]
        # "@" and "@i": hypernyms of classes and of instances
        parents = tuple(f"n{offset}" for symbol, offset, part in pointers if symbol in ("@", "@i") and part == "n")
        return cls(f"n{fields[0]}", words, gloss.split('; "')[0].strip(), parents)


class WordNet:
    """The nouns of WordNet: synsets by key, and the synsets of each word in lower case, the most frequent first."""

    def __init__(self, synsets: Mapping[str, Synset], senses: Mapping[str, Sequence[str]], version: str = "") -> None:
        self.synsets, self.senses, self.version = synsets, senses, version

    @classmethod
    def read(cls, folder: str | Path | None = None) -> WordNet:
        """Read the dictionary of a folder with data.noun and index.noun, or of the usual places."""
        wanted = [str(folder)] if folder is not None else [os.environ.get(VARIABLE, ""), *FOLDERS]
        found = next((Path(one) for one in wanted if one and (Path(one) / "data.noun").is_file()), None)
        if found is None:
            raise WorkshopError(
                "WordNet is not installed" if folder is None else f"no WordNet dictionary in {folder}",
                found=f"no data.noun in {', '.join(one for one in wanted if one)}",
                expected="the files data.noun and index.noun of WordNet 3.0",
                hint=f"install the package wordnet-base (Debian, Ubuntu), or set {VARIABLE} to the folder",
            )
        lines = (found / "data.noun").read_text(encoding="utf-8", errors="replace").splitlines()
        header = [line for line in lines if line.startswith(" ")]  # the licence
        synsets = {one.key: one for one in (Synset.parse(line) for line in lines if line and not line.startswith(" "))}
        senses = {}
        for line in (found / "index.noun").read_text(encoding="utf-8", errors="replace").splitlines():
            if not line.startswith(" "):
                fields = line.split()
                senses[fields[0].replace("_", " ")] = [f"n{offset}" for offset in fields[-int(fields[2]) :]]
        version = re.search(r"WordNet (\d+\.\d+)", "\n".join(header))
        return cls(synsets, senses, version.group(1) if version else "")

    def find(self, key: str, name: str) -> Synset | None:
        """The synset of a class: by its key, or the first sense of its name or key."""
        if _SYNSET_KEY.fullmatch(key):
            return self.synsets.get(key)
        for word in (name, key):
            senses = self.senses.get(word.replace("_", " ").lower())
            if senses:
                return self.synsets[senses[0]]
        return None

    def ancestors(self, key: str) -> dict[str, int]:
        """Everything above a synset, itself included, with the least number of steps; the nearest first."""
        steps, level, distance = {key: 0}, [key], 0
        while level:
            level = [up for one in level for up in self.synsets[one].parents if up in self.synsets and up not in steps]
            distance += 1
            steps.update(dict.fromkeys(level, distance))
        return steps

    def distance(self, one: str, other: str) -> int | None:
        """The length of the shortest path through a common ancestor; None if there is none."""
        first, second = self.ancestors(one), self.ancestors(other)
        return min((first[key] + second[key] for key in first.keys() & second.keys()), default=None)

    def near(self, keys: Sequence[str], count: int = NEAR) -> list[list[int]]:
        """For each synset the positions of its nearest others, the nearest first; ties in the order of ``keys``.

        A synset above or below another one, or the same, is not near it: its images show both.
        """
        above = [self.ancestors(key) for key in keys]
        below: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for i, found in enumerate(above):
            for key, steps in found.items():
                below[key].append((steps, i))
        nearest = []
        for i, own in enumerate(above):
            best: dict[int, int] = {}
            for ancestor, up in own.items():
                if len(best) >= count and sorted(best.values())[count - 1] <= up:
                    break  # every other class is at least one step further
                for down, j in below[ancestor]:
                    if keys[j] not in own and keys[i] not in above[j]:
                        best[j] = min(best.get(j, up + down), up + down)
            nearest.append([j for _, j in sorted((steps, j) for j, steps in best.items())][:count])
        return nearest


def synsets_of(wordnet: WordNet, classes: Iterable[ClassDefinition]) -> dict[str, Synset]:
    """The synset of each class that WordNet knows, by class key."""
    by_key = [entry.key for entry in classes if _SYNSET_KEY.fullmatch(entry.key)]
    if by_key and wordnet.version not in ("3.0", ""):
        raise WorkshopError(
            "the class keys are synsets of WordNet 3.0",
            found=f"WordNet {wordnet.version}",
            expected="WordNet 3.0, such as Debian's wordnet-base",
        )
    found = {entry.key: wordnet.find(entry.key, entry.title) for entry in classes}
    return {key: synset for key, synset in found.items() if synset is not None}


def with_wordnet(configuration: Configuration, wordnet: WordNet, *, near: int = NEAR) -> Configuration:
    """The configuration with definitions, links and near classes from WordNet, where it has none of its own.

    Links open the encyclopedia article of that name, or a search for it.
    """
    found = synsets_of(wordnet, configuration.classes)
    if not found:
        raise WorkshopError(
            "WordNet has none of these classes",
            found=", ".join(entry.title for entry in configuration.classes[:3]),
            expected="WordNet ids (n02121620) or English nouns",
        )
    keys = list(found)
    nearest = dict(zip(keys, wordnet.near([found[key].key for key in keys], near), strict=True))
    classes = []
    for entry in configuration.classes:
        synset = found.get(entry.key)
        if synset is not None:
            link = f"https://en.wikipedia.org/wiki/Special:Search?go=Go&search={quote_plus(synset.words[0])}"
            others = entry.near or tuple(keys[j] for j in nearest[entry.key])
            definition = entry.definition or synset.gloss
            entry = replace(entry, definition=definition, link=entry.link or link, near=others)
        classes.append(entry)
    return replace(configuration, classes=tuple(classes))


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
    """One row per query, for these classes (default: all), at an expansion step with all steps before it.

    A class that WordNet does not have is asked for by its name, with a note. ``until`` defaults to the last day of the
    step; ``alternatives`` are words chosen by hand for step 5, by class.
    """
    if step not in range(6):
        raise WorkshopError("unknown expansion step", found=step, expected="0 to 5")
    for key in (*classes, *(alternatives or {})):
        configuration.space.index(key)  # an error for an unknown class
    chosen = [entry for entry in configuration.classes if not classes or entry.key in classes]
    synsets = synsets_of(wordnet, chosen)
    most = images * (2 if step >= 2 else 1)
    days = (since.isoformat(), (until or (LATER if step >= 3 else UNTIL)).isoformat())
    rows = []
    for entry in chosen:
        synset = synsets.get(entry.key)
        synonyms = [entry.title] if synset is None else list(synset.words)
        found = list(synonyms)
        if step >= 1 and synset is not None:
            gloss = set(re.findall(r"\w+", synset.gloss.lower()))
            above = [name for key in synset.parents for name in wordnet.synsets[key].words]
            words = dict.fromkeys(word.lower() for name in above for word in name.split())
            found += [f"{one} {word}" for one in synonyms for word in words if word in gloss and word not in one]
        if step >= 4:
            found += [one.replace(" ", "") for one in synonyms if " " in one]
        if step >= 5:
            found += (alternatives or {}).get(entry.key, ())
        queries = list(dict.fromkeys(found))
        common = (-(-most // len(queries)), *days, *days, "date-posted-asc")
        rows += [dict(zip(_FIELDS, (entry.key, entry.title, step, one, *common), strict=True)) for one in queries]
    unknown = [entry.title for entry in chosen if entry.key not in synsets]
    columns = [Column(key, key.replace("_", " "), "count" if key == "images" else "text") for key in _FIELDS]
    lead = [f"queries: {len(rows):,}; classes: {len(chosen):,}; {most} images per class, {days[0]} to {days[1]}"]
    notes = [f"not in WordNet, asked for by name: {', '.join(unknown[:10])}"] if unknown else []
    return Table(columns, rows, most=_SHOWN, title="Query plan", lead=lead, notes=notes)
