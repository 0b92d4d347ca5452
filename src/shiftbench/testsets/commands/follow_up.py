"""``shiftbench testset follow-up``: the follow-up experiments of paper 004 on a new test set.

Those that can train networks by recipes are commands of ``shiftbench.hardening``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shiftbench.extend.commands import (
    DEFAULT_WORKSPACE,
    Commands,
    Labels,
    Level,
    ModelNames,
    Quiet,
    TableOptions,
    Trust,
    WorkspacePath,
    stoppable,
)
from shiftbench.extend.errors import shell_command
from shiftbench.testsets.commands.options import Database, SetOptions, Workers, opened, say

app = Commands(
    "Explain the accuracies on a new test set: the follow-up experiments of ImageNetV2.\n\n"
    "Experiments that use model predictions require a frozen set.",
)

Seed = Annotated[int, "Seed of random draws."]


@app.command("balance")
def balance_command(
    of_set: SetOptions,
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
    from shiftbench.extend.outputs import fill_folder, place_file
    from shiftbench.testsets.followups.set_effects import balance_effect, class_balanced
    from shiftbench.testsets.freeze import predictions_on, require_frozen

    with of_set.opened() as (project, name):
        predictions = predictions_on(project, name, workspace, classifiers=classifier or ())
        effect = balance_effect(predictions, per_class=per_class, seed=seed, level=level)
        if export is not None:
            frozen = require_frozen(project, name, "balancing")
            image_ids = class_balanced(frozen.open(), per_class=per_class, seed=seed).ids

            def fill(target: Path) -> None:
                for image_id in image_ids:
                    # The ids of a frozen set are the paths of its files.
                    place_file(frozen.folder / "images" / image_id, target / image_id)

            fill_folder(export, fill)
            say(f"written: {export}")
    table.show(effect)


@app.command("hard")
def hard_command(
    of_set: SetOptions,
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

    with of_set.opened() as (project, name):
        hard = hard_images_of(project, name, workspace, classifier or (), share=share)
        table.show(hard_table(hard))
        if study is not None:
            grids = make_study(project, name, hard, study, participants=participants)
            counts = " and ".join(f"{len(hard_images.images)} {side}" for side, hard_images in hard.items())
            say(f"created {study}: {grids} grids with {counts} images")
            invite = shell_command("testset", "invite", study)
            serve = shell_command("testset", "serve", study)
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
    of_set: SetOptions,
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
    from shiftbench import Setting, evaluate
    from shiftbench.testsets.followups.set_effects import impact_of_revisions
    from shiftbench.testsets.freeze import all_revisions_dataset

    with of_set.opened() as (project, name), stoppable():
        union, revisions = all_revisions_dataset(project, name)
        setting = Setting(union.name, union.name)
        run = evaluate(
            classifiers,
            [setting],
            {union.name: union},
            workspace,
            labels=labels,
            workers=workers,
            trust=trust,
            progress=not quiet,
        )
        predictions = [run.workspace.read(result) for result in run.results]
    table.show(impact_of_revisions(revisions, predictions, level=level))
