"""``shiftbench testset follow-up`` as a user types it: a frozen set of real pictures, two real classifiers, people."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow
from sqlalchemy import select
from typer.testing import Result

import shiftbench as sb
from shiftbench.labels.space import LabelSpace
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.settings.base import Setting
from shiftbench.testsets.accounts import exclude, find_person
from shiftbench.testsets.commands.options import opened
from shiftbench.testsets.database import PoolEntry, Slot, Task
from shiftbench.testsets.errors import BlindnessError
from shiftbench.testsets.freeze import DEFECTS, all_revisions_dataset, freeze, predictions_on, require_frozen
from shiftbench.testsets.project import Project
from shiftbench.testsets.review import mark
from shiftbench.testsets.revisions import revision_images, sample
from shiftbench.testsets.sampling import make_sampling
from shiftbench.testsets.study import study_sets
from tests.commands import call
from tests.testsets.helpers import annotators, fill, small_configuration, work
from tests.testsets.pool.test_import_images import pet_folders
from tests.testsets.test_cli import data, run
from tests.testsets.web.conftest import Site, served
from tests.testsets.web.test_annotation_pages import behind

#: Of CIFAR-10's classes those that a small network mixes up most.
ANIMALS = LabelSpace("animals", ("bird", "cat", "deer", "dog", "frog"))
SET = "top-images"
RESNET = "demo:resnet8-cifar10"


@dataclass(frozen=True)
class Place:
    """A project with a frozen set, and a workspace with a real classifier's predictions, plain and behind a mirror."""

    folder: Path
    workspace: Path
    #: What follow-ups said before the set was frozen.
    early: dict[str, Result]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("followups")
    animals = folder / "animals"
    workspace = folder / "w"
    project = Project.create(animals, small_configuration(ANIMALS).with_rules(annotators=2))
    fill(project, candidates=24, references=12)
    work(project, annotators(project, 2))
    sample(project, SET, make_sampling(SET, min_annotations=2), per_class=18)
    for image in revision_images(project, SET)[:4]:
        mark(project, image.entry, "blacklist", "a drawing")
    sample(project, SET)
    cifar = "cifar-10-test"
    new = f"testset:{animals}"
    wished: dict[str, tuple[object, ...]] = {
        "discriminator": (cifar, new),
        "splits": (cifar, cifar, "--new", new),
        "balance": (animals, "-w", workspace),
        "hard": (animals, "-w", workspace, "--study", folder / "study"),
        "revisions": (animals, RESNET, "-w", workspace),
    }
    early = {command: call("testset", "follow-up", command, *arguments) for command, arguments in wished.items()}
    assert not workspace.exists() and not (folder / "study").exists()
    freeze(project, SET, allow=DEFECTS)
    project.close()
    resnet8 = sb.load_classifier(RESNET)
    mirrored = sb.load_classifier(
        lambda images: resnet8.scores(np.ascontiguousarray(images[:, :, ::-1])),
        name="mirrored",
        labels="cifar-10",
        preprocessing=resnet8.preprocessing,
    )
    sb.evaluate([resnet8, mirrored], f"testset:{animals}", workspace=workspace, progress=False)
    return Place(animals, workspace, early)


def follow_up(*arguments: object) -> Any:
    return data("follow-up", *arguments)


@pytest.mark.parametrize("command", ["discriminator", "splits", "balance", "hard", "revisions"])
def test_no_model_before_the_set_is_frozen(place: Place, command: str) -> None:
    refused = place.early[command]
    assert refused.exit_code == 1 and isinstance(refused.exception, BlindnessError)
    assert "frozen" in str(refused.exception)


def test_discriminator(place: Place, tmp_path: Path) -> None:
    frozen = f"testset:{place.folder}"
    (row,) = follow_up("discriminator", "cifar-10-test", frozen, "--by", "pixels-normalised", "--folds", 2, "-q")[
        "rows"
    ]
    assert row["discriminator"] == "logistic on pixels-normalised"
    assert row["n"] == 2 * 5 * 18, "as many of either set, of the classes that both have"
    assert (row["low"], row["high"]) == pytest.approx(clopper_pearson(row["correct"], row["n"], 0.95))
    text = run(
        "follow-up",
        "discriminator",
        pet_folders(tmp_path / "old", 6),
        frozen,
        "--labels",
        "folders",
        "--by",
        "pixels",
        "--per-class",
        5,
        "--folds",
        2,
        "-q",
    )
    assert "15 images per set, balanced over classes, 2-fold" in text, "cats, dogs and frogs are in both"


def test_splits(place: Place, tmp_path: Path) -> None:
    train = pet_folders(tmp_path / "train", 20)
    test = pet_folders(tmp_path / "test", 8)
    output = follow_up(
        "splits",
        train,
        test,
        "--labels",
        "folders",
        "--new",
        f"testset:{place.folder}",
        "--folds",
        3,
        "--write",
        tmp_path / "splits",
        "-q",
    )
    assert [(row["test_set"], row["n"]) for row in output["rows"]] == [
        ("original", 24),
        ("split 1", 20),
        ("split 2", 20),
        ("split 3", 20),
        ("new", 54),
    ]
    assert {row["model"] for row in output["rows"]} == {"logistic on pixels-normalised"}
    files = sorted((tmp_path / "splits").iterdir())
    held_out = [image for file in files for image in json.loads(file.read_text())["test"]]
    assert len(files) == 3 and len(set(held_out)) == len(held_out) == 60


def test_balance(place: Place, tmp_path: Path) -> None:
    wished = ("balance", place.folder, "-w", place.workspace)
    rows = follow_up(*wished, "--per-class", 10, "--export", tmp_path / "even")["rows"]
    assert [row["model"] for row in rows] == ["mirrored", "resnet8-cifar10"]
    exported = {f"{path.parent.name}/{path.name}" for path in (tmp_path / "even").rglob("*.png")}
    assert len(exported) == 50 == rows[0]["balanced_n"]
    project = Project.open(place.folder)
    for model, row in zip(predictions_on(project, SET, place.workspace), rows, strict=True):
        right = dict(zip(model.ids, model.correct.tolist(), strict=True))
        assert row["balanced"] == pytest.approx(np.mean([right[image] for image in exported]))
        assert row["accuracy"] == pytest.approx(np.mean(list(right.values())))
    project.close()
    assert [row["model"] for row in follow_up(*wished, "-c", "mirrored")["rows"]] == ["mirrored"]
    assert "90 in the balanced subset" in run("follow-up", *wished)


def test_revisions(place: Place, tmp_path: Path) -> None:
    """Accuracies counted by hand on the pictures of either revision."""
    wished = ("revisions", place.folder, RESNET, "-w", tmp_path / "w", "-q")
    rows = follow_up(*wished)["rows"]
    assert [(row["revision"], row["n"]) for row in rows] == [("1", 90), ("2", 90)]
    project = Project.open(place.folder)
    resnet8 = sb.load_classifier(RESNET)
    columns = [resnet8.space.keys.index(key) for key in ANIMALS.keys]
    for row in rows:
        images = revision_images(project, SET, int(row["revision"]))
        files = [project.images.original(image.digest, image.suffix) for image in images]
        pixels = [resnet8.preprocessing.geometry(np.asarray(Pillow.open(file).convert("RGB"))) for file in files]
        answers = resnet8.scores(np.stack(pixels))[:, columns].argmax(axis=1)
        right = [ANIMALS.keys[answer] == image.class_key for answer, image in zip(answers, images, strict=True)]
        assert row["accuracy"] == pytest.approx(np.mean(right))
    project.close()
    assert "86 of the 90 images of the first revision are in the last" in run("follow-up", *wished)


@pytest.fixture(scope="module")
def study(place: Place, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """A study of the hardest images, and the table of them."""
    folder = tmp_path_factory.mktemp("hard") / "study"
    wished = ("hard", place.folder, "-w", place.workspace, "--share", 0.1, "--study", folder, "--participants", 5)
    return folder, follow_up(*wished)["rows"]


def test_hard_images_become_grids(place: Place, study: tuple[Path, list[dict[str, Any]]]) -> None:
    """Each in one grid, in which a class is to be chosen for it; the two sets mixed."""
    folder, rows = study
    original = Project.open(place.folder)
    for side, part in (("new", "images"), ("original", "reference")):
        models = predictions_on(original, SET, place.workspace, part)  # type: ignore[arg-type]
        right = dict(zip(models[0].ids, np.sum([model.correct for model in models], axis=0).tolist(), strict=True))
        counts = {row["image"]: row["right"] for row in rows if row["set"] == side}
        assert counts and counts == {image: right[image] for image in counts}
        assert max(counts.values()) <= min((count for image, count in right.items() if image not in counts), default=2)
        assert len(counts) >= 0.1 * len(right)
    original.close()
    project = Project.open(folder)
    with project.reading() as session:
        query = select(PoolEntry.source, PoolEntry.source_id, Task.class_key, Task.id)
        found_in = session.execute(query.join(Slot, Slot.entry_id == PoolEntry.id).join(Task)).all()
    project.close()
    assert sorted((source, image) for source, image, _, _ in found_in) == sorted(
        (row["set"], row["image"]) for row in rows
    )
    assert {key for _, _, key, _ in found_in} == {""}
    assert {source for source, _, _, task in found_in if task == found_in[0][3]} == {"original", "new"}


def test_people_answer_the_study(study: tuple[Path, list[dict[str, Any]]]) -> None:
    """Over HTTP: one who knows all, one who calls everything a cat, one who knows the original images only, and two who
    do not count."""
    folder, rows = study
    early = call("testset", "follow-up", "human", folder)
    assert early.exit_code == 1 and "answered all grids" in str(early.exception)
    project = Project.open(folder)

    first, second = project.space.keys[:2]

    def knows(entry: PoolEntry) -> str:
        return entry.class_key

    habits = {
        "Ann": knows,
        "Bo": lambda entry: first,
        "Cem": lambda entry: (
            entry.class_key if entry.source == "original" else second if entry.class_key == first else first
        ),
        "Eve": knows,
    }
    with served(project) as site:
        grids = {name: _answer(site, name, habit) for name, habit in habits.items()}
        _answer(site, "Dan", knows, most=1)
    assert len(set(grids.values())) == 1, "everybody gets every grid"
    exclude(project, find_person(project, "Eve").id, "a colleague of the makers")
    project.close()
    participants = {row["participant"]: row for row in follow_up("human", folder)["rows"]}
    share = {
        side: np.mean([row["label"] == first for row in rows if row["set"] == side]) for side in ("original", "new")
    }
    assert {name: (row["original"], row["new"]) for name, row in participants.items()} == {
        "Ann": (1.0, 1.0),
        "Bo": (share["original"], share["new"]),
        "Cem": (1.0, 0.0),
    }
    assert {row["new_n"] for row in participants.values()} == {sum(row["set"] == "new" for row in rows)}
    assert {row["original_n"] for row in participants.values()} == {sum(row["set"] == "original" for row in rows)}
    assert " of 3 participants are better on original" in run("follow-up", "human", folder)
    call("testset", "answers", folder, "-o", folder / "answers.csv", "--names")
    raw = list(csv.DictReader((folder / "answers.csv").open()))
    assert all(row["label"] == row["image_class"] for row in raw if row["annotator"] == "Ann")
    assert {row["label"] for row in raw if row["annotator"] == "Bo"} == {first}


def _answer(site: Site, name: str, habit: Any, most: int = 1000) -> int:
    """Leave the first image out at first, then change the answer once; how many grids."""
    with site.person(name=name) as person:
        for done in range(most):
            sheet = person.get("/task")
            if sheet.page != "label":
                return done
            entries = behind(site, sheet)
            labels = [habit(entries[image]) for image in sheet.shown]
            refused = person.post(f"/tasks/{sheet.task}/answer", {"shown": sheet.shown, "label": ["", *labels[1:]]})
            assert refused.status == 200 and "1 more" in refused.text and " selected>" in refused.text
            assert person.post(f"/tasks/{sheet.task}/answer", {"shown": sheet.shown, "label": labels}).status == 303
            if not done:
                again = person.post(f"/tasks/{sheet.task}/undo")
                assert again.text.count(" selected>") == len(labels)
                fields = {"shown": sheet.shown, "label": labels}
                assert person.post(f"/tasks/{sheet.task}/answer", fields).status == 303
        return most


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("human", "ANIMALS"), "is not a study of hard images"),
        (("human", "nowhere"), "not a test-set project"),
        (("hard", "ANIMALS", "-w", "nowhere"), "nowhere"),
        (("hard", "ANIMALS", "-w", "W", "--share", "5"), "invalid share of images"),
        (("hard", "ANIMALS", "-w", "W", "--set", "x"), "unknown set 'x'"),
        (("hard", "ANIMALS", "-w", "W", "-c", "x"), "unknown model 'x'"),
        (("balance", "ANIMALS", "-w", "W", "--per-class", "500"), "cannot draw 500 images per class"),
        (("discriminator", "cifar-10-test", "cifar-11"), "cifar-11"),
        (("discriminator", "cifar-10-test", "testset:ANIMALS", "--folds", "1"), "invalid number of folds"),
        (("splits", "cifar-10-test", "cifar-10-test", "--folds", "1"), "invalid number of folds"),
        (("splits", "cifar-10-test", "cifar-10-test", "--fold-size", "7"), "cannot balance"),
        (("revisions", "ANIMALS", "demo:nothing", "-w", "W"), "nothing"),
    ],
)
def test_mistakes_are_explained(place: Place, arguments: tuple[str, ...], message: str) -> None:
    places = {"ANIMALS": str(place.folder), "W": str(place.workspace), "testset:ANIMALS": f"testset:{place.folder}"}
    result = call("testset", "follow-up", *(places.get(argument, argument) for argument in arguments))
    assert result.exit_code != 0
    assert message in result.output + str(result.exception)


@pytest.mark.parametrize("command", ["discriminator", "splits", "balance", "hard", "human", "revisions"])
def test_help_teaches(command: str) -> None:
    help_text = run("follow-up", command, "--help")
    assert f"shiftbench testset follow-up {command} " in help_text and "--json" in help_text


def test_study(place: Place, tmp_path: Path) -> None:
    """The numbers are those of the stored predictions, and everything is in one page and one folder."""
    page = tmp_path / "study.html"
    parts = tmp_path / "parts"
    run("follow-up", "revisions", place.folder, RESNET, "-w", place.workspace, "-q")
    output = data("study", place.folder, "-w", place.workspace, "-o", page, "--parts", parts)
    (row,) = output["summary"]["rows"]
    with opened(place.folder, None) as project:
        new = predictions_on(project, SET, place.workspace, "images")
        old = predictions_on(project, SET, place.workspace, "reference")
        frozen = require_frozen(project, SET, "a test")
    change = np.mean([model.correct.mean() for model in new]) - np.mean([model.correct.mean() for model in old])
    assert row["top1"] == pytest.approx(change) and row["models"] == 2 and row.get("top5") is None
    shares = frozen.open().metadata["selection_frequency"]
    assert row["frequency"] == pytest.approx(np.mean([share for share in shares if share is not None]))
    accuracies = {row["model"]: row["new"] for row in output[f"{SET}: top-1 accuracy"]["models"]}
    assert accuracies == {model.classifier: pytest.approx(model.correct.mean()) for model in new}
    bins = output[f"{SET}: accuracy by selection frequency"]["bins"]
    assert sum(row["images"] for row in bins if row["model"] == "mirrored") == len(frozen.open())
    assert [row["n"] for row in output[f"{SET}: impact of revisions, top-1"]["rows"]] == [90, 90]
    assert any("line of revision 2" in note for note in output["notes"]), "one model makes no line"
    assert any("revisions not evaluated for mirrored" in note for note in output["notes"])
    alone = data("study", place.folder, "-w", place.workspace, "--classifier", "mirrored")["notes"]
    assert any("linear line" in note for note in alone) and not any("figure" in note for note in alone)
    text = page.read_text()
    assert "Which is the original?" in text and "<details>" in text and "http" not in text.replace("http-equiv", "")
    assert text.count("data:image/png") >= 3 and text.count("data:image/webp") > 50
    assert {path.suffix for path in parts.iterdir()} == {".csv", ".svg"} and (parts / "table-2.csv").is_file()


def test_study_draws_the_revisions(place: Place, tmp_path: Path) -> None:
    """004 figures 7 and 8: accuracy by revision, and accuracy on revisions against the references."""
    workspace = tmp_path / "w"
    parts = tmp_path / "parts"
    page = tmp_path / "study.html"
    resnet8 = sb.load_classifier(RESNET)
    changes = {"mirrored": lambda x: x[:, :, ::-1], "dark": lambda x: x // 2, "upside-down": lambda x: x[:, ::-1]}
    models = [
        sb.load_classifier(
            lambda x, change=change: resnet8.scores(np.ascontiguousarray(change(x))),
            name=name,
            labels="cifar-10",
            preprocessing=resnet8.preprocessing,
        )
        for name, change in changes.items()
    ]
    sb.evaluate([resnet8, *models], f"testset:{place.folder}", workspace=workspace, progress=False)
    with opened(place.folder, None) as project:
        union, images = all_revisions_dataset(project, SET)
        sb.evaluate(
            [resnet8, *models],
            [Setting(union.name, union.name)],
            {union.name: union},
            workspace=workspace,
            progress=False,
        )
        study = study_sets(project, workspace)
    assert not [note for note in study.notes if "revision" in note]
    by_revision = study.figures[f"{SET}: accuracy by revision"]
    rows = study.tables[f"{SET}: impact of revisions, top-1"].rows
    lines: Any
    changed: Any
    lines, changed = by_revision.axes
    drawn = [line.get_ydata().tolist() for line in lines.lines]
    assert drawn == [pytest.approx([100 * item["accuracy"] for item in rows[i : i + 2]]) for i in range(0, 8, 2)]
    assert [bar.get_height() for bar in changed.patches] == [len({*images["2"]} - {*images["1"]})] == [4]
    for scale in ("linear", "probit"):
        figure = study.figures[f"{SET}: revisions and the original set, top-1, {scale}"]
        assert [axes.get_ylabel() for axes in figure.axes] == ["revision 1 accuracy (%)", "revision 2 accuracy (%)"]
        assert all(np.vstack([item.get_offsets() for item in a.collections[-2:]]).shape == (4, 2) for a in figure.axes)
    assert len(study.tables[f"{SET}: lines of the revisions"].rows) == 4
    names = {path.name for path in study.write_folder(parts)}
    assert {f"{SET}-accuracy-by-revision.svg", f"{SET}-revisions-and-the-original-set-top-1-probit.svg"} <= names
    assert "accuracy by revision</h2><img" in study.write_html(page).read_text()


def test_bins_accept_what_the_project_writes(place: Place, tmp_path: Path) -> None:
    table = tmp_path / "frequencies.csv"
    run("frequencies", place.folder, "-o", table)
    done = call("study", "bins", "-w", place.workspace, "-s", "pets-top-images", "--frequencies", table, "--json")
    assert done.exit_code == 0, done.output
    study_bins = data("study", place.folder, "-w", place.workspace)[f"{SET}: accuracy by selection frequency"]["bins"]
    assert json.loads(done.stdout)["bins"] == study_bins
