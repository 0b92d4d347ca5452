"""A frozen test set: a folder of files that needs no database, on this machine or another.

    frozen.json       name, classes, sampling, fingerprints
    README.md         dataset card
    images/CLASS/...  the images, and images.jsonl with the selection frequency, licence, author, ... of each
    reference/CLASS/...  the annotated reference images, and reference.jsonl

Opening it checks the fingerprint: modified files are refused.
``--suite testset:DIR`` and ``--data testset:DIR`` reach it through ``shiftbench.workshops``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from shiftbench import Dataset, LabelSpace, Setting, label_space
from shiftbench.datasets import of_classes
from shiftbench.extend.datasets import FOLDERS, open_manifest
from shiftbench.extend.io import read_json
from shiftbench.testsets.configuration import FILE
from shiftbench.testsets.errors import BlindnessError, FrozenError, WorkshopError

#: The file that describes a frozen set.
RECORD = "frozen.json"
#: The manifest of the annotated reference images.
REFERENCE_FILE = "reference.jsonl"
#: The new images, or the annotated references that they are compared with; also the name of their folder.
Part = Literal["images", "reference"]


@dataclass(frozen=True)
class FrozenSet:
    """What ``frozen.json`` says about a frozen set."""

    folder: Path
    #: The name of the project, which may have several sets.
    project: str
    set_name: str
    #: The number of the revision that was frozen.
    revision: int
    frozen_at: datetime
    #: The classes of the set.
    space: LabelSpace
    #: The number of new images, and their fingerprint when the set was frozen.
    images: int
    fingerprint: str
    #: The same for the annotated reference images.
    references: int
    reference_fingerprint: str
    #: The strategy with its ``options``, ``per_class`` and ``seed``.
    sampling: dict[str, Any]
    #: How to cite the set; may be empty.
    citation: str = ""

    @property
    def name(self) -> str:
        return f"{self.project}-{self.set_name}"

    def open(self, part: Part = "images", *, name: str | None = None) -> Dataset:
        """The new images or the annotated references; FrozenError if files were modified."""
        dataset = open_manifest(
            self.folder / f"{part}.jsonl", space=self.space, root=self.folder / part, name=name or self.part_name(part)
        )
        expected = self.fingerprint if part == "images" else self.reference_fingerprint
        if dataset.fingerprint != expected:
            raise FrozenError(
                f"the files of the frozen set {self.name!r} were modified",
                found=f"fingerprint {dataset.fingerprint}",
                expected=expected,
                hint="restore the folder from a copy, or freeze under another name",
            )
        return dataset

    def part_name(self, part: Part) -> str:
        """The name of the dataset, and of its setting."""
        return self.name if part == "images" else f"{self.name}-reference"


def read_frozen(folder: str | Path) -> FrozenSet:
    """The frozen set in a folder; raises WorkshopError if there is none or its record is damaged."""
    folder = Path(folder)
    try:
        values = read_json(folder / RECORD)
        return FrozenSet(
            folder=folder,
            project=values["project"],
            set_name=values["set"],
            revision=values["revision"],
            frozen_at=datetime.fromisoformat(values["frozen_at"]),
            space=LabelSpace(values["labels"], tuple(values["classes"]), tuple(values["class_names"])),
            images=values["images"],
            fingerprint=values["fingerprint"],
            references=values["references"],
            reference_fingerprint=values["reference_fingerprint"],
            sampling=values["sampling"],
            citation=values.get("citation", ""),
        )
    except FileNotFoundError:
        raise WorkshopError(f"{folder} is not a frozen test set", found=f"no {RECORD}") from None
    except (KeyError, ValueError, TypeError) as error:
        raise WorkshopError(f"{folder / RECORD} is damaged", found=repr(error)) from error


def frozen_sets(folder: str | Path) -> list[FrozenSet]:
    """The frozen sets of a project, or the one in ``folder`` itself; raises BlindnessError if no set is frozen."""
    folder = Path(folder)
    if (folder / RECORD).is_file():
        return [read_frozen(folder)]
    if not (folder / FILE).is_file():
        raise WorkshopError(
            f"{folder} is neither a test-set project nor a frozen set",
            found="no such folder" if not folder.is_dir() else f"no {FILE} and no {RECORD}",
        )
    sets = [read_frozen(path.parent) for path in sorted(folder.glob(f"frozen/*/{RECORD}"))]
    if not sets:
        raise BlindnessError(
            f"{folder} has no frozen set; models can only be evaluated on frozen sets",
            hint="finish the review, then: shiftbench testset freeze DIR --set NAME",
        )
    return sets


def one_frozen(sets: Sequence[FrozenSet], set_name: str | None = None) -> FrozenSet:
    """The set with that name, or the only one; raises WorkshopError if there is none or a choice."""
    matching = [frozen for frozen in sets if set_name in (None, frozen.set_name)]
    if len(matching) != 1:
        hint = None
        if sets:
            hint = f"by the folder, such as testset:{sets[0].folder}, or --set of the testset commands"
        raise WorkshopError(
            "several frozen sets: name one" if matching else f"unknown frozen set {set_name!r}",
            expected=f"one of {', '.join(frozen.set_name for frozen in sets)}",
            hint=hint,
        )
    return matching[0]


def open_testset(
    path: str | Path, *, space: LabelSpace | str | None = None, name: str | None = None, set: str | None = None
) -> Dataset:
    """A frozen test set: its folder, its project, or its reference.jsonl for the reference images."""
    path = Path(path)
    if path.name == REFERENCE_FILE:
        dataset = one_frozen(frozen_sets(path.parent), set).open("reference", name=name)
    else:
        dataset = one_frozen(frozen_sets(path), set).open("images", name=name)
    # A frozen set records its classes, so "those of the folders" asks for nothing else.
    if space is None or space == FOLDERS:
        return dataset
    asked_space = label_space(space) if isinstance(space, str) else space
    if asked_space.keys == dataset.space.keys:
        return dataset
    return of_classes(dataset, asked_space)


def testset_settings(folder: str) -> list[Setting]:
    """The frozen sets of a test-set project, each against its annotated reference images.

    Sets with the same references share the setting of these.
    """
    sets = frozen_sets(folder)
    share_references = len({frozen.reference_fingerprint for frozen in sets}) == 1
    settings: dict[str, Setting] = {}
    for frozen in sets:
        reference = None
        if frozen.references:
            reference = f"{frozen.project}-reference" if share_references else frozen.part_name("reference")
            original = Setting(reference, reference, default=f"testset:{frozen.folder / REFERENCE_FILE}")
            settings.setdefault(reference, original)
        note = (
            f"revision {frozen.revision}, sampled by {frozen.sampling['strategy']}, frozen {frozen.frozen_at:%Y-%m-%d}"
        )
        settings[frozen.name] = Setting(
            frozen.name, frozen.name, reference=reference, note=note, default=f"testset:{frozen.folder}"
        )
    return list(settings.values())
