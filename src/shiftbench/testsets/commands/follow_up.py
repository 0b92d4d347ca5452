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
    Json,
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
from shiftbench.testsets.commands.options import Database, ProjectOptions, SetOptions, Workers, opened, report, say

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


@app.command("annotators")
def annotators_command(
    at: ProjectOptions,
    data: Annotated[str, typer.Argument(help="Labelled dataset with the classes of the project.")],
    test: Annotated[Path, typer.Argument(help="New folder for the project of the test.")],
    per_class: Annotated[int, {"min": 1}, "Images per class."] = 5,
    participants: Annotated[int, {"min": 1}, "The most people who may take the test."] = 100,
    json: Json = False,
) -> None:
    """Create a standard test of annotators: everybody chooses one of the classes for the same images of a dataset.

    The images depend only on the dataset and their number, so that annotators of different test sets can be compared,
    as paper 004 suggests. Serve it like any project; `test-result` evaluates the answers.

    \b
    Examples:
      shiftbench testset follow-up annotators pets cifar-10-test pets-people
      shiftbench testset serve pets-people --recruit
      shiftbench testset follow-up test-result pets-people --card pets
    """
    from shiftbench import open_dataset
    from shiftbench.testsets.followups.annotator_test import make_annotator_test

    with at.opened() as project:
        dataset = open_dataset(data, space=project.space)
        grids = make_annotator_test(project, dataset, test, participants=participants, per_class=per_class)
    report({"folder": str(test), "grids": grids}, "created {folder}: {grids} grids", json=json)
    say(f"next: {shell_command('testset', 'serve', test)}")


@app.command("test-result")
def test_result_command(
    test: Annotated[Path, typer.Argument(help="Folder of the test, created by `annotators`.")],
    card: Annotated[Path | None, "Project whose cards state the result from now on, without names."] = None,
    database: Database = None,
    level: Level = 0.95,
    *,
    table: TableOptions,
) -> None:
    """Evaluate a standard test of annotators, over all who classified every image.

    \b
    Examples:
      shiftbench testset follow-up test-result pets-people
      shiftbench testset follow-up test-result pets-people --card pets
    """
    from shiftbench.testsets.followups.annotator_test import annotator_test, annotator_test_table, state_on_card

    with opened(test, database) as project:
        result = annotator_test(project)
    table.show(annotator_test_table(result, level=level))
    if card is not None:
        with opened(card, None) as project:
            say(f"cards of {card} state it from now on: {state_on_card(project, result)}")


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
