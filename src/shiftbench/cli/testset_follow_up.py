"""``shiftbench testset follow-up``: why are accuracies on the new set what they are? The experiments of paper 004."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftbench.cli.console import errors, stoppable
from shiftbench.cli.options import grouped
from shiftbench.cli.study.options import Level, Shown, WorkspaceOption
from shiftbench.cli.testset_curation import Quiet, Trust, Workers

if TYPE_CHECKING:
    from shiftbench.testsets import Project

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Why are accuracies on the new set what they are? The follow-up experiments of ImageNetV2's makers.\n\n"
    "What needs predictions of models needs a frozen set: before, nobody may look.",
)

Folder = Annotated[Path, typer.Argument(help="The project's folder.")]
Seed = Annotated[int, typer.Option(help="Which images are drawn; the same seed draws the same.")]
Labels = Annotated[
    str | None,
    typer.Option(help="The classes, by name (see `list spaces`) or file; `folders`: what the folders are called."),
]
Database = Annotated[str | None, typer.Option("--database", help="Default: SHIFTBENCH_DATABASE, then testset.toml.")]
Classifiers = Annotated[list[str] | None, typer.Option("--classifier", "-c", help="Only these classifiers.")]


@dataclass(frozen=True)
class Frozen:
    """A frozen set of a project."""

    set_name: Annotated[
        str | None, typer.Option("--set", "-s", help="The set's name; not needed where there is one.")
    ] = None
    database: Database = None

    @contextmanager
    def opened(self, folder: Path) -> Iterator[tuple[Project, str]]:
        from shiftbench.cli.testset import only_set, opened

        with opened(folder, self.database) as project:
            yield project, self.set_name or only_set(project)


@dataclass(frozen=True)
class How:
    """How a model is trained and judged."""

    labels: Labels = None
    seed: Seed = 0
    level: Level = 0.95
    workers: Workers = None
    quiet: Quiet = False


@app.command("discriminator")
@grouped
def discriminator_command(
    old: Annotated[str, typer.Argument(help="The original set: a name, a folder, any data set.")],
    new: Annotated[str, typer.Argument(help="The new one; testset:DIR is a frozen set.")],
    by: Annotated[
        list[str] | None,
        typer.Option(
            help="pixels, pixels-normalised, network (a small one, from random weights), or a classifier, for logistic "
            "regression on its features. Repeatable; default: pixels and network."
        ),
    ] = None,
    folds: Annotated[int, typer.Option(help="Each is judged by a model trained on the others.")] = 5,
    per_class: Annotated[int | None, typer.Option(min=1, help="At most so many images of a class of either set.")] = (
        None
    ),
    *,
    how: How,
    shown: Shown,
) -> None:
    """Can a classifier tell the old set from the new one?

    As many images of every class are drawn from both sets. An accuracy near 50 % says that the discriminator sees no
    difference between them; 004's best reached 53.1 % for CIFAR-10 and 50.7 % for ImageNet.

    \b
    Examples:
      shiftbench testset follow-up discriminator cifar-10-test testset:pets
      shiftbench testset follow-up discriminator old/ new/ --by network --by demo:efficientnet-lite0
    """
    from shiftbench.datasets.catalogue import open_dataset
    from shiftbench.labels.catalogue import find_label_space
    from shiftbench.testsets.followups import discriminate
    from shiftbench.testsets.followups.discriminator import NETWORK

    space = find_label_space(how.labels)
    with stoppable():
        found = discriminate(
            open_dataset(old, space=space), open_dataset(new, space=space), by=by or ("pixels", NETWORK), folds=folds,
            per_class=per_class, seed=how.seed, level=how.level, workers=how.workers, show=not how.quiet,
        )  # fmt: skip
    shown.show(found)


@app.command("splits")
@grouped
def splits_command(
    train: Annotated[str, typer.Argument(help="The training set: a name, a folder, any data set.")],
    test: Annotated[str, typer.Argument(help="The original test set.")],
    new: Annotated[str | None, typer.Option(help="The new test set; testset:DIR is a frozen set.")] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            help="What a linear model is trained on: pixels, pixels-normalised, or the features of a classifier that "
            "has not seen these images. Repeatable."
        ),
    ] = None,
    folds: Annotated[int, typer.Option(help="So many splits.")] = 5,
    fold_size: Annotated[
        int | None, typer.Option(min=1, help="Images of a fold. Default: the folds share out the training set.")
    ] = None,
    write: Annotated[
        Path | None, typer.Option(help="A folder for split-1.json, ...: ids to train and test your own models on.")
    ] = None,
    *,
    how: How,
    shown: Shown,
) -> None:
    """Would cross-validation have foretold the drop on the new test set?

    The training set is dealt into class-balanced folds. Each in turn is a test set, and the rest trains, together
    with the original test set. If models are as good on the folds as on the original test set, then neither its
    images nor the way they were split explain a drop on new ones. Here a linear model is trained; --write gives the
    splits to those who train networks.

    \b
    Examples:
      shiftbench testset follow-up splits cifar-10-train cifar-10-test --new testset:pets --write splits
      shiftbench testset follow-up splits train/ test/ --by demo:efficientnet-lite0 --fold-size 5000
    """
    from shiftbench.datasets.catalogue import open_dataset
    from shiftbench.labels.catalogue import find_label_space
    from shiftbench.testsets.followups import SplitComparison, cross_validation_splits
    from shiftbench.testsets.followups.linear_splits import measure_linear_splits

    learnt = open_dataset(train, space=find_label_space(how.labels))
    original = open_dataset(test, space=learnt.space)
    fresh = None if new is None else open_dataset(new, space=learnt.space)
    splits = cross_validation_splits(learnt, original, folds=folds, fold_size=fold_size, seed=how.seed)
    if write is not None:
        for i, split in enumerate(splits, 1):
            split.write(write / f"split-{i}.json")
        _say(f"written: {len(splits)} splits in {write}")
    with stoppable():
        measured = [
            one
            for spec in by or ["pixels-normalised"]
            for one in measure_linear_splits(
                learnt, original, splits, fresh, by=spec, seed=how.seed, workers=how.workers, show=not how.quiet
            )
        ]
    shown.show(SplitComparison(measured, level=how.level))


@app.command("balance")
@grouped
def balance_command(
    folder: Folder,
    workspace: Annotated[Path, WorkspaceOption],
    frozen: Frozen,
    classifier: Classifiers = None,
    per_class: Annotated[int | None, typer.Option(min=1, help="Default: as many as the smallest class has.")] = None,
    export: Annotated[
        Path | None, typer.Option(help="A new folder for the balanced variant itself, one folder a class.")
    ] = None,
    seed: Seed = 0,
    level: Level = 0.95,
    *,
    shown: Shown,
) -> None:
    """What would an exactly class-balanced variant of the set change?

    Accuracy as it is, on as many images of every class, and as the mean of the classes' own accuracies. CIFAR-10.1
    had 8 % ships where CIFAR-10 has 10 %; balancing it, weaker models gained about 0.3 points, the best none.

    \b
    Examples:
      shiftbench testset follow-up balance pets -w WORKSPACE
      shiftbench testset follow-up balance pets -w WORKSPACE --per-class 8 --export balanced/
    """
    from shiftbench.testsets.export import export_images
    from shiftbench.testsets.followups import balance_effect, class_balanced
    from shiftbench.testsets.predictions import predictions_on, require_frozen

    with frozen.opened(folder) as (project, name):
        found = predictions_on(project, name, workspace, classifiers=classifier or ())
        effect = balance_effect(found, per_class=per_class, seed=seed, level=level)
        if export is not None:
            whole = require_frozen(project, name, "balancing")
            export_images(whole, class_balanced(whole.open(), per_class=per_class, seed=seed).ids, export)
            _say(f"written: {export}")
    shown.show(effect)


@app.command("hard")
@grouped
def hard_command(
    folder: Folder,
    workspace: Annotated[Path, WorkspaceOption],
    frozen: Frozen,
    classifier: Classifiers = None,
    share: Annotated[
        float, typer.Option(help="Of the images, those that the fewest get right; 0: only those that all miss.")
    ] = 0.05,
    study: Annotated[
        Path | None, typer.Option(help="A new project in which people are shown these images; see `human`.")
    ] = None,
    participants: Annotated[int, typer.Option(min=1, help="People who can answer the whole study.")] = 9,
    *,
    shown: Shown,
) -> None:
    """The images that no classifier, or hardly any, gets right; and a study of how people do on them.

    Of the set and of its reference. With --study the images become grids of a project of its own: each is shown in
    the grid of its class, and in that of the class which most models take it for. Invite people to it and serve it
    as any other; `human` reads what they said.

    \b
    Examples:
      shiftbench testset follow-up hard pets -w WORKSPACE
      shiftbench testset follow-up hard pets -w WORKSPACE --study pets-hard --participants 5
      shiftbench testset invite pets-hard Anna Bo Cem Dana Eli
      shiftbench testset serve pets-hard
    """
    from shiftbench.testsets.followups.human_study import hard_images_of, hard_table, make_study

    with frozen.opened(folder) as (project, name):
        hard = hard_images_of(project, name, workspace, classifier or (), share=share)
        shown.show(hard_table(hard))
        if study is not None:
            made = make_study(project, name, hard, study, participants=participants)
            _say(f"made {study}: {made.tasks} grids with {made.original} original and {made.new} new images")
            _say(f"then: shiftbench testset invite {study} NAME ...; shiftbench testset serve {study}")


@app.command("human")
@grouped
def human_command(
    study: Annotated[Path, typer.Argument(help="The study's folder, as `hard --study` made it.")],
    database: Database = None,
    level: Level = 0.95,
    *,
    shown: Shown,
) -> None:
    """How people did on the hard images of the original set and of the new one.

    Right is who selects an image for its class, and leaves it for the class that most models take it for. Everybody
    who has answered all grids counts. If the new images were harder for people, too, the gap would be above zero;
    004's nine participants were 0.8 points better on the new ones.

    \b
    Example:
      shiftbench testset follow-up human pets-hard
    """
    from shiftbench.cli.testset import opened
    from shiftbench.testsets.followups.human_study import human_accuracy_of

    with opened(study, database) as project:
        shown.show(human_accuracy_of(project, level=level))


@app.command("revisions")
@grouped
def revisions_command(
    folder: Folder,
    classifiers: Annotated[list[str], typer.Argument(help="Whose accuracy: see `list classifiers`.")],
    frozen: Frozen,
    workspace: Annotated[Path, WorkspaceOption] = Path("shiftbench-workspace"),
    labels: Annotated[
        str | None, typer.Option(help="The classes of a classifier that does not know its own; see `list spaces`.")
    ] = None,
    trust: Trust = False,
    level: Level = 0.95,
    workers: Workers = None,
    quiet: Quiet = False,
    *,
    shown: Shown,
) -> None:
    """Did the review make the set easier or harder? Accuracies of every revision, from the first to the frozen one.

    Every image that was ever in the set is evaluated once; what the workspace has is not run again.

    \b
    Example:
      shiftbench testset follow-up revisions pets demo:resnet8-cifar10 -w WORKSPACE
    """
    from shiftbench.api import evaluate
    from shiftbench.settings.base import Setting
    from shiftbench.testsets.followups import impact_of_revisions
    from shiftbench.testsets.predictions import all_revisions_dataset

    with frozen.opened(folder) as (project, name), stoppable():
        union, revisions = all_revisions_dataset(project, name)
        setting = Setting(union.name, union.name)
        run = evaluate(
            classifiers, [setting], {union.name: union}, workspace, labels=labels, workers=workers, trust=trust,
            progress=not quiet, console=errors,
        )  # fmt: skip
        found = [run.workspace.read(result) for result in run.results]
    shown.show(impact_of_revisions(revisions, found, level=level))


def _say(text: str) -> None:
    errors.print(text, highlight=False, markup=False, soft_wrap=True)
