"""torchvision-style datasets as data, and the images of a setting for a DataLoader."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Subset

import shiftbench as sb
from shiftbench.classifiers.zoo import import_torchvision
from shiftbench.errors import DatasetError, SettingError

import_torchvision()

from torchvision.datasets import FakeData, ImageFolder  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

PETS = ["cat", "dog"]


class Network(torch.nn.Module):
    """Scores that depend on every pixel, so that another image gives other scores."""

    def __init__(self, classes: int = 2) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, stride=2), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(),
            torch.nn.Linear(32, classes),
        )  # fmt: skip

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.layers(images)
        return scores


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 images of two classes, among them a palette and a grey one, of different sizes."""
    root = tmp_path_factory.mktemp("data") / "photos"
    draws = np.random.default_rng(7)
    for name in ("cat", "dog"):
        (root / name).mkdir(parents=True)
        for number in range(20):
            pixels = draws.integers(0, 256, (30 + number, 40, 3)) * draws.random(3)
            image = Image.fromarray(pixels.astype(np.uint8))
            if number == 3:
                image = image.convert("P")
            if number == 4:
                image = image.convert("L")
            image.save(root / name / f"{number:02}.png")
    return root


@contextmanager
def refused(kind: type[sb.ShiftbenchError], *, found: str, expected: str) -> Iterator[None]:
    """An error whose fields contain these texts."""
    with pytest.raises(kind) as caught:
        yield
    assert found in str(caught.value.found) and expected in str(caught.value.expected), caught.value


def right_share(network: torch.nn.Module, loader: Iterable[list[torch.Tensor]]) -> float:
    """The accuracy, as a training loop computes it."""
    right = 0
    total = 0
    with torch.inference_mode():
        for images, targets in loader:
            right += int((network(images).argmax(1) == targets).sum())
            total += len(targets)
    return right / total


def test_an_image_folder_of_torchvision_gives_the_predictions_of_the_folder(folder: Path, tmp_path: Path) -> None:
    theirs = sb.from_torch_dataset(ImageFolder(str(folder)), name="photos")
    ours = sb.open_dataset(folder, labels="folders")
    assert list(theirs.ids) == list(ours.ids) and theirs.labels.tolist() == ours.labels.tolist()
    assert theirs.space.keys == ours.space.keys
    for index in range(len(ours)):
        assert (theirs.read(index).pixels == ours.read(index).pixels).all()
    stated = {"size": 32, "interpolation": "bicubic", "mean": 0.5, "std": 0.25, "colour": "rgb"}
    net = sb.load_classifier(Network(), labels=PETS, preprocessing=stated, name="net", engine="torch", outputs="logits")
    runs = []
    for name, data in (("theirs", theirs), ("ours", folder)):
        runs.append(sb.evaluate(net, data=data, labels="folders", workspace=tmp_path / name, progress=False))
    tops = [run.predictions("net", "photos").top[:, 0].tolist() for run in runs]
    assert tops[0] == tops[1] and len(set(tops[0])) == 2


def test_accuracy_equals_a_loop_over_the_same_dataset(folder: Path, tmp_path: Path) -> None:
    """The loop uses torchvision's own transform and knows nothing of shiftbench."""
    transform = v2.Compose(
        [v2.Resize((32, 32)), v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.25] * 3)]
    )
    network = Network().eval()
    loader = DataLoader(ImageFolder(str(folder), transform), batch_size=8)
    classifier = sb.load_classifier(network, labels=PETS, preprocessing=transform, engine="torch", outputs="logits")
    dataset = sb.from_torch_dataset(ImageFolder(str(folder)))
    run = sb.evaluate(classifier, data=dataset, workspace=tmp_path / "w", progress=False)
    assert run.metrics()["imagefolder/top1"] == right_share(network, loader)


def test_tensors_arrays_mappings_and_subsets(folder: Path) -> None:
    plain = ImageFolder(str(folder))
    expected = [np.asarray(plain[index][0]) for index in range(len(plain))]

    class Items:
        def __init__(self, change: object) -> None:
            self.change = change

        def __len__(self) -> int:
            return len(plain)

        def __getitem__(self, index: int) -> object:
            image, label = plain[index]
            return self.change(image, label)  # type: ignore[operator]

    to_tensor = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
    for change in (
        lambda image, label: (to_tensor(image), torch.tensor(label)),
        lambda image, label: {"image": np.asarray(image), "label": np.int64(label)},
        lambda image, label: [v2.functional.pil_to_tensor(image), label, "and a path"],
    ):
        dataset = sb.from_torch_dataset(Items(change), labels=["cat", "dog"])
        assert dataset.labels.tolist() == plain.targets and list(dataset.space.names) == ["cat", "dog"]
        assert all((dataset.read(index).pixels == expected[index]).all() for index in range(len(plain)))
    part = sb.from_torch_dataset(Subset(plain, [21, 2]))
    assert list(part.ids) == ["dog/01.png", "cat/02.png"] and part.labels.tolist() == [1, 0]
    assert list(part.space.names) == ["cat", "dog"]


def test_what_is_no_such_dataset_is_refused(folder: Path) -> None:
    normalised = v2.Compose(
        [v2.Resize((8, 8)), v2.ToImage(), v2.ToDtype(torch.float32, True), v2.Normalize([0.5] * 3, [0.5] * 3)]
    )
    with refused(DatasetError, found="float32 from", expected="multiples of 1/255"):
        sb.from_torch_dataset(ImageFolder(str(folder), normalised))
    with refused(DatasetError, found="str", expected="an integer"):
        sb.from_torch_dataset([(Image.new("RGB", (8, 8)), "cat")])
    with refused(DatasetError, found="int", expected="image, label"):
        sb.from_torch_dataset([3])
    with refused(DatasetError, found="0 to 2", expected="0 to 1"):
        sb.from_torch_dataset([(Image.new("RGB", (8, 8)), number) for number in range(3)], labels=["a", "b"])
    random = ImageFolder(str(folder), v2.RandomHorizontalFlip())
    augmented = sb.from_torch_dataset(random)
    with refused(DatasetError, found="differs", expected="same image"):
        for index in range(len(augmented)):
            augmented.read(index)
    with refused(sb.ShiftbenchError, found="FakeData", expected="a dataset"):
        sb.evaluate(Network(), data=FakeData(2))


@pytest.mark.parametrize("name", ["photos", "photos-c.fog.3", "photos-c.gaussian_noise.5"])
def test_the_images_of_a_setting_give_the_accuracy_of_the_run(name: str, folder: Path, tmp_path: Path) -> None:
    classifier = sb.load_classifier(
        Network(), labels=PETS, engine="torch", outputs="logits",
        preprocessing={"size": 32, "interpolation": "bilinear", "mean": 0.4, "std": 0.2, "colour": "rgb"},
    )  # fmt: skip
    run = sb.evaluate(
        classifier, "corruptions", data=folder, labels="folders", workspace=tmp_path / "w", seed=5, progress=False,
        corruptions=["fog", "gaussian_noise"], severities=[3, 5],
    )  # fmt: skip
    images = sb.torch_dataset(name, folder, labels="folders", preprocessing=classifier, seed=5)
    loader: DataLoader[list[torch.Tensor]] = DataLoader(images, batch_size=16)  # type: ignore[arg-type]
    network = Network().eval()
    tops = torch.cat([network(batch).argmax(1) for batch, _ in loader]).tolist()
    predictions = run.predictions(classifier.name, name)
    assert tops == predictions.top[:, 0].tolist() and list(predictions.ids) == images.ids
    assert right_share(network, loader) == run.metrics()[name.replace(".", "/") + "/top1"]
    again = pickle.loads(pickle.dumps(images))
    assert torch.equal(torch.as_tensor(again[3][0]), torch.as_tensor(images[3][0]))
    assert images[-1][1] == 1


def test_images_without_a_preprocessing_and_for_a_transform(folder: Path) -> None:
    raw = sb.torch_dataset("photos-c.contrast.2", folder, labels="folders")
    image, label = raw[23]
    assert isinstance(image, torch.Tensor) and image.dtype == torch.uint8 and label == 1
    clean = np.asarray(Image.open(folder / raw.ids[23]).convert("RGB"))
    assert (image.permute(1, 2, 0).numpy() == sb.corrupt(clean, "contrast", 2, image_id=raw.ids[23])).all()
    transformed = sb.torch_dataset("photos-c.contrast.2", folder, labels="folders", transform=v2.PILToTensor())
    assert torch.equal(torch.as_tensor(transformed[23][0]), image)
    with pytest.raises(SettingError):
        sb.torch_dataset("photos-c.no_such.2", folder, labels="folders")
    with pytest.raises(IndexError):
        raw[len(raw)]
