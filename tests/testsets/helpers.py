"""Real pictures, and annotators with known habits, for tests of the workshop."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, TypeVar

from sqlalchemy import select

from shiftbench.datasets.catalogue import open_named
from shiftbench.datasets.subset import Subset, of_classes, per_class, take
from shiftbench.labels.space import LabelSpace
from shiftbench.testsets import annotation
from shiftbench.testsets.accounts import create_account
from shiftbench.testsets.configuration import Configuration, configuration_for
from shiftbench.testsets.database import Assignment, PoolEntry, Slot
from shiftbench.testsets.pool.entries import import_images
from shiftbench.testsets.project import Project
from shiftbench.testsets.tasks import make_tasks

T = TypeVar("T", bound=Callable[..., None])
PETS = LabelSpace("pets", ("cat", "dog", "frog"))


def on_both_databases(test: T) -> T:
    test.__dict__["databases"] = ["sqlite", "postgresql"]
    return test


def small_configuration(space: LabelSpace = PETS, **options: Any) -> Configuration:
    configuration = configuration_for(space, "pets", **options)
    return configuration.with_rules(grid=16, annotators=3, references_per_class=6, lease_minutes=10, examples=4)


@cache
def _some_of(part: str) -> Subset:
    """The first two thousand: of the first file of the training images, so that the others need not be read."""
    return take(open_named(f"cifar-10-{part}"), range(2000))


def cifar(part: str, each: int, space: LabelSpace = PETS, seed: int = 0) -> Subset:
    """Real pictures of CIFAR-10: ``each`` of every class of the space."""
    return per_class(of_classes(_some_of(part), space), each, seed=seed)


def fill(project: Project, candidates: int = 7, references: int = 7) -> None:
    """CIFAR-10's test images as candidates, train images as references, and tasks: by default one grid a class."""
    import_images(project, cifar("test", candidates, project.space))
    import_images(project, cifar("train", references, project.space), "reference")
    make_tasks(project)


def annotators(project: Project, count: int) -> list[int]:
    return [create_account(project, f"annotator {i}", "annotator").id for i in range(count)]


#: From (annotator, entry, class of the task) to whether the picture is selected.
Habit = Callable[[int, PoolEntry, str], bool]


def share(entry: PoolEntry) -> float:
    """A number in [0, 1) that belongs to a picture: how often it is to be selected."""
    return int.from_bytes(hashlib.blake2b(entry.image.digest.encode(), digest_size=4).digest(), "little") / 2**32


def by_share(annotator: int, entry: PoolEntry, class_key: str) -> bool:
    """Selects pictures of the class in proportion to their share, never others."""
    text = f"{annotator}/{entry.image.digest}".encode()
    chance = int.from_bytes(hashlib.blake2b(text, digest_size=4).digest(), "little") / 2**32
    return entry.class_key == class_key and chance < share(entry)


def truthful(annotator: int, entry: PoolEntry, class_key: str) -> bool:
    return entry.class_key == class_key


def entries_behind(project: Project, grid: annotation.AnnotationGrid) -> dict[str, PoolEntry]:
    """What no annotator can know: the entry behind each opaque id."""
    with project.reading() as session:
        query = select(Slot.id, PoolEntry).join(PoolEntry, PoolEntry.id == Slot.entry_id)
        query = query.join(Assignment, Assignment.task_id == Slot.task_id).where(Assignment.token == grid.task)
        return {annotation.image_id(project, grid.task, slot): entry for slot, entry in session.execute(query)}


def work(project: Project, people: Sequence[int], habit: Habit = truthful) -> int:
    """Everybody answers all they get; how many answers."""
    answers = 0
    for person in people:
        while (grid := annotation.next_task(project, person)) is not None:
            behind = entries_behind(project, grid)
            selected = [image for image in grid.images if habit(person, behind[image], grid.class_key)]
            annotation.submit(project, person, grid.task, selected)
            answers += 1
    return answers


class Clock:
    """A project's time, moved by hand; safe with threads."""

    def __init__(self) -> None:
        self.moment = datetime(2026, 3, 1, 12, tzinfo=UTC)
        self._turn = threading.Lock()

    def __call__(self) -> datetime:
        return self.moment

    def pass_minutes(self, minutes: float) -> None:
        with self._turn:
            self.moment += timedelta(minutes=minutes)
