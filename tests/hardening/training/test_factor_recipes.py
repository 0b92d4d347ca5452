"""The recipes of 000 on DeepFashion Remixed and StreetView StoreFronts that train on augmented copies.

Each runs by the instructions in its file, in miniature: copies, training, and the suite that scores the network.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from shiftbench import open_dataset
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import open_named
from shiftbench.datasets.subset import take
from shiftbench.hardening.augmentations.copies import RECORD, augment_folder, open_copies
from shiftbench.hardening.augmentations.deepaugment.cae import CompressiveAutoencoder
from shiftbench.hardening.augmentations.deepaugment.edsr import EDSR
from shiftbench.hardening.augmentations.networks import save_network, train_network
from shiftbench.hardening.errors import AugmentationError
from tests.commands import answer, output
from tests.datasets.factor_trees import deepfashion2_tree
from tests.datasets.test_factors import shops_on_disk

MINIATURE = [
    *("--set", "architecture.model=test_resnet", "--set", "architecture.pretrained=false", "--set", "train.epochs=1"),
    *("--set", "train.batch_size=8", "--set", "data.size=32", "--set", "data.empty_classes=true", "--quiet"),
]


def crop(augmentation: int) -> list[str]:
    """The option that gives the random crop, which is this augmentation of the recipe, the miniature's size."""
    return ["--set", f"augmentations.{augmentation}.size=32"]


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[object]]:
    """For each augmentation of the recipes, the options of `harden augment` that name its network."""
    folder = tmp_path_factory.mktemp("networks")
    torch.manual_seed(0)
    save_network(EDSR(scale=2, blocks=4, features=8), folder / "edsr.safetensors")
    save_network(CompressiveAutoencoder(features=16), folder / "cae.safetensors")
    photographs = take(open_named("cifar-10-test"), range(20))
    save_network(train_network("adain", photographs, steps=2, size=32, show=False), folder / "adain.safetensors")
    return {
        "EDSR": ["-a", "deepaugment-edsr", "--network", folder / "edsr.safetensors", "-o", "size=32"],
        "CAE": ["-a", "deepaugment-cae", "--network", folder / "cae.safetensors", "-o", "size=32"],
        "STYLIZED": ["-a", "stylize", "--network", folder / "adain.safetensors"],
    }


@pytest.fixture(scope="module")
def fashion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return deepfashion2_tree(tmp_path_factory.mktemp("fashion") / "DeepFashion2", train=30, validation=40)


@pytest.fixture(scope="module")
def shops(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shops_on_disk(tmp_path_factory.mktemp("shops"))


def make_copies(copies: list[str], source: Path, out: Path, networks: dict[str, list[object]]) -> list[str]:
    """Make the copies that a recipe names; returns the option that says where they are."""
    for name in copies:
        output("harden", "augment", source, out / name, *networks[name], "--quiet")
    return ["--set", f"data.extra={[str(out / name) for name in copies]}"]


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "copies"), [("stylized", ["STYLIZED"]), ("deepaugment", ["EDSR", "CAE"])])
def test_recipes_of_deepfashion_remixed(
    recipe: str, copies: list[str], fashion: Path, networks: dict[str, list[object]], tmp_path: Path
) -> None:
    extra = make_copies(copies, fashion / "train", tmp_path, networks)
    train = f"factors:deepfashion-remixed:{fashion}/train"
    output("harden", "train", f"dfr-{recipe}", "--data", train, "--out", tmp_path / "run", *extra, *crop(1), *MINIATURE)
    data = f"deepfashion-remixed={fashion}"
    suite = ["--suite", "deepfashion-remixed", "--data", data, "-w", tmp_path / "w"]
    output("eval", f"hardened:{tmp_path / 'run'}", *suite, "--quiet")
    scores = answer("table", "-w", tmp_path / "w")["scores"]
    assert (
        len([score for score in scores if score["metric"] == "mean_average_precision"]) == 10
    )  # nine sets, and the mean over the shifts


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "copies"), [("stylized", ["STYLIZED"]), ("deepaugment", ["EDSR", "CAE"])])
def test_recipes_of_streetview_storefronts(
    recipe: str, copies: list[str], shops: Path, networks: dict[str, list[object]], tmp_path: Path
) -> None:
    extra = make_copies(copies, shops.parent, tmp_path, networks)
    train = f"factors:streetview-storefronts:{shops}/train"
    output(
        "harden", "train", f"svsf-{recipe}", "--data", train, "--out", tmp_path / "run", *extra, *crop(0), *MINIATURE
    )
    data = f"streetview-storefronts={shops}"
    suite = ["--suite", "streetview-storefronts", "--data", data, "-w", tmp_path / "w"]
    output("eval", f"hardened:{tmp_path / 'run'}", *suite, "--quiet")
    scores = answer("table", "-w", tmp_path / "w")["scores"]
    assert (
        len([score for score in scores if score["metric"] == "error"]) == 6
    )  # five sets, and the mean over the shifts


@pytest.fixture
def originals(fashion: Path) -> Dataset:
    return open_dataset(f"factors:deepfashion-remixed:{fashion}/train")


def test_copies_have_the_labels_of_their_originals(fashion: Path, originals: Dataset, tmp_path: Path) -> None:
    augment_folder(fashion / "train", tmp_path / "copies", "speckle", copies=2)
    copies = open_copies(tmp_path / "copies", originals)
    assert copies is not None and originals.label_sets is not None and copies.label_sets is not None
    assert len(copies) == 2 * len(originals) and copies.space == originals.space
    for row, path in enumerate(copies.paths):
        original = originals.ids[row // 2]
        number = Path(original).stem
        assert path in (f"image/{number}-1.jpg", f"image/{number}-2.jpg")
        assert copies.label_sets[row] == originals.label_sets[row // 2]
        # A copy looks more like its original than like the next image.
        difference = copies.read(row).pixels.astype(float) - originals.read(row // 2).pixels
        other = copies.read(row).pixels.astype(float) - originals.read(row // 2 - 1).pixels
        assert np.abs(difference).mean() < np.abs(other).mean()


def test_copies_of_a_part_are_those_of_its_images(fashion: Path, originals: Dataset, tmp_path: Path) -> None:
    augment_folder(fashion, tmp_path / "copies", "speckle")
    part = take(originals, [3, 1])
    copies = open_copies(tmp_path / "copies", part)
    assert copies is not None and copies.paths == [originals.ids[3], originals.ids[1]]
    assert copies.label_sets == part.label_sets


def test_copies_of_other_images_are_not_taken(originals: Dataset, tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    Image.new("RGB", (32, 32)).save(tmp_path / "others" / "x.png")
    augment_folder(tmp_path / "others", tmp_path / "copies", "speckle")
    assert open_copies(tmp_path / "copies", originals) is None


def test_a_copy_that_is_missing_is_named(fashion: Path, originals: Dataset, tmp_path: Path) -> None:
    augment_folder(fashion / "train", tmp_path / "copies", "speckle")
    lost = tmp_path / "copies" / Path(originals.ids[-1]).relative_to("train")
    lost.unlink()
    with pytest.raises(AugmentationError) as raised:
        open_copies(tmp_path / "copies", originals)
    assert raised.value.found == f"no {lost.relative_to(tmp_path / 'copies')}"


def test_an_image_that_could_not_be_augmented_has_no_copy(tmp_path: Path) -> None:
    source = tmp_path / "source" / "cat"
    source.mkdir(parents=True)
    Image.new("RGB", (32, 32)).save(source / "good.png")
    (source / "bad.png").write_bytes(b"no image")
    augment_folder(source.parent, tmp_path / "copies", "speckle")
    assert (tmp_path / "copies" / RECORD).is_file()
    copies = open_copies(tmp_path / "copies", open_dataset(source.parent, space="folders"))
    assert copies is not None and copies.paths == ["cat/good.png"]
