"""Freezing: final, with a fingerprint that files and database answer for, and a card that tells all."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from sqlalchemy import delete

import shiftbench as sb
from shiftbench.datasets.catalogue import open_dataset
from shiftbench.testsets.accounts import create_account, exclude
from shiftbench.testsets.database import RevisionImage
from shiftbench.testsets.errors import BlindnessError, FrozenError, WorkshopError
from shiftbench.testsets.freeze import DEFECTS, all_revisions_dataset, freeze, predictions_on, require_frozen
from shiftbench.testsets.frequencies import class_summaries, selection_frequencies
from shiftbench.testsets.frozen import frozen_sets, one_frozen, read_frozen
from shiftbench.testsets.pool.entries import import_images
from shiftbench.testsets.project import Project
from shiftbench.testsets.review import finish_class, mark
from shiftbench.testsets.revisions import revision_images, sample, set_status
from shiftbench.testsets.sampling import make_sampling
from shiftbench.testsets.tasks import make_tasks
from tests.datasets.makers import assert_conforms
from tests.raised import raises
from tests.testsets.conftest import NewProject
from tests.testsets.helpers import annotators, by_share, fill, work
from tests.testsets.pool.test_import_images import pet_folders

STRATEGY = make_sampling("threshold", threshold=0.3, min_annotations=3)


@pytest.fixture
def sampled(annotated: Project) -> Project:
    sample(annotated, "easy", STRATEGY, per_class=3)
    return annotated


def test_the_frozen_folder_is_a_data_set(sampled: Project) -> None:
    frozen = freeze(sampled, "easy", allow=DEFECTS)
    assert frozen == read_frozen(sampled.folder / "frozen" / "easy") == require_frozen(sampled, "easy")
    dataset = frozen.open()
    images = revision_images(sampled, "easy")
    assert sorted(dataset.ids) == sorted(f"{image.class_key}/{image.digest}{image.suffix}" for image in images)
    assert dataset.fingerprint == frozen.fingerprint and dataset.space.keys == sampled.space.keys
    assert_conforms(dataset)
    shares = {row.digest: row.frequency for row in selection_frequencies(sampled)}
    for image_id, share in zip(dataset.ids, dataset.metadata["selection_frequency"], strict=True):
        assert share == shares[image_id.partition("/")[2].partition(".")[0]]
    # Read as plain class folders it is the same dataset.
    assert open_dataset(frozen.folder / "images", space=sampled.space).fingerprint == frozen.fingerprint
    references = frozen.open("reference")
    answered = [row for row in selection_frequencies(sampled) if row.role == "reference" and row.annotations >= 3]
    assert len(references) == len(answered) == frozen.references


def test_frozen_is_final(sampled: Project) -> None:
    rita = create_account(sampled, "rita", "reviewer").id
    freeze(sampled, "easy", allow=DEFECTS)
    for attempt in (
        lambda: freeze(sampled, "easy", allow=DEFECTS),
        lambda: sample(sampled, "easy"),
        lambda: sample(sampled, "easy", STRATEGY, per_class=9),
        lambda: finish_class(sampled, rita, "easy", "cat"),
    ):
        with pytest.raises(FrozenError):
            attempt()
    image = revision_images(sampled, "easy")[0]
    mark(sampled, image.entry, "blacklist", "too late")
    assert set_status(sampled, "easy").to_remove == {}
    assert image.digest in {sampled_image.digest for sampled_image in revision_images(sampled, "easy")}
    assert require_frozen(sampled, "easy").images == 9
    sample(sampled, "next", STRATEGY, per_class=3)  # another set of the pool goes on, without that image
    assert image.digest not in {sampled_image.digest for sampled_image in revision_images(sampled, "next")}


def test_changed_files_are_noticed(sampled: Project) -> None:
    frozen = freeze(sampled, "easy", allow=DEFECTS)
    path = next((frozen.folder / "images").rglob("*.png"))
    data = path.read_bytes()
    path.unlink()  # it is another name of the original, which must stay as it is
    path.write_bytes(data[:-1] + b"x")
    with pytest.raises(FrozenError, match="were modified"):
        frozen.open()
    with pytest.raises(FrozenError, match="were modified"):
        require_frozen(sampled, "easy")
    path.unlink()
    with pytest.raises(FrozenError, match="were modified"):
        sb.open_dataset(f"testset:{sampled.folder}")


def test_a_changed_database_is_noticed(sampled: Project) -> None:
    freeze(sampled, "easy", allow=DEFECTS)
    image = revision_images(sampled, "easy")[0]
    with sampled.writing() as session:
        session.execute(delete(RevisionImage).where(RevisionImage.entry_id == image.entry))
    with pytest.raises(FrozenError, match="different images"):
        require_frozen(sampled, "easy")


def test_a_changed_record_is_noticed(sampled: Project) -> None:
    frozen = freeze(sampled, "easy", allow=DEFECTS)
    record = json.loads((frozen.folder / "frozen.json").read_text())
    (frozen.folder / "frozen.json").write_text(json.dumps({**record, "fingerprint": "0" * 32}))
    with pytest.raises(FrozenError, match="does not match the database"):
        require_frozen(sampled, "easy")
    (frozen.folder / "frozen.json").write_text("{}")
    with pytest.raises(WorkshopError, match="damaged"):
        read_frozen(frozen.folder)


def test_only_what_converged_is_frozen(sampled: Project) -> None:
    mark(sampled, revision_images(sampled, "easy")[0].entry, "blacklist")
    with pytest.raises(WorkshopError, match="has not converged"):
        freeze(sampled, "easy", allow=DEFECTS)
    sample(sampled, "easy")
    freeze(sampled, "easy", allow=DEFECTS)


def test_short_classes_need_a_word(sampled: Project) -> None:
    sample(sampled, "large", STRATEGY, per_class=100)
    with raises(WorkshopError, found="cat: 93 short, dog: 95 short, frog: 93 short"):
        freeze(sampled, "large", allow=("unreviewed", "unsearched"))
    assert freeze(sampled, "large", allow=DEFECTS).images > 0


def test_a_freeze_that_was_killed_begins_anew(sampled: Project) -> None:
    folder = sampled.folder / "frozen" / "easy"
    folder.mkdir(parents=True)
    (folder / "frozen.json").write_text("{half")
    assert freeze(sampled, "easy", allow=DEFECTS).images == 9
    (aside,) = (path for path in folder.parent.iterdir() if path.name.startswith(".easy-until-"))
    assert (aside / "frozen.json").read_text() == "{half"  # nothing is thrown away


def test_the_card_tells_how_it_was_made(sampled: Project) -> None:
    rita = create_account(sampled, "rita", "reviewer").id
    exclude(sampled, 1, "a robot")
    work(sampled, [create_account(sampled, "rosa", "annotator").id], by_share)
    finish_class(sampled, rita, "easy", "cat")
    gone = revision_images(sampled, "easy")[0]
    mark(sampled, gone.entry, "blacklist", "a drawing")
    sample(sampled, "easy", note="without the | drawing")
    frozen = freeze(sampled, "easy", allow=DEFECTS)
    card = (frozen.folder / "README.md").read_text()
    agreement = class_summaries(sampled)[-1].agreement
    for text in (
        "# pets (easy)",
        f"{frozen.images:,} images of 3 classes",
        "21 candidates were collected",
        "3 annotators submitted 9 answers",
        "regardless of occlusions",
        "whose answers were excluded: 1.",
        f"alpha over {agreement.images:,} images is {agreement.alpha:.3f}",
        "**threshold**",
        "threshold 0.3",
        "3 images per class, seed 0",
        "Revisions: 2;",
        "**NOT SEARCHED",
        "blacklist 1",
        "| not stated |",
        frozen.fingerprint,
        "--x pets-reference --y pets-easy",
        "| 0.8 to 1 |",
        "without the \\| drawing",
        "cifar-10-test",
    ):
        assert text in card, text
    assert card.startswith('---\npretty_name: "pets (easy)"\n')


def test_hostile_metadata_does_not_break_the_card(new_project: NewProject, tmp_path: Path) -> None:
    project = new_project()
    fill(project, candidates=3)
    path = next(pet_folders(tmp_path / "more", each=1).rglob("*.png"))
    hostile = 'x"\n---\n<script>alert(1)</script> | [a](javascript:b)'
    row = {"path": path.name, "label": "cat", "author": hostile, "licence": hostile, "source": hostile, "date": hostile}
    (path.parent / "list.jsonl").write_text(json.dumps(row) + "\n")
    import_images(project, path.parent / "list.jsonl")
    everything = make_sampling("threshold", threshold=0, min_annotations=0)
    make_tasks(project)
    work(project, annotators(project, 1))
    sample(project, "s", everything, per_class=9, note=hostile)
    card = (freeze(project, "s", allow=DEFECTS).folder / "README.md").read_text()
    header, body = card.split("\n---\n", 1)
    assert header.count("\n") == 5 and "\n---\n" not in body
    assert "script" in body and not re.search(r"(?<!\\)(<script|\]\()", body)


def test_blind_until_frozen(sampled: Project, tmp_path: Path) -> None:
    """No model is run on the set, and no prediction is shown, before it is frozen; afterwards both work."""
    with pytest.raises(BlindnessError, match="no frozen set"):
        sb.evaluate("demo:resnet8-cifar10", f"testset:{sampled.folder}", workspace=tmp_path / "w", progress=False)
    with pytest.raises(BlindnessError, match="no frozen set"):
        open_dataset(f"testset:{sampled.folder}")
    with raises(BlindnessError, found="revision 1, still under review"):
        predictions_on(sampled, "easy", tmp_path / "w")
    with raises(BlindnessError, found="revision 1, still under review"):
        all_revisions_dataset(sampled, "easy")
    assert not (tmp_path / "w" / "predictions").exists()
    gone = revision_images(sampled, "easy")[0]
    mark(sampled, gone.entry, "blacklist")
    sample(sampled, "easy")
    frozen = freeze(sampled, "easy", allow=DEFECTS)
    union, revisions = all_revisions_dataset(sampled, "easy")
    assert len(union) == 10 and {number: len(ids) for number, ids in revisions.items()} == {"1": 9, "2": 9}
    with pytest.raises(WorkshopError, match="no predictions on 'pets-easy'"):
        sb.Workspace(tmp_path / "w")
        predictions_on(sampled, "easy", tmp_path / "w")
    run = sb.evaluate("demo:resnet8-cifar10", f"testset:{sampled.folder}", workspace=tmp_path / "w", progress=False)
    (predictions,) = predictions_on(sampled, "easy", tmp_path / "w")
    score = next(score for _, setting, score in run.scores() if setting == "pets-easy")
    assert len(predictions.ids) == frozen.images and predictions.correct.mean() == pytest.approx(score.value)


def test_several_frozen_sets(sampled: Project) -> None:
    sample(sampled, "top", make_sampling("top-images", min_annotations=3), per_class=2)
    freeze(sampled, "easy", allow=DEFECTS)
    freeze(sampled, "top", allow=DEFECTS)
    sets = frozen_sets(sampled.folder)
    assert [frozen_set.set_name for frozen_set in sets] == ["easy", "top"]
    assert one_frozen(sets, "top").images == 6
    with pytest.raises(WorkshopError, match="several frozen sets"):
        open_dataset(f"testset:{sampled.folder}")
    assert len(open_dataset(f"testset:{sampled.folder}", set="top")) == 6
    assert len(open_dataset(sampled.folder / "frozen" / "top")) == 6
    assert [frozen_set.set_name for frozen_set in frozen_sets(sampled.folder / "frozen" / "top")] == ["top"]


def test_not_a_project(tmp_path: Path) -> None:
    with raises(WorkshopError, found="no testset.toml and no frozen.json"):
        frozen_sets(tmp_path)
    with pytest.raises(WorkshopError, match="neither"):
        sb.evaluate("demo:resnet8-cifar10", f"testset:{tmp_path}/none", workspace=tmp_path / "w", progress=False)
