"""The scales of the experiments that are as large as the papers': checked before the training, and run in miniature."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from shiftbench.errors import SettingError
from shiftbench.hardening.augmentations.copies import augment_folder
from shiftbench.hardening.errors import TrainingError
from shiftbench.hardening.experiments import run
from shiftbench.hardening.experiments.base import Experiment, load_experiment
from shiftbench.hardening.experiments.report import experiment_table
from shiftbench.hardening.experiments.run import run_experiment
from shiftbench.hardening.experiments.study import ExperimentStudy
from shiftbench.hardening.recipe import builtin_names, load_recipe
from shiftbench.jobs.executors import ThreadExecutor
from tests.datasets.factor_trees import deepfashion2_tree
from tests.datasets.icons.originals import original_folder
from tests.datasets.test_factors import shops_on_disk
from tests.test_suites_end_to_end import cifar, imagenet

EXPERIMENTS = builtin_names("experiments")
#: Two networks of each scale on large images: what is written beside the metric is the reference and the last setting.
TWO_ARMS = {
    ("natural-adversarial", "paper"): (("standard", "noise"), "val-on-imagenet-a-classes", "imagenet-a"),
    ("natural-adversarial", "paper-o"): (("standard", "noise"), "val-on-imagenet-o-classes", "imagenet-o"),
    ("many-faces", "paper"): (("standard", "deepaugment"), "val-on-imagenet-r-classes", "imagenet-r"),
    ("many-faces", "paper-c"): (("standard", "larger"), "val", "imagenet-c.contrast.5"),
    ("many-faces", "paper-a"): (("standard", "stylized"), "val-on-imagenet-a-classes", "imagenet-a"),
    ("many-faces", "paper-blur"): (("standard", "larger"), "val", "real-blurry-images"),
    ("many-faces", "paper-dfr"): (("standard", "deepaugment"), "deepfashion-remixed.test", "deepfashion-remixed"),
    ("many-faces", "paper-svsf"): (
        ("standard", "deepaugment"),
        "streetview-storefronts.test",
        "streetview-storefronts.france",
    ),
    ("subtypes", "paper-22k"): (("standard", "wider"), "imagenet-22k-subtypes.seen", "imagenet-22k-subtypes.unseen"),
}


def paper_scales() -> list[tuple[str, str]]:
    scales = []
    for name in EXPERIMENTS:
        scales += [(name, scale) for scale in load_experiment(name).scales if scale.startswith("paper")]
    return scales


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small trees of all datasets, and the copies that recipes name, made as their comments say."""
    root = tmp_path_factory.mktemp("scales")
    imagenet(root / "imagenet")
    cifar(root / "cifar")
    original_folder(root / "icons")
    deepfashion2_tree(root / "DeepFashion2", train=30, validation=40)
    (root / "shops").mkdir()
    shops_on_disk(root / "shops")
    for source in (root / "imagenet" / "imagenet-val", root / "DeepFashion2" / "train", root / "shops"):
        for copy in ("EDSR", "CAE", "STYLIZED"):
            augment_folder(source, root / f"copies-of-{source.name}" / copy, "speckle")
    return root


def roles(place: Path) -> dict[str, str]:
    data = {folder.name: str(folder) for parent in ("imagenet", "cifar") for folder in (place / parent).iterdir()}
    data["imagenet-train"] = data["imagenet-val"]
    data["icons"] = str(place / "icons")
    data["deepfashion-remixed"] = str(place / "DeepFashion2")
    return data


def roles_of(experiment: Experiment, scale: str, place: Path) -> dict[str, str]:
    """The data of the scale's protocol only, as its comment lists it."""
    data = roles(place)
    if experiment.name == "many-faces" and scale == "paper-dfr":
        return {"deepfashion-remixed": data["deepfashion-remixed"]}
    if experiment.name == "many-faces" and scale == "paper-svsf":
        return {"streetview-storefronts": str(place / "shops" / "shops.csv")}
    return data


def enter_folder_of_copies(monkeypatch: pytest.MonkeyPatch, place: Path, scale: str) -> None:
    copies = {"paper-dfr": "copies-of-train", "paper-svsf": "copies-of-shops"}
    monkeypatch.chdir(place / copies.get(scale, "copies-of-imagenet-val"))


class _ReadyError(Exception):
    """Everything before the first training has been done."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "scale"), paper_scales())
def test_every_scale_is_ready_to_train(
    name: str, scale: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plans, recipes, label spaces, data and the evaluation of all arms are checked, and none is refused."""

    def ready(*arguments: object) -> None:
        raise _ReadyError

    monkeypatch.setattr(run, "_train_all", ready)
    enter_folder_of_copies(monkeypatch, place, scale)
    experiment = load_experiment(name)
    data = roles_of(experiment, scale, place)
    with pytest.raises(_ReadyError):
        run_experiment(name, scale=scale, seeds=1, data=data, out=tmp_path, progress=False)


def miniature(experiment: Experiment, scale: str, names: Sequence[str]) -> Experiment:
    """The experiment with these variants, each with its recipe's own steps on a few small images for an epoch."""
    settings = experiment.scale(scale)
    changes: dict[str, dict[str, Any]] = {}
    for variant in experiment.variants:
        recipe = load_recipe(settings.recipes.get(variant.name, variant.recipe))
        changes[variant.name] = {**settings.variants.get(variant.name, {}), **small_changes(recipe.as_dict())}
    left_out = {variant.name for variant in experiment.variants} - set(names)
    small = structs.replace(settings, variants=changes, without=tuple(left_out), sample=10)
    if experiment.at(scale).parts[0].suite in ("imagenet-c", "cifar-10-c"):
        small = structs.replace(small, severities=(5.0,), corruptions=("contrast",))
    return structs.replace(experiment, scales={scale: small})


def small_changes(recipe: dict[str, Any]) -> dict[str, Any]:
    changes: dict[str, Any] = {
        "data.sample": 24,
        "data.validation": "",
        "data.empty_classes": True,
        "data.network_steps": 2,
        "train.epochs": 1,
        "train.batch_size": 12,
        "train.keep": "last",
        "train.top": 0,
        "schedule.warmup_epochs": 0,
    }
    if recipe["schedule"].get("milestones"):
        changes["schedule.milestones"] = [1]
    if recipe["scheme"].get("steps"):
        changes["scheme.steps"] = 1
    if recipe["architecture"]["name"] == "timm":
        changes |= {"architecture.model": "test_resnet", "architecture.pretrained": False}
        changes |= {"data.size": 64, "data.resize": 72}
        changes |= small_crops(recipe["augmentations"])
    return changes


def small_crops(augmentations: list[dict[str, Any]]) -> dict[str, Any]:
    """Every size in pixels that an augmentation names, made 64."""
    changes: dict[str, Any] = {}
    for number, augmentation in enumerate(augmentations):
        if "size" in augmentation:
            changes[f"augmentations.{number}.size"] = 64
        if "size" in augmentation.get("options", {}):
            changes[f"augmentations.{number}.options.size"] = 64
    return changes


def run_miniature(experiment: Experiment, scale: str, names: Sequence[str], place: Path, out: Path) -> ExperimentStudy:
    small = miniature(experiment, scale, names)
    return run_experiment(
        small,
        scale=scale,
        seeds=1,
        data=roles_of(experiment, scale, place),
        out=out,
        executor=ThreadExecutor(1),
        progress=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize(("name", "scale"), TWO_ARMS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_two_networks_of_a_scale_are_trained_and_scored(
    name: str, scale: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter_folder_of_copies(monkeypatch, place, scale)
    arms, reference, shifted = TWO_ARMS[name, scale]
    experiment = load_experiment(name)
    study = run_miniature(experiment, scale, arms, place, tmp_path)
    assert (study.settings[0], study.settings[-1]) == (reference, shifted) or scale == "paper-dfr"
    assert tuple(result.variant for result in study.variants) == arms
    assert all(arm in experiment_table(study).to_markdown() for arm in arms)


@pytest.mark.soak
@pytest.mark.parametrize(("name", "scale"), [case for case in paper_scales() if case[0] != "hyper-parameters"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_all_networks_of_a_scale_are_trained_and_scored(
    name: str, scale: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the data to the table, with every recipe of the scale."""
    enter_folder_of_copies(monkeypatch, place, scale)
    experiment = load_experiment(name)
    names = [variant.name for variant in experiment.at(scale).variants]
    study = run_miniature(experiment, scale, names, place, tmp_path)
    assert [result.variant for result in study.variants] == names
    assert experiment_table(study).to_markdown()


def only_standard() -> Experiment:
    return miniature(load_experiment("natural-adversarial"), "paper-o", ["standard"])


def test_networks_without_the_classes_of_the_suite_are_not_trained(place: Path, tmp_path: Path) -> None:
    data = {
        role: folder
        for role, folder in roles(place).items()
        if role in ("imagenet-val", "imagenet-o", "imagenet-train")
    }
    changes = ["data.labels=imagenet-a-200"]
    with pytest.raises(SettingError) as caught:
        run_experiment(only_standard(), scale="paper-o", seeds=1, data=data, out=tmp_path, changes=changes)
    assert "imagenet-a-200" in str(caught.value.found)
    assert "imagenet-o-200" in str(caught.value.hint)
    assert not list(tmp_path.iterdir())


def test_a_missing_reference_is_said_before_anything_is_trained(place: Path, tmp_path: Path) -> None:
    experiment = miniature(load_experiment("natural-adversarial"), "paper", ["standard"])
    data = {role: roles(place)[role] for role in ("imagenet-train", "imagenet-a")}
    with pytest.raises(SettingError) as caught:
        run_experiment(experiment, scale="paper", seeds=1, data=data, out=tmp_path)
    assert "imagenet-val" in str(caught.value.hint)
    assert not list(tmp_path.iterdir())


def test_missing_copies_are_said_before_anything_is_trained(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """deepaugment trains on the folders EDSR and CAE, which somebody has to make first."""
    monkeypatch.chdir(tmp_path)
    experiment = miniature(load_experiment("many-faces"), "paper", ["standard", "deepaugment"])
    with pytest.raises(TrainingError) as caught:
        run_experiment(experiment, scale="paper", seeds=1, data=roles(place), out=tmp_path / "out", progress=False)
    assert "EDSR" in caught.value.message and "harden augment" in str(caught.value.expected)
    assert not (tmp_path / "out").exists()
