"""A lead who makes every mistake in turn, and follows the advice of each error to a frozen set and its study."""

from __future__ import annotations

import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import shiftbench as sb
from shiftbench.errors import ShiftbenchError
from shiftbench.labels import LabelSpace
from shiftbench.testsets import freeze as freeze_module
from shiftbench.testsets.accounts import create_account, enter_by_link
from shiftbench.testsets.annotation import next_task, submit
from shiftbench.testsets.followups.splits import Split
from shiftbench.testsets.freeze import DEFECTS
from shiftbench.testsets.pool.entries import import_images
from shiftbench.testsets.project import Project
from shiftbench.testsets.review import mark
from shiftbench.testsets.revisions import revision_images
from shiftbench.testsets.tasks import make_tasks
from tests.commands import answer, call, output
from tests.hints import all_hints, commands_in, options_in
from tests.testsets.helpers import annotators, entries_behind, small_configuration, truthful, work

HINTS = {hint.key: hint for hint in all_hints()}
#: The hints that the first walk below meets and follows.
FOLLOWED_FIRST = {
    "testsets/collection.py::cancel",
    "testsets/configuration.py::read_configuration",
    "testsets/freeze.py::_check_defects",
    "testsets/freeze.py::_check_defects#2",
    "testsets/freeze.py::_check_defects#3",
    "testsets/freeze.py::require_frozen",
    "testsets/freeze.py::predictions_on",
    "testsets/frozen.py::frozen_sets",
    "testsets/frozen.py::one_frozen#2",
    "testsets/pool/suspects.py::_search_pool",
    "testsets/revisions.py::find_row",
    "testsets/study.py::_evaluated_sets",
    "testsets/study.py::_evaluated_sets#2",
    "testsets/tasks.py::_too_few",
}
#: Those of the second walk.
FOLLOWED_LATER = {
    "testsets/database.py::damaged_error",
    "testsets/followups/annotator_test.py::annotator_test",
    "testsets/followups/annotator_test.py::annotator_test#2",
    "testsets/followups/hard_images.py::human_accuracy_of",
    "testsets/followups/hard_images.py::human_accuracy_of#2",
    "testsets/followups/splits.py::open_split",
    "testsets/freeze.py::_check_current",
    "testsets/freeze.py::_freeze#2",
    "testsets/sampling.py::sample#2",
}
FOLLOWED = FOLLOWED_FIRST | FOLLOWED_LATER
COLOURS = ("red", "green", "blue")
MODEL = """
import shiftbench as sb

def bright():
    return sb.load_classifier(
        lambda images: images.mean(axis=(1, 2)), name="bright", labels=["red", "green", "blue"],
        preprocessing=sb.Preprocessing(sb.Geometry(32, 32)),
    )

def backwards():
    return lambda images: images.mean(axis=(1, 2))[:, ::-1]
"""


def write_images(folder: Path, per_class: int, seed: int) -> None:
    """Noise of one colour: no image looks like another."""
    draws = np.random.default_rng(seed)
    for channel, name in enumerate(COLOURS):
        (folder / name).mkdir(parents=True)
        for number in range(per_class):
            coarse = draws.integers(0, 120, (4, 4, 3)).astype(np.uint8)
            coarse[:, :, channel] += 120
            image = Image.fromarray(coarse).resize((48, 48), Image.Resampling.BICUBIC)
            image.save(folder / name / f"{seed}-{number}.png")


class Walk:
    """Commands with an error, whose advice is followed."""

    def __init__(self) -> None:
        self.met: set[str] = set()

    def error(self, key: str, *words: object) -> str:
        """The hint of a command that fails, which must be the hint of that key."""
        done = call(*words)
        assert isinstance(done.exception, ShiftbenchError), (words, done.output, done.exception)
        return self.checked(key, done.exception)

    def checked(self, key: str, error: ShiftbenchError) -> str:
        """The hint of an error, which must be the hint of that key."""
        hint = str(error.hint)
        assert HINTS[key].fits(hint), (key, error)
        self.met.add(key)
        return hint

    def follow(self, key: str, *words: object, more: tuple[object, ...] = (), **values: object) -> None:
        """Run the command of the hint, with ``more`` behind it."""
        [command, *_] = commands_in(self.error(key, *words), {name: str(value) for name, value in values.items()})
        output(*command, *more)


def test_the_advice_leads_from_an_empty_folder_to_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_images(tmp_path / "new", 12, seed=1)
    write_images(tmp_path / "more", 12, seed=2)
    write_images(tmp_path / "old", 8, seed=3)
    (tmp_path / "model.py").write_text(MODEL)
    Path("classes.csv").write_text("key,name\n" + "".join(f"{name},{name}\n" for name in COLOURS))
    walk = Walk()

    # No project yet. The advice names CIFAR-10's classes as an example; the lead has others.
    hint = walk.error("testsets/configuration.py::read_configuration", "testset", "status", "lab")
    [command] = commands_in(hint, {"cifar-10": "classes.csv"})
    output(*command, "--annotators", "2", "--grid", "12")
    output("testset", "status", "lab")

    walk.follow(
        "testsets/pool/suspects.py::_search_pool",
        "testset",
        "dedupe",
        "lab",
        "-q",
        DIR="lab",
        SOURCE="new",
        more=("-q",),
    )
    hint = walk.error("testsets/tasks.py::_too_few", "testset", "tasks", "lab")
    [command, *_] = commands_in(hint.partition(", or lower")[0], {"DIR": "lab", "DATA": "old"})
    output(*command, "-q")
    output("testset", "tasks", "lab")

    hint = walk.error("testsets/collection.py::cancel", "testset", "cancel", "lab", "999999", "--because", "a mistake")
    [command] = commands_in(hint, {"DIR": "lab", "FILE": "answers.csv"})
    output(*command)
    assert Path("answers.csv").is_file()

    # Nothing is sampled yet; afterwards the set is not frozen.
    project = Project.open(tmp_path / "lab")
    links = answer("testset", "invite", "lab", "anna", "--people", 2, "--base", "https://lab.example/")
    people = [enter_by_link(project, link["link"].rpartition("/")[2])[0].id for link in links]
    work(project, people, truthful)
    walk.follow(
        "testsets/revisions.py::find_row",
        "testset",
        "freeze",
        "lab",
        "--set",
        "matched-frequency",
        DIR="lab",
        more=("--per-class", "14", "--option", "min_annotations=2", "--option", "min_references=2"),
    )
    named = ("--set", "matched-frequency")
    walk.error("testsets/frozen.py::frozen_sets", "eval", "model.py:bright", "--suite", "testset:lab", "-q")
    walk.error("testsets/study.py::_evaluated_sets", "testset", "study", "lab", "-w", "w")
    balance = ("testset", "follow-up", "balance", "lab", "-w", "w", *named)
    hint = walk.error("testsets/freeze.py::require_frozen", *balance)
    [freeze] = commands_in(hint, {"DIR": "lab"})

    # The defects, one after the other: each error names the option that allows it, and a better way.
    allowed: list[object] = []
    for key in ("_check_defects", "_check_defects#2", "_check_defects#3"):
        hint = walk.error(f"testsets/freeze.py::{key}", *freeze, *allowed)
        [option] = [option for option in options_in(hint, {}) if option[0] == "--allow"]
        allowed += option
    output(*freeze, *allowed)

    with pytest.raises(ShiftbenchError) as error:
        sb.open_dataset("testset:lab", set="other")
    hint = walk.checked("testsets/frozen.py::one_frozen#2", error.value)
    [folder] = re.findall(r"testset:\S+?(?=,)", hint)
    assert len(sb.open_dataset(folder)) > 0
    # A workspace without results on the set, and then with results over other classes.
    output("eval", "model.py:bright", "--data", "old", "-w", "w", "-q")
    hint = walk.error("testsets/study.py::_evaluated_sets#2", "testset", "study", "lab", "-w", "w")
    [command] = commands_in(hint, {"MODEL": "model.py:bright"})
    Path("others.txt").write_text("blue\ngreen\nred\n")
    output("eval", "model.py:backwards", *command[2:], "--labels", "others.txt", "-q")
    hint = walk.error("testsets/freeze.py::predictions_on", *balance)
    assert "without --labels" in hint
    output(*command, "-q")
    output(*balance, "-c", "bright")
    output("testset", "study", "lab", "-w", "w", "-c", "bright")
    assert walk.met == FOLLOWED_FIRST


def test_the_advice_about_sets_that_change_and_people_who_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_images(tmp_path / "new", 8, seed=4)
    write_images(tmp_path / "old", 8, seed=5)
    (tmp_path / "model.py").write_text(MODEL)
    space = LabelSpace("colours", COLOURS)
    project = Project.create(tmp_path / "lab", small_configuration(space).with_rules(annotators=3))
    import_images(project, sb.open_dataset("new", labels=space))
    import_images(project, sb.open_dataset("old", labels=space), "reference")
    make_tasks(project)
    work(project, annotators(project, 2))
    walk = Walk()
    named = ("--set", "top-images")
    enough = ("--option", "min_annotations=2")
    draw = ("testset", "sample", "lab", *named, "--strategy", "top-images", "--per-class", "6", *enough)

    # The strategy of CIFAR-10.1 needs the keyword of each reference.
    sample = ("testset", "sample", "lab", "--set", "keywords", "--strategy", "keywords", "--per-class", "2")
    by_keyword = (*sample, *enough)
    files = sorted([*Path("old").rglob("*.png"), *Path("new").rglob("*.png")])
    rows = [f"{path},{path.parent.name},bright" for path in files]
    Path("tiny.csv").write_text("path,label,keyword\n" + "\n".join(rows) + "\n")
    hint = walk.error("testsets/sampling.py::sample#2", *by_keyword)
    [command] = commands_in(hint, {"DIR": "lab", "DATASET": "tiny.csv"})
    output(*command)
    output(*by_keyword)

    # An image is found to be unfit after the sample was drawn.
    output(*draw)
    mark(project, revision_images(project, "top-images")[0].entry, "blacklist", "a drawing")
    allowed = [word for defect in DEFECTS for word in ("--allow", defect)]
    freeze = ("testset", "freeze", "lab", *named, *allowed)
    walk.follow("testsets/freeze.py::_check_current", *freeze, DIR="lab")

    # Somebody answers while the files are written. Nobody can once the project is closed.
    fill_files = freeze_module._fill

    def fill_late(*arguments: Any) -> None:
        fill_files(*arguments)
        work(project, [create_account(project, "late", "annotator").id])

    monkeypatch.setattr(freeze_module, "_fill", fill_late)
    hint = walk.error("testsets/freeze.py::_freeze#2", *freeze)
    monkeypatch.setattr(freeze_module, "_fill", fill_files)
    [command] = commands_in(hint, {"DIR": "lab"})
    output(*command)
    output(*draw)
    output(*freeze)

    # People: a test of annotators, and a study of hard images.
    test_result = ("testset", "follow-up", "test-result")
    hint = walk.error("testsets/followups/annotator_test.py::annotator_test", *test_result, "lab")
    [command] = commands_in(hint, {"DIR": "lab", "DATASET": "old", "FOLDER": "people"})
    output(*command, "--per-class", "2", "--participants", "2")
    walk.follow("testsets/followups/annotator_test.py::annotator_test#2", *test_result, "people")
    choose_classes(tmp_path / "people")
    assert "anna" in output(*test_result, "people")
    human = ("testset", "follow-up", "human")
    hint = walk.error("testsets/followups/hard_images.py::human_accuracy_of", *human, "lab")
    output("eval", "model.py:bright", "--suite", "testset:lab", "-w", "w", "-q")
    [command] = commands_in(hint, {"DIR": "lab", "WORKSPACE": "w", "FOLDER": "study"})
    output(*command, *named, "--participants", "2")
    walk.follow("testsets/followups/hard_images.py::human_accuracy_of#2", *human, "study")
    choose_classes(tmp_path / "study")
    output(*human, "study")

    # A split without its data, and one that knows them.
    Split("own", 0, ("a",), (), ("b",)).write("own.json")
    with pytest.raises(ShiftbenchError) as error:
        sb.open_dataset("split:own.json")
    assert "--write" in walk.checked("testsets/followups/splits.py::open_split", error.value)
    words = ("testset", "follow-up", "splits", "new", "old", "--labels", "folders", "--folds", "2", "-q")
    output(*words, "--write", "splits")
    assert len(sb.open_dataset("split:splits/split-1.json", labels="folders")) == 24 + 12

    # Somebody changes the database by hand, and restores it.
    project.close()
    shutil.copytree("lab", "backup")
    with sqlite3.connect("lab/testset.sqlite") as database:
        database.execute("UPDATE entries SET selected = selected + 1 WHERE id = 1")
    database.close()
    hint = walk.error("testsets/database.py::damaged_error", "testset", "frequencies", "lab")
    [command] = commands_in(hint, {"DIR": "lab"})
    assert call(*command).exit_code == 1
    shutil.rmtree("lab")
    shutil.copytree("backup", "lab")
    output("testset", "frequencies", "lab")
    assert walk.met == FOLLOWED_LATER


def choose_classes(folder: Path) -> None:
    """Somebody who chooses the right class for each image of a project."""
    project = Project.open(folder)
    person = create_account(project, "anna", "annotator").id
    while (grid := next_task(project, person)) is not None:
        entries = entries_behind(project, grid)
        submit(project, person, grid.task, {image: str(entries[image].class_key) for image in grid.images})
    project.close()
