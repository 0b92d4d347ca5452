"""Import: folders, manifests, datasets and plug-ins; each picture once, whatever happens in between."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow
from sqlalchemy import func, select

from shiftbench.datasets.images import bad_image, decode
from shiftbench.errors import DatasetError, LabelError
from shiftbench.testsets.database import Image, PoolEntry
from shiftbench.testsets.errors import BlindnessError, WorkshopError
from shiftbench.testsets.pool.entries import import_images, pool_counts, pool_dataset
from shiftbench.testsets.pool.sources import Offer, image_sources
from shiftbench.testsets.project import Project, audit_log
from tests.datasets.makers import assert_conforms
from tests.datasets.odd_pictures import cabinet
from tests.raised import raises
from tests.testsets.conftest import NewProject
from tests.testsets.helpers import PETS, cifar


def entries(project: Project) -> list[PoolEntry]:
    with project.reading() as session:
        return list(session.scalars(select(PoolEntry).order_by(PoolEntry.id)))


def images(project: Project) -> int:
    with project.reading() as session:
        return session.scalars(select(func.count()).select_from(Image)).one()


def pet_folders(root: Path, each: int = 3) -> Path:
    """Class folders of real pictures, as PNG files."""
    pictures = cifar("test", each)
    for i, label in enumerate(pictures.labels.tolist()):
        path = root / PETS.keys[label] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Pillow.fromarray(pictures.read(i).pixels).save(path)
    return root


def test_class_folders_and_once_more(new_project: NewProject, tmp_path: Path) -> None:
    project = new_project()
    folder = pet_folders(tmp_path / "flickr")
    done = import_images(project, folder)
    assert (done.new, done.known, done.refused, done.source) == (9, 0, [], "flickr")
    first = entries(project)[0]
    assert (first.class_key, first.source, first.source_id) == ("cat", "flickr", "cat/" + first.source_id[4:])
    again = import_images(project, folder)
    assert (again.new, again.known) == (0, 9)
    assert [(c.class_key, c.candidates, c.references) for c in pool_counts(project)] == [
        ("cat", 3, 0),
        ("dog", 3, 0),
        ("frog", 3, 0),
    ]
    assert [line.details["new"] for line in audit_log(project)] == [0, 9]


def test_references_beside_candidates_share_the_picture(new_project: NewProject, tmp_path: Path) -> None:
    project = new_project()
    folder = pet_folders(tmp_path / "set")
    import_images(project, folder)
    done = import_images(project, folder, "reference")
    assert done.new == 9 and len(entries(project)) == 18 and images(project) == 9


def test_one_picture_for_two_classes(new_project: NewProject, tmp_path: Path) -> None:
    project = new_project()
    folder = pet_folders(tmp_path / "set", each=1)
    picture = next((folder / "cat").iterdir())
    (folder / "dog" / "same.png").write_bytes(picture.read_bytes())
    (folder / "cat" / "copy.png").write_bytes(picture.read_bytes())
    done = import_images(project, folder)
    assert (done.new, done.known) == (4, 1) and images(project) == 3


def test_broken_pictures_are_named_and_counted(new_project: NewProject, tmp_path: Path) -> None:
    project = new_project()
    folder = pet_folders(tmp_path / "mixed", each=1)
    broken = [odd for odd in cabinet() if odd.reason is not None]
    for odd in broken:
        (folder / "cat" / odd.file).write_bytes(odd.data)
    done = import_images(project, folder)
    assert done.new == 3 and sorted(name for name, _ in done.refused) == sorted(f"cat/{odd.file}" for odd in broken)
    reasons = dict(done.refused)
    assert "empty" in reasons["cat/empty.jpg"] and "bomb" in reasons["cat/bomb.png"]
    assert done.new + done.known + len(done.refused) == 3 + len(broken)


def test_manifest_with_metadata(new_project: NewProject, tmp_path: Path) -> None:
    project = new_project()
    pet_folders(tmp_path, each=1)
    rows = [
        {
            "path": str(path.relative_to(tmp_path)),
            "label": path.parent.name,
            "source": "flickr",
            "query": "kitten",
            "Date_Taken": "2013-05-04",
            "license": "CC BY 2.0",
            "owner": "anna",
            "keyword": "tabby",
            "url": "https://example.org/1",
            "camera": "X100",
            "empty": "",
        }
        for path in sorted(tmp_path.rglob("*.png"))
    ]
    with (tmp_path / "list.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    import_images(project, tmp_path / "list.csv")
    entry = entries(project)[0]
    columns = (
        entry.source,
        entry.query,
        entry.date,
        entry.licence,
        entry.author,
        entry.keyword,
        entry.url,
        entry.extra,
    )
    expected = ("flickr", "kitten", "2013-05-04", "CC BY 2.0", "anna", "tabby", "https://example.org/1")
    assert columns == (*expected, {"camera": "X100"})


def test_json_lines_keep_their_types(new_project: NewProject, tmp_path: Path) -> None:
    project = new_project()
    path = next(pet_folders(tmp_path, each=1).rglob("*.png"))
    row = {
        "path": str(path.relative_to(tmp_path)),
        "label": path.parent.name,
        "tags": ["a", "b"],
        "views": 12,
        "ok": True,
    }
    (tmp_path / "list.jsonl").write_text(json.dumps(row) + "\n")
    import_images(project, tmp_path / "list.jsonl", name="archive")
    (entry,) = entries(project)
    assert entry.extra == {"tags": ["a", "b"], "views": 12, "ok": True} and entry.source == "archive"


def test_text_that_no_database_takes_is_mended(new_project: NewProject, tmp_path: Path) -> None:
    """NUL, half characters and numbers that JSON lacks come from strangers' manifests, and are no reason to stop."""
    project = new_project()
    path = next(pet_folders(tmp_path, each=1).rglob("*.png"))
    row = {
        "path": str(path.relative_to(tmp_path)),
        "label": path.parent.name,
        "author": "a\0nna",
        "query": "\ud800",
        "score_of_people": float("nan"),
        "tags": ["x\0", {"k\0": float("inf")}],
        "date": "2013-01-01",
    }
    (tmp_path / "list.jsonl").write_text(json.dumps(row) + "\n")
    import_images(project, tmp_path / "list.jsonl", name="odd\0name")
    (entry,) = entries(project)
    assert (entry.author, entry.source, entry.query) == ("anna", "oddname", "\\ud800")
    assert entry.extra == {"score_of_people": "nan", "tags": ["x", {"k": "inf"}]}


def test_file_names_that_are_no_text(new_project: NewProject, tmp_path: Path) -> None:
    project = new_project()
    picture = next(pet_folders(tmp_path / "set", each=1).rglob("*.png")).read_bytes()
    folder = tmp_path / "frogs"
    folder.mkdir()
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff\xfe.png")).write_bytes(picture)
    assert import_images(project, folder, class_key="frog").new == 1
    assert entries(project)[0].source_id == "\\udcff\\udcfe.png"


def test_predictions_are_refused(new_project: NewProject, tmp_path: Path) -> None:
    """The pool is blind: nobody who samples or reviews may know what a model says."""
    project = new_project()
    path = next(pet_folders(tmp_path, each=1).rglob("*.png"))
    for column in ("prediction", "Predicted", "pred", "logits", "confidence", "top1", "softmax"):
        row = {"path": str(path.relative_to(tmp_path)), "label": path.parent.name, column: "cat"}
        (tmp_path / "list.jsonl").write_text(json.dumps(row) + "\n")
        with pytest.raises(BlindnessError, match="predictions"):
            import_images(project, tmp_path / "list.jsonl")
    assert entries(project) == []


def test_a_manifest_can_not_reach_out(new_project: NewProject, tmp_path: Path) -> None:
    project = new_project()
    (tmp_path / "list.csv").write_text("path,label\n../secret.png,cat\n")
    with raises(DatasetError, found="../secret.png"):
        import_images(project, tmp_path / "list.csv")


def test_a_flat_folder_of_one_class(new_project: NewProject, tmp_path: Path) -> None:
    project = new_project()
    folder = pet_folders(tmp_path / "set", each=2) / "frog"
    done = import_images(project, folder, class_key="frog")
    assert done.new == 2 and {entry.class_key for entry in entries(project)} == {"frog"}
    with pytest.raises(LabelError, match="no class 'newt'"):
        import_images(project, folder, class_key="newt")
    with pytest.raises(WorkshopError, match="not a folder"):
        import_images(project, tmp_path / "none", class_key="frog")
    (tmp_path / "empty").mkdir()
    with pytest.raises(WorkshopError, match="no images"):
        import_images(project, tmp_path / "empty", class_key="frog")


def test_unknown_classes_are_refused(new_project: NewProject, tmp_path: Path) -> None:
    project = new_project()
    folder = pet_folders(tmp_path / "set", each=1)
    (folder / "frog").rename(folder / "newt")
    with pytest.raises(LabelError, match="newt"):
        import_images(project, folder)


def test_arrays_become_lossless_pictures(new_project: NewProject) -> None:
    project = new_project()
    pictures = cifar("test", 2)
    import_images(project, pictures)
    dataset = pool_dataset(project, "candidate")
    assert_conforms(dataset)
    pixels = {dataset.read(i).pixels.tobytes() for i in range(len(dataset))}
    assert pixels == {pictures.read(i).pixels.tobytes() for i in range(len(pictures))}
    assert [dataset.space.keys[label] for label in dataset.labels] == ["cat", "cat", "dog", "dog", "frog", "frog"]
    assert sorted(dataset.metadata["entry"]) == [entry.id for entry in entries(project)]


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A plug-in that fetches; what was fetched is noted."""
    fetched: list[str] = []
    pictures = cifar("test", 4)

    def fetch(target: str, project: Project) -> Iterator[Offer]:
        """Pictures of an archive: archive:KEYWORD."""
        import io

        for i in range(len(pictures)):

            def download(i: int = i) -> bytes:
                fetched.append(str(i))
                if i == 5:
                    raise bad_image(str(i), "the server says 404")
                buffer = io.BytesIO()
                Pillow.fromarray(pictures.read(i).pixels).save(buffer, "PNG")
                return buffer.getvalue()

            key = PETS.keys[pictures.labels[i]] if i != 7 else "newt"
            yield Offer(str(i), download, key, {"keyword": target, "source": "elsewhere", "author": "anna"})

    monkeypatch.setitem(image_sources._items, "archive", fetch)
    return fetched


def test_a_fetch_plug_in(new_project: NewProject, archive: list[str]) -> None:
    project = new_project()
    done = import_images(project, "archive:tabby")
    assert (done.new, done.source, sorted(name for name, _ in done.refused)) == (10, "archive:tabby", ["5", "7"])
    assert dict(done.refused)["7"] == "unknown class 'newt'"
    assert "404" in dict(done.refused)["5"]
    assert {(entry.keyword, entry.author, entry.source) for entry in entries(project)} == {
        ("tabby", "anna", "archive:tabby")
    }
    archive.clear()
    again = import_images(project, "archive:tabby")
    assert (again.new, again.known) == (0, 10) and archive == ["5"]  # only what is still missing


#: Reports that two batches are stored, and waits to be killed.
STALLING_IMPORT = """
import itertools
import sys
from shiftbench.testsets import Project
from shiftbench.testsets.pool import entries as module

numbers, import_batch = itertools.count(), module._import_batch

def stalling(*arguments):
    if next(numbers) == 2:
        print("stalled", flush=True)
        sys.stdin.read()
    import_batch(*arguments)

module._import_batch = stalling
module.import_images(Project.open(sys.argv[1]), sys.argv[2])
"""


@pytest.mark.reliability("kills")
def test_killed_half_way_and_repeated(new_project: NewProject, tmp_path: Path) -> None:
    project = new_project()
    folder = tmp_path / "many"
    rng = np.random.default_rng(0)
    for i in range(600):
        path = folder / PETS.keys[i % 3] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Pillow.fromarray(rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(path)
    command = [sys.executable, "-c", STALLING_IMPORT, str(project.folder), str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "stalled\n"
        process.kill()
    count = len(entries(project))
    assert count == 256  # two batches
    done = import_images(project, folder)
    assert (done.new, done.known, done.refused) == (600 - count, count, [])
    for entry in entries(project):
        original = project.images.original(entry.image.digest, entry.image.suffix)
        assert decode(original, "a").pixels.shape == (40, 40, 3)
        assert project.images.copy(entry.image.digest, entry.image.suffix).is_file()
