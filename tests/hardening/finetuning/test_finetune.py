"""``sb.harden`` on a network of a few hundred weights and real images: what it trains, compares, keeps and refuses."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from PIL import Image
from torch import nn

import shiftbench as sb
from shiftbench.classifiers import Normalisation
from shiftbench.errors import ClassifierError, ShiftbenchError
from shiftbench.hardening.architectures.own import OwnNetwork, Preprocessed
from shiftbench.hardening.errors import TrainingError
from shiftbench.hardening.finetuning import plan as planning
from shiftbench.hardening.finetuning.model import LoadOptions, open_own_model
from shiftbench.hardening.finetuning.plan import HardeningPlan, StepTime, make_plan
from shiftbench.hardening.finetuning.run import Gain

PREPROCESSING = {
    "size": 32,
    "resize": "squash",
    "interpolation": "bilinear",
    "mean": 0.5,
    "std": 0.25,
    "colour": "rgb",
}
CLASSES = ("airplane", "automobile", "bird")
CODE = """
import torch
from torch import nn

def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(24, 3),
    ).eval()
"""


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty training and fifty validation images of each of three classes."""
    root = tmp_path_factory.mktemp("photos")
    dataset = sb.open_dataset("cifar-10-test")
    for name in CLASSES:
        label = dataset.space.names.index(name)
        for place, index in enumerate(np.flatnonzero(dataset.labels == label)[:90].tolist()):
            folder = root / ("train" if place < 40 else "val") / name
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(dataset.read(index).pixels).save(folder / f"{index}.png")
    return root


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """However fast the machine is, a training has two epochs, and every image meets one corruption."""
    monkeypatch.setattr(planning, "MAX_EPOCHS", 2)
    monkeypatch.setattr(planning, "MAX_PASSES", 1)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(CODE)
    return path


def network() -> nn.Module:
    names: dict[str, Callable[[], nn.Module]] = {}
    exec(CODE, names)
    return names["network"]()


def harden(model: object, photos: Path, out: Path, **options: object) -> sb.Hardened:
    options = {"minutes": 10, "preprocessing": PREPROCESSING, "labels": "folders", "progress": False} | options
    return sb.harden(model, photos / "train", photos / "val", out=out, **options)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_module_is_hardened_compared_exported_and_resumed(photos: Path, tmp_path: Path) -> None:
    module = network()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    messages: list[str] = []
    hardened = harden(module, photos, tmp_path / "run", report=messages.append)

    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    assert not torch.equal(hardened.module.state_dict()["0.weight"], before["0.weight"])
    pairs = {(gain.first, gain.second, gain.images) for gain in hardened.gains}
    assert len(pairs) == 6
    for gain in hardened.gains:
        assert gain.low <= gain.difference <= gain.high
        assert gain.n == 150
    # The clean differences, counted by hand from the predictions.
    clean = {result.name: hardened.run.workspace.read(result) for result in hardened.run.of_setting("val")}
    right = {name: predictions.correct.mean() for name, predictions in clean.items()}
    names = {"before": "Sequential", "control": "Sequential-plain", "hardened": "Sequential-augmix"}
    for gain in hardened.gains:
        if gain.images == "clean":
            assert gain.difference == pytest.approx(right[names[gain.first]] - right[names[gain.second]])
    # Both trainings had as many steps, and differ in the augmentation alone.
    logs = [(tmp_path / "run" / role / "log.jsonl").read_text().splitlines() for role in ("plain", "augmix")]
    assert [json.loads(line)["step"] for line in logs[0]] == [json.loads(line)["step"] for line in logs[1]]
    assert any(message.startswith("plan for") for message in messages)

    # The exported graph has the scores of the trained module, with the preprocessing and the classes of the model.
    assert hardened.export is not None
    export = sb.load_classifier(str(hardened.export))
    assert export.space.keys == CLASSES and not export.assumed
    images = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), np.uint8)
    with torch.inference_mode():
        inputs = (torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.25
        assert_allclose(export.scores(images), hardened.module(inputs).numpy(), atol=1e-4)

    # The command line has 10.0 minutes where Python has 10.
    again = harden(network(), photos, tmp_path / "run", minutes=10.0, report=messages.append)
    assert again.gains == hardened.gains and again.plan == hardened.plan
    assert messages.count(f"training Sequential-plain: {hardened.plan.epochs} epochs") == 1
    with pytest.raises(TrainingError, match="begun with"):
        harden(network(), photos, tmp_path / "run", seed=1)


@pytest.mark.slow
def test_code_of_ones_own_is_hardened_and_runs_only_with_trust(photos: Path, tmp_path: Path, code: Path) -> None:
    hardened = harden(f"{code}:network", photos, tmp_path / "run", augment="speckle", name="mine")
    assert hardened.classifier.name == "mine-speckle"
    folder = f"hardened:{tmp_path / 'run' / 'speckle'}"
    with pytest.raises(ClassifierError, match="runs code"):
        sb.load_classifier(folder)
    loaded = sb.load_classifier(folder, trust=True)
    images = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), np.uint8)
    assert_allclose(loaded.scores(images), hardened.classifier.scores(images), atol=1e-4)
    # The result can be hardened further, with the preprocessing that it has.
    further = open_own_model(folder, sb.open_dataset(photos / "train", space="folders"), LoadOptions(trust=True))
    assert further.classifier.preprocessing == hardened.classifier.preprocessing
    assert further.architecture.options["source"] == f"{code}:network"


def test_what_cannot_be_judged_is_refused_before_anything_is_trained(photos: Path, tmp_path: Path) -> None:
    data = photos / "train"
    with pytest.raises(TrainingError, match="no validation images"):
        sb.harden(network(), data, out=tmp_path)
    mixed = tmp_path / "mixed"
    for name in CLASSES:
        (mixed / name).mkdir(parents=True)
        for split in ("train", "val"):
            image = min((photos / split / name).iterdir())
            (mixed / name / f"{split}.png").write_bytes(image.read_bytes())
    with pytest.raises(TrainingError, match="3 of 6 validation images are also training images"):
        sb.harden(network(), data, mixed, labels="folders", preprocessing=PREPROCESSING, out=tmp_path / "run")
    others = tmp_path / "others"
    for number, name in enumerate(("apple", "pear", "plum")):
        (others / name).mkdir(parents=True)
        Image.new("RGB", (32, 32), (number, 0, 0)).save(others / name / "a.png")
    with pytest.raises(TrainingError) as caught:
        sb.harden(network(), data, others, labels=list(CLASSES), preprocessing=PREPROCESSING, out=tmp_path / "run")
    assert "apple" in str(caught.value.found) and "airplane" in str(caught.value.expected)
    with pytest.raises(TrainingError, match="too few validation images"):
        sb.harden(network(), photos / "val", data, labels="folders", preprocessing=PREPROCESSING, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def frozen() -> nn.Module:
    return network().requires_grad_(False)


class Detached(nn.Module):
    """Scores without a way back to the weights."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.inner(images).detach()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("model", "found"),
    [(frozen, "frozen"), (Detached, "backward"), (lambda: lambda images: np.zeros((len(images), 3)), "no torch")],
    ids=["frozen", "detached", "function"],
)
def test_models_without_trainable_weights_are_named(model: object, found: str, photos: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="can't be trained") as caught:
        harden(model(), photos, tmp_path / "run")  # type: ignore[operator]
    assert found in str(caught.value.found)


@pytest.mark.slow
def test_an_exported_program_is_trained_if_its_batch_is_dynamic(photos: Path, tmp_path: Path) -> None:
    images = (torch.zeros(2, 3, 32, 32),)
    torch.export.save(torch.export.export(network(), (torch.zeros(1, 3, 32, 32),)), tmp_path / "fixed.pt2")
    dynamic = torch.export.export(network(), images, dynamic_shapes=({0: torch.export.Dim("batch")},))
    torch.export.save(dynamic, tmp_path / "model.pt2")
    data = sb.open_dataset(photos / "train", space="folders")
    trusted = LoadOptions(preprocessing=PREPROCESSING, trust=True)
    with pytest.raises(ShiftbenchError, match="not loaded"):
        open_own_model(tmp_path / "model.pt2", data, LoadOptions(preprocessing=PREPROCESSING))
    with pytest.raises(TrainingError, match="batches of one size"):
        open_own_model(tmp_path / "fixed.pt2", data, trusted)
    own = open_own_model(tmp_path / "model.pt2", data, trusted)
    network_before = copy.deepcopy(own.network)
    optimizer = torch.optim.SGD(own.network.parameters(), 0.1)
    own.network.train()(torch.randn(3, 3, 32, 32)).logsumexp(dim=1).sum().backward()
    optimizer.step()
    changed = zip(own.network.parameters(), network_before.parameters(), strict=True)
    assert all(not torch.equal(after, before) for after, before in changed)


def test_the_plan_keeps_within_the_time_or_says_how_much_is_needed() -> None:
    for minutes in (1.0, 5.0, 60.0):
        plan = make_plan(
            "x", StepTime(0.01, 100), StepTime(0.03, 100), 32, per_pass=1.0, remaining=60 * minutes, spent=0.0
        )
        assert plan.seconds <= 60 * minutes
        assert plan.epochs >= 1 and plan.passes >= 1
    with pytest.raises(TrainingError, match="too little time") as caught:
        make_plan("x", StepTime(1.0, 100), StepTime(3.0, 100), 32, per_pass=10.0, remaining=60.0, spent=5.0)
    needed = float(str(caught.value.expected).split()[2])
    make_plan("x", StepTime(1.0, 100), StepTime(3.0, 100), 32, per_pass=10.0, remaining=60 * needed - 5, spent=5.0)


@pytest.mark.parametrize(
    "normalisation",
    [
        Normalisation(),
        Normalisation(mean=(104, 117, 124), std=(1, 1, 1), scale=1, colour_order="bgr"),
        Normalisation(colour_order="grey"),
        Normalisation(layout="nhwc"),
    ],
    ids=["rgb", "bgr", "grey", "nhwc"],
)
def test_training_sees_the_inputs_that_the_model_is_evaluated_on(normalisation: Normalisation) -> None:
    images = np.random.default_rng(1).integers(0, 256, (2, 5, 5, 3), np.uint8)
    inputs = Preprocessed(nn.Identity(), normalisation)(torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255)
    # Evaluation rounds the luma to whole levels.
    tolerance = 0.51 / 255 / 0.22 if normalisation.colour_order == "grey" else 1e-4
    assert_allclose(inputs.numpy(), normalisation(images), atol=tolerance)


def test_every_kind_of_output_becomes_logits() -> None:
    scores = torch.tensor([[0.2, 0.8], [0.9, 0.1]])

    class Returns(nn.Module):
        def __init__(self, output: object) -> None:
            super().__init__()
            self.output = output

        def forward(self, images: torch.Tensor) -> object:
            return self.output

    def probabilities(output: object, **options: bool) -> torch.Tensor:
        logits: torch.Tensor = OwnNetwork(Returns(output), 2, **options)(scores)
        return logits.softmax(dim=1)

    assert_allclose(probabilities({"logits": scores}).numpy(), scores.softmax(dim=1).numpy())
    assert_allclose(probabilities(scores, probabilities=True).numpy(), scores.numpy(), rtol=1e-6)
    single = scores[:, 1:]
    assert_allclose(probabilities(single, probabilities=True, single=True).numpy(), scores.numpy(), rtol=1e-6)
    assert_allclose(probabilities(single, single=True)[:, 1:].numpy(), single.sigmoid().numpy(), rtol=1e-6)


def test_a_model_that_became_worse_is_not_praised() -> None:
    """The augmentation may gain over the control while both lose against the original."""

    def gain(first: str, second: str, images: str, difference: float) -> Gain:
        return Gain(first, second, images, 0.5, 0.5, difference, difference - 0.01, difference + 0.01, 0.01, 500)

    def conclusion(total: float) -> str:
        gains = []
        for images in ("corruptions", "clean"):
            gains.append(gain("hardened", "control", images, 0.03))
            gains.append(gain("hardened", "before", images, total))
        plan = HardeningPlan("x", 1, 1, 4, 1, 0.1, 0.1, 1.0)
        unused: Any = None
        return sb.Hardened(Path(), "augmix", plan, unused, unused, unused, tuple(gains), unused, None).conclusion

    assert "more robust" in conclusion(0.02) and "WORSE" not in conclusion(0.02)
    assert "WORSE THAN THE ORIGINAL" in conclusion(-0.04)
