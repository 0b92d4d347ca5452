"""WordNet's nouns: definitions, synonyms and tree distances of classes, and ImageNetV2's query plan (004 C.1.1).

The dictionary is read from where it is installed, as the Debian package wordnet-base or from Princeton's archive; no
part of it comes with this package. ImageNet's class keys are synsets of version 3.0. Other classes are looked up by
name, in the most frequent sense of the word: check what `testset init --wordnet` wrote to testset.toml.

The query plan says what to ask Flickr for. Every synonym of a class is one query, for an equal share of the class's
images, in order of upload, because sorting by relevance may depend on models. Classes with too few candidates are
expanded in five steps, which docs/test-set-candidates.md lists.
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from urllib.parse import quote_plus

from shiftbench.extend.tables import Column, Table
from shiftbench.testsets.configuration import ClassDefinition, Configuration
from shiftbench.testsets.errors import WorkshopError

#: Where WordNet is usually installed.
FOLDERS = ("/usr/share/wordnet", "/usr/local/WordNet-3.0/dict", "/usr/share/wordnet-3.0/dict")
#: The environment variable that names the folder with data.noun and index.noun.
VARIABLE = "SHIFTBENCH_WORDNET"
#: Near classes per class: 004 compared candidates with the five closest classes.
NEAR = 5
#: The first day of the query plan.
SINCE = date(2012, 7, 11)
#: The last day of the query plan up to expansion step 2.
UNTIL = date(2013, 7, 11)
#: The last day of the query plan from expansion step 3.
LATER = date(2014, 7, 11)
#: From this step, words of the definition are added to the synonyms.
_STEP_GLOSS_WORDS = 1
#: From this step, twice as many images are asked for.
_STEP_MORE_IMAGES = 2
#: From this step, images of one more year are asked for.
_STEP_LATER_IMAGES = 3
#: From this step, synonyms of several words are also asked for without spaces.
_STEP_JOINED_WORDS = 4
#: From this step, words chosen by hand are added.
_STEP_ALTERNATIVES = 5
#: Rows of a query plan shown in a terminal.
_ROWS_IN_TERMINAL = 40
#: The WordNet id of a noun.
_SYNSET_KEY = re.compile(r"n\d{8}")
#: Columns of a query plan.
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
    #: Synonyms, the most common first.
    words: tuple[str, ...]
    #: The definition.
    gloss: str
    #: Keys of the hypernyms.
    parents: tuple[str, ...]

    @classmethod
    def parse(cls, line: str) -> Synset:
        """Read a line of data.noun.

        Its fields are ``offset file n words (word id)* pointers (symbol offset part source)* | gloss``. The number of
        words is hexadecimal, that of the pointers decimal.
        """
        data, _, gloss = line.partition("|")
        fields = data.split()
        word_count = int(fields[3], 16)
        words = dict.fromkeys(word.replace("_", " ") for word in fields[4 : 4 + 2 * word_count : 2])
        first_pointer = 5 + 2 * word_count
        pointer_count = int(fields[first_pointer - 1])
        parents = []
        for i in range(pointer_count):
            symbol, offset, part_of_speech = fields[first_pointer + 4 * i : first_pointer + 4 * i + 3]
            # "@" points to the hypernyms of a class, "@i" to those of an instance.
            if symbol in ("@", "@i") and part_of_speech == "n":
                parents.append(f"n{offset}")
        definition = gloss.split('; "')[0].strip()
        return cls(f"n{fields[0]}", tuple(words), definition, tuple(parents))


class WordNet:
    """The nouns of WordNet: synsets by key, and the synsets of each word in lower case, the most frequent first."""

    def __init__(self, synsets: Mapping[str, Synset], senses: Mapping[str, Sequence[str]], version: str = "") -> None:
        self.synsets = synsets
        self.senses = senses
        self.version = version

    @classmethod
    def read(cls, folder: str | Path | None = None) -> WordNet:
        """Read the dictionary of a folder with data.noun and index.noun; by default, of the usual folders.

        Raises WorkshopError if there is no dictionary.
        """
        dictionary = _dictionary_folder(folder)
        synsets = {}
        header = []
        for line in _lines(dictionary / "data.noun"):
            # The licence comes first, and each of its lines begins with a space.
            if line.startswith(" "):
                header.append(line)
            elif line:
                synset = Synset.parse(line)
                synsets[synset.key] = synset
        senses = {}
        for line in _lines(dictionary / "index.noun"):
            if not line.startswith(" "):
                fields = line.split()
                sense_count = int(fields[2])
                senses[fields[0].replace("_", " ")] = [f"n{offset}" for offset in fields[-sense_count:]]
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
        steps = {key: 0}
        level = [key]
        distance = 0
        while level:
            distance += 1
            next_level = []
            for synset in level:
                parents = self.synsets[synset].parents
                next_level += [parent for parent in parents if parent in self.synsets and parent not in steps]
            steps.update(dict.fromkeys(next_level, distance))
            level = next_level
        return steps

    def distance(self, one: str, other: str) -> int | None:
        """The length of the shortest path through a common ancestor; None if there is none."""
        steps_up = self.ancestors(one)
        steps_down = self.ancestors(other)
        common = steps_up.keys() & steps_down.keys()
        return min((steps_up[key] + steps_down[key] for key in common), default=None)

    def near(self, keys: Sequence[str], count: int = NEAR) -> list[list[int]]:
        """For each synset the positions of its nearest others, the nearest first; ties in the order of ``keys``.

        A synset above or below another one, or the same, is not near it: its images show both.
        """
        ancestors = [self.ancestors(key) for key in keys]
        # For each ancestor: the synsets below it as (steps, position).
        below: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for i, steps_up in enumerate(ancestors):
            for key, steps in steps_up.items():
                below[key].append((steps, i))
        nearest = []
        for i, steps_up in enumerate(ancestors):
            distances: dict[int, int] = {}
            # The nearest ancestors come first, so that the search can stop early.
            for ancestor, up in steps_up.items():
                if len(distances) >= count and sorted(distances.values())[count - 1] <= up:
                    break  # every other class is at least one step further
                for down, j in below[ancestor]:
                    if keys[j] not in steps_up and keys[i] not in ancestors[j]:
                        distances[j] = min(distances.get(j, up + down), up + down)
            by_distance = sorted(distances, key=lambda j: (distances[j], j))
            nearest.append(by_distance[:count])
        return nearest


def _dictionary_folder(folder: str | Path | None) -> Path:
    """The folder itself, or the first of the usual folders, that has the file data.noun."""
    if folder is None:
        message = "WordNet is not installed"
        candidates = [os.environ.get(VARIABLE, ""), *FOLDERS]
    else:
        message = f"no WordNet dictionary in {folder}"
        candidates = [str(folder)]
    candidates = [candidate for candidate in candidates if candidate]
    for candidate in candidates:
        if (Path(candidate) / "data.noun").is_file():
            return Path(candidate)
    raise WorkshopError(
        message,
        found=f"no data.noun in {', '.join(candidates)}",
        expected="the files data.noun and index.noun of WordNet 3.0",
        hint=f"install the package wordnet-base (Debian, Ubuntu), or set {VARIABLE} to the folder",
    )


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines()


def synsets_of(wordnet: WordNet, classes: Iterable[ClassDefinition]) -> dict[str, Synset]:
    """The synset of each class that WordNet knows, by class key."""
    classes = list(classes)
    by_key = any(_SYNSET_KEY.fullmatch(entry.key) for entry in classes)
    if by_key and wordnet.version not in ("3.0", ""):
        raise WorkshopError(
            "the class keys are synsets of WordNet 3.0",
            found=f"WordNet {wordnet.version}",
            expected="WordNet 3.0, such as Debian's wordnet-base",
        )
    synsets = {}
    for entry in classes:
        synset = wordnet.find(entry.key, entry.title)
        if synset is not None:
            synsets[entry.key] = synset
    return synsets


def with_wordnet(configuration: Configuration, wordnet: WordNet, *, near: int = NEAR) -> Configuration:
    """The configuration with definitions, links and near classes from WordNet, where it has none of its own.

    Links open the encyclopedia article of that name, or a search for it.
    """
    synsets = synsets_of(wordnet, configuration.classes)
    if not synsets:
        raise WorkshopError(
            "WordNet has none of these classes",
            found=", ".join(entry.title for entry in configuration.classes[:3]),
            expected="WordNet ids (n02121620) or English nouns",
        )
    keys = list(synsets)
    positions = wordnet.near([synset.key for synset in synsets.values()], near)
    near_positions = dict(zip(keys, positions, strict=True))
    classes = []
    for entry in configuration.classes:
        synset = synsets.get(entry.key)
        if synset is not None:
            link = f"https://en.wikipedia.org/wiki/Special:Search?go=Go&search={quote_plus(synset.words[0])}"
            near_classes = tuple(keys[j] for j in near_positions[entry.key])
            entry = replace(
                entry,
                definition=entry.definition or synset.gloss,
                link=entry.link or link,
                near=entry.near or near_classes,
            )
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
    words: Sequence[str] = (),
) -> Table:
    """One row per query, for these classes (default: all), at an expansion step with all steps before it.

    A class that WordNet does not have is asked for by its name, with a note. ``until`` defaults to the last day of the
    step; ``alternatives`` are words chosen by hand for step 5, by class. With ``words``, each query is asked once with
    each of them, and not without: "art" and "origami" for renditions, "blurry" for blurred images.
    """
    alternatives = alternatives or {}
    if step not in range(6):
        raise WorkshopError("unknown expansion step", found=step, expected="0 to 5")
    for key in (*classes, *alternatives):
        configuration.space.index(key)  # raises for an unknown class
    entries = [entry for entry in configuration.classes if not classes or entry.key in classes]
    synsets = synsets_of(wordnet, entries)
    if step >= _STEP_MORE_IMAGES:
        images = 2 * images
    if until is None:
        until = LATER if step >= _STEP_LATER_IMAGES else UNTIL
    days = (since.isoformat(), until.isoformat())
    # The same days limit when an image was taken and when it was uploaded.
    rows = []
    for entry in entries:
        plain_queries = _queries(entry, synsets.get(entry.key), wordnet, step, alternatives.get(entry.key, ()))
        queries = _with_words(list(plain_queries), words)
        images_per_query = math.ceil(images / len(queries))
        common = (images_per_query, *days, *days, "date-posted-asc")
        for query in queries:
            values = (entry.key, entry.title, step, query, *common)
            rows.append(dict(zip(_FIELDS, values, strict=True)))
    columns = [Column(key, key.replace("_", " "), "count" if key == "images" else "text") for key in _FIELDS]
    lead = [f"queries: {len(rows):,}; classes: {len(entries):,}; {images} images per class, {days[0]} to {days[1]}"]
    notes = []
    unknown = [entry.title for entry in entries if entry.key not in synsets]
    if unknown:
        notes.append(f"not in WordNet, asked for by name: {', '.join(unknown[:10])}")
    return Table(columns, rows, most=_ROWS_IN_TERMINAL, title="Query plan", lead=lead, notes=notes)


def _with_words(queries: list[str], words: Sequence[str]) -> list[str]:
    """Each query with each of the words behind it; as it is, if there are no words."""
    if not words:
        return queries
    return [f"{query} {word}" for query, word in itertools.product(queries, words)]


def _queries(
    entry: ClassDefinition, synset: Synset | None, wordnet: WordNet, step: int, alternatives: Sequence[str]
) -> dict[str, None]:
    """What to ask for one class, in order and without repetition: the keys of the dictionary."""
    synonyms = [entry.title] if synset is None else list(synset.words)
    queries = list(synonyms)
    if step >= _STEP_GLOSS_WORDS and synset is not None:
        names = _hypernyms_in_gloss(synset, wordnet)
        for synonym in synonyms:
            queries += [f"{synonym} {name}" for name in names if name not in synonym]
    if step >= _STEP_JOINED_WORDS:
        queries += [synonym.replace(" ", "") for synonym in synonyms if " " in synonym]
    if step >= _STEP_ALTERNATIVES:
        queries += alternatives
    return dict.fromkeys(queries)


def _hypernyms_in_gloss(synset: Synset, wordnet: WordNet) -> dict[str, None]:
    """The names of the hypernyms that the definition contains as a whole, which tell the meaning from others.

    Single words of a name would give queries such as "bald eagle of", from "bird of prey".
    """
    gloss = " ".join(re.findall(r"\w+", synset.gloss.lower()))
    names: dict[str, None] = {}
    for key in synset.parents:
        for name in wordnet.synsets[key].words:
            if f" {name.lower()} " in f" {gloss} ":
                names[name.lower()] = None
    return names
