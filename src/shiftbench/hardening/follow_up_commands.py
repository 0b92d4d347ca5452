"""``shiftbench testset follow-up``: the experiments that can train networks by recipes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from shiftbench.cli.console import stoppable
from shiftbench.cli.options import Labels, Level, Quiet, TableOptions
from shiftbench.testsets.commands.follow_up import Seed
from shiftbench.testsets.commands.options import Workers, say

if TYPE_CHECKING:
    from shiftbench.hardening.recipe import Recipe


@dataclass(frozen=True)
class TrainingOptions:
    """How models are trained and evaluated."""

    panel: ClassVar[str] = "Training"
    labels: Labels = None
    seed: Seed = 0
    level: Level = 0.95
    workers: Workers = None
    quiet: Quiet = False
    out: Annotated[Path, "Folder for networks trained by recipes."] = Path("follow-ups")
    change: Annotated[
        list[str] | None, "--set", {"metavar": "KEY=VALUE"}, "Change a key of the recipes (repeatable): train.epochs=3."
    ] = None


def discriminator_command(
    old: Annotated[str, typer.Argument(help="Original set: a name, a folder, any dataset.")],
    new: Annotated[str, typer.Argument(help="New set; testset:DIR is a frozen set.")],
    by: Annotated[
        list[str] | None,
        "Discriminator (repeatable): pixels, pixels-normalised or a model, for logistic regression on them or on its "
        "features; or recipe:NAME, a network (see `harden recipes`). Default: pixels.",
    ] = None,
    folds: Annotated[int, "Number of cross-validation folds."] = 5,
    per_class: Annotated[int | None, {"min": 1}, "Maximum number of images per class and set."] = None,
    *,
    how: TrainingOptions,
    table: TableOptions,
) -> None:
    """Can a model distinguish the old set from the new one?

    The same number of images per class is drawn from both sets. An accuracy near 50 % means that the discriminator sees
    no difference; the best in 004 reached 53.1 % for CIFAR-10 and 50.7 % for ImageNet.

    \b
    Examples:
      shiftbench testset follow-up discriminator cifar-10-test testset:pets
      shiftbench testset follow-up discriminator old/ new/ --by pixels --by demo:efficientnet-lite0
      ResNet-110 as in 004, started from weights learnt on CIFAR-10
        shiftbench testset follow-up discriminator cifar-10-test testset:pets --by recipe:cifar-standard \\
          --set architecture.name=resnet-20 --set architecture.depth=110 --set train.start=runs/resnet-110
    """
    from shiftbench.datasets.catalogue import open_dataset
    from shiftbench.labels.catalogue import find_label_space
    from shiftbench.testsets.followups.discriminator import Discrimination, discriminate

    space = find_label_space(how.labels)
    first, second = open_dataset(old, space=space), open_dataset(new, space=space)
    specs, recipes = _recipes(by or ["pixels"], how)
    with stoppable():
        found = discriminate(
            first, second, by=specs, folds=folds, per_class=per_class, seed=how.seed, level=how.level,
            workers=how.workers, show=not how.quiet,
        )  # fmt: skip
        if recipes:
            from shiftbench.hardening.followups import discriminate_by_recipe

            trained = [
                discriminate_by_recipe(
                    first, second, recipe, how.out / name, name=name, folds=folds, per_class=per_class, seed=how.seed,
                    level=how.level, show=not how.quiet,
                )
                for name, recipe in recipes.items()
            ]  # fmt: skip
            found = Discrimination([*found.found, *trained], first, second, trained[0].n // 2, folds)
    table.show(found)


def _recipes(by: list[str], how: TrainingOptions) -> tuple[list[str], dict[str, Recipe]]:
    """What is described by features, and recipes by name."""
    names = [spec.removeprefix("recipe:") for spec in by if spec.startswith("recipe:")]
    if not names:
        return by, {}
    from shiftbench.hardening.recipe import load_recipe

    return [spec for spec in by if not spec.startswith("recipe:")], {
        Path(name).stem: load_recipe(name, how.change or ()) for name in names
    }


def half_command(
    train: Annotated[str, typer.Argument(help="Training set: a name, a folder, any dataset.")],
    new: Annotated[str, typer.Argument(help="New set; testset:DIR is a frozen set.")],
    recipe: Annotated[str, "Recipe (see `harden recipes`), or a .toml file."] = "cifar-standard",
    draws: Annotated[int, {"min": 1}, "Random halves to try."] = 2,
    *,
    how: TrainingOptions,
    table: TableOptions,
) -> None:
    """Does training on half of the new set help on its other half?

    A network is trained on the training set, and on the training set with a random class-balanced half of the new set;
    both are evaluated on the other half. 004 found 84.9 % without and 85.1 and 85.4 % with half of CIFAR-10.1.
    """
    from shiftbench.datasets.catalogue import open_dataset
    from shiftbench.hardening.followups import train_on_half
    from shiftbench.labels.catalogue import find_label_space

    learnt = open_dataset(train, space=find_label_space(how.labels))
    fresh = open_dataset(new, space=learnt.space)
    ((name, chosen),) = _recipes([f"recipe:{recipe}"], how)[1].items()
    with stoppable():
        found = train_on_half(
            learnt, fresh, chosen, how.out / name, draws=draws, seed=how.seed, level=how.level, show=not how.quiet
        )
    table.show(found)


def splits_command(
    train: Annotated[str, typer.Argument(help="Training set: a name, a folder, any dataset.")],
    test: Annotated[str, typer.Argument(help="Original test set.")],
    new: Annotated[str | None, "New test set; testset:DIR is a frozen set."] = None,
    by: Annotated[
        list[str] | None,
        "Features of the linear model (repeatable): pixels, pixels-normalised, or a model that was not "
        "trained on these images; or recipe:NAME, a network (see `harden recipes`).",
    ] = None,
    folds: Annotated[int, "Number of splits."] = 5,
    fold_size: Annotated[int | None, {"min": 1}, "Images per fold (default: folds partition the training set)."] = None,
    write: Annotated[Path | None, "Folder for split-1.json, ...: the datasets split:FILE and split:FILE/test."] = None,
    *,
    how: TrainingOptions,
    table: TableOptions,
) -> None:
    """Would cross-validation have predicted the drop on the new test set?

    The training set is split into class-balanced folds. Each fold in turn is the test set; the rest and the original
    test set are used for training. If accuracies on the folds match those on the original test set, neither its images
    nor the split explain a drop on new images. Models are linear, or networks trained by recipes. Splits that --write
    saved are datasets: split:FILE (training images) and split:FILE/test.

    \b
    Examples:
      shiftbench testset follow-up splits cifar-10-train cifar-10-test --new testset:pets --write splits
      shiftbench harden train cifar-standard --set data.train=split:splits/split-1.json
      shiftbench testset follow-up splits train/ test/ --by demo:efficientnet-lite0 --fold-size 5000
    """
    from shiftbench.datasets.catalogue import open_dataset
    from shiftbench.labels.catalogue import find_label_space
    from shiftbench.testsets.followups.splits import (
        SplitComparison,
        cross_validation_splits,
        measure_linear_splits,
        measure_splits,
    )
    from shiftbench.testsets.near_duplicates.find import reopenable

    learnt = open_dataset(train, space=find_label_space(how.labels))
    original = open_dataset(test, space=learnt.space)
    fresh = None if new is None else open_dataset(new, space=learnt.space)
    sources = reopenable(train), reopenable(test)
    splits = cross_validation_splits(learnt, original, folds=folds, fold_size=fold_size, seed=how.seed, sources=sources)
    if write is not None:
        for i, split in enumerate(splits, 1):
            split.write(write / f"split-{i}.json")
        say(f"written: {len(splits)} splits in {write}")
    specs, recipes = _recipes(by or ["pixels-normalised"], how)
    with stoppable():
        measured = [
            one
            for spec in specs
            for one in measure_linear_splits(
                learnt, original, splits, fresh, by=spec, seed=how.seed, workers=how.workers, show=not how.quiet
            )
        ]
        if recipes:
            from shiftbench.hardening.followups import trained_by

            for name, recipe in recipes.items():
                train_model = trained_by(recipe, how.out / name, show=not how.quiet)
                measured += measure_splits(train_model, learnt, original, splits, fresh, model=name)
    table.show(SplitComparison(measured, level=how.level))
