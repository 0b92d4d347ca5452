"""The page's first section: facts, images of the worst corruptions, confusions; and published models on its axes."""

from __future__ import annotations

from pathlib import Path

import pytest

import shiftbench as sb
from shiftbench.labels.space import LabelSpace
from shiftbench.reports.page.sections import summary
from tests.reports.page.making import grid_of, page_of
from tests.reports.recorded import record

V2 = "imagenetv2-matched-frequency-format-val"


def test_worst_corruptions_have_images_without_being_asked(run: sb.Run) -> None:
    part = summary.SECTION.of(page_of(run))
    assert part is not None and [model["model"] for model in part["models"]] == run.classifiers
    for one in part["models"]:
        assert one["classes"] == ["red", "green", "blue"]
        assert sum(map(sum, one["matrix"])) == 36
        images = [image for worst in one["worst"] for image in worst["images"]]
        assert len(one["worst"]) == 3 and len(images) >= 3
        for image in images:
            assert (image["original"] or "").startswith("data:image/webp")
            assert (image["shifted"] or "").startswith("data:image/webp")
        assert one["model"] == "bright" or any(image["label"] != image["prediction"] for image in images)
    assert all(command.startswith("shiftbench ") for command in part["commands"])


def test_many_classes_have_a_list_of_confusions(tmp_path: Path) -> None:
    for size, shown in ((50, 50), (51, 0)):
        space = LabelSpace(f"c{size}", tuple(f"class{i}" for i in range(size)))
        record(tmp_path / str(size), "own", 200, 100, space=space)
        part = summary.SECTION.of(page_of(sb.Run.open(tmp_path / str(size))))
        assert part is not None
        [one] = part["models"]
        assert len(one["classes"]) == len(one["matrix"]) == shown and len(one["confusions"]) == 20


def test_published_models_are_on_the_axes(tmp_path: Path) -> None:
    record(tmp_path / "w", "val", 50_000, 38_500)
    record(tmp_path / "w", V2, 10_000, 6_600, reference="val")
    run = sb.Run.open(tmp_path / "w")
    grid = grid_of(run)
    assert [model["own"] for model in grid["models"]] == [False] * 67 + [True]
    assert sum(model["fitted"] for model in grid["models"] if not model["own"]) == 67
    [shift] = grid["shifts"]
    assert (shift["x"], shift["y"], shift["scale"]) == ("val", V2, "probit")
    names = [setting["name"] for setting in grid["settings"]]
    resnet = next(i for i, model in enumerate(grid["models"]) if model["name"] == "resnet50")
    cell = grid["estimates"][resnet][names.index(V2)]
    assert cell is not None and cell[0] == pytest.approx(0.633)


def test_a_sample_stays_apart_from_published_models(tmp_path: Path) -> None:
    record(tmp_path / "w", "val", 5_000, 3_850)
    record(tmp_path / "w", V2, 1_000, 660, reference="val")
    grid = grid_of(sb.Run.open(tmp_path / "w"))
    assert len(grid["models"]) == 1
    assert any("images here" in note for note in grid["notes"])
