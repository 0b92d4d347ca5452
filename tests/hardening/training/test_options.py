"""What a training says on the way, and options of [train] for large networks and GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.modules.batchnorm import _BatchNorm

from shiftbench import LabelSpace, label_space, load_classifier
from shiftbench.errors import UnknownNameError
from shiftbench.hardening.architectures.base import build
from shiftbench.hardening.errors import TrainingError
from shiftbench.hardening.recipe import Recipe, differing_keys, load_recipe
from shiftbench.hardening.recipe_check import check_recipe
from shiftbench.hardening.training import loop
from shiftbench.hardening.training.batches import Batch
from shiftbench.hardening.training.devices import Devices, kept_statistics
from shiftbench.hardening.training.pace import Pace
from shiftbench.hardening.training.train import train
from shiftbench.hardening.training_schemes import make_scheme, open_teacher
from tests.hardening.training.conftest import same_weights

Tiny = Callable[..., Recipe]


class Kept:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, Mapping[str, float]]] = []

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self.lines.append((step, dict(metrics)))

    def close(self) -> None:
        pass


def test_lines_within_an_epoch_reach_terminal_and_sinks_and_change_nothing(
    tiny: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = tiny("train.epochs=2", "train.log_seconds=0")
    told = tiny("train.epochs=2", "train.log_seconds=1e-9")
    assert differing_keys(silent, told) == []
    sink = Kept()
    run = train(told, tmp_path / "told", sinks=[sink])
    lines = [line for line in capsys.readouterr().err.splitlines() if "images/s" in line]
    assert len(lines) == 6 and lines[1].startswith("epoch 1, batch 2 of 3: loss ")
    within = [(step, metrics) for step, metrics in sink.lines if "train/within_epoch/loss" in metrics]
    assert [step for step, _ in within] == [1, 2, 3, 4, 5, 6]
    for epoch in (0, 1):
        losses = [metrics["train/within_epoch/loss"] for _, metrics in within[3 * epoch : 3 * epoch + 3]]
        assert sum(losses) / 3 == pytest.approx(run.log[epoch]["loss"])
    last = within[-1][1]
    assert last["train/within_epoch/seconds_left"] == 0 < within[0][1]["train/within_epoch/seconds_left"]
    assert last["train/within_epoch/images_per_second"] > 0 and 0 <= last["train/within_epoch/waiting"] <= 1
    quiet = Kept()
    other = train(silent, tmp_path / "silent", sinks=[quiet])
    assert "images/s" not in capsys.readouterr().err and len(quiet.lines) == 2
    assert same_weights(run.folder, other.folder)


def test_the_pace_is_that_of_the_steps_since_the_last_report(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    pace = Pace(10.0, [0.0, 0.0, 0.0])
    part = Batch([], torch.zeros(0), [], 1.0)

    def slow_parts() -> object:
        while True:
            now[0] += 3
            yield part

    parts = slow_parts()
    pace.next_batch(parts, 1)  # type: ignore[arg-type]
    now[0] += 4
    assert not pace.due
    pace.next_batch(parts, 1)  # type: ignore[arg-type]
    now[0] += 2
    assert pace.due
    report = pace.report([30.0, 6.0, 12.0], 10, 2, torch.device("cpu"))
    assert (report.loss, report.accuracy, report.images_per_second) == (2.5, 0.5, 2.0)
    assert (report.waiting, report.seconds_left) == (0.5, 60.0)
    assert not pace.due
    pace.next_batch(parts, 1)
    second = pace.report([36.0, 9.0, 18.0], 9, 2, torch.device("cpu"))
    assert (second.loss, second.accuracy, second.waiting) == (1.0, 0.5, 1.0)


def test_gpu_libraries_are_set_for_the_training_alone(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flags() -> tuple[bool, bool, bool]:
        backends = torch.backends
        return backends.cudnn.benchmark, backends.cudnn.allow_tf32, backends.cuda.matmul.allow_tf32

    seen = []
    step = loop.TrainingRun.step

    def noting(self: loop.TrainingRun, number: int, batch: list[Batch]) -> None:
        seen.append(flags())
        step(self, number, batch)

    monkeypatch.setattr(loop.TrainingRun, "step", noting)
    before = flags()
    small = ("train.epochs=1", "data.sample=32")
    train(tiny(*small), tmp_path / "default", progress=False)
    train(tiny(*small, "train.cudnn_benchmark=true", "train.tf32=all"), tmp_path / "fast", progress=False)
    train(tiny(*small, "train.tf32=none"), tmp_path / "exact", progress=False)
    assert seen == [(False, True, False), (True, True, True), (False, False, False)]
    assert flags() == before


def test_activations_that_are_computed_again_give_the_same_weights(tiny: Tiny, tmp_path: Path) -> None:
    network = 'architecture={name="timm", model="test_resnet"}'
    small = (network, "train.epochs=1", "data.sample=64", "optimizer.lr=0.01")
    kept = train(tiny(*small), tmp_path / "kept", progress=False).folder
    again = train(tiny(*small, "train.checkpoint_gradients=true"), tmp_path / "again", progress=False).folder
    assert same_weights(kept, again)
    with pytest.raises(TrainingError):
        train(tiny("train.checkpoint_gradients=true", "train.epochs=1"), tmp_path / "own", progress=False)


def test_a_second_forward_pass_leaves_the_statistics() -> None:
    network = build("resnet-20", classes=3, depth=8, width=4).train()
    norms = [module for module in network.modules() if isinstance(module, _BatchNorm)]
    before = {key: value.clone() for key, value in network.state_dict().items()}
    with kept_statistics(norms):
        network(torch.rand(4, 3, 32, 32))
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())
    network(torch.rand(4, 3, 32, 32))
    assert int(norms[0].num_batches_tracked) == 1 and norms[0].momentum == 0.1  # type: ignore[arg-type]


def test_the_last_epochs_are_unmixed(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mixed = []

    def noting(*arguments: object, **options: object) -> object:
        inner = make_scheme(*arguments, **options)  # type: ignore[arg-type]

        def call(model: object, views: object, targets: torch.Tensor, generator: object) -> object:
            mixed.append(targets.ndim == 2)
            return inner(model, views, targets, generator)  # type: ignore[arg-type]

        methods = {"prepare": staticmethod(lambda *given: None), "__call__": staticmethod(call)}
        return type("Noting", (), {"views": 1, **methods})()

    monkeypatch.setattr(loop, "make_scheme", noting)
    recipe = tiny("train.epochs=3", "data.sample=32", "batch_augmentations=[{name='mixup'}]", "train.epochs_unmixed=1")
    train(recipe, tmp_path / "run", progress=False)
    assert mixed == [True, True, False]


def test_a_student_learns_from_a_trained_model(tiny: Tiny, tmp_path: Path) -> None:
    small = ("train.epochs=1", "data.sample=32")
    teacher = f"hardened:{train(tiny(*small), tmp_path / 'teacher', progress=False).folder}"
    space = label_space("cifar-10")
    network = open_teacher(teacher, space, 32)
    pixels = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), np.uint8)
    with torch.inference_mode():
        logits = network(torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255)
    np.testing.assert_allclose(logits, load_classifier(teacher).scores(pixels), atol=1e-4)

    student = tiny(*small, f"scheme={{name='distillation', teacher='{teacher}'}}")
    taught = train(student, tmp_path / "student", progress=False)
    alone = train(tiny(*small), tmp_path / "alone", progress=False)
    assert not same_weights(taught.folder, alone.folder)
    with pytest.raises(TrainingError, match="other classes"):
        open_teacher(teacher, LabelSpace("reversed", space.keys[::-1], space.names[::-1]), 32)
    with pytest.raises(TrainingError, match="another input"):
        open_teacher(teacher, space, 48)


def test_sums_are_of_a_type_that_the_device_has() -> None:
    types = {}
    for name in ("cpu", "mps"):
        types[name] = Devices.sum_type.fget(SimpleNamespace(device=torch.device(name)))  # type: ignore[attr-defined]
    assert types == {"cpu": torch.float64, "mps": torch.float32}


def test_a_misspelt_network_of_timm_is_refused_before_any_data_is_read() -> None:
    with pytest.raises(UnknownNameError, match="resnet50"):
        check_recipe(load_recipe("imagenet-standard", ["architecture.model=resnet5O"]))
