"""Near-duplicates against original data outside the pool: found, shown, judged, undone, and enforced."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image as Pillow
from sqlalchemy import delete, select

from shiftbench.datasets.catalogue import open_dataset
from shiftbench.io.atomic import read_json
from shiftbench.reports.formatting import markdown
from shiftbench.testsets.accounts import create_account
from shiftbench.testsets.database import CANDIDATE, NearPair, PoolEntry, Search
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.freeze import DEFECTS, freeze
from shiftbench.testsets.pool.entries import import_images
from shiftbench.testsets.pool.suspects import suspect_near_duplicates
from shiftbench.testsets.project import Project
from shiftbench.testsets.redraw import SUSPECTED, UNSEARCHED, exclusions
from shiftbench.testsets.review import finish_class, judge, marked_images, pair_image, suspicions, undo_judgement
from shiftbench.testsets.revisions import sample, unsearched
from shiftbench.testsets.sampling import make_sampling
from shiftbench.testsets.tasks import make_tasks
from tests.raised import raises
from tests.testsets.conftest import NewProject
from tests.testsets.helpers import PETS, annotators, cifar, fill, work

ALL = make_sampling("threshold", threshold=0, min_annotations=0)


def original_folder(folder: Path, each: int, seed: int) -> Path:
    """Training images as class folders, stored as PNG."""
    images = cifar("train", each, seed=seed)
    for i, label in enumerate(images.labels.tolist()):
        path = folder / PETS.keys[label] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Pillow.fromarray(images.read(i).pixels).save(path)
    return folder


def plant(project: Project, source: Path, folder: Path, count: int) -> set[str]:
    """Copies of original images as candidates: brighter, and saved as JPEG."""
    original = open_dataset(source, space=PETS)
    for i in range(count):
        pixels = np.clip(original.read(i).pixels.astype(int) + 6, 0, 255).astype(np.uint8)
        path = folder / PETS.keys[int(original.labels[i])] / f"planted-{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Pillow.fromarray(pixels).save(path, quality=90)
    import_images(project, open_dataset(folder, space=PETS), name="planted")
    with project.reading() as session:
        return set(session.scalars(select(PoolEntry.id).where(PoolEntry.source == "planted")))


@pytest.fixture
def planted(new_project: NewProject, tmp_path: Path) -> tuple[Project, set[int], Path]:
    project = new_project()
    fill(project)
    source = original_folder(tmp_path / "original", 12, seed=3)
    return project, plant(project, source, tmp_path / "new", 9), source  # type: ignore[return-value]


def test_copies_of_training_images_are_found(planted: tuple[Project, set[int], Path]) -> None:
    project, copies, source = planted
    with project.reading() as session:
        before = session.scalars(select(PoolEntry.id)).all()
    assert unsearched(project) is not None
    suspect_near_duplicates(project)
    with project.reading() as session:
        assert not copies & exclusions(session).keys()  # the pool alone does not show it
    assert "training and test sets" in str(unsearched(project))
    _, new = suspect_near_duplicates(project, against=[str(source)])
    assert new >= len(copies) and unsearched(project) is None
    with project.reading() as session:
        reasons = exclusions(session)
        assert {entry for entry in copies if reasons.get(entry) == SUSPECTED} == copies
        assert session.scalars(select(PoolEntry.id)).all() == before  # the original data is not in the pool
    rita = create_account(project, "rita", "reviewer").id
    pair = next(pair for pair in suspicions(project) if pair.entry_id in copies)
    assert pair.other is None and pair.resembles.startswith(f"{source.name}: ")
    with Pillow.open(pair_image(project, rita, pair.id)) as copy:
        assert copy.format == "JPEG"


@pytest.mark.parametrize("source", ["old.npz", "array:old.npz"])
def test_original_data_with_numbers_as_labels(
    new_project: NewProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """Their classes do not matter for the search, and nothing says what they are."""
    monkeypatch.chdir(tmp_path)
    project = new_project()
    fill(project)
    images = cifar("test", 7)
    np.savez(tmp_path / "old.npz", images=np.stack([images.read(i).pixels for i in range(3)]), labels=[2, 0, 9])
    _, new = suspect_near_duplicates(project, against=[source])
    assert new >= 3 and unsearched(project) is None
    monkeypatch.chdir("/")  # the dataset is found again from everywhere
    assert suspect_near_duplicates(project)[1] == 0


def test_later_candidates_are_searched_again_or_left_out(
    planted: tuple[Project, set[int], Path], tmp_path: Path
) -> None:
    project, _, source = planted
    suspect_near_duplicates(project, against=[str(source)], flips=True)
    import_images(project, cifar("test", 9, seed=5))
    assert "imported after" in str(unsearched(project))
    with project.reading() as session:
        newest = max(session.scalars(select(PoolEntry.id).where(PoolEntry.role == CANDIDATE)))
        assert exclusions(session)[newest] == UNSEARCHED
    suspect_near_duplicates(project)  # the same datasets as before
    assert unsearched(project) is None
    with project.reading() as session:
        assert exclusions(session).get(newest) != UNSEARCHED
        assert all(search.options["flips"] for search in session.scalars(select(Search)))  # as before, too


def test_the_way_of_searching_is_kept_and_on_the_card(planted: tuple[Project, set[int], Path]) -> None:
    """A later call searches as the earlier one did; only what is asked for changes."""
    project, _, source = planted
    asked = {"by": ["pixels", "ssim"], "k": 7, "thresholds": {"pixels": 15.0}, "flips": True}
    effective = {"pixels": 15.0, "ssim": 0.75, "aligned": 0.7}
    for options, expected in (
        (asked, {**asked, "thresholds": effective}),
        ({}, {**asked, "thresholds": effective}),
        ({"k": 9, "thresholds": {"ssim": 0.8}}, {**asked, "k": 9, "thresholds": {**effective, "ssim": 0.8}}),
    ):
        suspect_near_duplicates(project, against=[str(source)], **options)  # type: ignore[arg-type]
        with project.reading() as session:
            stored = [search.options for search in session.scalars(select(Search))]
            # How far the candidates were compared is no option.
            assert [{**options, "batches": 0} for options in stored] == [{**expected, "batches": 0}] * 2
    work(project, annotators(project, 3))
    sample(project, "all", ALL, per_class=3)
    frozen = freeze(project, "all", allow=DEFECTS)
    records = read_json(frozen.folder / "frozen.json")["searches"]
    assert [{**record["options"], "batches": 0} for record in records] == [{**expected, "batches": 0}] * 2
    card = (frozen.folder / "README.md").read_text()
    assert "9 nearest neighbours by pixels, ssim, mirror images too" in card
    assert markdown("pixels <= 15, ssim >= 0.8, aligned >= 0.7") in card
    suspect_near_duplicates(project, by=["pixels-normalised"])
    with project.reading() as session:
        search = session.scalars(select(Search)).first()
    assert search is not None and search.options["by"] == ["pixels-normalised"] and search.options["k"] == 9
    assert search.options["thresholds"] == {"pixels-normalised": 0.2, "ssim": 0.75, "aligned": 0.7}


def test_original_datasets_are_found_again(
    planted: tuple[Project, set[int], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From another working directory, and where they have been moved to."""
    project, _, source = planted
    monkeypatch.chdir(source.parent)
    suspect_near_duplicates(project, against=[source.name])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    suspect_near_duplicates(project)
    source.rename(tmp_path / "elsewhere" / source.name)
    _, new = suspect_near_duplicates(project, against=[source.name])
    assert new == 0 and unsearched(project) is None
    with project.reading() as session:
        (search,) = session.scalars(select(Search).where(Search.source.is_not(None)))
    assert search.source == str(tmp_path / "elsewhere" / source.name)


def test_freezing_needs_review_and_search(planted: tuple[Project, set[int], Path]) -> None:
    project, _, source = planted
    rita = create_account(project, "rita", "reviewer").id
    make_tasks(project)
    work(project, annotators(project, 1))
    sample(project, "set", ALL, per_class=3)
    with raises(WorkshopError, found="3 of 3 classes not reviewed"):
        freeze(project, "set")
    for key in project.space.keys:
        finish_class(project, rita, "set", key)
    with raises(WorkshopError, found="the candidates were never searched for near-duplicates") as caught:
        freeze(project, "set")
    assert "never searched" in str(caught.value.found)
    suspect_near_duplicates(project, against=[str(source)])
    sample(project, "set")
    for key in project.space.keys:
        finish_class(project, rita, "set", key)
    card = (freeze(project, "set", allow=["short"]).folder / "README.md").read_text()
    assert "NOT SEARCHED" not in card and f"{source.name} (36 images" in card


def test_one_file_for_two_classes_is_no_pair(new_project: NewProject, tmp_path: Path) -> None:
    project = new_project()
    pixels = cifar("test", 1).read(0).pixels
    for key in ("cat", "dog"):
        (tmp_path / "two" / key).mkdir(parents=True)
        Pillow.fromarray(pixels).save(tmp_path / "two" / key / "same.png")
    (tmp_path / "two" / "frog").mkdir()
    import_images(project, open_dataset(tmp_path / "two", space=PETS))
    queue, new = suspect_near_duplicates(project)
    assert queue.pairs == [] and new == 0
    with project.reading() as session:
        assert len(session.scalars(select(PoolEntry)).all()) == 2
        assert session.scalars(select(NearPair)).all() == []


def test_a_reference_that_is_also_in_the_original_data_is_judged_once(
    planted: tuple[Project, set[int], Path],
) -> None:
    project, copies, source = planted
    import_images(project, open_dataset(source, space=PETS), "reference")
    suspect_near_duplicates(project)
    pairs = {(pair.entry_id, pair.other_id) for pair in suspicions(project) if pair.entry_id in copies}
    assert {entry for entry, _ in pairs} == copies
    suspect_near_duplicates(project, against=[str(source)])
    assert {(pair.entry_id, pair.other_id) for pair in suspicions(project) if pair.entry_id in copies} == pairs


def test_verdicts_are_undone(planted: tuple[Project, set[int], Path]) -> None:
    project, copies, source = planted
    suspect_near_duplicates(project, against=[str(source)])
    rita = create_account(project, "rita", "reviewer").id
    pair = next(pair for pair in suspicions(project) if pair.entry_id in copies)
    judge(project, pair.id, duplicate=True, by=rita)
    (marked,) = marked_images(project)
    assert marked.entry_id == pair.entry_id and pair.resembles in marked.note and marked.maker is not None
    undo_judgement(project, pair.id, by=rita)
    assert marked_images(project) == [] and pair.id in {open_pair.id for open_pair in suspicions(project)}
    judge(project, pair.id, duplicate=False, by=rita)
    with project.reading() as session:
        open_pairs = {open_pair.entry_id for open_pair in suspicions(project)}
        assert (pair.entry_id in exclusions(session)) == (pair.entry_id in open_pairs)


def test_only_new_candidates_are_compared(planted: tuple[Project, set[int], Path], tmp_path: Path) -> None:
    """With the data, the earlier candidates and each other; the pairs are those of a search of the whole pool."""
    project, _, source = planted
    suspect_near_duplicates(project, against=[str(source)])
    for number, part in enumerate(("first", "second")):
        new = cifar("test", 2, seed=number + 1)
        folder = tmp_path / part
        lines = []
        # Copies of an earlier candidate, of an outside image, and of each other.
        outside = open_dataset(source, space=PETS).read(number).pixels
        with project.reading() as session:
            entry = session.scalars(select(PoolEntry).where(PoolEntry.role == CANDIDATE)).all()[-1]
            earlier = np.asarray(Pillow.open(project.images.original(entry.image.digest, entry.image.suffix)))
        pixels = [new.read(i).pixels for i in range(len(new))]
        pixels += [_brighter(earlier, 5), _brighter(outside, 7), _brighter(pixels[0], 6)]
        folder.mkdir()
        for i, image in enumerate(pixels):
            Pillow.fromarray(image).save(folder / f"{i}.png")
            lines.append(f"{i}.png,cat\n")
        (folder / "list.csv").write_text("path,label\n" + "".join(lines))
        import_images(project, str(folder / "list.csv"))
        queue, added = suspect_near_duplicates(project)
        assert {pair.candidate_index for pair in queue.pairs} <= set(range(len(pixels))) and added >= 3
        assert unsearched(project) is None
    stepwise = _pairs(project)
    with project.writing() as session:
        session.execute(delete(NearPair))
        session.execute(delete(Search))
    suspect_near_duplicates(project, against=[str(source)])
    assert stepwise == _pairs(project)


def _brighter(pixels: NDArray[np.uint8], by: int) -> NDArray[np.uint8]:
    brighter: NDArray[np.uint8] = np.clip(pixels.astype(int) + by, 0, 255).astype(np.uint8)
    return brighter


def _pairs(project: Project) -> set[frozenset[object]]:
    """The suspected pairs, whichever of two candidates comes first."""
    with project.reading() as session:
        return {
            frozenset([pair.entry_id, pair.other_id or pair.other_name]) for pair in session.scalars(select(NearPair))
        }
