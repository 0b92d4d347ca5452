"""What sampling again would change: the classes that changed since the last question, against the whole set."""

from __future__ import annotations

import random

import pytest

from shiftbench.testsets.database import PoolEntry, counts_digest
from shiftbench.testsets.pool.suspects import Suspicion, add_suspicions
from shiftbench.testsets.project import Project
from shiftbench.testsets.redraw import Changes, present_changes, redraw
from shiftbench.testsets.review import judge, mark, suspicions, withdraw_mark
from shiftbench.testsets.revisions import find_revision, revision_images, sample, set_status
from shiftbench.testsets.sampling import Sample, Sampling, SamplingRequest, make_sampling

#: Every test here runs on both databases.
DATABASES = ["sqlite", "postgresql"]

STRATEGIES = {
    "matched": make_sampling("matched-frequency", min_annotations=3, min_references=6),
    "threshold": make_sampling("threshold", threshold=0.3, overrides={"dog": 0.6}, min_annotations=3),
    "top": make_sampling("top-images", min_annotations=3),
}


def vote(project: Project, entry: int, selected: int, annotations: int) -> None:
    """Let an image have these counts, as after other answers or exclusions."""
    with project.writing() as session:
        row = session.get_one(PoolEntry, entry)
        row.selected = selected
        row.annotations = annotations
        file_name = f"{row.image.digest}{row.image.suffix}"
        row.digest = counts_digest(row.role, row.class_key, file_name, selected, annotations)


def questions(project: Project, name: str) -> tuple[Changes, Changes]:
    """The changes by the classes that changed, and by all."""
    revision = find_revision(project, name)
    with project.reading() as session:
        return present_changes(project, session, revision), redraw(
            project, session, revision.sampling, revision
        ).changes


def test_changed_classes_give_what_the_whole_set_gives(annotated: Project) -> None:
    rng = random.Random(0)
    for name, strategy in STRATEGIES.items():
        sample(annotated, name, strategy, per_class=3)
    entries = [row.entry for row in revision_images(annotated, "top")]
    marks = []
    for step in range(6):
        vote(annotated, rng.choice(entries), rng.randint(0, 4), 4)
        if step == 2:
            marks.append(mark(annotated, entries[0], "blacklist", "a drawing"))
        if step == 4:
            withdraw_mark(annotated, marks[0])
        for name in STRATEGIES:
            by_class, together = questions(annotated, name)
            assert by_class == together, (step, name)
    assert any(questions(annotated, name)[0].replaced for name in STRATEGIES)


def test_only_changed_classes_are_sampled(annotated: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    sample(annotated, "top", STRATEGIES["top"], per_class=3)
    sampled: list[str] = []
    original = type(STRATEGIES["top"]).sample

    def watched(self: Sampling, request: SamplingRequest) -> Sample:
        sampled.extend(request.sampled_classes)
        return original(self, request)

    monkeypatch.setattr(type(STRATEGIES["top"]), "sample", watched)
    set_status(annotated, "top")
    assert sampled == list(annotated.space.keys)
    first = revision_images(annotated, "top")[0]
    other = next(image for image in revision_images(annotated, "top") if image.class_key != first.class_key)
    sampled.clear()
    set_status(annotated, "top")
    vote(annotated, first.entry, 0, 3)
    set_status(annotated, "top")
    assert sampled == [first.class_key]
    # A suspicion changes no count, and neither does its dismissal.
    for step in ("found", "dismissed"):
        sampled.clear()
        if step == "found":
            add_suspicions(annotated, [Suspicion(other.entry, first.entry, {"pixels": 3.0})])
        else:
            [pair] = suspicions(annotated)
            judge(annotated, pair.id, duplicate=False)
        assert set_status(annotated, "top").to_remove.get(other.digest, "").startswith("suspected") == (step == "found")
        assert sampled == [other.class_key]


def test_classes_with_too_few_references_are_named_together(annotated: Project) -> None:
    sample(annotated, "matched", STRATEGIES["matched"], per_class=2)
    set_status(annotated, "matched")
    with annotated.reading() as session:
        references = session.query(PoolEntry.id, PoolEntry.class_key).where(PoolEntry.role == "reference").all()
    for key in annotated.space.keys[:2]:
        entry = next(entry for entry, class_key in references if class_key == key)
        for other, class_key in references:
            if class_key == key and other != entry:
                vote(annotated, other, 1, 1)
    problem = set_status(annotated, "matched").problem
    assert problem is not None
    for key in annotated.space.keys[:2]:
        assert f"{key}: " in str(problem.found)
    assert annotated.space.keys[2] not in str(problem.found)
    # With enough annotations again, the set can be sampled.
    for other, _ in references:
        vote(annotated, other, 2, 3)
    assert set_status(annotated, "matched").problem is None
