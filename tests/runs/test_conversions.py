"""Conversions of images are counted by kind, in Python as on the command line; exif= and alpha= state what is done."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import shiftbench as sb
from shiftbench.arrays import Pixels
from shiftbench.classifiers import load_classifier
from shiftbench.labels.space import Scores
from tests.commands import call

ORIENTATION = 0x112
STATED = {"size": 8, "resize": "squash", "interpolation": "box"}


def bright_half(images: Pixels) -> Scores:
    """Whether the left half or the right half is brighter."""
    half = images.shape[2] // 2
    return np.stack([images[:, :, :half].mean((1, 2, 3)), images[:, :, half:].mean((1, 2, 3))], 1).astype(np.float32)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Images whose left or right half is bright; some are stored upside down, some bright halves are transparent."""
    for side, name in enumerate(("left", "right")):
        folder = tmp_path / "photos" / name
        folder.mkdir(parents=True)
        pixels = np.full((8, 8, 3), 40, np.uint8)
        pixels[:, 4 * side : 4 * side + 4] = 200
        for number in range(6):
            own = pixels + np.uint8(number)
            exif = Image.Exif()
            image = Image.fromarray(own)
            if number < 2:
                exif[ORIENTATION] = 3
                image = image.transpose(Image.Transpose.ROTATE_180)
            if number == 5:
                # What is dark is transparent, and white below.
                image.putalpha(Image.fromarray(np.where(own[..., 0] > 100, 255, 0).astype(np.uint8)))
            image.save(folder / f"{number}.png", exif=exif)
        Image.fromarray(pixels).convert("CMYK").save(folder / "cmyk.jpg")
    return tmp_path / "photos"


def evaluated(photos: Path, workspace: Path, **options: Any) -> sb.Run:
    preprocessing = STATED | options.pop("stated", {})
    options = {"labels": "folders", "progress": False, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sb.evaluate(bright_half, data=photos, workspace=workspace, preprocessing=preprocessing, **options)


def conversions(run: sb.Run) -> list[sb.ResultWarning]:
    return [warning for warning in run.warnings() if warning.code in ("unstated-decoding", "converted-images")]


def test_conversions_are_counted_by_kind_and_strict_until_they_are_stated(photos: Path, tmp_path: Path) -> None:
    run = evaluated(photos, tmp_path / "w")
    [warning] = conversions(run)
    assert warning.code == "unstated-decoding" and not warning.is_note
    assert str(warning).endswith("...,exif=apply,alpha=white')")
    for count in ("EXIF orientation not applied: 4", "alpha dropped: 2", "CMYK to RGB: 2"):
        assert count in str(warning)
    assert "0.png" not in str(warning)
    [facts] = run.model_facts().values()
    assert facts.assumed == ["exif", "alpha"]
    assert "†" in str(run.table()) and "exif and alpha of" in str(run.table())
    assert len([problem for problem in run.problems() if problem["action"] == "converted"]) == 8
    with pytest.raises(sb.StrictRunError) as failed:
        evaluated(photos, tmp_path / "w", strict=True)
    assert [one.code for one in failed.value.warnings if not one.is_note] == ["unstated-decoding"]
    # Half of it is stated.
    with pytest.raises(sb.StrictRunError):
        evaluated(photos, tmp_path / "w", strict=True, stated={"exif": "ignore"})
    [facts] = sb.Run.open(tmp_path / "w").model_facts().values()
    assert facts.assumed == ["alpha"]
    usual = evaluated(photos, tmp_path / "w", strict=True, stated={"exif": "ignore", "alpha": "drop"})
    assert [result.key for result in usual.results] == [result.key for result in run.results]
    [note] = conversions(usual)
    assert note.code == "converted-images" and note.is_note
    # Stated once, it holds for the model.
    assert [facts.assumed for facts in sb.Run.open(tmp_path / "w").model_facts().values()] == [[]]
    assert [conversion.code for conversion in conversions(sb.Run.open(tmp_path / "w"))] == ["converted-images"]


def test_numbers_are_those_of_the_treatment_that_is_stated(photos: Path, tmp_path: Path) -> None:
    accuracies = {}
    keys = {}
    for exif in ("ignore", "apply"):
        for alpha in ("drop", "white", "black"):
            run = evaluated(photos, tmp_path / "w", strict=True, stated={"exif": exif, "alpha": alpha})
            accuracies[exif, alpha] = run.metrics()["photos/top1"]
            keys[exif, alpha] = run.results[0].spec.geometry.values
    assert accuracies["apply", "drop"] == accuracies["apply", "black"] == 1
    assert accuracies["ignore", "drop"] == pytest.approx(10 / 14)
    assert accuracies["apply", "white"] == pytest.approx(12 / 14)
    assert {"exif", "alpha"}.isdisjoint(keys["ignore", "drop"])
    assert keys["apply", "white"]["exif"] == "apply" and keys["apply", "white"]["alpha"] == "white"
    assert "exif" not in keys["ignore", "black"]


def test_two_models_of_one_run_read_the_same_files_differently(photos: Path, tmp_path: Path) -> None:
    run = sb.evaluate(
        [bright_half, bright_half],
        data=photos,
        workspace=tmp_path / "w",
        labels="folders",
        progress=False,
        name=["stored", "upright"],
        preprocessing=[STATED | {"exif": which} for which in ("ignore", "apply")],
    )
    values = {model: score.value for model, _, score in run.scores("top1")}
    assert values["upright"] == 1 and values["stored"] == pytest.approx(10 / 14)
    [warning] = conversions(run)
    treatments = "EXIF orientation not applied for some models, EXIF orientation applied for others: 4"
    assert treatments in str(warning)


def test_the_command_line_prints_the_counts_and_no_file_names(photos: Path, tmp_path: Path) -> None:
    model = tmp_path / "own.py"
    model.write_text(
        "import numpy as np\ndef classifier():\n    def f(images):\n        half = images.shape[2] // 2\n"
        "        sides = images[:, :, :half], images[:, :, half:]\n"
        "        return np.stack([side.mean((1, 2, 3)) for side in sides], 1)\n    return f\n"
    )
    stated = "size=8,resize=squash,interpolation=box"
    words = ["eval", model, "--data", photos, "-w", tmp_path / "w", "--labels", "folders", "--preprocess"]
    printed = call(*words, stated)
    assert (printed.output + printed.stderr).replace("\n", " ").count("EXIF orientation not applied: 4") >= 1
    assert "5.png" not in printed.output + printed.stderr
    # --quiet is about progress bars: a number that may be wrong keeps its warning.
    quiet = call(*words, stated, "-q")
    assert "EXIF orientation not applied: 4" in quiet.stderr.replace("\n", " ")
    assert call(*words, stated, "--strict").exit_code == 3
    assert call(*words, f"{stated},exif=apply,alpha=drop", "--strict").exit_code == 0


def test_facts_tell_what_is_stated_from_the_default() -> None:
    classifier = load_classifier(bright_half, labels=["a", "b"], preprocessing=STATED | {"exif": "ignore"})
    sources = {fact.name: (fact.value, fact.source) for fact in classifier.facts}
    assert sources["exif"] == ("ignore", "given")
    assert sources["alpha"] == ("drop", "default")
    assert json.loads(json.dumps(classifier.preprocessing.describe()))["geometry"].keys().isdisjoint({"exif", "alpha"})
