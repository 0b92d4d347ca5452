"""``shiftbench testset follow-up``: the follow-up experiments of paper 004 on a new test set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftbench.cli.console import stoppable
from shiftbench.cli.options import (
    DEFAULT_WORKSPACE,
    Commands,
    Labels,
    Level,
    ModelNames,
    Quiet,
    TableOptions,
    Trust,
    WorkspacePath,
)
from shiftbench.cli.testset_options import Database, SetOptions, Workers, opened, say
from shiftbench.errors import shell_command

if TYPE_CHECKING:
    from shiftbench.hardening.recipe import Recipe

app = Commands(
    "Explain the accuracies on a new test set: the follow-up experiments of ImageNetV2.\n\n"
    "Experiments that use model predictions require a frozen set.",
)

Seed = Annotated[int, "Seed of random draws."]


@dataclass(frozen=True)
class TrainingOptions:
    """How models are trained and evaluated."""

    labels: Labels = None
    seed: Seed = 0
    level: Level = 0.95
    workers: Workers = None
    quiet: Quiet = False
    out: Annotated[Path, "Folder for networks trained by recipes."] = Path("follow-ups")
    change: Annotated[
        list[str] | None, "--set", {"metavar": "KEY=VALUE"}, "Change a key of the recipes (repeatable): train.epochs=3."
    ] = None


@app.command("discriminator")
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
      ResNet-110 as in 004, started from weights that `harden train` learnt on CIFAR-10
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


@app.command("half")
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


@app.command("splits")
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


@app.command("balance")
def balance_command(
    chosen: SetOptions,
    workspace: WorkspacePath,
    classifier: ModelNames = None,
    per_class: Annotated[int | None, {"min": 1}, "Images per class (default: size of the smallest class)."] = None,
    export: Annotated[Path | None, "New folder for the balanced subset, with one folder per class."] = None,
    seed: Seed = 0,
    level: Level = 0.95,
    *,
    table: TableOptions,
) -> None:
    """Does class balance explain the accuracies?

    Compares accuracy on the set, on a class-balanced subset, and as the mean of per-class accuracies. CIFAR-10.1 had
    8 % ships, CIFAR-10 has 10 %; with balanced classes, weaker models gained about 0.3 points, the best none.

    \b
    Examples:
      shiftbench testset follow-up balance pets -w WORKSPACE
      shiftbench testset follow-up balance pets -w WORKSPACE --per-class 8 --export balanced/
    """
    from shiftbench.outputs.record import fill_folder, place_file
    from shiftbench.testsets.followups.set_effects import balance_effect, class_balanced
    from shiftbench.testsets.freeze import predictions_on, require_frozen

    with chosen.opened() as (project, name):
        found = predictions_on(project, name, workspace, classifiers=classifier or ())
        effect = balance_effect(found, per_class=per_class, seed=seed, level=level)
        if export is not None:
            whole = require_frozen(project, name, "balancing")
            ids = class_balanced(whole.open(), per_class=per_class, seed=seed).ids

            def fill(target: Path) -> None:
                for image in ids:  # the ids of a frozen set are its files
                    place_file(whole.folder / "images" / image, target / image)

            fill_folder(export, fill)
            say(f"written: {export}")
    table.show(effect)


@app.command("hard")
def hard_command(
    chosen: SetOptions,
    workspace: WorkspacePath,
    classifier: ModelNames = None,
    share: Annotated[float, "Share of images that count as hard; 0: images that all models misclassify."] = 0.05,
    study: Annotated[Path | None, "New project for a human study on these images; see `human`."] = None,
    participants: Annotated[int, {"min": 1}, "Number of participants of the study."] = 9,
    *,
    table: TableOptions,
) -> None:
    """List the hardest images of the set and of its references, and create a human study on them.

    With --study, the images of both sets become a separate project, in which every participant chooses one of the
    classes for each image, in random order. Invite people and serve it like any project; `human` evaluates the answers.

    \b
    Examples:
      shiftbench testset follow-up hard pets -w WORKSPACE
      shiftbench testset follow-up hard pets -w WORKSPACE --study pets-hard --participants 5
      shiftbench testset invite pets-hard Anna Bo Cem Dana Eli
      shiftbench testset serve pets-hard
    """
    from shiftbench.testsets.followups.hard_images import hard_images_of, hard_table, make_study

    with chosen.opened() as (project, name):
        hard = hard_images_of(project, name, workspace, classifier or (), share=share)
        table.show(hard_table(hard))
        if study is not None:
            grids = make_study(project, name, hard, study, participants=participants)
            counts = " and ".join(f"{len(found.images)} {side}" for side, found in hard.items())
            say(f"created {study}: {grids} grids with {counts} images")
            invite, serve = (shell_command("testset", verb, study) for verb in ("invite", "serve"))
            say(f"next: {invite} NAME ...; {serve}")


@app.command("human")
def human_command(
    study: Annotated[Path, typer.Argument(help="Folder of the study, created by `hard --study`.")],
    database: Database = None,
    level: Level = 0.95,
    *,
    table: TableOptions,
) -> None:
    """Compare human accuracy on the hard images of the original and the new set.

    The participants chose one of all classes for each image, so the numbers compare with accuracies of models and with
    table 3 of 004. All who have answered all grids count. If the new images are harder for people as well, the gap is
    positive; the nine participants of 004 were 0.8 points better on the new images.

    \b
    Example:
      shiftbench testset follow-up human pets-hard
    """
    from shiftbench.testsets.followups.hard_images import human_accuracy_of

    with opened(study, database) as project:
        table.show(human_accuracy_of(project, level=level))


@app.command("revisions")
def revisions_command(
    chosen: SetOptions,
    classifiers: Annotated[list[str], typer.Argument(help="Models to evaluate; see `list classifiers`.")],
    workspace: WorkspacePath = DEFAULT_WORKSPACE,
    labels: Labels = None,
    trust: Trust = False,
    level: Level = 0.95,
    workers: Workers = None,
    quiet: Quiet = False,
    *,
    table: TableOptions,
) -> None:
    """Did the review make the set easier or harder? Compares the accuracies of all revisions.

    All images that were ever in the set are evaluated once; results in the workspace are reused.

    \b
    Example:
      shiftbench testset follow-up revisions pets demo:resnet8-cifar10 -w WORKSPACE
    """
    from shiftbench.api import evaluate
    from shiftbench.settings.base import Setting
    from shiftbench.testsets.followups.set_effects import impact_of_revisions
    from shiftbench.testsets.freeze import all_revisions_dataset

    with chosen.opened() as (project, name), stoppable():
        union, revisions = all_revisions_dataset(project, name)
        setting = Setting(union.name, union.name)
        run = evaluate(
            classifiers, [setting], {union.name: union}, workspace, labels=labels, workers=workers, trust=trust,
            progress=not quiet,
        )  # fmt: skip
        found = [run.workspace.read(result) for result in run.results]
    table.show(impact_of_revisions(revisions, found, level=level))
