"""The scales of natural-adversarial that train on ImageNet, in miniature: every arm is trained and scored."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from shiftbench.errors import SettingError
from shiftbench.hardening.experiments.base import Experiment, load_experiment
from shiftbench.hardening.experiments.run import run_experiment
from shiftbench.jobs.executors import ThreadExecutor
from tests.hardening.training.test_large_recipes import MINIATURE
from tests.test_suites_end_to_end import imagenet

CHANGES = [
    *MINIATURE,
    "data.validation=''",
    "augmentations.0.size=64",
    "schedule.warmup_epochs=0",
    "schedule.milestones=[1]",
]


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("scales") / "trees"
    imagenet(root)
    roles = {role: str(root / role) for role in ("imagenet-val", "imagenet-a", "imagenet-o")}
    return {**roles, "imagenet-train": roles["imagenet-val"]}


def arms(*names: str) -> Experiment:
    """The experiment with these variants only; each takes the recipe and the changes of its scale."""
    experiment = load_experiment("natural-adversarial")
    variants = [variant for variant in experiment.variants if variant.name in names]
    claims = [claim for claim in experiment.claims if {claim.better, claim.worse} <= set(names)]
    baseline = [name for name in experiment.baseline if name in names]
    return structs.replace(experiment, variants=tuple(variants), claims=tuple(claims), baseline=tuple(baseline))


@pytest.mark.parametrize(
    ("scale", "reference", "shifted"),
    [
        ("paper", "val-on-imagenet-a-classes", "imagenet-a"),
        ("paper-o", "val-on-imagenet-o-classes", "imagenet-o"),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_networks_of_a_paper_scale_are_trained_and_scored(
    scale: str, reference: str, shifted: str, trees: dict[str, str], tmp_path: Path
) -> None:
    experiment = arms("standard", "noise")
    data = {role: folder for role, folder in trees.items() if role in ("imagenet-val", "imagenet-train", shifted)}
    study = run_experiment(
        experiment,
        scale=scale,
        seeds=1,
        data=data,
        out=tmp_path,
        changes=CHANGES,
        executor=ThreadExecutor(1),
        progress=False,
    )
    assert study.settings == (reference, shifted)
    assert [result.variant for result in study.variants] == ["standard", "noise"]


def test_networks_without_the_classes_of_the_suite_are_not_trained(trees: dict[str, str], tmp_path: Path) -> None:
    changes = [*CHANGES, "data.labels=imagenet-a-200"]
    data = {role: folder for role, folder in trees.items() if role != "imagenet-a"}
    with pytest.raises(SettingError) as caught:
        run_experiment(arms("standard"), scale="paper-o", seeds=1, data=data, out=tmp_path, changes=changes)
    assert "imagenet-a-200" in str(caught.value.found)
    assert "imagenet-o-200" in str(caught.value.hint)
    assert not list(tmp_path.iterdir())


def test_a_missing_reference_is_said_before_anything_is_trained(trees: dict[str, str], tmp_path: Path) -> None:
    data = {role: trees[role] for role in ("imagenet-train", "imagenet-a")}
    with pytest.raises(SettingError) as caught:
        run_experiment(arms("standard"), scale="paper", seeds=1, data=data, out=tmp_path, changes=CHANGES)
    assert "imagenet-val" in str(caught.value.hint)
    assert not list(tmp_path.iterdir())
