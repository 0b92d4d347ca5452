"""Models that have only some of the classes of a suite: what they can be scored on is evaluated, the rest is named."""

from __future__ import annotations

from pathlib import Path

import pytest

import shiftbench as sb
from shiftbench.errors import MissingClassesError
from shiftbench.settings.base import LeftOut, build_suite
from tests.commands import answer, call, output
from tests.test_suites_end_to_end import IMAGENET, MODEL, imagenet

ONLY_A = "sb.label_space('imagenet-a-200')"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ImageNet's test sets in small, a model of all classes and a model of the 200 classes of ImageNet-A."""
    root = tmp_path_factory.mktemp("classes")
    imagenet(root / "trees")
    (root / "full.py").write_text(MODEL.format(space=IMAGENET))
    (root / "few.py").write_text(MODEL.format(space=ONLY_A))
    return root


@pytest.fixture(scope="module")
def run(place: Path) -> sb.Run:
    models = [f"{place}/full.py:first", f"{place}/few.py:second"]
    return sb.evaluate(models, "imagenet-a", place / "trees", place / "w", progress=False)


def test_a_model_of_200_classes_is_scored_on_its_classes(run: sb.Run) -> None:
    settings = {(result.classifier, result.setting) for result in run.results}
    assert ("second", "imagenet-a") in settings
    assert ("second", "val-on-imagenet-a-classes") in settings
    assert ("second", "imagenet-a.unmasked") not in settings
    assert ("first", "imagenet-a.unmasked") in settings


def test_what_was_left_out_is_data(run: sb.Run) -> None:
    [omission] = run.settings_left_out
    assert omission == LeftOut("imagenet-a.unmasked", omission.reason, model="second", missing_classes=800)
    assert run.left_out == {"imagenet-a.unmasked (second)": omission.reason}
    assert run.summary()["settings_left_out"] == [omission.as_dict()]


def test_the_command_line_names_it(place: Path) -> None:
    data = ["--suite", "imagenet-a", "--data", place / "trees"]
    done = call("eval", place / "few.py:second", *data, "-w", place / "w2")
    assert done.exit_code == 0
    assert "imagenet-a.unmasked" in done.stderr
    again = call("eval", place / "few.py:second", *data, "-w", place / "w2")
    assert again.exit_code == 0


def test_a_dry_run_names_every_setting_that_will_be_left_out(place: Path) -> None:
    trees = place / "trees"
    words = ["eval", place / "few.py:second", "--suite", "natural", "--dry-run", "-w", place / "w3"]
    words += ["--data", f"imagenet-val={trees}/imagenet-val", "--data", f"imagenet-a={trees}/imagenet-a"]
    planned = answer(*words)
    left_out = {omission["setting"]: omission for omission in planned["left_out"]}
    evaluated = {setting["name"] for setting in planned["settings"]}
    assert evaluated == {"imagenet-a", "val-on-imagenet-a-classes"}
    suite = build_suite("natural")
    assert set(left_out) | evaluated == {setting.name for setting in suite.settings}
    assert left_out["val"]["missing_classes"] == 800 and left_out["val"]["model"] == "second"
    assert left_out["imagenet-r"]["model"] is None and left_out["imagenet-r"]["missing_classes"] == 0
    text = output(*words)
    assert all(name in text for name in left_out)
    assert not (place / "w3").exists()


def test_a_model_that_fits_no_setting_is_refused(place: Path) -> None:
    models = [f"{place}/full.py:first", f"{place}/few.py:second"]
    with pytest.raises(MissingClassesError) as caught:
        sb.evaluate(models, "imagenet", place / "trees", place / "w4", progress=False)
    assert caught.value.missing == 800
    assert caught.value.hint is not None
