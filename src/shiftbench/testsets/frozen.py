"""A frozen test set: a folder of files that needs no database, on this machine or another.

    frozen.json       name, classes, sampling, fingerprints
    README.md         the data set's card
    images/CLASS/...  the set, and images.jsonl with selection frequency, licence, author, ... of each
    reference/CLASS/...  the annotated reference images, and reference.jsonl

Opening it checks the fingerprint: a frozen set whose files were changed is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from shiftbench.datasets.base import Dataset
from shiftbench.datasets.manifest import open_manifest
from shiftbench.io.atomic import read_json
from shiftbench.labels.space import LabelSpace
from shiftbench.testsets.configuration import FILE
from shiftbench.testsets.errors import BlindnessError, FrozenError, WorkshopError

RECORD, REFERENCE_FILE = "frozen.json", "reference.jsonl"
Part = Literal["images", "reference"]


@dataclass(frozen=True)
class FrozenSet:
    """What ``frozen.json`` says."""

    folder: Path
    project: str
    set_name: str
    revision: int
    frozen_at: datetime
    space: LabelSpace
    images: int
    fingerprint: str
    references: int
    reference_fingerprint: str
    #: strategy, options, per_class, seed
    sampling: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.project}-{self.set_name}"

    def open(self, part: Part = "images", *, name: str | None = None) -> Dataset:
        """The new images or the annotated references, as they were when the set was frozen."""
        dataset = open_manifest(
            self.folder / f"{part}.jsonl", space=self.space, root=self.folder / part, name=name or self.part_name(part)
        )
        expected = self.fingerprint if part == "images" else self.reference_fingerprint
        if dataset.fingerprint != expected:
            raise FrozenError(
                f"the files of the frozen set {self.name!r} were changed",
                found=f"fingerprint {dataset.fingerprint}",
                expected=expected,
                hint="take the folder from a copy, or freeze under another name",
            )
        return dataset

    def part_name(self, part: Part) -> str:
        return self.name if part == "images" else f"{self.name}-reference"


def read_frozen(folder: str | Path) -> FrozenSet:
    folder = Path(folder)
    try:
        values = read_json(folder / RECORD)
        space = LabelSpace(values["labels"], tuple(values["classes"]), tuple(values["class_names"]))
        return FrozenSet(
            folder, values["project"], values["set"], values["revision"], datetime.fromisoformat(values["frozen_at"]),
            space, values["images"], values["fingerprint"], values["references"], values["reference_fingerprint"],
            values["sampling"],
        )  # fmt: skip
    except FileNotFoundError:
        raise WorkshopError(f"{folder} is not a frozen test set", found=f"no {RECORD}") from None
    except (KeyError, ValueError, TypeError) as error:
        raise WorkshopError(f"{folder / RECORD} is damaged", found=repr(error)) from error


def frozen_sets(folder: str | Path) -> list[FrozenSet]:
    """The frozen sets of a project, or the one whose own folder is given."""
    folder = Path(folder)
    if (folder / RECORD).is_file():
        return [read_frozen(folder)]
    if not (folder / FILE).is_file():
        raise WorkshopError(
            f"{folder} is neither a test-set project nor a frozen set",
            found="no such folder" if not folder.is_dir() else f"no {FILE} and no {RECORD}",
        )
    found = [read_frozen(path.parent) for path in sorted(folder.glob(f"frozen/*/{RECORD}"))]
    if not found:
        raise BlindnessError(
            f"{folder} has no frozen set: no model is run on it before",
            hint="finish the review, then: shiftbench testset freeze DIR SET",
        )
    return found


def one_frozen(sets: Sequence[FrozenSet], set_name: str | None = None) -> FrozenSet:
    """The one that is meant."""
    chosen = [one for one in sets if set_name in (None, one.set_name)]
    if len(chosen) != 1:
        raise WorkshopError(
            f"there is no frozen set {set_name!r}" if not chosen else "there are several frozen sets",
            expected=f"one of {', '.join(one.set_name for one in sets)}",
        )
    return chosen[0]
