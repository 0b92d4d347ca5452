"""CIFAR-10.1's two versions as revisions of one set: the published accuracies come out of the union."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from shiftbench.errors import ShiftbenchError
from shiftbench.store.predictions import Predictions
from shiftbench.studies.fits import Fit
from shiftbench.studies.results import Results
from shiftbench.studies.study import Study
from shiftbench.testsets.followups.set_effects import impact_of_revisions
from tests.testsets.followups.conftest import Maker, predictions


@pytest.fixture(scope="module")
def union(published: Maker) -> tuple[dict[str, list[str]], list[Predictions]]:
    """Both versions' images, each once, and every model's answers on them."""
    old = published("v4")
    new = published("v6")
    revisions = {"v4": list(old[0].ids), "v6": list(new[0].ids)}
    added = [i for i, image in enumerate(new[0].ids) if image not in set(old[0].ids)]
    ids = revisions["v4"] + [revisions["v6"][i] for i in added]
    labels = np.concatenate([old[0].labels, new[0].labels[added]])
    models = [
        predictions(a.classifier, "cifar-10.1", ids, labels, np.concatenate([a.top[:, 0], b.top[added, 0]]))
        for a, b in zip(old, new, strict=True)
    ]
    return revisions, models


def _original(models: list[Predictions]) -> Results:
    names = [model.classifier for model in models]
    values = [[float(model.correct.mean())] for model in models]
    return Results(tuple(names), ("original",), np.array(values), "fraction")


def test_accuracies_are_the_published_ones(
    union: tuple[dict[str, list[str]], list[Predictions]], reference_data: Path
) -> None:
    revisions, models = union
    table = impact_of_revisions(revisions, models)
    beside = table.beside(_original(models))
    with (reference_data / "cifar-10.1" / "accuracies_30models_from_predictions.csv").open() as file:
        expected = {row["model"]: row for row in csv.DictReader(file)}
    for name, column in (("v4", "cifar10.1_v4_top1"), ("v6", "cifar10.1_v6_top1")):
        accuracies = beside.of(f"revision {name}")
        assert accuracies.keys() == expected.keys()
        for model, accuracy in accuracies.items():
            # The same picture may have been answered otherwise in the second run of a model.
            assert 100 * accuracy == pytest.approx(float(expected[model][column]), abs=0.06 if name == "v4" else 0.3)
    changes = {row["model"]: row["change"] for row in table.rows if row["revision"] == "v6"}
    before, after = (beside.of(f"revision {name}")["cudaconvnet"] for name in ("v4", "v6"))
    assert changes["cudaconvnet"] == pytest.approx(after - before)
    shared = len(set(revisions["v4"]) & set(revisions["v6"]))
    assert table.changed == {"v4": 2021, "v6": 2000 - shared}
    assert f"{shared:,} of the 2,021 images" in table.to_text(120)


def test_the_line_of_a_revision(union: tuple[dict[str, list[str]], list[Predictions]], published: Maker) -> None:
    """004's linear fit of CIFAR-10.1 v4 over CIFAR-10: slope 1.617 and intercept -65.5 for these 30 models."""
    revisions, models = union
    both = Study(impact_of_revisions(revisions, models).beside(_original(published("cifar10"))))
    line = both.fit("original", "revision v4", scale="linear", resamples=0)
    assert isinstance(line, Fit)
    assert line.slope == pytest.approx(1.617, abs=0.002)
    assert 100 * line.intercept == pytest.approx(-65.5, abs=0.15)
    assert line.r2 == pytest.approx(0.989, abs=0.001)


def test_pictures_that_could_not_be_read_and_images_nobody_predicted() -> None:
    model = predictions("a", "s", ["x", "y", "z"], np.array([1, 2, 3]), np.array([1, 2, -1]))
    table = impact_of_revisions({"1": ["x", "z"], "2": ["x", "y"]}, [model])
    assert [row["n"] for row in table.rows] == [1, 2]
    with pytest.raises(ShiftbenchError, match="1 images of revision 2"):
        impact_of_revisions({"1": ["x"], "2": ["x", "w"]}, [model])
    with pytest.raises(ShiftbenchError, match="no valid images"):
        impact_of_revisions({"1": ["z"]}, [model])
    with pytest.raises(ShiftbenchError, match="nothing to compare"):
        impact_of_revisions({}, [model])
