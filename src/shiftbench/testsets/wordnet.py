"""WordNet's nouns: definitions, synonyms and tree distances of classes (004 appendix C.1.1).

The dictionary is read from where it is installed, as the Debian package wordnet-base or from Princeton's archive; no
part of it comes with this package. ImageNet's class keys are synsets of version 3.0. Other classes are looked up by
name, in the most frequent sense of the word: check what `testset init --wordnet` wrote to testset.toml.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote_plus

from shiftbench.testsets.configuration import ClassDefinition, Configuration
from shiftbench.testsets.errors import WorkshopError

FOLDERS = ("/usr/share/wordnet", "/usr/local/WordNet-3.0/dict", "/usr/share/wordnet-3.0/dict")
#: The environment variable that names the folder with data.noun and index.noun.
VARIABLE = "SHIFTBENCH_WORDNET"
#: Near classes per class: 004 compared candidates with the five closest classes.
NEAR = 5
_SYNSET_KEY = re.compile(r"n\d{8}")
_PARENTS = ("@", "@i")  # hypernyms of classes and of instances


@dataclass(frozen=True)
class Synset:
    """A meaning: the words for it, and the more general meanings above it.

    Attributes:
        key: Its WordNet id, such as n02121620.
        words: Its synonyms, the most common first.
        gloss: Its definition, without examples.
        parents: Keys of its hypernyms.
    """

    key: str
    words: tuple[str, ...]
    gloss: str
    parents: tuple[str, ...]


class WordNet:
    """The nouns of WordNet.

    Args:
        synsets: All synsets by key.
        senses: The synsets of each word in lower case, the most frequent sense first.
        version: Version of the dictionary, if its files state one.
    """

    def __init__(self, synsets: Mapping[str, Synset], senses: Mapping[str, Sequence[str]], version: str = "") -> None:
        self.synsets, self.senses, self.version = synsets, senses, version

    @classmethod
    def read(cls, folder: str | Path | None = None) -> WordNet:
        """Read the dictionary of a folder, or of the usual places.

        Args:
            folder: Folder with data.noun and index.noun (default: $SHIFTBENCH_WORDNET, then where packages put it).
        """
        wanted = [str(folder)] if folder is not None else [os.environ.get(VARIABLE, ""), *FOLDERS]
        found = next((Path(one) for one in wanted if one and (Path(one) / "data.noun").is_file()), None)
        if found is None:
            raise WorkshopError(
                "WordNet is not installed" if folder is None else f"no WordNet dictionary in {folder}",
                found=f"no data.noun in {', '.join(one for one in wanted if one)}",
                expected="the files data.noun and index.noun of WordNet 3.0",
                hint=f"install the package wordnet-base (Debian, Ubuntu), or set {VARIABLE} to the folder",
            )
        header, synsets = [], {}
        for line in (found / "data.noun").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(" "):  # the licence
                header.append(line)
            elif line:
                one = _synset(line)
                synsets[one.key] = one
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
        steps, level = {key: 0}, [key]
        while level:
            level = [up for one in level for up in self.synsets[one].parents if up in self.synsets and up not in steps]
            distance = max(steps.values()) + 1
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
        return [self._nearest(keys, i, above, below, count) for i in range(len(keys))]

    def _nearest(
        self,
        keys: Sequence[str],
        i: int,
        above: Sequence[Mapping[str, int]],
        below: Mapping[str, Sequence[tuple[int, int]]],
        count: int,
    ) -> list[int]:
        best: dict[int, int] = {}
        for ancestor, up in above[i].items():
            if len(best) >= count and sorted(best.values())[count - 1] <= up:
                break  # every other class is at least one step further
            for down, j in below[ancestor]:
                if keys[j] not in above[i] and keys[i] not in above[j]:
                    best[j] = min(best.get(j, up + down), up + down)
        return sorted(best, key=lambda j: (best[j], j))[:count]


def _synset(line: str) -> Synset:
    """``offset file n words (word id)* pointers (symbol offset part source)* | gloss``; counts of words are in hex."""
    data, _, gloss = line.partition("|")
    fields = data.split()
    count = int(fields[3], 16)
    words = tuple(dict.fromkeys(word.replace("_", " ") for word in fields[4 : 4 + 2 * count : 2]))
    start = 5 + 2 * count
    pointers = [fields[start + 4 * i : start + 4 * i + 3] for i in range(int(fields[start - 1]))]
    parents = tuple(f"n{offset}" for symbol, offset, part in pointers if symbol in _PARENTS and part == "n")
    return Synset(f"n{fields[0]}", words, gloss.split('; "')[0].strip(), parents)


def synsets_of(wordnet: WordNet, classes: Iterable[ClassDefinition]) -> dict[str, Synset]:
    """The synset of each class that WordNet knows, by class key.

    Args:
        wordnet: The dictionary.
        classes: Classes of a project.
    """
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

    Args:
        configuration: Classes of a project.
        wordnet: The dictionary.
        near: Near classes per class.
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
            entry = replace(
                entry,
                definition=entry.definition or synset.gloss,
                link=entry.link or link,
                near=entry.near or tuple(keys[j] for j in nearest[entry.key]),
            )
        classes.append(entry)
    return replace(configuration, classes=tuple(classes))
