"""A human study on the hard images of a frozen set and of its references, on the annotation pages (004 B.2.5).

A study is a separate project with its own database, so that its answers never enter the selection frequencies of the
set. Each hard image is shown to every participant twice: in a grid of its own class, and in a grid of the class that
most models predict. An answer is correct if the image is selected in the first and not in the second. Images of both
sets are mixed in the same grids.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import func, select

from shiftbench.datasets.stored import FileDataset
from shiftbench.datasets.subset import Subset
from shiftbench.io.paths import Location
from shiftbench.reports.table import Column, Table
from shiftbench.testsets.configuration import Configuration
from shiftbench.testsets.database.tables import Account, PoolEntry, SelectedSlot, Task
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.followups.hard_images import (
    HARDEST_SHARE,
    HardImages,
    HumanAccuracy,
    hardest_images,
    human_accuracy,
)
from shiftbench.testsets.frequencies import answers
from shiftbench.testsets.frozen import Part
from shiftbench.testsets.pool.import_images import import_images
from shiftbench.testsets.predictions import predictions_on, require_frozen
from shiftbench.testsets.project import Project
from shiftbench.testsets.tasks import add_task, shuffled

#: Names of the two sets in the study: the source of their entries.
SIDES: dict[str, Part] = {"original": "reference", "new": "images"}
PARTICIPANTS = 9
#: Rows per set shown in a terminal.
_SHOWN = 15


@dataclass(frozen=True)
class StudyMade:
    folder: Path
    tasks: int
    #: Number of hard images per set.
    original: int
    new: int


def hard_images_of(
    project: Project,
    set_name: str,
    workspace: str | Location,
    classifiers: Sequence[str] = (),
    *,
    share: float = HARDEST_SHARE,
) -> dict[str, HardImages]:
    """The hardest images of the references ("original") and of the set ("new"); requires a frozen set."""
    return {
        side: hardest_images(predictions_on(project, set_name, workspace, part, classifiers), share=share)
        for side, part in SIDES.items()
    }


def hard_table(hard: Mapping[str, HardImages]) -> Table:
    """Both sets in one table, the hardest images of each first."""
    rows = [{"set": side, **row} for side, found in hard.items() for row in found.rows]
    shown = [{"set": side, **row} for side, found in hard.items() for row in found.rows[:_SHOWN]]
    return Table(
        [Column("set", "set"), *next(iter(hard.values())).columns],
        rows,
        shown=shown,
        title="Hard images",
        lead=[f"{side}: {line}" for side, found in hard.items() for line in found.lead],
        notes=[f"first {len(shown)} of {len(rows):,}; write a .csv file for all"] if len(rows) > len(shown) else [],
    )


def make_study(
    project: Project,
    set_name: str,
    hard: Mapping[str, HardImages],
    folder: str | Path,
    *,
    participants: int = PARTICIPANTS,
    database: str | None = None,
) -> StudyMade:
    """Create a project with grids of hard images, to be answered by ``participants`` people each."""
    frozen = require_frozen(project, set_name, "showing hard images to people")
    empty = [side for side in SIDES if not hard[side].images]
    if empty:
        raise WorkshopError(
            f"no hard images in the {empty[0]} set", found=f"{hard[empty[0]].total} images",
            hint="use a larger share: 0.05 selects the hardest 5 %",
        )  # fmt: skip
    study = Project.create(folder, _configuration(project, set_name, participants), database=database)
    try:
        for side, part in SIDES.items():
            import_images(study, _images(hard[side].subset(frozen.open(part)), frozen.folder / part), name=side)
        made = _make_tasks(study, hard)
    finally:
        study.close()
    return StudyMade(Path(folder), made, len(hard["original"].images), len(hard["new"].images))


def human_accuracy_of(study: Project, *, level: float = 0.95) -> HumanAccuracy:
    """The accuracy of all participants who have answered all grids."""
    found = study_answers(study)
    if not found:
        raise WorkshopError(
            "no participant has answered all grids of the study yet",
            hint=f"invite people and serve the pages; see: shiftbench testset status {study.folder}",
        )
    return human_accuracy(found, original="original", new="new", level=level)


def study_answers(study: Project) -> dict[str, dict[str, list[bool]]]:
    """Correct or wrong on each image, by participant and set; only of participants who are finished and not
    excluded."""
    columns = (
        Account.name,
        PoolEntry.source,
        PoolEntry.id,
        Task.id,
        PoolEntry.class_key == Task.class_key,
        SelectedSlot.slot_id,
    )
    right: dict[tuple[str, str, int], bool] = {}
    done: dict[str, set[int]] = defaultdict(set)
    with study.reading() as session:
        _check_study(study, set(session.scalars(select(PoolEntry.source).distinct())))
        tasks = session.scalars(select(func.count()).select_from(Task)).one()
        rows = session.execute(answers(*columns).where(Account.excluded_at.is_(None)).order_by(PoolEntry.id))
        for name, side, entry, task, own, slot in rows:
            done[name].add(task)
            right[name, side, entry] = right.get((name, side, entry), True) and own == (slot is not None)
    found: dict[str, dict[str, list[bool]]] = {}
    for (name, side, _), hit in right.items():
        if len(done[name]) == tasks:
            found.setdefault(name, {}).setdefault(side, []).append(hit)
    return found


def _check_study(study: Project, sources: set[str]) -> None:
    if sources != set(SIDES):
        raise WorkshopError(
            f"{study.folder} is not a study of hard images", found=", ".join(sorted(sources)[:3]) or "an empty pool",
            hint="create one: shiftbench testset follow-up hard DIR -w WORKSPACE --study FOLDER",
        )  # fmt: skip


def _configuration(project: Project, set_name: str, participants: int) -> Configuration:
    """The project's classes and definitions, without controls: images of other classes are in the grids anyway."""
    own = project.configuration
    rules = replace(own.annotation, annotators=participants, positive_controls=0, negative_controls=0)
    name = f"{own.name}-{set_name}-hard"[:60]
    return Configuration(name, own.classes, own.labels, own.seed, annotation=rules)


def _images(hard: Subset, root: Path) -> FileDataset:
    """The files without metadata: a stored source would replace the name of the set."""
    return FileDataset(hard.name, hard.space, root, list(hard.ids), hard.labels.tolist(), ids=list(hard.ids))


def _make_tasks(study: Project, hard: Mapping[str, HardImages]) -> int:
    taken_for = {(side, image.image): image.common_answer for side in SIDES for image in hard[side].images}
    asked: dict[str, list[int]] = defaultdict(list)
    made = 0
    with study.writing() as session:
        for entry in session.scalars(select(PoolEntry).order_by(PoolEntry.id)):
            asked[entry.class_key].append(entry.id)
            asked[_other_class(study, entry, taken_for[entry.source, entry.source_id])].append(entry.id)
        for key in study.space.keys:
            for grid in _grids(shuffled(asked[key], study, "hard", key), study.configuration.annotation.grid):
                add_task(study, session, key, grid)
                made += 1
    return made


def _other_class(study: Project, entry: PoolEntry, taken_for: str) -> str:
    """The class that most models predict; else a fixed random class, if there is none in the set."""
    others = [key for key in study.space.keys if key != entry.class_key]
    named = [key for key in others if study.configuration.class_of(key).title == taken_for]
    number = hashlib.blake2b(f"{study.configuration.seed}/{entry.image.digest}".encode(), digest_size=8).digest()
    return named[0] if named else others[int.from_bytes(number, "little") % len(others)]


def _grids(entries: Sequence[int], most: int) -> Iterator[Sequence[int]]:
    """As few grids as possible, with sizes that differ by at most one."""
    count = -(-len(entries) // most)
    for i in range(count):
        yield entries[i * len(entries) // count : (i + 1) * len(entries) // count]
