"""How people do on the hard images of a frozen set and of its reference, asked by the workshop's pages (004 B.2.5).

A study is a project of its own: a folder with a database, served and invited to as any other, so that what people say
there never enters the selection frequencies of the set. Each hard picture is shown to every participant twice: in the
grid of its own class, and in the grid of the class that most models take it for. Right is who selects it in the one
and leaves it in the other. Pictures of both sets stand in the same grids, and nothing tells them apart.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import func, select

from shiftbench.datasets.files import FileDataset
from shiftbench.datasets.subset import Subset
from shiftbench.reports.table import Column, Table
from shiftbench.testsets.configuration import Configuration
from shiftbench.testsets.database.tables import Account, Entry, Selection, Task
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
from shiftbench.testsets.pool.import_images import import_pictures
from shiftbench.testsets.predictions import predictions_on, require_frozen
from shiftbench.testsets.project import Project
from shiftbench.testsets.tasks import add_task, shuffled

#: What the pictures of either set are called in the study: the source of their entries.
SIDES: dict[str, Part] = {"original": "reference", "new": "images"}
PARTICIPANTS = 9
#: Pictures of either set that a terminal shows.
_SHOWN = 15


@dataclass(frozen=True)
class StudyMade:
    folder: Path
    tasks: int
    #: Hard pictures of either set.
    original: int
    new: int


def hard_images_of(
    project: Project,
    set_name: str,
    workspace: str | Path,
    classifiers: Sequence[str] = (),
    *,
    share: float = HARDEST_SHARE,
) -> dict[str, HardImages]:
    """The hardest pictures of the reference ("original") and of the set ("new"); BlindnessError before it is frozen."""
    return {
        side: hardest_images(predictions_on(project, set_name, workspace, part, classifiers), share=share)
        for side, part in SIDES.items()
    }


def hard_table(hard: Mapping[str, HardImages]) -> Table:
    """Both sets in one table: of each the hardest first."""
    rows = [{"set": side, **row} for side, found in hard.items() for row in found.rows]
    shown = [{"set": side, **row} for side, found in hard.items() for row in found.rows[:_SHOWN]]
    return Table(
        [Column("set", "set"), *next(iter(hard.values())).columns],
        rows,
        shown=shown,
        title="Hard images",
        lead=[f"{side}: {line}" for side, found in hard.items() for line in found.lead],
        notes=[f"the first {len(shown)} of {len(rows):,}; write a .csv file for all"] if len(rows) > len(shown) else [],
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
    """A project whose grids hold the hard pictures; ``participants`` people can answer all of them."""
    frozen = require_frozen(project, set_name, "showing hard images to people")
    empty = [side for side in SIDES if not hard[side].images]
    if empty:
        raise WorkshopError(
            f"there are no hard images of the {empty[0]} set", found=f"{hard[empty[0]].total} images",
            hint="take a larger share: 0.05 are the hardest 5 %",
        )  # fmt: skip
    study = Project.create(folder, _configuration(project, set_name, participants), database=database)
    try:
        for side, part in SIDES.items():
            import_pictures(study, _pictures(hard[side].subset(frozen.open(part)), frozen.folder / part), name=side)
        made = _make_tasks(study, hard)
    finally:
        study.close()
    return StudyMade(Path(folder), made, len(hard["original"].images), len(hard["new"].images))


def human_accuracy_of(study: Project, *, level: float = 0.95) -> HumanAccuracy:
    """Of everybody who has answered all grids of a study."""
    found = study_answers(study)
    if not found:
        raise WorkshopError(
            "nobody has answered all grids of the study yet",
            hint=f"invite people and serve the pages: shiftbench testset status {study.folder}",
        )
    return human_accuracy(found, original="original", new="new", level=level)


def study_answers(study: Project) -> dict[str, dict[str, list[bool]]]:
    """Right or wrong on each picture, by participant and set; without people who are not done, or were excluded."""
    columns = (Account.name, Entry.source, Entry.id, Task.id, Entry.class_key == Task.class_key, Selection.slot_id)
    right: dict[tuple[str, str, int], bool] = {}
    done: dict[str, set[int]] = defaultdict(set)
    with study.reading() as session:
        _check_study(study, set(session.scalars(select(Entry.source).distinct())))
        tasks = session.scalars(select(func.count()).select_from(Task)).one()
        rows = session.execute(answers(*columns).where(Account.excluded_at.is_(None)).order_by(Entry.id))
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
            f"{study.folder} is no study of hard images", found=", ".join(sorted(sources)[:3]) or "an empty pool",
            hint="shiftbench testset follow-up hard DIR -w WORKSPACE --study FOLDER makes one",
        )  # fmt: skip


def _configuration(project: Project, set_name: str, participants: int) -> Configuration:
    """The classes and definitions of the project. No controls: pictures of other classes are among them."""
    own = project.configuration
    rules = replace(own.annotation, annotators=participants, positive_controls=0, negative_controls=0)
    name = f"{own.name}-{set_name}-hard"[:60]
    return Configuration(name, own.classes, own.labels, own.seed, annotation=rules)


def _pictures(hard: Subset, root: Path) -> FileDataset:
    """The files alone: where a picture came from once would stand in place of the set that it is of."""
    return FileDataset(hard.name, hard.space, root, list(hard.ids), hard.labels.tolist(), ids=list(hard.ids))


def _make_tasks(study: Project, hard: Mapping[str, HardImages]) -> int:
    taken_for = {(side, image.image): image.common_answer for side in SIDES for image in hard[side].images}
    asked: dict[str, list[int]] = defaultdict(list)
    made = 0
    with study.writing() as session:
        for entry in session.scalars(select(Entry).order_by(Entry.id)):
            asked[entry.class_key].append(entry.id)
            asked[_other_class(study, entry, taken_for[entry.source, entry.source_id])].append(entry.id)
        for key in study.space.keys:
            for grid in _grids(shuffled(asked[key], study, "hard", key), study.configuration.annotation.grid):
                add_task(study, session, key, grid)
                made += 1
    return made


def _other_class(study: Project, entry: Entry, taken_for: str) -> str:
    """The class that most models say; any other one, always the same, where they say nothing or none of the set's."""
    others = [key for key in study.space.keys if key != entry.class_key]
    named = [key for key in others if study.configuration.class_of(key).title == taken_for]
    number = hashlib.blake2b(f"{study.configuration.seed}/{entry.image.digest}".encode(), digest_size=8).digest()
    return named[0] if named else others[int.from_bytes(number, "little") % len(others)]


def _grids(entries: Sequence[int], most: int) -> Iterator[Sequence[int]]:
    """As few grids as will do, of sizes that differ by one at most."""
    count = -(-len(entries) // most)
    for i in range(count):
        yield entries[i * len(entries) // count : (i + 1) * len(entries) // count]
