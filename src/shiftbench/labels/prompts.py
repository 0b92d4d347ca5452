"""Prompts for zero-shot models: the sentences that stand for a class.

A prompt set is a list of templates, one per line of a text file, with ``{}`` for the name of the class. ``one`` is a
single sentence; ``clip-80`` is the ensemble that CLIP was evaluated with on ImageNet. A file of your own is named by
its path.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from shiftbench.errors import LabelError, UnknownNameError, listed
from shiftbench.grouping import repeated
from shiftbench.io.hashing import digest
from shiftbench.labels.space import LabelSpace

#: The sets that this package brings, as ``prompts-NAME.txt`` among the data of the label spaces.
PROMPT_SETS = ("one", "clip-80")
#: Keys that are no names: integers, and the wnids of ImageNet.
_NO_NAME = re.compile(r"\d+|n\d{8}")


@dataclass(frozen=True)
class Prompts:
    """A prompt set.

    Attributes:
        name: Name of the set, or of its file.
        templates: Sentences with ``{}`` for the name of a class.
    """

    name: str
    templates: tuple[str, ...]

    @property
    def version(self) -> str:
        """A hash of the templates."""
        return digest(list(self.templates))[:8]

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"

    def texts(self, space: LabelSpace) -> list[list[str]]:
        """The sentences for each class, which has its name with blanks for underscores.

        Raises LabelError if the classes have keys instead of names, or if two have the same name: such texts mean
        nothing to a text encoder, or cannot tell two classes apart.
        """
        names = [name.replace("_", " ").strip() for name in space.names]
        nameless = [name for name in names if _NO_NAME.fullmatch(name) or not name]
        if nameless:
            raise LabelError(
                f"classes of {space.name!r} have no names that a text encoder could read",
                found=listed(nameless, 5),
                expected="names such as 'golden retriever'",
                hint="a label space with names, or a CSV file with the columns key and name",
            )
        shared_names = sorted(repeated(names))
        if shared_names:
            raise LabelError(
                f"several classes of {space.name!r} have the same name, so their texts would be equal",
                found=listed(shared_names, 5),
                expected="a name of its own for each class",
            )
        return [self._texts_of_class(name) for name in names]

    def _texts_of_class(self, name: str) -> list[str]:
        return [template.replace("{}", name) for template in self.templates]


def prompt_set(name: str) -> Prompts:
    """A prompt set by its name, or from a text file.

    Raises UnknownNameError, or LabelError for a file without usable templates.
    """
    if name in PROMPT_SETS:
        text = resources.files("shiftbench.labels").joinpath(f"data/prompts-{name}.txt").read_text(encoding="utf-8")
    elif Path(name).is_file():
        text = Path(name).read_text(encoding="utf-8")
        name = Path(name).name
    else:
        raise UnknownNameError("prompt set (nor a file)", name, PROMPT_SETS)
    templates = tuple(line.strip() for line in text.splitlines() if line.strip())
    unusable = [template for template in templates if "{}" not in template]
    if unusable or not templates:
        raise LabelError(
            f"{name} is not a prompt set",
            found=listed(unusable, 3) or "no lines",
            expected="one template per line, with {} for the name of the class: a photo of a {}.",
        )
    return Prompts(name, templates)
