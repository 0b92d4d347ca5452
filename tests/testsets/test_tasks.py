"""Grids: every candidate once, enough controls, references that get a frequency, no chance left to machines."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from shiftbench.testsets.configuration import ClassDefinition, Configuration
from shiftbench.testsets.database import CANDIDATE, REFERENCE, PoolEntry, Slot, Task
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.pool.entries import import_images
from shiftbench.testsets.project import Project
from shiftbench.testsets.review import mark
from shiftbench.testsets.tasks import grid_plan, make_tasks
from tests.raised import raises
from tests.testsets.conftest import NewProject
from tests.testsets.helpers import PETS, cifar, small_configuration


def grids(project: Project) -> list[tuple[str, list[PoolEntry]]]:
    with project.reading() as session:
        rows = session.execute(select(Task, PoolEntry).join(Slot, Slot.task_id == Task.id).join(PoolEntry)).all()
        by_task: dict[int, tuple[str, list[PoolEntry]]] = {}
        for task, entry in rows:
            by_task.setdefault(task.id, (task.class_key, []))[1].append(entry)
        return [by_task[key] for key in sorted(by_task)]


def parts(key: str, entries: list[PoolEntry]) -> Counter[str]:
    return Counter(
        CANDIDATE if entry.role == CANDIDATE else "positive" if entry.class_key == key else "negative"
        for entry in entries
    )


@given(st.integers(0, 500), st.integers(0, 60), st.integers(8, 48), st.integers(0, 3), st.integers(0, 3))
def test_grid_plan_is_the_smallest_that_fits(
    candidates: int, missing: int, grid: int, positive: int, negative: int
) -> None:
    count, positives = grid_plan(candidates, missing, grid, positive, negative)
    if not candidates and not missing:
        assert (count, positives) == (0, 0)
        return
    assert positives == max(missing, positive * count)
    assert candidates + positives <= count * (grid - negative)
    smaller = count - 1
    assert smaller == 0 or candidates + max(missing, positive * smaller) > smaller * (grid - negative)
    # Split evenly, no single grid is too large.
    largest = math.ceil(candidates / count) + math.ceil(positives / count) + negative
    assert largest <= grid + 1


def test_every_candidate_once_and_enough_controls(new_project: NewProject) -> None:
    project = new_project()
    import_images(project, cifar("test", 25))
    import_images(project, cifar("train", 9), "reference")
    tasks_made = make_tasks(project)
    all_grids = grids(project)
    assert tasks_made.tasks == len(all_grids) and tasks_made.candidates == 75
    times_shown = Counter(entry.id for _, entries in all_grids for entry in entries if entry.role == CANDIDATE)
    assert len(times_shown) == 75 and set(times_shown.values()) == {1}
    for key, entries in all_grids:
        counts = parts(key, entries)
        assert len(entries) <= 16 and counts["positive"] >= 3 and counts["negative"] == 3
        assert all(entry.class_key == key for entry in entries if entry.role == CANDIDATE)
        assert len({entry.id for entry in entries}) == len({entry.image_id for entry in entries}) == len(entries)
    for key in PETS.keys:
        references = {e.id for k, es in all_grids if k == key for e in es if e.role == REFERENCE and e.class_key == key}
        assert len(references) == 9  # three grids of three; six were wished


def test_references_beyond_the_controls_are_planted(new_project: NewProject) -> None:
    project = new_project(references_per_class=8)
    import_images(project, cifar("test", 5))
    import_images(project, cifar("train", 10), "reference")
    make_tasks(project)
    assert [(key, parts(key, entries)) for key, entries in grids(project)] == [
        (key, Counter({CANDIDATE: 5, "positive": 8, "negative": 3})) for key in PETS.keys
    ]


def test_later_candidates_get_grids_of_their_own(new_project: NewProject) -> None:
    project = new_project()
    import_images(project, cifar("train", 8), "reference")
    import_images(project, cifar("test", 4))
    assert make_tasks(project).candidates == 12
    assert make_tasks(project).tasks == 0
    import_images(project, cifar("test", 10))
    tasks_made = make_tasks(project)
    assert tasks_made.candidates == 18 and make_tasks(project).tasks == 0
    times_shown = Counter(entry.id for _, entries in grids(project) for entry in entries if entry.role == CANDIDATE)
    assert len(times_shown) == 30 and set(times_shown.values()) == {1}


def test_negative_controls_come_from_near_classes(new_project: NewProject) -> None:
    classes = (ClassDefinition("cat", near=("dog",)), ClassDefinition("dog", near=("cat",)), ClassDefinition("frog"))
    project = new_project(Configuration("pets", classes), grid=16, references_per_class=3)
    import_images(project, cifar("test", 9))
    import_images(project, cifar("train", 5), "reference")
    make_tasks(project)
    negatives = {
        key: {entry.class_key for entry in entries if entry.role == REFERENCE and entry.class_key != key}
        for key, entries in grids(project)
    }
    assert negatives == {"cat": {"dog"}, "dog": {"cat"}, "frog": {"cat", "dog"}}


def test_the_same_seed_the_same_grids(new_project: NewProject, tmp_path_factory: pytest.TempPathFactory) -> None:
    def digests(project: Project) -> list[tuple[str, list[str]]]:
        import_images(project, cifar("test", 20))
        import_images(project, cifar("train", 6), "reference")
        make_tasks(project)
        return [(key, sorted(entry.image.digest for entry in entries)) for key, entries in grids(project)]

    first = digests(new_project())
    again = digests(Project.create(tmp_path_factory.mktemp("again"), small_configuration()))
    third = digests(Project.create(tmp_path_factory.mktemp("other"), small_configuration(seed=1)))
    assert first == again != third


def test_too_few_controls_are_refused_and_nothing_is_made(new_project: NewProject) -> None:
    project = new_project()
    import_images(project, cifar("test", 4))
    with pytest.raises(WorkshopError, match="'cat'") as caught:
        make_tasks(project)
    assert "--reference" in str(caught.value)
    import_images(project, cifar("train", 2), "reference")
    with raises(WorkshopError, found=2):
        make_tasks(project)
    assert grids(project) == []
    assert make_tasks(new_project_without_controls(project)).tasks == 3


def new_project_without_controls(project: Project) -> Project:
    project.configuration = project.configuration.with_rules(
        positive_controls=0, negative_controls=0, references_per_class=0
    )
    return project


def test_near_classes_without_references_are_refused(new_project: NewProject) -> None:
    project = new_project()
    import_images(project, cifar("test", 4))
    references = cifar("train", 5)
    cats = [i for i, label in enumerate(references.labels.tolist()) if label == 0]
    from shiftbench.datasets.subset import take

    import_images(project, take(references, cats), "reference")
    with pytest.raises(WorkshopError, match="negative_controls"):
        make_tasks(project)


def test_what_can_not_enter_a_set_is_not_annotated(new_project: NewProject) -> None:
    """Marked candidates, and candidates with the very bytes of a reference."""
    project = new_project()
    references = cifar("train", 6)
    import_images(project, references, "reference")
    import_images(project, cifar("test", 4))
    import_images(project, references)
    with project.reading() as session:
        query = select(PoolEntry.id).where(PoolEntry.role == CANDIDATE, PoolEntry.source == "cifar-10-test")
        first = session.scalars(query).first()
    assert first is not None
    mark(project, first, "blacklist")
    assert make_tasks(project).candidates == 11


def test_few_references_are_told(new_project: NewProject) -> None:
    project = new_project(references_per_class=20)
    import_images(project, cifar("train", 7), "reference")
    assert make_tasks(project).few_references == {"cat": 7, "dog": 7, "frog": 7}
