"""Ranks on two test sets, and accuracy by selection frequency, from released predictions of real models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from numpy.typing import NDArray

from shiftbench.reports.figures import bins, rank, revisions
from shiftbench.studies import StudyError
from shiftbench.studies.reproducibility import BinnedAccuracies, Reproducibility, bins_of, reproducibility
from tests.metrics.making import with_hits
from tests.reports.figures.looking import check, check_svg, texts


@pytest.fixture(scope="module")
def cifar(reference_data: Path) -> dict[str, NDArray[np.bool_]]:
    """Hits of 30 models on CIFAR-10 and CIFAR-10.1."""
    data = np.load(reference_data / "cifar-10.1" / "cifar10_and_10.1_predictions_30models.npz")
    return {
        "models": data["models"],
        **{name: data[name] == data[f"labels_{name}"] for name in ("cifar10", "v6")},
    }


@pytest.fixture(scope="module")
def reproduced(cifar: dict[str, NDArray[np.bool_]]) -> Reproducibility:
    old, new = (cifar[name].mean(axis=1) for name in ("cifar10", "v6"))
    return reproducibility(old, new, models=[str(m) for m in cifar["models"]], n_original=10_000, n_new=2_000)


@pytest.mark.parametrize("width", ["single", "double"])
def test_ranks_of_cifar_10_1(reproduced: Reproducibility, width: str) -> None:
    figure = rank(reproduced, "CIFAR-10", "CIFAR-10.1", width=width)
    check(figure)
    accuracy, places = figure.axes
    drawn = np.concatenate(
        [
            np.asarray(collection.get_offsets(), dtype=float)
            for collection in places.collections
            if isinstance(collection, PathCollection)
        ]
    )
    assert {(row.rank, row.new_rank) for row in reproduced.rows} == {(round(x), round(y)) for x, y in drawn}
    assert accuracy.get_xlabel() == "CIFAR-10 accuracy (%)"
    movers = sorted(reproduced.rows, key=lambda row: -abs(row.rank_change))[:4]
    named = [text.replace("\n", "") for text in texts(figure)]
    assert all(named.count(row.model) == 2 for row in movers)
    assert figure.notes[0] == "95 % intervals; mean change -7.8 points"


def test_chosen_names(reproduced: Reproducibility) -> None:
    assert texts(rank(reproduced, "a", "b", named=["cudaconvnet"])).count("cudaconvnet") == 2
    with pytest.raises(StudyError, match="resnet5"):
        rank(reproduced, "a", "b", named=["resnet5"])


def test_one_model_and_ties() -> None:
    for accuracies in ({"only": 0.5}, {"a": 0.5, "b": 0.5, "c": 1.0}):
        check(rank(reproducibility(accuracies, accuracies, n_original=100, n_new=100), "old", "new"))


@pytest.fixture(scope="module")
def binned(cifar: dict[str, NDArray[np.bool_]]) -> BinnedAccuracies:
    """Twenty models as the people who select; the accuracy of the other ten in bins of their agreement."""
    shares = cifar["v6"][::3].mean(axis=0)
    ids = [f"image-{i}" for i in range(2000)]
    voters = set(range(0, 30, 3))
    others = [
        with_hits(row, classifier=str(name), setting="v6", ids=ids)
        for i, (name, row) in enumerate(zip(cifar["models"], cifar["v6"], strict=True))
        if i not in voters
    ]
    return bins_of(others, dict(zip(ids, shares.tolist(), strict=True)))


def test_bins_of_many_models(binned: BinnedAccuracies) -> None:
    figure = bins(binned, "CIFAR-10.1")
    check(figure)
    accuracies = [one.accuracy for one in binned.mean]
    assert accuracies == sorted(accuracies, key=lambda value: value or 0.0)  # what is easy for some is for all
    assert "20 models" in texts(figure) and "mean" in texts(figure)
    assert f"[0.8, 1]\nn = {binned.mean[-1].images:,}" in texts(figure)


def test_bins_against_the_original_accuracy(binned: BinnedAccuracies, cifar: dict[str, NDArray[np.bool_]]) -> None:
    original = {str(name): float(row.mean()) for name, row in zip(cifar["models"], cifar["cifar10"], strict=True)}
    figure = bins(binned, "CIFAR-10.1", original=original, original_setting="CIFAR-10")
    check(figure)
    clouds = [
        np.asarray(collection.get_offsets())
        for collection in figure.axes[0].collections
        if isinstance(collection, PathCollection)
    ]
    assert len(clouds) == 5 and all(len(points) == 20 for points in clouds)
    name = next(iter(binned.by_model))
    assert clouds[0][0] == pytest.approx([100 * original[name], 100 * (binned.by_model[name][0].accuracy or 0.0)])
    with pytest.raises(StudyError, match="both an original accuracy"):
        bins(binned, "v6", original={"other": 0.5})


def test_few_models_and_empty_bins() -> None:
    found = bins_of([with_hits([1, 0, 1]), with_hits([1, 1, 1], classifier="b")], {"image-0": 0.1, "image-2": 0.9})
    figure = bins(found, "mine")
    check(figure)
    check_svg(figure)
    assert figure.notes == (
        "no images in [0.2, 0.4), [0.4, 0.6), [0.6, 0.8)",
        "1 image has no selection frequency and is left out",
    )
    assert {"net", "b", "mean"} <= set(texts(figure))
    check(bins(bins_of([with_hits([1, 0, 1])], {"image-0": 0.1}), "mine"))


def test_revisions_of_few_models() -> None:
    """004 figure 7: accuracies with their intervals, and the images that a revision replaced."""
    models = {"a": [(0.6, 0.5, 0.7), (0.7, 0.6, 0.8), (0.65, 0.6, 0.7)], "b": [(0.5, 0.4, 0.6)] * 3}
    figure = revisions({"top-1": models, "top-5": models}, {"1": 100, "2": 30, "3": 4}, level=0.9)
    check(figure)
    check_svg(figure)
    first: Any
    changed: Any
    first, _, changed = figure.axes
    assert [line.get_ydata().tolist() for line in first.lines] == [pytest.approx([60, 70, 65]), pytest.approx([50] * 3)]
    (bars,) = [
        collection for collection in first.collections if np.allclose(collection.get_segments()[0][:, 1], [50, 70])
    ]
    assert len(bars.get_segments()) == 3
    assert [(bar.get_x() + bar.get_width() / 2, bar.get_height()) for bar in changed.patches] == [(1, 30), (2, 4)]
    assert figure.notes == ("90 % intervals",) and [t.get_text() for t in first.get_xticklabels()] == ["1", "2", "3"]


def test_many_revisions_of_many_models() -> None:
    """As many as 004 had; the models' mean is drawn, their intervals are not."""
    rows = {f"model {i}": [(0.5 + i / 40 + r / 200, 0.0, 1.0) for r in range(23)] for i in range(12)}
    figure = revisions({"top-1": rows}, {str(number): 10 for number in range(1, 24)}, width="single")
    check(figure)
    assert {"12 models", "mean"} <= set(texts(figure))
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == [str(n) for n in range(1, 24, 2)]
    mean = np.asarray(figure.axes[0].lines[-1].get_ydata())
    assert mean[0] == pytest.approx(100 * np.mean([0.5 + i / 40 for i in range(12)])) and figure.notes == ()
