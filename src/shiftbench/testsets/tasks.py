"""Create annotation tasks: grids of candidates of one class, mixed with control images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import Row, Select, case, exists, func, select
from sqlalchemy.orm import Session, aliased

from shiftbench import ShiftbenchError
from shiftbench.extend.io import seeded_rank
from shiftbench.extend.jobs import worker_count
from shiftbench.jobs import progress_bar
from shiftbench.testsets.configuration import AnnotationRules
from shiftbench.testsets.database import CANDIDATE, REFERENCE, Image, Mark, PoolEntry, Slot, Task
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.locks import alone
from shiftbench.testsets.project import Project, record

T = TypeVar("T")


@dataclass(frozen=True)
class TasksMade:
    """What :func:`make_tasks` created, and what may be wrong with it."""

    tasks: int
    candidates: int
    references: int
    #: Number of references, for classes with fewer than should get a selection frequency.
    few_references: Mapping[str, int]
    #: By role, the share of images that are smaller than their copies and look blurred.
    enlarged: Mapping[str, float]


def make_tasks(project: Project, *, show: bool = False) -> TasksMade:
    """Create grids for all new candidates, and for references that still need a selection frequency.

    Each grid has at least the configured number of controls of its class and of near classes. Further references are
    added until ``references_per_class`` of them appear in grids of their class, because matched sampling needs their
    selection frequencies. Grids of a class differ in size by at most one. ``show``: a progress bar for the copies that
    annotators see, which are made last; those that are missing after an interruption are made when they are shown.
    """
    rules = project.configuration.annotation
    counts = Counter[str]()
    few_references: dict[str, int] = {}
    with alone(project, "tasks"), project.writing() as session:
        references = _References(project, session)
        for key in project.space.keys:
            class_references = references.by_class[key]
            if len(class_references) < rules.references_per_class:
                few_references[key] = len(class_references)
            new_candidates = session.scalars(_new_candidates().where(PoolEntry.class_key == key)).all()
            new = shuffled(new_candidates, project, "candidates", key)
            already_used = sum(references.own_uses[entry] > 0 for entry in class_references)
            missing = max(0, min(rules.references_per_class, len(class_references)) - already_used)
            grid_count, positives = grid_plan(
                len(new), missing, rules.grid, rules.positive_controls, rules.negative_controls
            )
            for i in range(grid_count):
                # Rounding down the ends of each share makes grids whose sizes differ by at most one.
                candidates = new[i * len(new) // grid_count : (i + 1) * len(new) // grid_count]
                positives_in_grid = (i + 1) * positives // grid_count - i * positives // grid_count
                controls = references.take(key, positives_in_grid, rules.positive_controls)
                controls += references.take_near(key, rules.negative_controls)
                add_task(project, session, key, [*candidates, *controls])
                counts.update(tasks=1, candidates=len(candidates), references=len(controls))
        record(project, session, "tasks", **counts)
        enlarged = _enlarged_shares(session, rules)
    if counts["tasks"]:
        make_copies(project, show=show)
    return TasksMade(counts["tasks"], counts["candidates"], counts["references"], few_references, enlarged)


def make_copies(project: Project, *, show: bool = False) -> None:
    """Make the missing copies of all images in grids, so that annotators need not wait for them."""
    query = select(Image.digest, Image.suffix).where(
        exists().where(PoolEntry.image_id == Image.id, Slot.entry_id == PoolEntry.id)
    )
    with project.reading() as session:
        images = session.execute(query.order_by(Image.id)).all()

    def make(image: Row[tuple[str, str]]) -> None:
        # An image that cannot be read is reported by `verify`, and to whoever opens it.
        with suppress(OSError, ShiftbenchError):
            project.images.copy(image.digest, image.suffix)

    with (
        ThreadPoolExecutor(worker_count(None)) as threads,
        progress_bar("copies for annotators", len(images), show=show) as advance,
    ):
        for _ in threads.map(make, images):
            advance(1)


def _new_candidates() -> Select[int]:
    """Candidates that are in no valid grid, except marked ones and copies of a reference, which no set can contain."""
    twin = aliased(PoolEntry)
    in_valid_grid = exists().where(Slot.entry_id == PoolEntry.id, Slot.task_id == Task.id, Task.cancelled_at.is_(None))
    return select(PoolEntry.id).where(
        PoolEntry.role == CANDIDATE,
        ~in_valid_grid,
        ~exists().where(twin.image_id == PoolEntry.image_id, twin.role == REFERENCE),
        ~exists().where(Mark.entry_id == PoolEntry.id, Mark.withdrawn_at.is_(None)),
    )


def _enlarged_shares(session: Session, rules: AnnotationRules) -> dict[str, float]:
    """By role, the share of images that are enlarged in their copies."""
    is_narrow = Image.width < rules.copy_pixels
    is_low = Image.height < rules.copy_pixels
    if rules.copy_fit == "crop":
        is_small = is_narrow | is_low
    else:
        # The longer side of the whole image gets that many pixels.
        is_small = is_narrow & is_low
    query = select(PoolEntry.role, func.avg(case((is_small, 1.0), else_=0.0))).join(Image).group_by(PoolEntry.role)
    return {role: float(share) for role, share in session.execute(query)}


def grid_plan(candidates: int, missing: int, grid: int, positive: int, negative: int) -> tuple[int, int]:
    """(number of grids, total number of positive controls).

    Each grid has ``negative`` negative and at least ``positive`` positive controls; ``missing`` references must be
    shown in total.
    """
    if not candidates and not missing:
        return 0, 0
    # The smallest number of grids whose places, without the negative controls, hold everything.
    count = 1
    while candidates + max(missing, count * positive) > count * (grid - negative):
        count += 1
    return count, max(missing, count * positive)


class _References:
    """Control images: in random order within each class, the least shown first."""

    def __init__(self, project: Project, session: Session) -> None:
        self._project = project
        self.by_class: dict[str, list[int]] = {key: [] for key in project.space.keys}
        for entry, key in session.execute(select(PoolEntry.id, PoolEntry.class_key).where(PoolEntry.role == REFERENCE)):
            self.by_class[key].append(entry)
        for key, entries in self.by_class.items():
            self.by_class[key] = shuffled(entries, project, "references", key)
        #: How often each appears in grids of its own class, and of other classes.
        self.own_uses: Counter[int] = Counter()
        self._other_uses: Counter[int] = Counter()
        query = select(Slot.entry_id, Task.class_key == PoolEntry.class_key).join(Task).join(PoolEntry)
        query = query.where(PoolEntry.role == REFERENCE, Task.cancelled_at.is_(None))
        for entry, of_own_class in session.execute(query):
            if of_own_class:
                self.own_uses[entry] += 1
            else:
                self._other_uses[entry] += 1

    def take(self, key: str, count: int, least: int) -> list[int]:
        """``count`` different references of the class; WorkshopError if there are fewer than ``least``."""
        controls = sorted(self.by_class[key], key=lambda entry: self.own_uses[entry])[:count]
        if len(controls) < least:
            raise _too_few(key, len(controls), f"{least} of that class in each grid", "positive_controls")
        self.own_uses.update(controls)
        return controls

    def take_near(self, key: str, count: int) -> list[int]:
        """``count`` different references of near classes, spread over these classes."""
        controls: list[int] = []
        project = self._project
        # The number of uses so far is part of the seed, so that each grid begins with other near classes.
        near = shuffled(project.configuration.near(key), project, "near", key, sum(self._other_uses.values()))
        while len(controls) < count:
            count_before = len(controls)
            # One control from each near class in turn, the least shown first.
            for near_class in near[: count - len(controls)]:
                unused = [entry for entry in self.by_class[near_class] if entry not in controls]
                controls += sorted(unused, key=lambda entry: self._other_uses[entry])[:1]
            near = [near_class for near_class in near if set(self.by_class[near_class]) - set(controls)]
            if len(controls) == count_before and not near:
                raise _too_few(key, len(controls), f"{count} of near classes in each grid", "negative_controls")
        self._other_uses.update(controls)
        return controls


def _too_few(key: str, found: int, expected: str, rule: str) -> WorkshopError:
    return WorkshopError(
        f"too few reference images of near classes or of {key!r} for the controls",
        found=found,
        expected=expected,
        hint=f"import more: shiftbench testset import DIR DATA --reference, or lower {rule} in testset.toml",
    )


def add_task(project: Project, session: Session, key: str, entries: Sequence[int]) -> None:
    """Add a grid of these entries, to be answered by the configured number of annotators."""
    wished = project.configuration.annotation.annotators
    task = Task(class_key=key, wished=wished, places_left=wished, rank="", made_at=project.now())
    session.add(task)
    session.flush()
    # The rank depends on the id, which the task has only now.
    task.rank = seeded_rank(project.configuration.seed, "rank", task.id).hex()[:16]
    session.add_all(Slot(task_id=task.id, entry_id=entry) for entry in entries)
    session.flush()


def shuffled(items: Sequence[T], project: Project, *parts: object) -> list[T]:
    """In an order that depends only on the seed and the items."""
    return sorted(items, key=lambda item: seeded_rank(project.configuration.seed, *parts, item))
