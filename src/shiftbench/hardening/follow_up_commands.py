"""``shiftbench testset follow-up``: the experiments that can train networks by recipes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from shiftbench.extend.commands import Labels, Level, Quiet, TableOptions, stoppable
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
    from shiftbench import open_dataset
    from shiftbench.extend.datasets import find_label_space
    from shiftbench.testsets.followups.discriminator import Discrimination, discriminate

    space = find_label_space(how.labels)
    first = open_dataset(old, space=space)
    second = open_dataset(new, space=space)
    specs, recipes = _recipes(by or ["pixels"], how)
    with stoppable():
        discrimination = discriminate(
            first,
            second,
            by=specs,
            folds=folds,
            per_class=per_class,
            seed=how.seed,
            level=how.level,
            workers=how.workers,
            show=not how.quiet,
        )
        if recipes:
            from shiftbench.hardening.followups import discriminate_by_recipe

            trained = []
            for name, recipe in recipes.items():
                result = discriminate_by_recipe(
                    first,
                    second,
                    recipe,
                    how.out / name,
                    name=name,
                    folds=folds,
                    per_class=per_class,
                    seed=how.seed,
                    level=how.level,
                    show=not how.quiet,
                )
                trained.append(result)
            # Half of the images that a network is tested on are old, the other half are new.
            images_per_set = trained[0].n // 2
            discrimination = Discrimination([*discrimination.found, *trained], first, second, images_per_set, folds)
    table.show(discrimination)


def _recipes(by: list[str], how: TrainingOptions) -> tuple[list[str], dict[str, Recipe]]:
    """The discriminators on features, and by their names the recipes that train networks."""
    features = [spec for spec in by if not spec.startswith("recipe:")]
    names = [spec.removeprefix("recipe:") for spec in by if spec.startswith("recipe:")]
    if not names:
        return features, {}
    from shiftbench.hardening.recipe import load_recipe

    return features, {Path(name).stem: load_recipe(name, how.change or ()) for name in names}


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
    from shiftbench import open_dataset
    from shiftbench.extend.datasets import find_label_space
    from shiftbench.hardening.followups import train_on_half

    train_set = open_dataset(train, space=find_label_space(how.labels))
    new_set = open_dataset(new, space=train_set.space)
    _, recipes = _recipes([f"recipe:{recipe}"], how)
    [(name, loaded_recipe)] = recipes.items()
    with stoppable():
        comparison = train_on_half(
            train_set,
            new_set,
            loaded_recipe,
            how.out / name,
            draws=draws,
            seed=how.seed,
            level=how.level,
            show=not how.quiet,
        )
    table.show(comparison)


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
    from shiftbench import open_dataset
    from shiftbench.extend.datasets import find_label_space
    from shiftbench.testsets.followups.splits import (
        SplitComparison,
        cross_validation_splits,
        measure_linear_splits,
        measure_splits,
    )
    from shiftbench.testsets.near_duplicates.find import reopenable

    train_set = open_dataset(train, space=find_label_space(how.labels))
    original = open_dataset(test, space=train_set.space)
    new_set = None if new is None else open_dataset(new, space=train_set.space)
    splits = cross_validation_splits(
        train_set,
        original,
        folds=folds,
        fold_size=fold_size,
        seed=how.seed,
        sources=(reopenable(train), reopenable(test)),
    )
    if write is not None:
        for number, split in enumerate(splits, start=1):
            split.write(write / f"split-{number}.json")
        say(f"written: {len(splits)} splits in {write}")
    specs, recipes = _recipes(by or ["pixels-normalised"], how)
    accuracies = []
    with stoppable():
        for spec in specs:
            accuracies += measure_linear_splits(
                train_set, original, splits, new_set, by=spec, seed=how.seed, workers=how.workers, show=not how.quiet
            )
        if recipes:
            from shiftbench.hardening.followups import trained_by

            for name, recipe in recipes.items():
                train_model = trained_by(recipe, how.out / name, show=not how.quiet)
                accuracies += measure_splits(train_model, train_set, original, splits, new_set, model=name)
    table.show(SplitComparison(accuracies, level=how.level))
