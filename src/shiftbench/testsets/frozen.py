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

from shiftbench.datasets.base import Dataset
from shiftbench.datasets.manifest import open_manifest
from shiftbench.datasets.subset import of_classes
from shiftbench.io.atomic import read_json
from shiftbench.labels.catalogue import FOLDERS, label_space
from shiftbench.labels.space import LabelSpace
from shiftbench.settings.base import Setting
from shiftbench.testsets.configuration import FILE
from shiftbench.testsets.errors import BlindnessError, FrozenError, WorkshopError

RECORD, REFERENCE_FILE = "frozen.json", "reference.jsonl"
Part = Literal["images", "reference"]


@dataclass(frozen=True)
class FrozenSet:
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
        return self.name if part == "images" else f"{self.name}-reference"


def read_frozen(folder: str | Path) -> FrozenSet:
    folder = Path(folder)
    try:
        values = read_json(folder / RECORD)
        space = LabelSpace(values["labels"], tuple(values["classes"]), tuple(values["class_names"]))
        return FrozenSet(
            folder,
            values["project"],
            values["set"],
            values["revision"],
            datetime.fromisoformat(values["frozen_at"]),
            space,
            values["images"],
            values["fingerprint"],
            values["references"],
            values["reference_fingerprint"],
            values["sampling"],
            values.get("citation", ""),
        )
    except FileNotFoundError:
        raise WorkshopError(f"{folder} is not a frozen test set", found=f"no {RECORD}") from None
    except (KeyError, ValueError, TypeError) as error:
        raise WorkshopError(f"{folder / RECORD} is damaged", found=repr(error)) from error


def frozen_sets(folder: str | Path) -> list[FrozenSet]:
    """The frozen sets of a project, or the one in ``folder`` itself."""
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
            f"{folder} has no frozen set; models can only be evaluated on frozen sets",
            hint="finish the review, then: shiftbench testset freeze DIR --set NAME",
        )
    return found


def one_frozen(sets: Sequence[FrozenSet], set_name: str | None = None) -> FrozenSet:
    chosen = [one for one in sets if set_name in (None, one.set_name)]
    if len(chosen) != 1:
        raise WorkshopError(
            f"unknown frozen set {set_name!r}" if not chosen else "several frozen sets: name one",
            expected=f"one of {', '.join(one.set_name for one in sets)}",
            hint=f"by the folder, such as testset:{sets[0].folder}, or --set of the testset commands" if sets else None,
        )
    return chosen[0]


def open_testset(
    path: str | Path, *, space: LabelSpace | str | None = None, name: str | None = None, set: str | None = None
) -> Dataset:
    """A frozen test set: its folder, its project, or its reference.jsonl for the reference images."""
    path = Path(path)
    part, folder = ("reference", path.parent) if path.name == REFERENCE_FILE else ("images", path)
    dataset = one_frozen(frozen_sets(folder), set).open(part, name=name)  # type: ignore[arg-type]
    own = None if space == FOLDERS else space  # it has its own classes, whatever the folders are called
    target = label_space(own) if isinstance(own, str) else own
    return dataset if target is None or target.keys == dataset.space.keys else of_classes(dataset, target)


def testset_settings(folder: str) -> list[Setting]:
    """The frozen sets of a test-set project, each against its annotated reference images."""
    sets = frozen_sets(folder)
    common = len({one.reference_fingerprint for one in sets}) == 1
    settings: dict[str, Setting] = {}
    for one in sets:
        reference = (f"{one.project}-reference" if common else one.part_name("reference")) if one.references else None
        if reference is not None:
            original = Setting(reference, reference, default=f"testset:{one.folder / REFERENCE_FILE}")
            settings.setdefault(reference, original)
        note = f"revision {one.revision}, sampled by {one.sampling['strategy']}, frozen {one.frozen_at:%Y-%m-%d}"
        settings[one.name] = Setting(
            one.name, one.name, reference=reference, note=note, default=f"testset:{one.folder}"
        )
    return list(settings.values())
