"""The reviewers' service: the page of a class, marks, and who may do what."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image as Pillow

from shiftbench.testsets.accounts import create_account
from shiftbench.testsets.errors import NotAllowedError, WorkshopError
from shiftbench.testsets.pool.entries import import_images
from shiftbench.testsets.project import Project, audit_log
from shiftbench.testsets.review import (
    find_candidate,
    finish_class,
    judge,
    mark,
    review_image,
    review_page,
    withdraw_mark,
)
from shiftbench.testsets.revisions import revision_images, sample
from shiftbench.testsets.sampling import make_sampling
from tests.raised import raises
from tests.testsets.conftest import NewProject
from tests.testsets.helpers import PETS, cifar, on_both_databases

ALL = make_sampling("threshold", threshold=0, min_annotations=0)


def dated(folder: Path, part: str, each: int) -> Path:
    """A manifest of real pictures with dates, in no order."""
    pictures = cifar(part, each)
    lines = []
    for i, label in enumerate(pictures.labels.tolist()):
        path = folder / f"{part}-{i}.png"
        folder.mkdir(parents=True, exist_ok=True)
        Pillow.fromarray(pictures.read(i).pixels).save(path)
        date = None if i % 5 == 4 else f"2013-{1 + 7 * i % 12:02d}-01"
        lines.append(json.dumps({"path": path.name, "label": PETS.keys[label], "date": date, "author": "anna"}) + "\n")
    (folder / f"{part}.jsonl").write_text("".join(lines))
    return folder / f"{part}.jsonl"


@pytest.fixture
def reviewed(new_project: NewProject, tmp_path: Path) -> tuple[Project, int]:
    project = new_project()
    import_images(project, dated(tmp_path / "new", "test", 6))
    import_images(project, dated(tmp_path / "old", "train", 8), "reference")
    with_answers(project)
    sample(project, "set", ALL, per_class=4)
    return project, create_account(project, "rita", "reviewer").id


def with_answers(project: Project) -> None:
    from shiftbench.testsets.tasks import make_tasks
    from tests.testsets.helpers import annotators, work

    make_tasks(project)
    work(project, annotators(project, 1))


def test_a_page(reviewed: tuple[Project, int]) -> None:
    project, rita = reviewed
    page = review_page(project, rita, "set", "dog")
    entries = {image.entry for image in revision_images(project, "set") if image.class_key == "dog"}
    assert {image.id for image in page.sampled} == entries and len(entries) == 4
    assert len(page.references) == 4 and not {image.id for image in page.references} & entries
    for images in (page.sampled, page.references):
        dates = [image.date for image in images]
        stated = [date for date in dates if date is not None]
        assert stated == sorted(stated) and dates[: len(stated)] == stated  # undated ones last
    assert page.sampled[0].author == "anna" and not page.finished
    again = review_page(project, rita, "set", "dog")
    assert [image.id for image in again.references] == [image.id for image in page.references]
    finish_class(project, rita, "set", "dog")
    assert review_page(project, rita, "set", "dog").finished
    assert not review_page(project, rita, "set", "cat").finished
    finish_class(project, rita, "set", "dog", undo=True)
    assert not review_page(project, rita, "set", "dog").finished
    assert [line.action for line in audit_log(project)][:2] == ["undo review", "review"]


@on_both_databases
def test_marks_show_with_their_notes(reviewed: tuple[Project, int]) -> None:
    project, rita = reviewed
    entry = review_page(project, rita, "set", "cat").sampled[1].id
    first = mark(project, entry, "blacklist", "  a <b>drawing</b>  ", by=rita)
    second = mark(project, entry, "near-duplicate", "of the one before", by=rita)
    marks = {image.id: image.marks for image in review_page(project, rita, "set", "cat").sampled}
    assert [(shown_mark.id, shown_mark.kind, shown_mark.note) for shown_mark in marks[entry]] == [
        (first, "blacklist", "a <b>drawing</b>"),
        (second, "near-duplicate", "of the one before"),
    ]
    withdraw_mark(project, first, by=rita)
    marks = {image.id: image.marks for image in review_page(project, rita, "set", "cat").sampled}
    assert [shown_mark.kind for shown_mark in marks[entry]] == ["near-duplicate"]
    assert [line.action for line in audit_log(project)][:3] == ["withdraw mark", "mark", "mark"]
    assert {line.who for line in audit_log(project)[:3]} == {"rita"}


def test_files(reviewed: tuple[Project, int]) -> None:
    project, rita = reviewed
    image = review_page(project, rita, "set", "cat").sampled[0]
    with Pillow.open(review_image(project, rita, image.id)) as copy:
        assert copy.format == "JPEG"
    with Pillow.open(review_image(project, rita, image.id, original=True)) as original:
        assert original.format == "PNG"
    with pytest.raises(WorkshopError, match="99999"):
        review_image(project, rita, 99999)


def test_only_reviewers(reviewed: tuple[Project, int]) -> None:
    project, rita = reviewed
    anna = create_account(project, "anna", "annotator").id
    entry = review_page(project, rita, "set", "cat").sampled[0].id
    with raises(NotAllowedError, found="annotator"):
        review_page(project, anna, "set", "cat")
    for attempt in (
        lambda: review_image(project, anna, entry),
        lambda: mark(project, entry, "blacklist", by=anna),
        lambda: withdraw_mark(project, 1, by=anna),
        lambda: finish_class(project, anna, "set", "cat"),
        lambda: judge(project, 1, duplicate=True, by=anna),
    ):
        with pytest.raises(NotAllowedError):
            attempt()
    lead = create_account(project, "lea", "lead").id
    assert review_page(project, lead, "set", "cat").sampled


def test_what_can_not_be_marked(reviewed: tuple[Project, int]) -> None:
    project, rita = reviewed
    page = review_page(project, rita, "set", "cat")
    for entry in (page.references[0].id, 99999):
        with pytest.raises(WorkshopError, match="only candidates"):
            mark(project, entry, "blacklist")
    with pytest.raises(WorkshopError, match="'ugly'"):
        mark(project, page.sampled[0].id, "ugly")  # type: ignore[arg-type]
    with pytest.raises(WorkshopError, match="mark 77"):
        withdraw_mark(project, 77)
    with pytest.raises(WorkshopError, match="pair 77"):
        judge(project, 77, duplicate=True)


def test_candidates_by_their_digest(reviewed: tuple[Project, int]) -> None:
    project, rita = reviewed
    image = review_page(project, rita, "set", "cat").sampled[0]
    assert find_candidate(project, image.image.digest[:12]) == image.id
    assert find_candidate(project, image.image.digest, "cat") == image.id
    for digest in ("", "%", "zzz"):
        with pytest.raises(WorkshopError, match="digest"):
            find_candidate(project, digest)
