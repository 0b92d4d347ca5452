"""``shiftbench study``: is it robustness, or just accuracy?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

import shiftbench as sb
from shiftbench.cli.options import (
    Commands,
    Labels,
    Level,
    ModelOptions,
    Quiet,
    SettingNames,
    StoredOptions,
    TableOptions,
    WorkspaceOptions,
    complete_models,
)
from shiftbench.cli.study_options import (
    AxesOptions,
    BinOptions,
    LineOptions,
    OwnOptions,
    PairOptions,
    PlacedOptions,
    ResultsOptions,
    Scale,
    Shifts,
    SizeY,
    all_measures,
    named_shifts,
    numbers,
    set_sizes,
)
from shiftbench.io.paths import Location

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shiftbench.studies.hypotheses import Hypothesis
    from shiftbench.studies.robustness import EffectiveRobustness
    from shiftbench.studies.study import ShiftAxes, Study

app = Commands(
    "Is it robustness, or just accuracy? From a table of results or a workspace; only `colours` runs models."
)


@dataclass(frozen=True)
class Resampling:
    """How the uncertainty of the line is estimated."""

    panel: ClassVar[str] = "Bootstrap"
    resamples: Annotated[int, {"min": 0}, "Bootstrap resamples."] = 1000
    seed: Annotated[int | None, "Seed (default: the testbed's own)."] = None
    procedure: Annotated[str, "testbed (the same draws and percentiles as the testbed) or shiftbench."] = "testbed"
    bootstrap: Annotated[
        str, "What is resampled: models, or, with a workspace, images or both (images and models)."
    ] = "models"

    def effective(
        self, study: Study, workspace: Location | None, one: ShiftAxes, scale: str, level: float
    ) -> EffectiveRobustness:
        if self.bootstrap == "models":
            return study.effective(
                one.x, one.y, min_x=one.min_x, pivot=one.pivot, level=level, scale=scale, resamples=self.resamples,
                seed=self.seed, procedure=self.procedure,
            )  # fmt: skip
        # With intervals from resampled images: predictions are needed, not only accuracies.
        from shiftbench.studies.image_bootstrap import image_bootstrap_of_shift

        if self.bootstrap not in ("images", "both"):
            raise typer.BadParameter(f"{self.bootstrap!r} is not one of models, images, both", param_hint="--bootstrap")
        if workspace is None:
            why = "images can be resampled with --workspace only: a table does not know which images were right"
            raise typer.BadParameter(why, param_hint="--bootstrap")
        sides = [WorkspaceOptions(workspace=workspace).predictions(setting) for setting in (one.x, one.y)]
        return image_bootstrap_of_shift(
            study, one, sides[0], sides[1], scale=scale, over_models=self.bootstrap == "both", level=level,
            resamples=max(1, self.resamples), seed=self.seed or 0,
        )  # fmt: skip


def line_command(
    ctx: typer.Context,
    table: PlacedOptions,
    axes: AxesOptions,
    published: Annotated[
        bool, "With --workspace: fit the line to the models that are published for --y, not to your own."
    ] = False,
    scale: Annotated[str | None, "logit, probit or linear (default: logit; with --published, as published)."] = None,
    *,
    resampling: Resampling,
    level: Level = 0.95,
    shown: TableOptions,
) -> None:
    from shiftbench.reports.placement import published_study
    from shiftbench.reports.study_tables import effective_table, lines_table, wide_table

    if published:
        if table.workspace is None or axes.y is None:
            raise typer.BadParameter("--published needs --workspace FOLDER and --y SETTING", param_hint="--published")
        study, one, usual, mine = published_study(sb.Run.open(table.workspace), axes.y)
        shifts = {one.y: one}
        set_sizes(study, {one.x: axes.n_x, one.y: axes.n_y})
    else:
        study, mine = table.placed()
        shifts, usual = axes.choose(study), "logit"
        table.check(study, mine, list(shifts.values()))
    found = {
        name: resampling.effective(study, table.workspace, one, scale or usual, level) for name, one in shifts.items()
    }
    extremes = ctx.info_name == "fit"
    if len(found) == 1:
        [(one, result)] = zip(shifts.values(), found.values(), strict=True)
        shown.show(effective_table(study, one.x, one.y, result, extremes=extremes, own=mine), table.workspace)
    elif extremes:
        shown.show(lines_table({name: result.line for name, result in found.items()}), table.workspace)
    else:
        shown.show(wide_table(study, found, "rho", own=mine), table.workspace)


app.command(
    "fit",
    help="The line of the baseline models and the models farthest from it.\n\n"
    "Least squares of y on x on the chosen scale, with intervals from resampling the models.\n\n"
    "\b\nshiftbench study fit -r imagenet-testbed/ --shift imagenetv2 --own W\n"
    "shiftbench study fit -r results.csv -m models.csv --y imagenet-r --min-x 55",
)(line_command)
app.command(
    "effective",
    help="Effective robustness of every model: accuracy under shift beyond what its accuracy predicts.\n\n"
    "\b\nshiftbench study effective -r imagenet-testbed/ --shift all\n"
    "shiftbench study effective -w W --x demo --y demo-c.fog.3 --scale linear\n"
    "shiftbench study effective -w W --y imagenetv2-matched-frequency --published",
)(line_command)


@app.command("relative")
def relative_command(
    table: OwnOptions,
    y: Annotated[str | None, "Setting under shift."] = None,
    shift: Shifts = None,
    n_y: SizeY = None,
    level: Level = 0.95,
    *,
    shown: TableOptions,
) -> None:
    """Relative robustness: accuracy under shift minus that of the base model.

    Base models come from the column base_model of --models; those of the ImageNet testbed are built in.

    \b
    shiftbench study relative -r imagenet-testbed/ --shift imagenetv2
    shiftbench study relative -r results.csv -m models.csv --y imagenet-r
    """
    from shiftbench.reports.study_tables import relative_table, wide_table
    from shiftbench.studies.study import ShiftAxes

    if (y is None) == (not shift):
        raise typer.BadParameter("give either --y SETTING or --shift NAME", param_hint="--y")
    study, mine = table.placed()
    settings = {name: one.y for name, one in named_shifts(study, shift or [y or ""], y or "val").items()}
    set_sizes(study, dict.fromkeys(settings.values(), n_y))
    table.check(study, mine, [ShiftAxes(one, one) for one in settings.values()], "base_model")
    found = {name: study.relative(setting, level=level) for name, setting in settings.items()}
    if len(found) == 1:
        [(setting, result)] = zip(settings.values(), found.values(), strict=True)
        shown.show(relative_table(study, setting, result, own=mine), table.workspace)
    else:
        shown.show(wide_table(study, found, "tau", own=mine), table.workspace)


@app.command("interventions")
def interventions_command(
    table: PlacedOptions,
    shift: Shifts = None,
    by: Annotated[str, "Column of the table of models that makes the groups."] = "category",
    scale: Scale = "logit",
    level: Level = 0.95,
    *,
    shown: TableOptions,
) -> None:
    """Which kinds of models are robust to which shifts: mean effective and relative robustness by category.

    rho is accuracy beyond the line of the baseline models, tau accuracy beyond the model's own base; both in
    percentage points, with intervals over the models of the category. Own models (--own) count in the category that
    --models names for them.

    \b
    shiftbench study interventions -r imagenet-testbed/
    shiftbench study interventions -r imagenet-testbed/ --shift imagenetv2 -f tex
    """
    from shiftbench.reports.study_tables import interventions_table
    from shiftbench.studies.study import group_means

    study, mine = table.placed()
    shifts = named_shifts(study, shift or ["all"])
    table.check(study, mine, list(shifts.values()), by)
    means = group_means(study, shifts, by=by, scale=scale, level=level)
    shown.show(interventions_table(study, means, by, level))


@app.command("correlate")
def correlate_command(
    synthetic: Annotated[list[str], "-s", "A setting, SETTING@REFERENCE, a testbed shift, or all (repeatable)."],
    natural: Annotated[list[str], "-n", "Shift to compare with (repeatable)."],
    table: LineOptions,
    x: Annotated[str, "Reference of settings that are named without one."] = "val",
    scale: Scale = "logit",
    level: Level = 0.95,
    *,
    shown: TableOptions,
) -> None:
    """Does robustness to one shift go with robustness to another?

    Pearson and rank correlation of effective robustness, over the models outside the baseline category. Low-accuracy
    controls and models that --exclude matches are left out.

    \b
    shiftbench study correlate -r imagenet-testbed/ -s corruptions -s pgd -n all
    """
    from shiftbench.reports.study_tables import correlation_table

    study = table.study()
    measures = all_measures(study, synthetic, natural)
    shown.show(correlation_table(study.correlations(*measures, x=x, level=level, scale=scale), level))


@app.command("reproducibility")
def reproducibility_command(pair: PairOptions, shown: TableOptions) -> None:
    """Accuracy on an original and a new test set, with gap, ranks and change of rank.

    \b
    shiftbench study reproducibility -r results.csv --x val --y new --n-x 50000 --n-y 10000
    """
    from shiftbench.reports.study_tables import reproducibility_table

    shown.show(reproducibility_table(pair.reproducibility(), pair.x, pair.y), pair.workspace)


@app.command("gap")
def gap_command(
    pair: PairOptions,
    fresh: Annotated[
        str | None, "A setting with fresh images of the original distribution, such as a hidden split."
    ] = None,
    n_fresh: Annotated[float | None, {"min": 1}, "Images behind the fresh setting."] = None,
    *,
    shown: TableOptions,
) -> None:
    """What the gap between two test sets is made of.

    original - new = adaptivity gap + distribution gap + generalisation gap: models tuned on the original images, images
    of another or harder distribution, and chance. Chance is bounded by the exact interval of the new accuracy. Two test
    sets can't separate the other two; fresh images of the original distribution can.

    \b
    shiftbench study gap -r results.csv --x val --y new --n-x 10000 --n-y 2000
    shiftbench study gap -w W --x val --y new --fresh hidden-split
    """
    from shiftbench.reports.study_tables import gap_table
    from shiftbench.studies.reproducibility import decompose_gaps

    study, x, y = pair.open(), pair.x, pair.y
    set_sizes(study, {x: pair.n_x, y: pair.n_y} | ({fresh: n_fresh} if fresh else {}))
    gaps = decompose_gaps(study.results, x, y, fresh=fresh, level=pair.level)
    shown.show(gap_table(gaps, x, y, fresh), pair.workspace)


@app.command("bins")
def bins_command(chosen: BinOptions, shown: TableOptions) -> None:
    """Accuracy by selection frequency: are images that few people would select harder?

    Selection frequency is the share of people who, shown the image and a class, select it for the class. Shows the
    accuracy of every model, and the mean over models, per bin of selection frequency.

    \b
    shiftbench study bins -w W -s new --frequencies annotations.csv
    """
    from shiftbench.reports.study_tables import bins_table

    found = chosen.accuracies()
    shown.show(bins_table(found.with_mean(), chosen.setting, chosen.level, found.notes), chosen.workspace)


@app.command("difficulty")
def difficulty_command(
    x: Annotated[str | None, "First test set; with it, real accuracies are used."] = None,
    y: Annotated[str | None, "Second test set."] = None,
    *,
    table: LineOptions,
    first: Annotated[str, {"panel": "Simulation"}, "MEAN,SPREAD of the first set's difficulties."] = "0,1",
    second: Annotated[
        str | None, {"panel": "Simulation"}, "MEAN,SPREAD of the second set's; real accuracies determine them."
    ] = None,
    count: Annotated[int, {"panel": "Simulation", "min": 3}, "Number of simulated models."] = 60,
    skills: Annotated[str, {"panel": "Simulation"}, "LOW,HIGH: range of the simulated models' skills."] = "-0.5,2.5",
    n_x: Annotated[int | None, {"min": 1}, "Images of the first set (default: 50,000)."] = None,
    n_y: Annotated[int | None, {"min": 1}, "Images of the second set (default: 10,000)."] = None,
    seed: Annotated[int, {"panel": "Simulation"}, "Seed of the simulation."] = 0,
    shown: TableOptions,
) -> None:
    """Why accuracies on two test sets fall on a line: the Gaussian difficulty model.

    Every image has a difficulty t, drawn from a normal distribution, and every model a skill s; it is right with
    probability Phi(s - t). On the probit scale, accuracies then lie on a line whose slope u and intercept v follow from
    the two sets' difficulties. Simulated models recover u and v; for real accuracies the fitted line is shown as well.

    \b
    shiftbench study difficulty --first 0,1 --second 0.5,0.8
    shiftbench study difficulty -r results.csv -m models.csv --x val --y new
    """
    import numpy as np

    from shiftbench.reports.study_tables import difficulty_table
    from shiftbench.studies.base import whole
    from shiftbench.studies.difficulty import Difficulty, difficulty_of_line, simulate_difficulty
    from shiftbench.studies.fits import Fit

    assumed = Difficulty(*numbers(first, "--first", 2))
    if table.results is None and table.workspace is None:
        if second is None:
            raise typer.BadParameter(
                "give --second MEAN,SPREAD to simulate, or real accuracies: --results FILE --x SETTING --y SETTING",
                param_hint="--second",
            )
        low, high = numbers(skills, "--skills", 2)
        other = Difficulty(*numbers(second, "--second", 2))
        found = simulate_difficulty(
            np.linspace(low, high, count), assumed, other, n_first=n_x or 50_000, n_second=n_y or 10_000, seed=seed
        )
        shown.show(difficulty_table(found))
        return
    if x is None or y is None or second is not None:
        raise typer.BadParameter(
            "real accuracies need --x and --y, and determine --second themselves", param_hint="--x"
        )
    study = table.study()
    line = study.fit(x, y, scale="probit")
    assert isinstance(line, Fit)
    accuracies = study.results.of(x)
    fractions = np.array([accuracies[model] for model in line.models]) / whole(study.results.unit)
    known = [study.results.size(setting) for setting in (x, y)]
    n_first, n_second = (
        given or (int(np.nanmedian(n)) if n is not None else default)
        for given, n, default in zip((n_x, n_y), known, (50_000, 10_000), strict=True)
    )
    found = difficulty_of_line(line, fractions, n_first=n_first, n_second=n_second, first=assumed, seed=seed)
    shown.show(difficulty_table(found, x, y))


@app.command("agreement")
def agreement_command(
    stored: StoredOptions,
    setting: Annotated[str | None, "-s", "Setting (default: the only one)."] = None,
    *,
    shown: TableOptions,
) -> None:
    """Do models fail on the same images?

    Images that all fail on, error consistency (Cohen's kappa) and dominance of every pair.

    \b
    shiftbench study agreement -w W -s imagenetv2-matched-frequency
    """
    from shiftbench.reports.study_tables import agreement_table
    from shiftbench.studies.agreement import agreement_of

    settings = [setting] if setting else sb.Run.open(stored.workspace).settings
    if len(settings) != 1:
        names = ", ".join(settings[:8]) or "none"
        raise typer.BadParameter(f"name one setting (there are: {names})", param_hint="--setting")
    result = agreement_of(stored.predictions(settings[0]), level=stored.level)
    shown.show(agreement_table(result, settings[0]), stored.workspace)


ChangesFile = Annotated[Path | None, "-m", "Table of models with the columns base_model and changes."]


@app.command("hypotheses")
def hypotheses_command(
    models: ChangesFile,
    setting: Annotated[list[str], "-s", "Setting to test the hypotheses on (repeatable)."],
    table: ResultsOptions,
    x: Annotated[str | None, "Reference setting, such as val."] = None,
    level: Level = 0.95,
    *,
    shown: TableOptions,
) -> None:
    """Evidence for or against what models change: gain under shift, beyond the reference --x.

    Each tag in the column changes is a hypothesis; its pairs are the models with that tag and their base models. From a
    table of results margins alone decide; from a workspace the images' paired differences do, too, with Holm's
    correction over everything that is tested together. Settings are scored by their own metric, mAP where images have
    several labels. The rule is printed below the table.

    \b
    shiftbench study hypotheses -r results.csv -m models.csv -s imagenet-r --x val
    """
    from shiftbench.reports.study_tables import hypotheses_table
    from shiftbench.studies.base import whole
    from shiftbench.studies.hypotheses import HitData, ScoredData, weigh_hypotheses
    from shiftbench.studies.many_faces import Face, measured

    tested = _hypotheses(models)
    datasets: list[ScoredData | HitData]
    if table.workspace is not None and table.results is None:
        run = sb.Run.open(table.workspace)
        for name in (*setting, *([x] if x else [])):
            run.of_setting(name)
        datasets = [
            measured(run, Face(name, {name: 1.0}, run.of_setting(name)[0].spec.metric, x, False)) for name in setting
        ]
    else:
        results = table.open().results
        points = 100.0 / whole(results.unit)
        scores = {name: {model: points * value for model, value in results.of(name).items()} for name in setting}
        usual = {model: points * value for model, value in results.of(x).items()} if x else None
        datasets = [ScoredData(name, scores[name], usual) for name in setting]
    shown.show(hypotheses_table(weigh_hypotheses(tested, datasets, level=level), level))


def _hypotheses(models: Path | None, names: Mapping[str, str] | None = None) -> list[Hypothesis]:
    """From a table of models; ``names`` are those of the tags that count."""
    from shiftbench.studies.hypotheses import hypotheses_from_models
    from shiftbench.studies.models import read_models

    if models is None:
        raise typer.BadParameter("give a table of models with the columns base_model and changes", param_hint="-m")
    known = read_models(models)
    tags = {name: info.changes for name, info in known.items()}
    if names is not None:
        tags = {name: tuple(names[tag] for tag in own if tag in names) for name, own in tags.items()}
    if tested := hypotheses_from_models(tags, known.bases):
        return tested
    expected = f" (of {', '.join(names)})" if names else ""
    raise typer.BadParameter(
        f"no model of {models} has both a base_model and tags{expected} in the column changes", param_hint="--models"
    )


@app.command("many-faces")
def many_faces_command(
    models: ChangesFile = None,
    *,
    table: ResultsOptions,
    texture: Annotated[
        list[str] | None,
        "Dataset whose textures differ from photographs (repeatable; default: those of the paper).",
    ] = None,
    setting: Annotated[list[str] | None, "-s", "Only this dataset or family (repeatable)."] = None,
    level: Level = 0.95,
    shown: TableOptions,
) -> None:
    """The seven hypotheses of "The Many Faces of Robustness", and "robustness is multivariate": a verdict on each.

    Methods are tags in the column changes of --models: larger, self-attention, augmentation, pretraining; each model
    with a tag is compared with its base_model. Every dataset is scored as in the paper: mCE on ImageNet-C, mAP over the
    shifts of DeepFashion Remixed, the mean over the shifts of StreetView StoreFronts, accuracy elsewhere. Texture bias,
    IID accuracy, synthetic against natural, and "multivariate" follow from the methods' evidence; the rules are printed
    below. Without results: from the numbers that the paper prints.

    \b
    shiftbench study many-faces
    shiftbench study many-faces -w W -m models.csv
    shiftbench study many-faces -r results.csv -m models.csv --texture imagenet-r
    """
    from shiftbench.reports.study_tables import many_faces_table
    from shiftbench.studies.hypotheses import weigh_hypotheses
    from shiftbench.studies.many_faces import TAGS, TEXTURES, faces_of_run, faces_of_table, judge_faces

    if table.results is None and table.workspace is None:
        from shiftbench.published.reproduce.paper_000 import HYPOTHESES, printed_faces

        if models is not None:
            raise typer.BadParameter("the models of which results? Give --results or --workspace", param_hint="-m")
        tested, (synthetic, datasets) = HYPOTHESES, printed_faces(setting or ())
    else:
        tested = _hypotheses(models, TAGS)
        if table.results is None and table.workspace is not None:
            faces, datasets = faces_of_run(sb.Run.open(table.workspace), setting or ())
        else:
            faces, datasets = faces_of_table(table.open().results, setting or ())
        synthetic = [one.name for one in faces if one.synthetic]
    evidence = weigh_hypotheses(tested, datasets, level=level)
    findings = judge_faces(evidence, synthetic, texture or TEXTURES)
    shown.show(many_faces_table(findings, evidence, level), table.workspace)


@app.command("confusion")
def confusion_command(
    stored: StoredOptions,
    setting: SettingNames = None,
    most: Annotated[int, {"min": 1}, "Rows to show; --json and --format csv have all."] = 20,
    *,
    shown: TableOptions,
) -> None:
    """Pairs of classes that models confuse, most frequent first; --json has the whole confusion matrix.

    \b
    shiftbench study confusion -w W -s val -c squeezenet1_1
    """
    from shiftbench.reports.images import confusion_table
    from shiftbench.reports.summary import clean_result

    run = stored.run(setting)
    known = [result for result in run.results if result.spec.judged_by_image]
    if known and not setting:
        known = [result for result in known if result.setting == clean_result(known).setting]
    read = [run.workspace.read(result, top_k=1, confidence=False, scores=False) for result in known]
    if not any(one.valid.any() for one in read):
        raise typer.BadParameter("no result with one label per image", param_hint="--setting")
    shown.show(confusion_table(read, level=stored.level, most=most), stored.workspace)


@app.command("tags")
def tags_command(stored: StoredOptions, setting: SettingNames = None, *, shown: TableOptions) -> None:
    """Count the tags of misclassified images by model and setting.

    People set tags on the live page (`serve`, section Failures): "background", "several objects", "wrong label", ...

    \b
    shiftbench study tags -w W -s val
    """
    from shiftbench.reports.images import tag_table

    shown.show(tag_table(stored.run(setting), level=stored.level), stored.workspace)


@app.command("colours")
def colours_command(
    models: Annotated[
        list[str], typer.Argument(help="Models, as for `eval`.", show_default=False, autocompletion=complete_models)
    ],
    data: Annotated[str, "-d", "Labelled images, such as ImageNet-A; as for `eval`."],
    labels: Labels = None,
    sample: Annotated[int, {"min": 1}, "Use a random subset of at most N images."] = 400,
    seed: Annotated[int, "Seed of the subset."] = 0,
    level: Level = 0.95,
    quiet: Quiet = False,
    *,
    loading: ModelOptions,
    shown: TableOptions,
) -> None:
    """Do mistakes depend on colour? Predictions on the same images in greyscale and with their hues rotated.

    Counts how often a wrong class disappears when only the colours change, how often the right one takes its place, and
    how often a right prediction is lost. This command runs the models.

    \b
    shiftbench study colours demo:squeezenet1_1 --data demo
    """
    from shiftbench.diagnosis.images import admit
    from shiftbench.reports.study_tables import colour_table
    from shiftbench.studies.colours import colour_counterfactuals

    classifiers, images = admit(models, data, labels=labels, sample=sample, seed=seed, least=1, **loading.loading())
    found = {one.name: colour_counterfactuals(one, images, progress=not quiet) for one in classifiers}
    shown.show(colour_table(found, level))
