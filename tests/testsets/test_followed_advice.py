"""A lead who makes every mistake in turn, and follows the advice of each error to a frozen set and its study."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import shiftbench as sb
from shiftbench.errors import ShiftbenchError
from shiftbench.testsets.accounts import enter_by_link
from shiftbench.testsets.project import Project
from tests.commands import answer, call, output
from tests.hints import all_hints, commands_in, options_in
from tests.testsets.helpers import truthful, work

HINTS = {hint.key: hint for hint in all_hints()}
#: The hints that the walk below meets and follows.
FOLLOWED = {
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
    assert walk.met == FOLLOWED
