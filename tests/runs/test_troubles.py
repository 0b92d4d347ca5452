"""A failure belongs to the classifier that failed: the others complete, and the report says who, where and why."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import shiftbench as sb
from shiftbench.api import IncompleteRunError
from shiftbench.jobs.base import TRIES
from shiftbench.settings.base import Setting
from shiftbench.shifts.base import Shift
from tests.commands import call
from tests.runs.helpers import COLOURS, Broken, brightest_channel, colour_folder, darkest_channel
from tests.runs.test_evaluate import as_classifier, run_small, stored


class ThrowsOn:
    """Throws on every batch that holds a picture of this mean colour, as often as ``times``."""

    def __init__(self, image: NDArray[np.uint8], log: Path, times: int = 10_000) -> None:
        self.poison = image
        self.log = log
        self.times = times

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        if any(np.array_equal(image, self.poison) for image in images):
            # Kept in a file: the classifier may live in several processes.
            seen = len(self.log.read_text()) if self.log.exists() else 0
            self.log.write_text("x" * (seen + 1))
            if seen < self.times:
                raise ValueError("the bottom of the sea")
        return brightest_channel(images)


class KillsItsWorker(ThrowsOn):
    """As an out-of-memory killer does it."""

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        if any(np.array_equal(image, self.poison) for image in images):
            os.kill(os.getpid(), signal.SIGKILL)
        return brightest_channel(images)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return colour_folder(tmp_path_factory.mktemp("data") / "pictures")


@pytest.fixture(scope="module")
def poison(pictures: Path) -> NDArray[np.uint8]:
    dataset = sb.open_dataset(pictures, space=COLOURS)
    return as_classifier(brightest_channel, "any").preprocessing.geometry(dataset.read(21).pixels)


@pytest.fixture(scope="module")
def expected(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What the two good classifiers give when nobody fails."""
    root = tmp_path_factory.mktemp("alone")
    with pytest.warns(UserWarning):
        run_small(pictures, root, functions=GOOD)
    return stored(root)


GOOD: dict[str, Any] = {"bright": brightest_channel, "dark": darkest_channel}


@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_others_complete_and_the_report_names_classifier_images_and_cause(
    pictures: Path, tmp_path: Path, poison: NDArray[np.uint8], expected: dict[str, bytes], engine: str
) -> None:
    functions = {**GOOD, "bad": ThrowsOn(poison, tmp_path / "log")}
    with pytest.raises(IncompleteRunError) as caught:
        run_small(pictures, tmp_path / "w", functions=functions, executor=engine, workers=2)
    text = str(caught.value)
    assert "1 of 15 results" in text, "only the setting whose pictures hold the poisoned one fails"
    assert "classifier 'bad' failed on 15 images" in text and "'green/00" in text and "bottom of the sea" in text
    assert "bright" not in text and "dark" not in text
    assert (tmp_path / "log").read_text() == "x" * TRIES
    found = stored(tmp_path / "w")
    assert {name: data for name, data in found.items() if not name.startswith("bad/")} == expected
    assert {result.classifier for result in caught.value.run.results} == {"bad", "bright", "dark"}
    assert len(caught.value.run.results) == 14

    # Fixed, the same call computes the one missing block and no more.
    (tmp_path / "log").write_text("x" * 10_000)
    with pytest.warns(UserWarning):
        run = run_small(pictures, tmp_path / "w", functions=functions, workers=2)
    assert len(run.results) == 15 and not list((tmp_path / "w" / "shards").rglob("*.parquet"))


def test_what_fails_less_often_than_three_times_comes_through(
    pictures: Path, tmp_path: Path, poison: NDArray[np.uint8]
) -> None:
    flaky = ThrowsOn(poison, tmp_path / "log", times=TRIES - 1)
    run = run_small(pictures, tmp_path / "w", functions={"flaky": flaky}, suite="clean", workers=1)
    assert (tmp_path / "log").read_text() == "x" * TRIES
    whole = run_small(pictures, tmp_path / "whole", functions={"never": brightest_channel}, suite="clean")
    np.testing.assert_array_equal(run.predictions().top, whole.predictions().top)
    np.testing.assert_array_equal(run.predictions().confidence, whole.predictions().confidence)


def test_a_block_that_kills_its_worker_is_given_up_alone(
    pictures: Path, tmp_path: Path, poison: NDArray[np.uint8]
) -> None:
    """Which of the blocks under way is guilty can't be seen from outside; the innocent ones must not be given up."""
    functions = {"deadly": KillsItsWorker(poison, tmp_path / "log")}
    with pytest.raises(IncompleteRunError, match="its worker process died") as caught:
        run_small(pictures, tmp_path / "w", functions=functions, suite="clean", executor="processes", workers=2)
    assert len(caught.value.failures) == 1
    item = caught.value.failures[0].item
    assert item.start <= 21 < item.stop
    shards = {int(path.stem) for path in (tmp_path / "w" / "shards").rglob("*.parquet")}
    assert shards == {0, 15, 30, 45} - {item.start}


def test_a_shift_that_fails_takes_only_its_own_settings_with_it(pictures: Path, tmp_path: Path) -> None:
    suite = [Setting("clean", "data"), Setting("broken", "data", Broken())]
    with pytest.raises(IncompleteRunError, match="shift 'broken' failed on 15 images") as caught:
        run_small(pictures, tmp_path / "w", suite=suite)
    assert [result.setting for result in caught.value.run.results] == ["clean"]


def test_the_command_shows_what_is_complete_before_it_says_what_is_not(pictures: Path, tmp_path: Path) -> None:
    # Folders stand in the order of their names: blue, green, red.
    (tmp_path / "models.py").write_text(
        "import numpy as np\n\n"
        "def good():\n    def good_one(images):\n"
        "        return images.mean(axis=(1, 2)).astype(np.float32)[:, ::-1]\n    return good_one\n\n"
        "def bad():\n    def bad_one(images):\n"
        "        if len(images) > 4:  # a few images are tried before the run\n"
        "            raise ValueError('the bottom of the sea')\n"
        "        return images.mean(axis=(1, 2))\n    return bad_one\n"
    )
    models = [f"{tmp_path / 'models.py'}:{name}" for name in ("good", "bad")]
    options = ["--data", str(pictures), "--labels", "folders", "-w", str(tmp_path / "w"), "--trust", "-q"]
    result = call("eval", *models, *options)
    assert result.exit_code == 1 and isinstance(result.exception, IncompleteRunError)
    assert "100.0" in result.stdout and "models.bad" not in result.stdout
    assert "1 of 2 results" in str(result.exception) and "bottom of the sea" in str(result.exception)


def shift_with_a_bug() -> Shift:
    """A shift as one of this package, whose code raises what is no message for users."""
    namespace: dict[str, Any] = {"__name__": "shiftbench.shifts.leaking", "Broken": Broken}
    exec(
        "class Leaking(Broken):\n    def __call__(self, image, *, image_id, seed):\n        return {}['a leak']",
        namespace,
    )
    shift: Shift = namespace["Leaking"]()
    return shift


def test_a_bug_of_this_package_is_reported_as_one(pictures: Path, tmp_path: Path) -> None:
    """Users can't fix the cause; the traceback to report is below the error's own."""
    suite = [Setting("clean", "data"), Setting("leaking", "data", shift_with_a_bug())]
    with pytest.raises(IncompleteRunError) as caught:
        run_small(pictures, tmp_path, suite=suite)
    assert caught.value.failures[0].problem.bug
    assert caught.value.hint is not None and "--debug" in caught.value.hint and "fix the cause" not in caught.value.hint
    [note] = caught.value.__notes__
    assert note.startswith("Traceback") and "KeyError: 'a leak'" in note


def test_errors_of_models_and_plug_ins_are_no_bugs_of_this_package(
    pictures: Path, tmp_path: Path, poison: NDArray[np.uint8]
) -> None:
    with pytest.raises(IncompleteRunError) as caught:
        run_small(pictures, tmp_path / "w", functions={"bad": ThrowsOn(poison, tmp_path / "log")}, suite="clean")
    assert not caught.value.failures[0].problem.bug
    assert not hasattr(caught.value, "__notes__")
