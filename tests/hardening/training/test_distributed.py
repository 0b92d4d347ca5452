"""Ranks on one machine, by gloo: the weights do not depend on how many share the work."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from shiftbench.datasets.catalogue import open_named
from shiftbench.datasets.subset import sample
from shiftbench.hardening.errors import TrainingError
from shiftbench.hardening.recipe import Recipe
from shiftbench.hardening.training import loop
from shiftbench.hardening.training.batches import Batch
from shiftbench.hardening.training.devices import Devices, Statistics
from shiftbench.hardening.training.train import train, train_on_ray
from shiftbench.io.schema import to_toml
from shiftbench.reports.page.sections.training import read_log
from tests import processes
from tests.hardening.training.conftest import same_weights, steps_of
from tests.hardening.training.kill_target import run
from tests.hosts import host

Tiny = Callable[..., Recipe]
TARGET = Path(__file__).with_name("kill_target.py")
#: Seconds; long, as other tests may hold the cores.
WAIT = 600


def torchrun(recipe: Path, folder: Path) -> list[subprocess.Popen[bytes]]:
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(TARGET)]
    return [subprocess.Popen([sys.executable, *command, str(recipe), str(folder)])]


def forked(recipe: Path, folder: Path, validate: bool = True, **of_second: str) -> list[ForkServerProcess]:
    """What torchrun starts, without the seconds in which three processes import torch; variables of rank 1 alone."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    shared |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    ranks = [{**shared, "RANK": rank, "LOCAL_RANK": rank} for rank in ("0", "1")]
    return [processes.start(run, recipe, folder, validate, rank) for rank in (ranks[0], ranks[1] | of_second)]


def errors_of(folder: Path) -> list[str]:
    """What each of two ranks raised."""
    return [Path(f"{folder}.error{rank}").read_text() for rank in (0, 1)]


def exit_code(process: subprocess.Popen[bytes] | ForkServerProcess, wait: float = 0) -> int | None:
    """None while it runs."""
    if isinstance(process, subprocess.Popen):
        return process.wait(wait) if wait else process.poll()
    process.join(wait)
    return process.exitcode


@pytest.mark.slow
@pytest.mark.parametrize("start", [forked, pytest.param(torchrun, marks=pytest.mark.soak)])
def test_two_ranks_one_killed_and_resumed_give_the_weights_of_one_rank(start: Any, tiny: Tiny, tmp_path: Path) -> None:
    """Bit for bit: halving and adding two gradients is exact in the same order, in one process or in two."""
    recipe = tiny(
        "train.epochs=3",
        "train.checkpoint_seconds=0",
        "train.splits=2",
        "train.ema=0.9",
        "data.sample=70",
        "train.ema_warmup=true",
        recipe="cifar-augmix",
    )
    (tmp_path / "recipe.toml").write_text(to_toml(recipe.as_dict()))
    first = start(tmp_path / "recipe.toml", tmp_path / "ranks")
    deadline = time.monotonic() + WAIT
    while not len(read_log(tmp_path / "ranks")):
        assert all(exit_code(one) is None for one in first) and time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(int((tmp_path / "ranks.pid1").read_text()), signal.SIGKILL)
    assert all(exit_code(one, WAIT) for one in first)
    assert not (tmp_path / "ranks" / "classifier.json").exists()
    assert [exit_code(one, WAIT) for one in start(tmp_path / "recipe.toml", tmp_path / "ranks")].count(0) == len(first)
    alone = train(recipe, tmp_path / "alone", progress=False, validation=sample(open_named("cifar-10-test"), 51))
    assert same_weights(tmp_path / "ranks", alone.folder)
    together = read_log(tmp_path / "ranks")
    assert [line[0] for line in steps_of(together)] == [line[0] for line in steps_of(alone.log)]
    for ours, theirs in zip(together, alone.log, strict=True):
        # Sums over images are taken in another order; the counts are exact.
        for key in ("loss", "validation_loss"):
            assert ours[key] == pytest.approx(theirs[key], rel=1e-6)
        for key in ("accuracy", "validation_accuracy", "validation_top5"):
            assert ours[key] == theirs[key]


@pytest.mark.soak
@pytest.mark.reliability("kills")
def test_a_host_that_vanishes_ends_the_other_and_the_run_resumes(tiny: Tiny, tmp_path: Path) -> None:
    """Its cable is cut before its rank is killed, so that no connection is closed."""
    changes = ("train.epochs=3", "train.checkpoint_seconds=0", "train.splits=2", "data.sample=70")
    recipe = tiny(*changes, "train.rank_timeout=30")
    (tmp_path / "recipe.toml").write_text(to_toml(recipe.as_dict()))
    with host() as there, socket.socket() as free:
        free.bind((there.here, 0))
        shared = os.environ | {"MASTER_ADDR": there.here, "MASTER_PORT": str(free.getsockname()[1])}
        shared |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0", "OMP_NUM_THREADS": "1"}
        free.close()
        words = [sys.executable, str(TARGET), str(tmp_path / "recipe.toml"), str(tmp_path / "ranks")]
        first = subprocess.Popen(words, env=shared | {"RANK": "0", "GLOO_SOCKET_IFNAME": there.cable})
        second = subprocess.Popen(there.command(*words), env=shared | {"RANK": "1", "GLOO_SOCKET_IFNAME": "far"})
        deadline = time.monotonic() + WAIT
        while not len(read_log(tmp_path / "ranks")):
            assert first.poll() is None and second.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        there.cut()
        second.kill()
        assert second.wait(WAIT) and first.wait(WAIT) == 1
    error = Path(f"{tmp_path / 'ranks'}.error0").read_text()
    assert "another rank has ended" in error and "it resumes" in error
    assert not (tmp_path / "ranks" / "classifier.json").exists()
    # The rest on one machine, which another timeout does not change.
    held_out = sample(open_named("cifar-10-test"), 51)
    train(tiny(*changes), tmp_path / "ranks", name="killed", progress=False, validation=held_out)
    train(tiny(*changes), tmp_path / "alone", progress=False, validation=held_out)
    assert same_weights(tmp_path / "ranks", tmp_path / "alone")


@pytest.mark.slow
def test_two_ranks_scale_losses_of_float16_as_one_rank_does(tiny: Tiny, tmp_path: Path) -> None:
    """The first scale overflows: a step is skipped on two ranks if and only if it is on one."""
    recipe = tiny(
        "train.epochs=2",
        "train.splits=2",
        "data.sample=64",
        "train.precision=float16",
        "train.batch_size=8",
        "scheme.weight=1000.0",
        recipe="cifar-stability",
    )
    (tmp_path / "recipe.toml").write_text(to_toml(recipe.as_dict()))
    ranks = forked(tmp_path / "recipe.toml", tmp_path / "ranks", False)
    assert [exit_code(rank, WAIT) for rank in ranks] == [0, 0]
    assert same_weights(tmp_path / "ranks", train(recipe, tmp_path / "alone", progress=False).folder)


@pytest.mark.slow
def test_a_rank_that_fails_ends_all_with_its_cause(tiny: Tiny, tmp_path: Path) -> None:
    """Rank 0, which alone writes checkpoints, cannot; then rank 1 has no place for its data, as on another machine."""
    recipe = tmp_path / "recipe.toml"
    folder = tmp_path / "ranks"
    recipe.write_text(to_toml(tiny("train.splits=2", "train.epochs=1", "data.sample=64").as_dict()))
    (folder / "checkpoint.pt").mkdir(parents=True)
    assert [exit_code(one, WAIT) for one in forked(recipe, folder)] == [1, 1]
    first, second = errors_of(folder)
    assert first == second and first.startswith("rank 0 failed: IsADirectoryError") and "it resumes" in first
    (folder / "checkpoint.pt").rmdir()
    assert [exit_code(one, WAIT) for one in forked(recipe, folder, False, SHIFTBENCH_CACHE=str(recipe))] == [1, 1]
    first, second = errors_of(folder)
    assert first == second and first.startswith("rank 1 failed: ") and str(recipe) in first


@pytest.mark.soak
def test_a_device_that_fails_is_named_once(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("shiftbench")), "harden", "train", "cifar-standard", "--devices", "2"]
    ended = subprocess.run(
        [*command, "--data", str(tmp_path / "no"), "--out", str(tmp_path / "out")], capture_output=True, text=True
    )
    assert ended.returncode == 1 and ended.stderr.count("error:") == 1 and "rank 0 failed: " in ended.stderr


@pytest.mark.soak
def test_ray_train_gives_the_weights_of_one_rank(tiny: Tiny, tmp_path: Path) -> None:
    """Two workers of a local Ray cluster; as above, so that Ray Train equals torchrun, too."""
    pytest.importorskip("ray.train.torch")
    recipe = tiny("train.epochs=2", "train.splits=2", "data.sample=64", recipe="cifar-augmix")
    there = train_on_ray(recipe, tmp_path / "ray", 2, device="cpu")
    assert [line["epoch"] for line in there.log] == [1, 2]
    assert same_weights(there.folder, train(recipe, tmp_path / "alone", progress=False, device="cpu").folder)


@pytest.mark.filterwarnings("ignore:classes with one")
def test_accumulation_without_batch_norm_is_the_whole_batch(tiny: Tiny, tmp_path: Path) -> None:
    """Only batch norms see parts: without them the mean of the parts' gradients is the batch's, up to rounding."""
    from safetensors.torch import load_file

    network = 'architecture={name="timm", model="test_vit"}'
    size = (
        "data.size=160",
        "data.sample=20",
        "train.batch_size=10",
        "train.epochs=1",
        "augmentations=[]",
        "optimizer.lr=0.01",
    )
    folders = [
        train(tiny(network, *size, f"train.splits={splits}"), tmp_path / str(splits), progress=False).folder
        for splits in (1, 3)
    ]
    whole, parts = (load_file(folder / "model.safetensors") for folder in folders)
    assert all(torch.allclose(whole[key], parts[key], atol=1e-5) for key in whole)
    assert any(not torch.equal(whole[key], parts[key]) for key in whole)


def test_statistics_of_parts_are_averaged_from_the_same_start() -> None:
    """By hand: r + 0.1 (mean of the parts' means - r), counted as one batch."""
    norm = nn.BatchNorm1d(3)
    norm.running_mean = torch.tensor([1.0, 2.0, 3.0])
    statistics = Statistics(norm, Devices("cpu", "float32"), 2)
    parts = [torch.randn(8, 3, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1)]
    statistics.begin()
    for i, part in enumerate(parts):
        norm(part)
        statistics.add(last=i == 1)
    statistics.end()
    assert norm.running_mean is not None and norm.num_batches_tracked is not None
    means = torch.stack([part.mean(dim=0) for part in parts]).mean(dim=0)
    assert torch.allclose(norm.running_mean, 0.9 * torch.tensor([1.0, 2.0, 3.0]) + 0.1 * means)
    assert int(norm.num_batches_tracked) == 1


def test_parts_that_the_devices_cannot_share_are_refused() -> None:
    devices = Devices("cpu", "float32")
    devices.world = 4
    with pytest.raises(TrainingError) as caught:
        devices.check_splits(6)
    assert caught.value.found == "train.splits = 6 on 4 devices" and "'train.splits': 4" in str(caught.value.hint)


def test_precision_is_of_the_forward_pass(tiny: Tiny, tmp_path: Path) -> None:
    log = train(tiny("train.precision=bfloat16", "train.epochs=1"), tmp_path, progress=False).log
    assert 1 < log[0]["loss"] < 4
    kept = json.loads((tmp_path / "classifier.json").read_text())
    assert kept["name"] == tmp_path.name


def test_float16_scales_the_loss_and_the_scale_survives_a_stop(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU. An overflow in the first step halves the scale and skips the step, in both runs."""
    honest = loop.TrainingRun.step
    stop: list[int] = []

    def step(self: loop.TrainingRun, number: int, batch: list[Batch]) -> None:
        if number in stop:
            raise InterruptedError
        if number == 0:
            weight = next(self.model.parameters())
            before = weight.detach().clone()
            hook = weight.register_hook(lambda gradient: gradient * torch.inf)  # type: ignore[no-untyped-call]
            honest(self, number, batch)
            hook.remove()
            assert torch.equal(weight, before)
        else:
            honest(self, number, batch)
            scales.append(self.scaler.get_scale())

    monkeypatch.setattr(loop.TrainingRun, "step", step)
    scales: list[float] = []
    recipe = tiny(
        "train.precision=float16",
        "train.epochs=2",
        "train.checkpoint_seconds=0",
        "optimizer.clip=5.0",
        "data.sample=48",
        "train.batch_size=16",
    )
    whole = train(recipe, tmp_path / "whole", progress=False)
    assert set(scales) == {2.0**15} and 1 < whole.log[-1]["loss"] < 4
    stop.append(4)
    with pytest.raises(InterruptedError):
        train(recipe, tmp_path / "stopped", progress=False)
    kept = torch.load(tmp_path / "stopped" / "checkpoint.pt", weights_only=True)["states"]["scaler"]
    assert kept["scale"] == 2.0**15 and kept["_growth_tracker"] == 3
    stop.clear()
    assert same_weights(whole.folder, train(recipe, tmp_path / "stopped", progress=False).folder)


def test_split_batch_norms_leave_a_network_of_the_usual_kind(tiny: Tiny, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    from shiftbench.classifiers import load_classifier

    recipe = tiny("train.epochs=1", recipe="cifar-augmix")
    split = tiny("train.epochs=1", "train.batch_norm=split", recipe="cifar-augmix")
    folders = [train(one, tmp_path / str(i), progress=False).folder for i, one in enumerate((recipe, split))]
    usual, apart = (load_file(folder / "model.safetensors") for folder in folders)
    assert usual.keys() == apart.keys()
    # The statistics that are kept are the clean view's.
    key = next(name for name in usual if name.endswith("running_mean"))
    assert not torch.allclose(usual[key], apart[key])
    load_classifier(f"hardened:{folders[1]}", engine="torch")


def test_the_best_epochs_are_kept_and_each_is_logged(tiny: Tiny, tmp_path: Path) -> None:
    seen: list[tuple[int, float]] = []

    class Sink:
        def log(self, metrics: Mapping[str, float], step: int) -> None:
            seen.append((step, metrics["train/validation_top5"]))

        def close(self) -> None:
            seen.append((-1, 0.0))

    recipe = tiny("train.epochs=3", "train.top=2", "data.sample=48")
    trained = train(
        recipe, tmp_path, validation=sample(open_named("cifar-10-test"), 51), progress=False, sinks=[Sink()]
    )
    ranked = sorted(trained.log, key=lambda line: (-line["validation_accuracy"], line["epoch"]))
    expected = sorted(f"epoch-{line['epoch']:04}.safetensors" for line in ranked[:2])
    assert sorted(path.name for path in (tmp_path / "top").iterdir()) == expected
    assert seen == [(line["step"], line["validation_top5"]) for line in trained.log] + [(-1, 0.0)]
    assert all(line["validation_top5"] >= line["validation_accuracy"] for line in trained.log)
