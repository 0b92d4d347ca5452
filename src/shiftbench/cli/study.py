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
    Limit,
    ModelOptions,
    Quiet,
    SettingNames,
    Split,
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
    from collections.abc import Mapping, Sequence

    from shiftbench.studies.hypotheses import HitData, Hypothesis, ScoredData
    from shiftbench.studies.results import Results
    from shiftbench.studies.robustness import EffectiveRobustness
    from shiftbench.studies.study import ShiftAxes, Study

app = Commands(
    "Is it robustness, or just accuracy? From a table of results or a workspace; only `colours` runs models."
)

# Numbers of images of `study difficulty`, those of ImageNet and of a new test set.
_DEFAULT_N_X = 50_000
_DEFAULT_N_Y = 10_000


@dataclass(frozen=True)
class Resampling:
    """How the uncertainty of the line is estimated."""

    panel: ClassVar[str] = "Bootstrap"
    resamples: Annotated[int, {"min": 0}, "Bootstrap resamples."] = 1000
    seed: Annotated[int | None, "Seed (default: the testbed's own)."] = None
    procedure: Annotated[
        str,
        "student (Student's t), or bootstrap: testbed (the same draws and percentiles as the testbed) or shiftbench.",
    ] = "student"
    bootstrap: Annotated[
        str, "What is resampled: models, or, with a workspace, images or both (images and models)."
    ] = "models"

    def effective(
        self, study: Study, workspace: Location | None, shift: ShiftAxes, scale: str, level: float
    ) -> EffectiveRobustness:
        """Effective robustness to a shift; images can be resampled only if there is a workspace."""
        if self.bootstrap == "models":
            return study.effective(
                shift.x,
                shift.y,
                min_x=shift.min_x,
                pivot=shift.pivot,
                level=level,
                scale=scale,
                resamples=self.resamples,
                seed=self.seed,
                procedure=self.procedure,
            )
        from shiftbench.studies.image_bootstrap import image_bootstrap_of_shift

        if self.bootstrap not in ("images", "both"):
            raise typer.BadParameter(f"{self.bootstrap!r} is not one of models, images, both", param_hint="--bootstrap")
        if workspace is None:
            raise typer.BadParameter(
                "images can be resampled with --workspace only: a table does not know which images were right",
                param_hint="--bootstrap",
            )
        stored = WorkspaceOptions(workspace=workspace)
        return image_bootstrap_of_shift(
            study,
            shift,
            stored.predictions(shift.x),
            stored.predictions(shift.y),
            scale=scale,
            over_models=self.bootstrap == "both",
            level=level,
            resamples=max(1, self.resamples),
            seed=self.seed or 0,
        )


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
    table_options: TableOptions,
) -> None:
    """Both ``study fit`` and ``study effective``, which only print different tables; their help texts are below."""
    from shiftbench.reports.placement import published_study
    from shiftbench.reports.study_tables import effective_table, lines_table, wide_table

    if published:
        if table.workspace is None or axes.y is None:
            raise typer.BadParameter("--published needs --workspace FOLDER and --y SETTING", param_hint="--published")
        study, shift, default_scale, mine = published_study(sb.Run.open(table.workspace), axes.y)
        shifts = {shift.y: shift}
        set_sizes(study, {shift.x: axes.n_x, shift.y: axes.n_y})
    else:
        study, mine = table.placed()
        shifts = axes.choose(study)
        default_scale = "logit"
        table.check(study, mine, list(shifts.values()))
    effective = {}
    for name, shift in shifts.items():
        effective[name] = resampling.effective(study, table.workspace, shift, scale or default_scale, level)
    is_fit = ctx.info_name == "fit"
    if len(shifts) == 1:
        [(name, shift)] = shifts.items()
        result = effective_table(study, shift.x, shift.y, effective[name], extremes=is_fit, own=mine)
    elif is_fit:
        result = lines_table({name: robustness.line for name, robustness in effective.items()})
    else:
        result = wide_table(study, effective, "rho", own=mine)
    table_options.show(result, table.workspace)


app.command(
    "fit",
    help="The line of the baseline models and the models farthest from it.\n\n"
    "Least squares of y on x on the chosen scale, with intervals by Student's t.\n\n"
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
    table_options: TableOptions,
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
    shifts = named_shifts(study, shift or [y or ""], y or "val")
    settings = {name: axes.y for name, axes in shifts.items()}
    set_sizes(study, dict.fromkeys(settings.values(), n_y))
    # Relative robustness has no reference setting: own models need accuracies under shift only.
    table.check(study, mine, [ShiftAxes(setting, setting) for setting in settings.values()], "base_model")
    relative = {name: study.relative(setting, level=level) for name, setting in settings.items()}
    if len(settings) == 1:
        [(name, setting)] = settings.items()
        result = relative_table(study, setting, relative[name], own=mine)
    else:
        result = wide_table(study, relative, "tau", own=mine)
    table_options.show(result, table.workspace)


@app.command("interventions")
def interventions_command(
    table: PlacedOptions,
    shift: Shifts = None,
    by: Annotated[str, "Column of the table of models that makes the groups."] = "category",
    scale: Scale = "logit",
    level: Level = 0.95,
    *,
    table_options: TableOptions,
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
    table_options.show(interventions_table(study, means, by, level))


@app.command("correlate")
def correlate_command(
    synthetic: Annotated[list[str], "-s", "A setting, SETTING@REFERENCE, a testbed shift, or all (repeatable)."],
    natural: Annotated[list[str], "-n", "Shift to compare with (repeatable)."],
    table: LineOptions,
    x: Annotated[str, "Reference of settings that are named without one."] = "val",
    scale: Scale = "logit",
    level: Level = 0.95,
    *,
    table_options: TableOptions,
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
    table_options.show(correlation_table(study.correlations(*measures, x=x, level=level, scale=scale), level))


@app.command("reproducibility")
def reproducibility_command(pair: PairOptions, table_options: TableOptions) -> None:
    """Accuracy on an original and a new test set, with gap, ranks and change of rank.

    \b
    shiftbench study reproducibility -r results.csv --x val --y new --n-x 50000 --n-y 10000
    """
    from shiftbench.reports.study_tables import reproducibility_table

    table_options.show(reproducibility_table(pair.reproducibility(), pair.x, pair.y), pair.workspace)


@app.command("gap")
def gap_command(
    pair: PairOptions,
    fresh: Annotated[
        str | None, "A setting with fresh images of the original distribution, such as a hidden split."
    ] = None,
    n_fresh: Annotated[float | None, {"min": 1}, "Images behind the fresh setting."] = None,
    *,
    table_options: TableOptions,
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

    study = pair.open()
    sizes = {pair.x: pair.n_x, pair.y: pair.n_y}
    if fresh:
        sizes[fresh] = n_fresh
    set_sizes(study, sizes)
    gaps = decompose_gaps(study.results, pair.x, pair.y, fresh=fresh, level=pair.level)
    table_options.show(gap_table(gaps, pair.x, pair.y, fresh), pair.workspace)


@app.command("bins")
def bins_command(annotated: BinOptions, table_options: TableOptions) -> None:
    """Accuracy by selection frequency: are images that few people would select harder?

    Selection frequency is the share of people who, shown the image and a class, select it for the class. Shows the
    accuracy of every model, and the mean over models, per bin of selection frequency.

    \b
    shiftbench study bins -w W -s new --frequencies annotations.csv
    """
    from shiftbench.reports.study_tables import bins_table

    accuracies = annotated.accuracies()
    result = bins_table(accuracies.with_mean(), annotated.setting, annotated.level, accuracies.notes)
    table_options.show(result, annotated.workspace)


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
    table_options: TableOptions,
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

    first_difficulty = Difficulty(*numbers(first, "--first", 2))
    if table.results is None and table.workspace is None:
        if second is None:
            raise typer.BadParameter(
                "give --second MEAN,SPREAD to simulate, or real accuracies: --results FILE --x SETTING --y SETTING",
                param_hint="--second",
            )
        low, high = numbers(skills, "--skills", 2)
        second_difficulty = Difficulty(*numbers(second, "--second", 2))
        simulation = simulate_difficulty(
            np.linspace(low, high, count),
            first_difficulty,
            second_difficulty,
            n_first=n_x or _DEFAULT_N_X,
            n_second=n_y or _DEFAULT_N_Y,
            seed=seed,
        )
        table_options.show(difficulty_table(simulation))
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
    explanation = difficulty_of_line(
        line,
        fractions,
        n_first=n_x or _number_of_images(study, x, _DEFAULT_N_X),
        n_second=n_y or _number_of_images(study, y, _DEFAULT_N_Y),
        first=first_difficulty,
        seed=seed,
    )
    table_options.show(difficulty_table(explanation, x, y))


def _number_of_images(study: Study, setting: str, default: int) -> int:
    """The number of images of a setting, the median if it differs between models; the default if it is not known."""
    import numpy as np

    sizes = study.results.size(setting)
    if sizes is None:
        return default
    return int(np.nanmedian(sizes))


@app.command("agreement")
def agreement_command(
    stored: StoredOptions,
    setting: Annotated[str | None, "-s", "Setting (default: the only one)."] = None,
    *,
    table_options: TableOptions,
) -> None:
    """Do models fail on the same images?

    Images that all fail on, error consistency (Cohen's kappa) and dominance of every pair.

    \b
    shiftbench study agreement -w W -s imagenetv2-matched-frequency
    """
    from shiftbench.reports.study_tables import agreement_table
    from shiftbench.studies.agreement import agreement_of

    if not setting:
        settings = sb.Run.open(stored.workspace).settings
        if len(settings) != 1:
            names = ", ".join(settings[:8]) or "none"
            raise typer.BadParameter(f"name one setting (there are: {names})", param_hint="--setting")
        [setting] = settings
    agreement = agreement_of(stored.predictions(setting), level=stored.level)
    table_options.show(agreement_table(agreement, setting), stored.workspace)


ChangesFile = Annotated[Path | None, "-m", "Table of models with the columns base_model and changes."]


@app.command("hypotheses")
def hypotheses_command(
    models: ChangesFile,
    setting: Annotated[list[str], "-s", "Setting to test the hypotheses on (repeatable)."],
    table: ResultsOptions,
    x: Annotated[str | None, "Reference setting, such as val."] = None,
    level: Level = 0.95,
    *,
    table_options: TableOptions,
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
    from shiftbench.studies.hypotheses import weigh_hypotheses

    hypotheses = _hypotheses(models)
    datasets: Sequence[ScoredData | HitData]
    if table.workspace is not None and table.results is None:
        datasets = _measured_settings(sb.Run.open(table.workspace), setting, x)
    else:
        datasets = _scored_settings(table.open().results, setting, x)
    evidence = weigh_hypotheses(hypotheses, datasets, level=level)
    table_options.show(hypotheses_table(evidence, level))


def _measured_settings(run: sb.Run, settings: Sequence[str], x: str | None) -> list[ScoredData | HitData]:
    """The scores of a run's models in some settings, each by its own metric, with the evidence of the images."""
    from shiftbench.studies.many_faces import Face, measured

    # A setting without results is an error, which is raised before the work starts.
    faces = []
    for name in settings:
        metric = run.of_setting(name)[0].spec.metric
        faces.append(Face(name, weights={name: 1.0}, metric=metric, reference=x, synthetic=False))
    if x:
        run.of_setting(x)
    return [measured(run, face) for face in faces]


def _scored_settings(results: Results, settings: Sequence[str], x: str | None) -> list[ScoredData]:
    """The accuracies of some settings in percentage points, with those in the reference ``x``, if it is given."""
    from shiftbench.studies.base import whole
    from shiftbench.studies.hypotheses import ScoredData

    factor = 100.0 / whole(results.unit)

    def in_points(setting: str) -> dict[str, float]:
        return {model: factor * value for model, value in results.of(setting).items()}

    scores = {name: in_points(name) for name in settings}
    reference = in_points(x) if x else None
    return [ScoredData(name, scores[name], reference) for name in settings]


def _hypotheses(models: Path | None, names: Mapping[str, str] | None = None) -> list[Hypothesis]:
    """The hypotheses that a table of models allows to test.

    ``names`` gives the tags that count, and the name of the hypothesis that each belongs to; without it, every tag is
    a hypothesis.
    """
    from shiftbench.studies.hypotheses import hypotheses_from_models
    from shiftbench.studies.models import read_models

    if models is None:
        raise typer.BadParameter("give a table of models with the columns base_model and changes", param_hint="-m")
    model_table = read_models(models)
    tags = {}
    for model, info in model_table.items():
        if names is None:
            tags[model] = info.changes
        else:
            tags[model] = tuple(names[tag] for tag in info.changes if tag in names)
    hypotheses = hypotheses_from_models(tags, model_table.bases)
    if not hypotheses:
        expected = f" (of {', '.join(names)})" if names else ""
        raise typer.BadParameter(
            f"no model of {models} has both a base_model and tags{expected} in the column changes",
            param_hint="--models",
        )
    return hypotheses


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
    table_options: TableOptions,
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
        hypotheses = HYPOTHESES
        synthetic, datasets = printed_faces(setting or ())
    else:
        hypotheses = _hypotheses(models, TAGS)
        if table.results is None and table.workspace is not None:
            faces, datasets = faces_of_run(sb.Run.open(table.workspace), setting or ())
        else:
            faces, datasets = faces_of_table(table.open().results, setting or ())
        synthetic = [face.name for face in faces if face.synthetic]
    evidence = weigh_hypotheses(hypotheses, datasets, level=level)
    findings = judge_faces(evidence, synthetic, texture or TEXTURES)
    table_options.show(many_faces_table(findings, evidence, level), table.workspace)


@app.command("confusion")
def confusion_command(
    stored: StoredOptions,
    setting: SettingNames = None,
    most: Annotated[int, {"min": 1}, "Rows to show; --json and --format csv have all."] = 20,
    *,
    table_options: TableOptions,
) -> None:
    """Pairs of classes that models confuse, most frequent first; --json has the whole confusion matrix.

    \b
    shiftbench study confusion -w W -s val -c squeezenet1_1
    """
    from shiftbench.reports.images import confusion_table
    from shiftbench.reports.summary import clean_result

    run = stored.run(setting)
    results = [result for result in run.results if result.spec.judged_by_image]
    if results and not setting:
        clean_setting = clean_result(results).setting
        results = [result for result in results if result.setting == clean_setting]
    predictions = [run.workspace.read(result, top_k=1, confidence=False, scores=False) for result in results]
    if not any(model_predictions.valid.any() for model_predictions in predictions):
        raise typer.BadParameter("no result with one label per image", param_hint="--setting")
    table_options.show(confusion_table(predictions, level=stored.level, most=most), stored.workspace)


@app.command("tags")
def tags_command(stored: StoredOptions, setting: SettingNames = None, *, table_options: TableOptions) -> None:
    """Count the tags of misclassified images by model and setting.

    People set tags on the live page (`serve`, section Failures): "background", "several objects", "wrong label", ...

    \b
    shiftbench study tags -w W -s val
    """
    from shiftbench.reports.images import tag_table

    table_options.show(tag_table(stored.run(setting), level=stored.level), stored.workspace)


@app.command("colours")
def colours_command(
    models: Annotated[
        list[str], typer.Argument(help="Models, as for `eval`.", show_default=False, autocompletion=complete_models)
    ],
    data: Annotated[str, "-d", "Labelled images, such as ImageNet-A; as for `eval`."],
    split: Split = None,
    labels: Labels = None,
    sample: Limit = 400,
    seed: Annotated[int, "Seed of the subset."] = 0,
    level: Level = 0.95,
    quiet: Quiet = False,
    *,
    loading: ModelOptions,
    table_options: TableOptions,
) -> None:
    """Do mistakes depend on colour? Predictions on the same images in greyscale and with their hues rotated.

    Counts how often a wrong class disappears when only the colours change, how often the right one takes its place, and
    how often a right prediction is lost. This command runs the models.

    \b
    shiftbench study colours demo:squeezenet1_1 --data demo
    """
    from shiftbench.diagnosis.images import admit
    from shiftbench.reports.study_tables import colour_table
    from shiftbench.settings.roles import of_split
    from shiftbench.studies.colours import colour_counterfactuals

    classifiers, images = admit(
        models, of_split(data, split), labels=labels, sample=sample, seed=seed, least=1, **loading.loading()
    )
    counterfactuals = {}
    for classifier in classifiers:
        counterfactuals[classifier.name] = colour_counterfactuals(classifier, images, progress=not quiet)
    table_options.show(colour_table(counterfactuals, level))
