"""Revisions: numbered, kept, diffable; removed images are replaced and the rest stays; blind and final."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from sqlalchemy import select

from shiftbench.testsets.accounts import create_account, exclude, find_person
from shiftbench.testsets.database import CANDIDATE, REFERENCE, PoolEntry, counts_digest
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.freeze import DEFECTS, freeze
from shiftbench.testsets.frequencies import selection_frequencies
from shiftbench.testsets.pool.entries import import_images
from shiftbench.testsets.pool.suspects import Suspicion, add_suspicions
from shiftbench.testsets.project import Project
from shiftbench.testsets.redraw import AMBIGUOUS, COPY, SUSPECTED
from shiftbench.testsets.review import finish_class, judge, mark, suspicions, withdraw_mark
from shiftbench.testsets.revisions import (
    difference,
    find_revision,
    revision_images,
    revisions,
    sample,
    set_names,
    set_status,
)
from shiftbench.testsets.sampling import MatchedFrequency, make_sampling
from tests.raised import raises
from tests.testsets.conftest import NewProject
from tests.testsets.helpers import annotators, cifar, fill, work

#: Every test here runs on both databases.
DATABASES = ["sqlite", "postgresql"]

MATCHED = make_sampling("matched-frequency", min_annotations=3, min_references=6)
THRESHOLD = make_sampling("threshold", threshold=0.3, min_annotations=3)


def test_the_sample_matches_the_reference(annotated: Project) -> None:
    """With enough candidates in each bin the histogram is that of the references, by largest remainder."""
    revision, _ = sample(annotated, "matched", MATCHED, per_class=4)
    rows = {(row.class_key, row.digest): row for row in selection_frequencies(annotated) if row.role == CANDIDATE}
    images = revision_images(annotated, "matched")
    assert len(images) == revision.images and len({image.entry for image in images}) == len(images)
    for image in images:
        row = rows[image.class_key, image.digest]
        name = MatchedFrequency().bin_name(min(4, 5 * row.selected // row.annotations))
        assert image.fallback or image.drawn_for == name
    report = revision.report
    assert report["mean_frequency"] == pytest.approx(
        sum(rows[i.class_key, i.digest].frequency or 0 for i in images) / len(images)
    )
    assert report["images"] + sum(report["short"].values()) == 12
    assert Counter(image.class_key for image in images) == {
        key: row["chosen"] for key, row in report["classes"].items()
    }


def test_the_same_seed_the_same_set(annotated: Project) -> None:
    first, _ = sample(annotated, "one", MATCHED, per_class=3, seed=5)
    again, _ = sample(annotated, "two", MATCHED, per_class=3, seed=5)
    third, _ = sample(annotated, "three", MATCHED, per_class=3, seed=6)
    sets = [
        [image.digest for image in revision_images(annotated, revision.set_name)] for revision in (first, again, third)
    ]
    assert sets[0] == sets[1] != sets[2]
    assert set_names(annotated) == ["one", "three", "two"]


def test_until_nothing_is_removed(annotated: Project) -> None:
    """Remove, sample, remove, sample, ... : numbers grow, the rest stays, nothing marked comes back."""
    sample(annotated, "set", THRESHOLD, per_class=3, note="first")
    gone: set[str] = set()
    for number in range(2, 5):
        before = revision_images(annotated, "set")
        victim = before[number]
        mark(annotated, victim.entry, "blacklist", f"round {number}")
        gone.add(victim.digest)
        assert not set_status(annotated, "set").converged
        revision, changed = sample(annotated, "set", note=f"round {number}")
        assert changed and revision.number == number
        after = revision_images(annotated, "set")
        assert {i.digest for i in before} - {i.digest for i in after} == {victim.digest}
        assert not gone & {image.digest for image in after}
        change = difference(annotated, "set", number - 1, number)
        assert [(i.digest, reason) for i, reason in change.removed] == [(victim.digest, f"blacklist: round {number}")]
        assert len(change.added) + change.kept == len(after)
        assert all(image.class_key == victim.class_key for image in change.added)
    assert not set_status(annotated, "set").converged and not set_status(annotated, "set").to_remove
    rita = create_account(annotated, "rita", "reviewer").id
    for key in annotated.space.keys:
        finish_class(annotated, rita, "set", key)
    assert set_status(annotated, "set").converged
    last, changed = sample(annotated, "set")
    assert not changed and last.number == 4
    assert [(revision.number, revision.note) for revision in revisions(annotated, "set")] == [
        (1, "first"),
        (2, "round 2"),
        (3, "round 3"),
        (4, "round 4"),
    ]
    total_change = difference(annotated, "set", 1, 4)
    # An image that was added and removed in between is in neither.
    assert {image.digest for image, _ in total_change.removed} <= gone
    first_size = find_revision(annotated, "set", 1).images
    assert total_change.kept + len(total_change.removed) == first_size


def _vote(project: Project, entry: int, selected: int, annotations: int) -> None:
    """Let an image have these counts, as after other answers or exclusions."""
    with project.writing() as session:
        row = session.get_one(PoolEntry, entry)
        row.selected = selected
        row.annotations = annotations
        row.digest = counts_digest(
            row.role, row.class_key, f"{row.image.digest}{row.image.suffix}", selected, annotations
        )


def test_images_whose_frequency_changed_are_replaced(annotated: Project) -> None:
    sample(annotated, "set", THRESHOLD, per_class=2)
    rejected, unfinished, good = revision_images(annotated, "set")[:3]
    _vote(annotated, rejected.entry, 0, 3)
    _vote(annotated, unfinished.entry, 2, 2)
    _vote(annotated, good.entry, 3, 3)
    status = set_status(annotated, "set")
    assert status.to_remove.keys() == {rejected.digest, unfinished.digest}
    assert "below 0.3" in status.to_remove[rejected.digest]
    assert not status.converged and not status.current
    with pytest.raises(WorkshopError) as refused:
        freeze(annotated, "set", allow=DEFECTS)
    assert rejected.digest[:12] in str(refused.value.found)
    revision, changed = sample(annotated, "set")
    present = {row.entry: row for row in selection_frequencies(annotated)}
    images = revision_images(annotated, "set")
    assert changed and good.entry in {image.entry for image in images}
    assert all((present[image.entry].frequency or 0) >= 0.3 for image in images)
    # The reasons stay when the set is sampled again and nothing changes.
    assert not sample(annotated, "set")[1]
    reasons = {image.digest: reason for image, reason in difference(annotated, "set", 1, 2).removed}
    assert "below 0.3" in reasons[rejected.digest] and "2 annotations" in reasons[unfinished.digest]
    assert all(present[image.entry].annotations >= 3 for image in images)
    assert reasons == status.to_remove
    assert set_status(annotated, "set").current
    assert revision.number == 2


def test_means_are_of_the_present_counts(annotated: Project) -> None:
    revision, _ = sample(annotated, "set", THRESHOLD, per_class=2)
    for image in revision_images(annotated, "set"):
        _vote(annotated, image.entry, 3, 3)
    assert revision.report["mean_frequency"] < 1
    assert set_status(annotated, "set").report["mean_frequency"] == 1
    again, changed = sample(annotated, "set")
    assert not changed and again.report["mean_frequency"] == 1
    frozen = freeze(annotated, "set", allow=DEFECTS)
    assert json.loads((frozen.folder / "frozen.json").read_text())["report"]["mean_frequency"] == 1


def test_targets_that_moved_are_followed(annotated: Project) -> None:
    """The references' frequencies change: the set has to match the new ones."""
    sample(annotated, "set", MATCHED, per_class=4)
    for row in selection_frequencies(annotated):
        if row.role == REFERENCE and row.annotations:
            _vote(annotated, row.entry, 3, 3)
    status = set_status(annotated, "set")
    assert not status.current
    revision, changed = sample(annotated, "set")
    fresh, _ = sample(annotated, "fresh", MATCHED, per_class=4)
    assert changed and revision.report["classes"] == fresh.report["classes"]


def test_a_set_that_cannot_be_sampled_again_says_so(annotated: Project) -> None:
    """An exclusion leaves every image with too few answers: the set waits, and nothing is frozen."""
    sample(annotated, "set", MATCHED, per_class=4)
    exclude(annotated, find_person(annotated, "annotator 1").id, "careless")
    status = set_status(annotated, "set")
    assert status.problem is not None and not status.converged
    with pytest.raises(WorkshopError) as refused:
        freeze(annotated, "set", allow=DEFECTS)
    assert refused.value.message == status.problem.message


def test_a_withdrawn_mark_lets_the_image_be_drawn_again(annotated: Project) -> None:
    sample(annotated, "set", THRESHOLD, per_class=3)
    victim = revision_images(annotated, "set")[0]
    number = mark(annotated, victim.entry, "blacklist")
    withdraw_mark(annotated, number)
    assert not set_status(annotated, "set").to_remove and not sample(annotated, "set")[1]


def test_suspected_near_duplicates_wait_for_a_judgement(annotated: Project) -> None:
    sample(annotated, "set", THRESHOLD, per_class=3)
    first, second = revision_images(annotated, "set")[:2]
    both_ways = [Suspicion(first.entry, second.entry, {"l2": 3.5}), Suspicion(second.entry, first.entry, {"l2": 3.5})]
    assert add_suspicions(annotated, both_ways) == 2
    assert add_suspicions(annotated, [Suspicion(first.entry, second.entry, {"l2": 9.9})]) == 0
    assert set_status(annotated, "set").to_remove == {first.digest: SUSPECTED, second.digest: SUSPECTED}
    pairs = suspicions(annotated)
    assert [(pair.entry_id, pair.other_id, pair.distances) for pair in pairs] == [
        (first.entry, second.entry, {"l2": 3.5}),
        (second.entry, first.entry, {"l2": 3.5}),
    ]
    judge(annotated, pairs[0].id, duplicate=True)
    judge(annotated, pairs[1].id, duplicate=False)
    assert set_status(annotated, "set").to_remove == {first.digest: "near-duplicate"}
    assert suspicions(annotated) == []
    judge(annotated, pairs[0].id, duplicate=True)
    with raises(WorkshopError, found="confirmed"):
        judge(annotated, pairs[0].id, duplicate=False)


def test_copies_of_references_and_ambiguous_pictures_are_left_out(new_project: NewProject) -> None:
    project = new_project()
    references = cifar("train", 8)
    import_images(project, references, "reference")
    import_images(project, cifar("test", 8))
    import_images(project, references)  # candidates with the very bytes of references
    with project.reading() as session:
        query = (
            select(PoolEntry)
            .where(PoolEntry.source == "cifar-10-test", PoolEntry.class_key == "cat")
            .order_by(PoolEntry.id)
        )
        cat = session.scalars(query).first()
    assert cat is not None
    original = project.images.original(cat.image.digest, cat.image.suffix)
    folder = project.folder.parent / "dogs"
    folder.mkdir()
    (folder / "same.png").write_bytes(original.read_bytes())
    import_images(project, folder, class_key="dog")
    from shiftbench.testsets.tasks import make_tasks

    make_tasks(project)
    work(project, annotators(project, 3), lambda person, entry, key: entry.class_key == key == "cat" or key == "frog")
    revision, _ = sample(project, "all", make_sampling("threshold", threshold=0, min_annotations=0), per_class=100)
    assert revision.report["excluded"] == {COPY: 24, AMBIGUOUS: 1}
    images = [(image.class_key, image.digest) for image in revision_images(project, "all")]
    assert ("cat", cat.image.digest) in images and ("dog", cat.image.digest) not in images


def test_three_sets_of_one_pool(annotated: Project) -> None:
    """As ImageNetV2: by three strategies, each with its own line of revisions, easier and easier."""
    for name, options in (
        ("matched-frequency", {"min_references": 6}),
        ("threshold", {"threshold": 0.5}),
        ("top-images", {}),
    ):
        sample(annotated, name, make_sampling(name, min_annotations=3, **options), per_class=3)
    means = [
        find_revision(annotated, name).report["mean_frequency"]
        for name in ("top-images", "threshold", "matched-frequency")
    ]
    assert means[0] >= means[1] > means[2]


def test_what_a_set_can_not_be(annotated: Project) -> None:
    with pytest.raises(WorkshopError, match="needs a sampling strategy"):
        sample(annotated, "set")
    with pytest.raises(WorkshopError, match="unknown set 'set'"):
        set_status(annotated, "set")
    sample(annotated, "set", THRESHOLD, per_class=2)
    with raises(WorkshopError, found="matched-frequency"):
        sample(annotated, "set", MATCHED)
    with pytest.raises(WorkshopError, match="revision 7"):
        revision_images(annotated, "set", 7)
    for name in ("../x", "a/b", "", ".hidden", "x" * 61, "ä"):
        with pytest.raises(WorkshopError, match="invalid set name"):
            sample(annotated, name, THRESHOLD)


def test_not_enough_annotations_are_said(new_project: NewProject) -> None:
    project = new_project()
    fill(project, candidates=3)
    with raises(WorkshopError, found="9 valid candidates with at most 0 annotations each") as caught:
        sample(project, "set", make_sampling("threshold"))
    assert "at most 0 annotations" in str(caught.value)


def test_more_images_a_class_later(annotated: Project) -> None:
    sample(annotated, "set", THRESHOLD, per_class=2)
    first = {image.digest for image in revision_images(annotated, "set")}
    revision, changed = sample(annotated, "set", per_class=4)
    assert changed and revision.sampling["per_class"] == 4
    assert first < {image.digest for image in revision_images(annotated, "set")}


def test_reviews_are_carried_over_for_unchanged_classes(annotated: Project) -> None:
    reviewer = create_account(annotated, "rita", "reviewer").id
    sample(annotated, "set", THRESHOLD, per_class=3)
    for key in annotated.space.keys:
        finish_class(annotated, reviewer, "set", key)
    assert set_status(annotated, "set").reviewed_classes == ("cat", "dog", "frog")
    victim = next(image for image in revision_images(annotated, "set") if image.class_key == "dog")
    mark(annotated, victim.entry, "blacklist", by=reviewer)
    sample(annotated, "set")
    assert set_status(annotated, "set").reviewed_classes == ("cat", "frog")
