"""MAITE's protocols both ways: what its program computes equals what a run stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shiftbench as sb
from shiftbench.bridges import as_maite, from_maite_dataset, from_maite_model, score_by_maite
from shiftbench.bridges.maite_ import MaiteDataset, MaiteModel, MaiteTop1
from shiftbench.errors import ClassifierError, DatasetError
from shiftbench.shifts import Corruption
from tests.runs.helpers import brightest_channel, colour_folder

STATED = {"size": 32, "resize": "squash", "interpolation": "bilinear", "outputs": "logits"}


@pytest.fixture
def data(tmp_path: Path) -> sb.Dataset:
    return sb.open_dataset(colour_folder(tmp_path / "photos", per_class=8), labels="folders")


@pytest.fixture
def model() -> sb.Classifier:
    def noisy(images: Any) -> Any:
        return brightest_channel(images)[:, [2, 1, 0]] + images[:, 3, 5].astype(np.float64)[:, [2, 1, 0]] / 40

    return sb.load_classifier(noisy, name="net", labels=["blue", "green", "red"], preprocessing=STATED)


def evaluated(model: Any, dataset: Any, augmentation: Any = None) -> dict[str, Any]:
    """What MAITE's own program computes, or the same loop where it is not installed."""
    maite = pytest.importorskip("maite.tasks")
    result, _, _ = maite.evaluate(
        model=model, dataset=dataset, metric=MaiteTop1(), augmentation=augmentation, batch_size=5
    )
    return dict(result)


@pytest.mark.parametrize("shift", [None, Corruption("gaussian_noise", 5), Corruption("contrast", 4)])
def test_maites_program_gives_the_numbers_of_a_run(
    shift: Corruption | None, data: sb.Dataset, model: sb.Classifier, tmp_path: Path
) -> None:
    setting = sb.Setting("setting", "data") if shift is None else sb.Setting("setting", "data", shift)
    run = sb.evaluate(model, [setting], data, tmp_path / "w", seed=3, progress=False)
    (score,) = run.scores()
    augmentation = None if shift is None else as_maite(shift, seed=3)
    found = evaluated(as_maite(model), MaiteDataset(data, model), augmentation)
    assert found["top1"] == score.score.value
    assert (found["low"], found["high"], found["n"]) == pytest.approx((score.score.low, score.score.high, 24))
    assert score_by_maite(run.predictions(), MaiteTop1())["top1"] == score.score.value


def test_the_objects_have_the_shape_of_the_protocols(data: sb.Dataset, model: sb.Classifier) -> None:
    protocols = pytest.importorskip("maite.protocols.image_classification")
    dataset, classifier, augmentation = as_maite(data), as_maite(model), as_maite(Corruption("fog", 2))
    assert isinstance(dataset, protocols.Dataset) and isinstance(classifier, protocols.Model)
    assert isinstance(augmentation, protocols.Augmentation) and isinstance(MaiteTop1(), protocols.Metric)


def test_there_and_back_is_the_same(data: sb.Dataset, model: sb.Classifier, tmp_path: Path) -> None:
    again = from_maite_dataset(MaiteDataset(data))
    assert list(again.ids) == list(data.ids) and again.labels.tolist() == data.labels.tolist()
    assert again.space.names == data.space.names and again.name == "photos"
    assert all((again.read(i).pixels == data.read(i).pixels).all() for i in range(len(data)))
    theirs = from_maite_model(MaiteModel(model), preprocessing=STATED | {"outputs": "probabilities"})
    runs = [sb.evaluate(one, data=data, workspace=tmp_path / folder, progress=False)
            for one, folder in ((model, "ours"), (theirs, "theirs"))]  # fmt: skip
    tops = [run.predictions().top[:, 0].tolist() for run in runs]
    assert tops[0] == tops[1] and theirs.space.names == ("blue", "green", "red")


def test_what_does_not_fit_is_refused(model: sb.Classifier) -> None:
    class Odd:
        def __init__(self, target: list[float]) -> None:
            self.metadata = {"id": "odd"}
            self.target = target

        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> Any:
            return np.zeros((3, 8, 8), np.uint8), np.array(self.target), {"id": 7}

    for target in ([0.5, 0.5], [1.0, 0.0]):  # a tie, and repeated ids
        with pytest.raises(DatasetError):
            from_maite_dataset(Odd(target))
    with pytest.raises(ClassifierError):
        MaiteModel(model)([np.full((3, 32, 32), -1.7)])
