"""Models of grey images, and models with one output for two classes: as their own scripts compute them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import shiftbench as sb
from shiftbench.classifiers.preprocessing import Normalisation
from shiftbench.classifiers.torch_ import normalised_on, torch_twin
from shiftbench.classifiers.zoo import import_torchvision
from shiftbench.datasets import from_arrays
from shiftbench.labels.space import LabelSpace
from tests.commands import answer, output

MEAN = 0.3
STD = 0.2


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes that differ in their colours as much as in their lightness."""
    folder = tmp_path_factory.mktemp("data") / "photos"
    rng = np.random.default_rng(0)
    for name, colour in (("dull", (120, 70, 40)), ("glad", (60, 110, 90))):
        (folder / name).mkdir(parents=True)
        for i in range(20):
            pixels = np.clip(colour + rng.normal(0, 30, (12, 20, 3)) + rng.normal(0, 15), 0, 255)
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{i}.png")
    return folder


def network(channels: int, outputs: int) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        layers = (nn.Conv2d(channels, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, outputs))
    return nn.Sequential(*layers).eval()


def inputs(photos: Path, mode: str) -> tuple[torch.Tensor, list[int]]:
    """By Pillow, one image at a time."""
    paths = sorted(photos.glob("*/*.png"))
    pixels = [np.asarray(Image.open(path).convert(mode)).reshape(12, 20, -1) for path in paths]
    stack = (np.stack(pixels) / 255 - MEAN) / STD
    return torch.from_numpy(stack.transpose(0, 3, 1, 2)).float(), [int(path.parent.name == "glad") for path in paths]


def trained(channels: int, outputs: int, batch: torch.Tensor, labels: list[int]) -> nn.Sequential:
    made = network(channels, outputs)
    optimiser = torch.optim.Adam(made.parameters(), 0.02)
    targets = torch.tensor(labels)
    for _ in range(60):
        scores = made(batch)
        scores = scores if outputs == 2 else torch.cat([torch.zeros_like(scores), scores], dim=1)
        optimiser.zero_grad()
        nn.functional.cross_entropy(scores, targets).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return made


def score(run: sb.Run) -> float:
    return next(iter(run.shown_scores()))[2].value


def export(made: nn.Module, path: Path, example: torch.Tensor) -> Path:
    torch.onnx.export(made, (example,), str(path), dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "n"}})
    return path


def test_a_grey_model_by_every_route(photos: Path, tmp_path: Path) -> None:
    batch, labels = inputs(photos, "L")
    made = trained(1, 2, batch, labels)
    with torch.inference_mode():
        truth = float((made(batch).argmax(1).numpy() == labels).mean())
    assert truth > 0.65
    stated = {"size": [12, 20], "mean": MEAN, "std": STD}
    shared: dict[str, Any] = {"data": photos, "labels": "folders", "workspace": tmp_path / "w", "progress": False}
    assert score(sb.evaluate(made, preprocessing=stated, name="module", **shared)) == pytest.approx(truth)
    path = export(made, tmp_path / "grey.onnx", torch.zeros(2, 1, 12, 20))
    assert sb.load_classifier(str(path), labels=["dull", "glad"]).sources["colour order"] == "file"
    found = answer(
        "eval", path, "--data", photos, "--preprocess", f"mean={MEAN},std={STD}", "-w", tmp_path / "v", "--strict"
    )
    assert found["scores"][0]["value"] == pytest.approx(truth)
    # Trained elsewhere, in TorchScript, nothing says that it takes one channel: one word states it.
    traced = tmp_path / "grey.pt"
    torch.jit.save(torch.jit.trace(made, torch.zeros(2, 1, 12, 20)), str(traced))  # type: ignore[no-untyped-call]
    grey = {**stated, "color": "gray"}
    assert score(sb.evaluate(str(traced), preprocessing=grey, trust=True, **shared)) == pytest.approx(truth)
    import_torchvision()
    from torchvision import transforms

    own = transforms.Compose([transforms.Grayscale(), transforms.ToTensor(), transforms.Normalize([MEAN], [STD])])
    assert score(sb.evaluate(made, preprocessing=own, name="transform", **shared)) == pytest.approx(truth)


def test_a_grey_graph_of_pixels_and_its_sidecar(photos: Path, tmp_path: Path) -> None:
    batch, labels = inputs(photos, "L")
    made = trained(1, 2, batch, labels)

    class OfPixels(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = made

        def forward(self, pixels: torch.Tensor) -> Any:
            return self.inner((pixels.permute(0, 3, 1, 2).float() / 255 - MEAN) / STD)

    path = export(OfPixels().eval(), tmp_path / "pixels.onnx", torch.zeros(2, 12, 20, 1, dtype=torch.uint8))
    found = answer("eval", path, "--data", photos, "-w", tmp_path / "w", "--labels", "folders", "--strict")
    with torch.inference_mode():
        assert found["scores"][0]["value"] == pytest.approx(float((made(batch).argmax(1).numpy() == labels).mean()))
    plain = export(made, tmp_path / "grey.onnx", torch.zeros(2, 1, 12, 20))
    described = ("describe", plain, "--data", photos, "--preprocess", f"mean={MEAN},std={STD}")
    answer(*described, "--write")
    assert json.loads(Path(f"{plain}.json").read_text())["colour"] == "grey"
    assert answer("eval", plain, "--data", photos, "-w", tmp_path / "v", "--strict")["warnings"] == []


def test_grey_is_the_same_on_every_engine() -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 9, 7, 3)).astype(np.uint8)
    grey = Normalisation(mean=(0.5, 0.4, 0.3), colour_order="grey")
    assert grey.mean == (0.4,) * 3 and grey(images).shape == (3, 1, 9, 7)
    assert np.array_equal(normalised_on("cpu", images, grey).numpy(), grey(images))
    expected = np.stack([np.asarray(Image.fromarray(image).convert("L")) for image in images])[:, None]
    plain = Normalisation(mean=(0, 0, 0), std=(1, 1, 1), scale=1, colour_order="grey")
    assert np.array_equal(plain(images), expected)


def test_three_means_of_a_grey_model_are_an_error() -> None:
    with pytest.raises(sb.ShiftbenchError) as caught:
        sb.load_classifier(network(1, 2), labels=["a", "b"], preprocessing={"size": 12, "mean": [0.5, 0.4, 0.3]})
    assert caught.value.found == [0.5, 0.4, 0.3]


@pytest.mark.parametrize("ending", ["logit", "flat", "sigmoid"])
def test_one_output_of_two_classes(photos: Path, tmp_path: Path, ending: str) -> None:
    batch, labels = inputs(photos, "RGB")
    inner = trained(3, 1, batch, labels)
    with torch.inference_mode():
        logits = inner(batch)[:, 0].numpy()
    truth = float(((logits > 0) == labels).mean())
    made = {"logit": inner, "flat": nn.Sequential(inner, nn.Flatten(0)), "sigmoid": nn.Sequential(inner, nn.Sigmoid())}[
        ending
    ]
    path = export(made, tmp_path / "one.onnx", torch.zeros(2, 3, 12, 20))
    for model in (made, str(path)):
        outputs = "probabilities" if ending == "sigmoid" else "logits"
        stated = {"size": [12, 20], "mean": MEAN, "std": STD, "outputs": outputs}
        run = sb.evaluate(
            model, data=photos, workspace=tmp_path / "w", preprocessing=stated, labels="folders", progress=False
        )
        assert score(run) == pytest.approx(truth)
        confidence = run.predictions().confidence
        likely = 1 / (1 + np.exp(-np.abs(logits)))
        assert np.sort(confidence) == pytest.approx(np.sort(likely), abs=1e-4)
    loaded = sb.load_classifier(
        inner, labels=["dull", "glad"], preprocessing={"size": [12, 20], "mean": MEAN, "std": STD}
    )
    assert "1, for two classes" in output("describe", path, "--data", photos)
    pixels = (batch * STD + MEAN)[:4]
    differentiable: Any = torch_twin(loaded).gradient_model()
    assert torch.allclose(differentiable(pixels)[:, 1], inner(batch)[:4, 0], atol=1e-4)


def test_whether_one_output_is_a_probability_is_assumed(tmp_path: Path) -> None:
    """Four logits may lie between 0 and 1 by chance, so what was measured must be confirmed."""
    sigmoid = nn.Sequential(network(3, 1), nn.Sigmoid())
    stated = {"resize": "none", "crop": "none", "mean": 0.5, "std": 0.5, "colour": "rgb"}
    made = sb.load_classifier(sigmoid, labels=["a", "b"], preprocessing=stated)
    assert made.outputs == "probabilities" and made.assumed == ("outputs",)
    assert sb.load_classifier(sigmoid, labels=["a", "b"], preprocessing=stated | {"outputs": "logits"}).assumed == ()


def test_class_numbers_are_not_scores() -> None:
    class Answer(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images.mean(dim=(1, 2, 3)).long()

    with pytest.raises(sb.ShiftbenchError):
        sb.load_classifier(Answer(), labels=["a", "b", "c"], preprocessing={"size": 12, "mean": 0.5, "std": 0.5})


def test_sigmoids_are_assumed_to_be_probabilities() -> None:
    """One sigmoid for each class: the scores do not sum to one, and are no logits."""

    def sigmoids(images: Any) -> Any:
        light = images.mean(axis=(1, 2)) / 255
        return (1 / (1 + np.exp(-20 * (light - 0.4)))).astype(np.float32)

    classes = LabelSpace("colours", ("blue", "green", "red"))
    with pytest.warns(sb.ResultWarning, match="outputs=probabilities"):
        classifier = sb.load_classifier(sigmoids, default_labels=classes, preprocessing={"size": 8})
    assert classifier.outputs == "probabilities" and "outputs" in classifier.assumed


def test_assumed_probabilities_above_one_are_refused(tmp_path: Path) -> None:
    """Logits that lie between 0 and 1 for the images of the trial, and not for bright ones."""

    def logits(images: Any) -> Any:
        light = images.mean(axis=(1, 2, 3)) / 255
        return np.stack([np.full_like(light, 0.2), 1.8 * light], axis=1).astype(np.float32)

    white = from_arrays(np.full((2, 8, 8, 3), 255, np.uint8), [0, 1], space=["dull", "glad"])
    stated = {"size": 8, "interpolation": "bilinear"}
    with pytest.warns(sb.ResultWarning), pytest.raises(sb.ShiftbenchError):
        sb.evaluate(logits, data=white, preprocessing=stated, workspace=tmp_path / "w", progress=False)
    said = stated | {"outputs": "logits"}
    run = sb.evaluate(logits, data=white, preprocessing=said, workspace=tmp_path / "w", progress=False)
    assert run.predictions().confidence == pytest.approx([1 / (1 + np.exp(0.2 - 1.8))] * 2, abs=1e-3)
