"""A monitor reports the numbers of ``evaluate``, on the same images at every epoch, and leaves training alone."""

from __future__ import annotations

import copy
import json
import random
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import shiftbench as sb
from shiftbench.datasets.subset import proportional
from shiftbench.errors import SettingError, ShiftbenchError
from tests.integrations.conftest import PER_CLASS, Network
from tests.raised import raises

CLEAN = "photos/top1"
CORRUPTED = "photos-c/top1"


def test_the_numbers_are_those_of_evaluate(monitor: sb.Monitor, network: Network, settings: dict[str, Any]) -> None:
    found = monitor(network, 3)
    run = sb.Run.open(settings["workspace"])
    assert found == run.metrics()
    assert {CLEAN, CORRUPTED, "photos-c/contrast/3/top1"} <= set(found)
    assert run.classifiers == ["net-epoch3"]


def test_images_and_classes_are_read_as_in_evaluate(network: Network, photographs: Path, tmp_path: Path) -> None:
    """Without any option: the images' own size (the network would accept 224, too), and the classes of the folders."""
    few: dict[str, Any] = {"severities": [3], "corruptions": ["contrast"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sb.ResultWarning)
        found = sb.Monitor(photographs, workspace=tmp_path / "a", **few)(network, 0)
        run = sb.evaluate(network, "corruptions", photographs, tmp_path / "b", progress=False, **few)
    assert found == pytest.approx(run.metrics())
    watched = sb.Run.open(tmp_path / "a").results[0].spec
    assert watched.geometry == run.results[0].spec.geometry
    assert watched.geometry.rebuild().output == (16, 16)


def test_one_severity_and_one_corruption_need_no_list(settings: dict[str, Any], network: Network) -> None:
    found = sb.Monitor(**settings | {"severities": 3, "corruptions": "contrast"})(network, 0)
    assert "photos-c/contrast/3/top1" in found


def test_only_due_epochs_are_evaluated(settings: dict[str, Any], network: Network) -> None:
    monitor = sb.Monitor(**settings, every=2)
    assert [bool(monitor(network, epoch)) for epoch in range(4)] == [True, False, True, False]
    with raises(SettingError, found="0"):
        sb.Monitor(**settings, every=0)


def test_history_has_intervals_and_survives_a_restart(settings: dict[str, Any], network: Network) -> None:
    monitor = sb.Monitor(**settings)
    logged = []
    for epoch in range(3):
        torch.nn.init.normal_(network.layers[-1].weight)  # type: ignore[arg-type]
        logged.append(monitor(network, epoch)[CORRUPTED])
    rows = monitor.history().rows
    means = [row for row in rows if row["metric"] == CORRUPTED]
    assert [row["epoch"] for row in means] == [0, 1, 2]
    assert [row["value"] for row in means] == logged
    assert all(row["low"] <= row["value"] <= row["high"] for row in means)
    assert [row["n"] for row in rows if row["metric"] == CLEAN] == [2 * PER_CLASS] * 3
    resumed = sb.Monitor(**settings)
    assert resumed.history().rows == rows
    # Epoch 2 is trained again, and what was recorded from there on is dropped.
    resumed(network, 2)
    resumed(network, 3)
    assert [row["epoch"] for row in resumed.history().rows if row["metric"] == CLEAN] == [0, 1, 2, 3]
    restarted = sb.Monitor(**settings)
    restarted(network, 0)
    assert {row["epoch"] for row in restarted.history().rows} == {0}


def test_numbers_of_different_images_do_not_mix(settings: dict[str, Any], network: Network) -> None:
    sb.Monitor(**settings)(network, 0)
    with raises(SettingError, found="other settings, seed or budget"):
        sb.Monitor(**{**settings, "seed": 1})(network, 1)


# -- what a call leaves alone ----------------------------------------------------------------------------


def training_state(network: torch.nn.Module) -> dict[str, Any]:
    """Everything that decides how training goes on."""
    tensors = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    return {
        "modes": [part.training for part in network.modules()],
        "tensors": {name: (t.detach().clone(), t.stride(), t.device, t.requires_grad) for name, t in tensors.items()},
        "addresses": {name: t.data_ptr() for name, t in tensors.items()},
        "gradients": {name: None if p.grad is None else p.grad.clone() for name, p in network.named_parameters()},
        "graphs": {name: t.grad_fn for name, t in tensors.items()},
        "hooks": [len(part._forward_hooks) for part in network.modules()],
        "random": (random.getstate(), np.random.get_state(), torch.get_rng_state()),  # noqa: NPY002
        "grad mode": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "autocast's cache": torch.is_autocast_cache_enabled(),
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "device": (torch.get_default_device(), torch.get_default_dtype()),
        "cudnn": (
            torch.backends.cudnn.benchmark,
            torch.backends.cudnn.deterministic,
            torch.backends.cudnn.allow_tf32,
            torch.backends.cudnn.enabled,
            torch.backends.mkldnn.enabled,
            torch.get_float32_matmul_precision(),
        ),
        "deterministic": (torch.are_deterministic_algorithms_enabled(), torch.is_anomaly_enabled()),
        "filters": list(warnings.filters),
    }


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    return bool((one == other).all()) if isinstance(one, np.ndarray) else bool(one == other)


@pytest.mark.parametrize("autocast", [False, True])
def test_no_state_is_touched(monitor: sb.Monitor, network: Network, autocast: bool) -> None:
    network.train()
    network.layers[1].eval()  # a frozen batch norm
    network.layers[0].weight.requires_grad_(False)
    network(torch.rand(4, 3, 16, 16)).sum().backward()
    network.register_forward_hook(lambda *_: None)
    with torch.autocast("cpu", enabled=autocast), torch.set_grad_enabled(not autocast):
        before = training_state(network)
        monitor(network, 0)
        after = training_state(network)
    for key, value in before.items():
        assert same(value, after[key]), key


def trained(network: Network, monitor: sb.Monitor | None) -> list[NDArray[Any]]:
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002
    random.seed(3)
    optimiser = torch.optim.AdamW(network.parameters(), lr=0.01)
    for epoch in range(3):
        network.train()
        for _ in range(2):
            # Data and dropout draw from all three generators.
            shift = float(np.random.rand()) + random.random()  # noqa: NPY002
            images = torch.rand(8, 3, 16, 16) + shift
            labels = torch.randint(2, (8,))
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(network(images), labels).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        if monitor is not None:
            assert monitor(network, epoch)
    return [value.numpy() for value in network.state_dict().values()]


def test_training_is_the_same_to_the_bit(settings: dict[str, Any], network: Network) -> None:
    alone = copy.deepcopy(network)
    watched = copy.deepcopy(network)
    monitor = sb.Monitor(**settings, budget="5s")
    for one, other in zip(trained(alone, None), trained(watched, monitor), strict=True):
        assert one.tobytes() == other.tobytes()


def test_a_model_that_draws_at_evaluation_leaves_the_generators_alone(monitor: sb.Monitor, network: Network) -> None:
    class Noisy(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return 2 + random.random() + np.random.rand() + torch.rand(len(images), 2)  # noqa: NPY002

    before = training_state(network)["random"]
    monitor(Noisy(), 0)
    assert same(before, training_state(network)["random"])


def test_wrapped_and_weight_normed_modules_can_be_copied(monitor: sb.Monitor, network: Network) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network.layers[6] = torch.nn.utils.weight_norm(network.layers[6])
    network(torch.rand(2, 3, 16, 16)).sum().backward()
    assert monitor(torch.nn.DataParallel(network), 0)

    class Uncopyable(Network):
        def __deepcopy__(self, memo: object) -> Any:
            raise TypeError("holds a lock")

    with pytest.raises(ShiftbenchError, match="holds a lock"):
        sb.Monitor(**{**vars_of(monitor), "name": "other"})(Uncopyable(), 0)


def vars_of(monitor: sb.Monitor) -> dict[str, Any]:
    return {
        "data": next(iter(monitor._datasets.values())),
        "workspace": monitor.workspace,
        "preprocessing": monitor.preprocessing,
    }


# -- budget ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("budget", "images"), [("4.5s", 12), (1.875, 5), ("1min", 2 * PER_CLASS), (0.01, 1)])
def test_a_budget_chooses_a_number_of_images(
    settings: dict[str, Any], network: Network, budget: str | float, images: int
) -> None:
    """By a clock on which an image in one setting takes 1/8 s, and so 3/8 s in the three of the monitor."""
    monitor = sb.Monitor(**settings, budget=budget, batch_size=1)
    monitor._clock = lambda: 0.125 * Network.seen
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few images
        monitor(network, 0)
        before = Network.seen
        monitor(network, 1)
    record = json.loads((Path(settings["workspace"]) / "monitors" / "net.json").read_text())
    assert set(record["counts"].values()) == {images}
    assert Network.seen - before - 3 * images <= 1  # and one that finds out the number of outputs
    assert {row["n"] for row in monitor.history().rows if row["metric"] == CLEAN} == {images}
    resumed = sb.Monitor(**settings, budget=budget, batch_size=1)
    before = Network.seen
    resumed(network, 2)
    assert Network.seen - before - 3 * images <= 1  # no second pilot


def test_few_images_are_warned_about_once(settings: dict[str, Any], network: Network) -> None:
    monitor = sb.Monitor(**settings, budget=0.9, batch_size=1)
    monitor._clock = lambda: 0.125 * Network.seen
    with pytest.warns(UserWarning, match="larger budget"):
        monitor(network, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monitor(network, 1)


@pytest.mark.parametrize("budget", ["soon", "-3s", 0, "5 weeks", "inf"])
def test_impossible_budgets(settings: dict[str, Any], budget: Any) -> None:
    with pytest.raises(SettingError, match="budget"):
        sb.Monitor(**settings, budget=budget)


def test_choices_are_nested_and_balanced(photographs: Path) -> None:
    dataset = sb.open_dataset(photographs, space="folders")
    choices = [proportional(dataset, count, seed=4) for count in range(2 * PER_CLASS + 1)]
    for smaller, larger in pairwise(choices):
        assert set(smaller.ids) < set(larger.ids)
    for choice in choices[1:]:
        counts = np.bincount(choice.labels, minlength=2)
        assert abs(int(counts[0]) - int(counts[1])) <= 1
    assert set(choices[4].ids) != set(proportional(dataset, 4, seed=5).ids)
    # A class that has no more images leaves its turns to the others.
    uneven = proportional(sb.open_dataset(photographs, space="folders"), 100)
    assert len(uneven) == 2 * PER_CLASS


# -- failures --------------------------------------------------------------------------------------------


def test_a_failure_ends_the_first_call_and_not_a_training(monitor: sb.Monitor, network: Network) -> None:
    broken = copy.deepcopy(network)
    torch.nn.init.constant_(broken.layers[-1].bias, float("nan"))  # type: ignore[arg-type]
    with pytest.raises(ShiftbenchError, match="nan"):
        monitor(broken, 0)
    assert monitor(network, 0)
    with pytest.warns(UserWarning, match="epoch 1"):
        assert monitor(broken, 1) == {}
    assert monitor(network, 2)
