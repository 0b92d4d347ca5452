"""A standard test of annotators: everybody classifies the same images of a labelled dataset (004, section 7).

Paper 004 suggests such a test, so that the people behind different test sets can be compared. It is a separate project,
like the study of hard images: its answers never enter the selection frequencies of a set. The images depend only on the
dataset and on how many are asked for, so that two labs that use the same dataset give the same test.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from sqlalchemy import func, select

from shiftbench import Dataset
from shiftbench.datasets import per_class as some_per_class
from shiftbench.extend.errors import shell_command
from shiftbench.extend.io import digest, write_json
from shiftbench.extend.tables import Column, Table
from shiftbench.metrics import clopper_pearson
from shiftbench.testsets.card import ANNOTATOR_TEST
from shiftbench.testsets.configuration import Configuration
from shiftbench.testsets.database import Account, Image, PoolEntry, SelectedSlot, Task
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.frequencies import answers
from shiftbench.testsets.pool.entries import import_images
from shiftbench.testsets.project import Project
from shiftbench.testsets.tasks import add_task, make_copies, shuffled

#: Images per class of a test.
PER_CLASS = 5
#: Marks the project of a test.
_NAME_END = "-annotator-test"
_ROWS_IN_TERMINAL = 30


@dataclass(frozen=True)
class AnnotatorTest:
    """The result of a standard test."""

    #: The name of the dataset, and a digest of the images with their classes: equal digests mean the same test.
    dataset: str
    fingerprint: str
    images: int
    #: The number of right answers of everybody who classified all images.
    right: dict[str, int]
    #: The most common mistake of each: the class of the image, and the class that was chosen.
    mistakes: dict[str, str]

    @property
    def mean(self) -> float:
        """The mean accuracy of the participants."""
        return fmean(self.right.values()) / self.images

    def as_data(self) -> dict[str, object]:
        """What the card of a frozen set states; nobody is named."""
        return {
            "dataset": self.dataset,
            "fingerprint": self.fingerprint,
            "images": self.images,
            "participants": len(self.right),
            "mean_accuracy": self.mean,
            "lowest": min(self.right.values()) / self.images,
            "highest": max(self.right.values()) / self.images,
        }


def make_annotator_test(
    project: Project, dataset: Dataset, folder: str | Path, *, participants: int, per_class: int = PER_CLASS
) -> int:
    """Create the project of a test for at most ``participants`` people; returns the number of its grids."""
    images = some_per_class(dataset, per_class, seed=0)
    original = project.configuration
    # No controls are needed, because the class of every image is known.
    rules = replace(original.annotation, annotators=participants, positive_controls=0, negative_controls=0)
    name = original.name[: 60 - len(_NAME_END)] + _NAME_END
    configuration = Configuration(
        name,
        original.classes,
        original.labels,
        annotation=rules,
        instructions=original.instructions,
        recruiting=original.recruiting,
    )
    test = Project.create(folder, configuration)
    try:
        import_images(test, images, name=dataset.name)
        with test.writing() as session:
            entries = shuffled(session.scalars(select(PoolEntry.id)).all(), test, "annotator test")
            count = math.ceil(len(entries) / rules.grid)
            for i in range(count):
                start = i * len(entries) // count
                stop = (i + 1) * len(entries) // count
                add_task(test, session, "", entries[start:stop])
        make_copies(test)
    finally:
        test.close()
    return count


def annotator_test(test: Project) -> AnnotatorTest:
    """The result of a test, over the people who classified all images and are not excluded."""
    if not test.configuration.name.endswith(_NAME_END):
        raise WorkshopError(
            f"{test.folder} is not a standard test of annotators",
            found=test.configuration.name,
            hint="create one: shiftbench testset follow-up annotators DIR DATASET FOLDER",
        )
    tasks_answered: dict[str, set[int]] = defaultdict(set)
    right: Counter[str] = Counter()
    mistakes: dict[str, Counter[str]] = defaultdict(Counter)
    titles = {entry.key: entry.title for entry in test.configuration.classes}
    query = answers(Account.name, Task.id, PoolEntry.class_key, SelectedSlot.label)
    query = query.where(Account.excluded_at.is_(None), Task.cancelled_at.is_(None)).order_by(PoolEntry.id)
    with test.reading() as session:
        task_count = session.scalars(select(func.count()).select_from(Task).where(Task.cancelled_at.is_(None))).one()
        entries = session.execute(select(Image.digest, PoolEntry.class_key, PoolEntry.source).join(Image)).all()
        for name, task, class_key, label in session.execute(query):
            tasks_answered[name].add(task)
            right[name] += class_key == label
            if class_key != label:
                mistakes[name][f"{titles[class_key]} as {titles.get(label or '', 'nothing')}"] += 1
    complete = sorted(name for name, tasks in tasks_answered.items() if len(tasks) == task_count)
    if not complete:
        raise WorkshopError(
            "nobody has classified all images of the test yet",
            hint=f"invite people and serve the pages; see: {shell_command('testset', 'status', test.folder)}",
        )
    most_common = {}
    for name in complete:
        # In a tie, the first in the alphabet.
        ordered = sorted(mistakes[name].items(), key=lambda item: (-item[1], item[0]))
        most_common[name] = ordered[0][0] if ordered else ""
    return AnnotatorTest(
        dataset=entries[0].source,
        fingerprint=digest(sorted([image, class_key] for image, class_key, _ in entries)),
        images=len(entries),
        right={name: right[name] for name in complete},
        mistakes=most_common,
    )


def annotator_test_table(result: AnnotatorTest, *, level: float = 0.95) -> Table:
    """The accuracy of every participant, the best first."""
    rows: list[dict[str, Any]] = []
    for name, right in sorted(result.right.items(), key=lambda item: (-item[1], item[0])):
        low, high = clopper_pearson(right, result.images, level)
        rows.append(
            {
                "participant": name,
                "accuracy": right / result.images,
                "low": low,
                "high": high,
                "mistake": result.mistakes[name],
            }
        )
    columns = [
        Column("participant", "participant"),
        Column("accuracy", "accuracy %", "number", ends=("low", "high"), times=100, places=1),
        Column("mistake", "most common mistake"),
    ]
    lead = [
        f"{len(rows)} people classified the same {result.images:,} images of {result.dataset}: "
        f"{100 * result.mean:.1f} % on average",
        f"test {result.fingerprint[:12]}",
    ]
    return Table(columns, rows, most=_ROWS_IN_TERMINAL, title="Standard test of annotators", lead=lead)


def state_on_card(project: Project, result: AnnotatorTest) -> Path:
    """Store the result in the folder of a project: the cards of sets that are frozen from now on state it."""
    path = project.folder / ANNOTATOR_TEST
    write_json(path, result.as_data())
    return path
