"""Every registered suite through the command line, on small generated layouts: eval and table, and for one suite of
each kind compare, report and figures, too."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import shiftbench as sb
from shiftbench.reports.corruption import corruption_families
from shiftbench.settings.base import suites
from tests.commands import answer, output
from tests.datasets import official_trees as trees
from tests.datasets.factor_trees import deepfashion2_tree
from tests.datasets.icons.originals import original_folder
from tests.datasets.makers import small_images
from tests.datasets.test_factors import shops_on_disk
from tests.datasets.test_subtypes import cifar_100, imagenet_22k

MODEL = """
import torch
from torch import nn
import shiftbench as sb

SPACE = {space}

class Tiny(nn.Module):
    def __init__(self, seed):
        super().__init__()
        drawn = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(len(SPACE), 12, generator=drawn))

    def forward(self, x):
        return 10 * nn.functional.adaptive_avg_pool2d(x, 2).flatten(1) @ self.weight.T

def make(name, seed):
    crop = sb.Preprocessing(sb.Geometry(resize=32, crop=32))
    return sb.load_classifier(
        Tiny(seed), name=name, labels=SPACE, preprocessing=crop, engine="torch", device="cpu", batch_size=64
    )

def first():
    return make("first", 0)

def second():
    return make("second", 1)
"""
#: Label spaces that ImageNet's test sets are restricted to: each must have some of the images.
SPACES = (
    "imagenet-a-200",
    "imagenet-r-200",
    "imagenet-o-200",
    "objectnet-113",
    "vid-robust-30",
    "ytbb-robust-24",
    "imagenet-eighth-125",
    "imagenet-22k-25",
)


@cache
def photographs() -> tuple[trees.Photograph, ...]:
    """Small images of two classes of every label space."""
    found = [np.flatnonzero(sb.label_space(space).relabel_from(trees.FULL) >= 0)[[1, -1]] for space in SPACES]
    labels = sorted({int(label) for pair in found for label in pair})
    draw = np.random.default_rng(0)
    images = [Image.fromarray(draw.integers(0, 256, (40, 40, 3), np.uint8)) for _ in labels]
    return tuple(trees.Photograph(i, image, label) for i, (image, label) in enumerate(zip(images, labels, strict=True)))


def imagenet(root: Path) -> None:
    trees.make_all(root, photographs())
    imagenet_22k(root / "imagenet-22k")
    for severity in range(1, 6):
        trees.class_tree(root / "imagenet-c" / "contrast" / str(severity), photographs(), trees.val_name)


def cifar(root: Path) -> None:
    labels = np.arange(10)
    trees.cifar_python(root / "cifar-10", small_images(10), labels)
    for version in ("v4", "v6"):
        trees.cifar_10_1(root / "cifar-10.1", version, small_images(10, 1), labels)
    trees.cifar_10_2(root / "cifar-10.2", small_images(10, 2), labels)
    cifar_100(root / "cifar-100")


def others(root: Path) -> None:
    root.mkdir()
    original_folder(root / "icons")
    deepfashion2_tree(root / "DeepFashion2", train=4, validation=20)
    shops_on_disk(root)


@dataclass(frozen=True)
class Case:
    suite: str
    #: An expression of the label space of the models.
    space: str
    layout: Callable[[Path], None]
    #: Below the layout's folder.
    data: str = ""
    options: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.suite}-{self.layout.__name__}"


#: All of their settings are in another suite below, or of the same kind as another's: evaluated and tabulated only.
BRIEF = re.compile(
    "imagenet|imagenet-[ar]|imagenetv2|imagenet-sketch|objectnet|real-blurry-images|stylized-imagenet|"
    "imagenet-vid-robust|ytbb-robust|clean|cifar-100|cifar-100-subtypes-[234]|icons-(subtype|version)|imagenet-c-extra"
)
IMAGENET = "sb.label_space('imagenet-1k')"
CIFAR = "sb.label_space('cifar-10')"
FEW = ("--corruption", "contrast,saturate", "--severity", "1,5")
FRAMES = ("--corruption", "rotate,gaussian_noise")
#: Suites that need more than ImageNet's folders by role.
OWN = {
    "corruptions": FEW,
    "perturbations": FRAMES,
    "clean": (),
    "attacks": ("--sample", "4"),
    "autoattack": ("--sample", "2"),
}
OPTIONS = {
    "imagenet-c": FEW,
    "many-faces": FEW,
    "imagenet-p": ("--corruption", "rotate"),
    "cifar-10-c": FEW,
    "demo": (*FEW, "--sample", "3"),
    "imagenet-c-extra": ("--corruption", "saturate", "--severity", "1,5"),
}
SPECIAL = {
    "cifar": Case("cifar", CIFAR, cifar),
    "cifar-10-c": Case("cifar-10-c", CIFAR, cifar),
    "cifar-100": Case("cifar-100", "sb.label_space('cifar-100')", cifar),
    "deepfashion-remixed": Case("deepfashion-remixed", "sb.label_space('deepfashion2-13')", others, "DeepFashion2"),
    "streetview-storefronts": Case(
        "streetview-storefronts",
        "sb.label_space('streetview-storefronts-20')",
        others,
        "shops.csv",
        ("--labels", "folders"),
    ),
    **{
        f"icons-{name}": Case(f"icons-{name}", "sb.label_space('icons-50')", others)
        for name in ("style", "subtype", "version")
    },
    **{
        f"cifar-100-subtypes-{k}": Case(f"cifar-100-subtypes-{k}", "sb.label_space('cifar-100-20')", cifar)
        for k in range(1, 5)
    },
}


def cases() -> list[Case]:
    """A suite that nobody described runs on ImageNet's folders: if it needs others, it must be added above."""
    found = []
    for name in suites.names():
        if name in OWN:
            found.append(Case(name, IMAGENET, imagenet, "imagenet-val", OWN[name]))
            found.append(Case(name, CIFAR, cifar, "cifar-10", OWN[name]))
        elif name in SPECIAL:
            found.append(SPECIAL[name])
        else:
            found.append(Case(name, IMAGENET, imagenet))
    return [Case(c.suite, c.space, c.layout, c.data, OPTIONS.get(c.suite, c.options)) for c in found]


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[Path], None]], Path]:
    @cache
    def made(layout: Callable[[Path], None]) -> Path:
        root = tmp_path_factory.mktemp("layouts") / layout.__name__
        layout(root)
        return root

    return made


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", cases(), ids=str)
def test_a_suite_from_eval_to_the_report(case: Case, layouts: Any, tmp_path: Path) -> None:
    root = layouts(case.layout)
    workspace = tmp_path / "w"
    (tmp_path / "model.py").write_text(MODEL.format(space=case.space))
    given = () if case.suite == "demo" else ("--data", root / case.data)
    brief = BRIEF.fullmatch(case.suite) is not None or (case.suite in OWN and case.layout is cifar)
    names = ("first",) if brief or case.suite == "testbed-213" else ("first", "second")
    models = [tmp_path / f"model.py:{name}" for name in names]
    output("eval", *models, "--suite", case.suite, *given, *case.options, "-w", workspace, "--keep-scores", "-q")
    run = sb.Run.open(workspace)
    assert set(run.classifiers) == set(names)
    assert output("table", "-w", workspace)
    if brief:
        return
    single = [r.setting for r in run.results if r.spec.metric in ("top1", "error") and r.spec.shift.frame is None]
    families = {name: one.places for name, one in corruption_families(run).items()}
    if single and not families:
        output("compare", "-w", workspace, "-s", single[0])
        output("figure", "reliability", "-w", workspace, "-s", single[0], "-o", tmp_path / "r.svg")
    assert all("eps" not in corruption for places in families.values() for corruption, _ in places)
    if families:
        printed = output("table", "--mce", "-w", workspace, "-f", "csv")
        assert all(name in printed for name in families)
        output("figure", "corruptions", "-w", workspace, "--family", min(families), "-o", tmp_path / "panels.svg")
    for name in families:
        output("figure", "heatmap", "-w", workspace, "--family", name, "-o", tmp_path / "heatmap.svg")
    page = answer("report", "-w", workspace, "-o", tmp_path / "r.html")
    assert page["models"] == len(names) and page["corruption_families"] == len(families)
    if case.suite == "testbed-213":
        assert {name: len(places) for name, places in families.items()} == {
            "imagenet-c_on-disk": 5,
            "imagenet-c_in-memory": 90,
        }
