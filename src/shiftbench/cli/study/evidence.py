"""``shiftbench study agreement | hypotheses | many-faces``: which errors models share, and evidence for hypotheses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftbench.cli.options import Level, ModelNames, TableOptions, grouped
from shiftbench.cli.study.options import ResultsOptions, WorkspaceOption, predictions_in
from shiftbench.io.paths import Location

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shiftbench.studies.hypotheses import Hypothesis


@grouped
def agreement_command(
    workspace: Annotated[Location, WorkspaceOption],
    setting: Annotated[str | None, typer.Option("--setting", "-s", help="Setting (default: the only one).")] = None,
    classifier: ModelNames = None,
    level: Level = 0.95,
    *,
    shown: TableOptions,
) -> None:
    """Do models fail on the same images?

    Images that all fail on, error consistency (Cohen's kappa) and dominance of every pair.

    \b
    shiftbench study agreement -w WORKSPACE -s imagenetv2-matched-frequency
    """
    from shiftbench.api import Run
    from shiftbench.reports.study_tables import agreement_table
    from shiftbench.studies.agreement import agreement_of

    settings = [setting] if setting else Run.open(workspace).settings
    if len(settings) != 1:
        names = ", ".join(settings[:8]) or "none"
        raise typer.BadParameter(f"name one setting (there are: {names})", param_hint="--setting")
    result = agreement_of(predictions_in(workspace, settings[0], classifier or ()), level=level)
    shown.show(agreement_table(result, settings[0]), workspace)


ChangesFile = Annotated[
    Path | None, typer.Option("--models", "-m", help="Table of models with the columns base_model and changes.")
]


@grouped
def hypotheses_command(
    models: ChangesFile,
    setting: Annotated[list[str], typer.Option("--setting", "-s", help="Dataset to weigh (repeatable).")],
    table: ResultsOptions,
    x: Annotated[str | None, typer.Option("--x", help="Reference setting, such as val.")] = None,
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
    shiftbench study hypotheses -r results.csv -m models.csv -s imagenet-r -s imagenet-a --x val
    """
    from shiftbench.api import Run
    from shiftbench.reports.study_tables import hypotheses_table
    from shiftbench.studies.base import whole
    from shiftbench.studies.hypotheses import HitData, ScoredData, weigh_hypotheses
    from shiftbench.studies.many_faces import Face, measured

    tested = _hypotheses(models)
    datasets: list[ScoredData | HitData]
    if table.workspace is not None and table.results is None:
        run = Run.open(table.workspace)
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


@grouped
def many_faces_command(
    models: ChangesFile = None,
    *,
    table: ResultsOptions,
    texture: Annotated[
        list[str] | None,
        typer.Option(help="Dataset whose textures differ from photographs (repeatable; default: imagenet-r and such)."),
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--setting", "-s", help="Only this dataset or family (repeatable).")
    ] = None,
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
    shiftbench study many-faces -w WORKSPACE -m models.csv
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
            from shiftbench.api import Run

            faces, datasets = faces_of_run(Run.open(table.workspace), setting or ())
        else:
            faces, datasets = faces_of_table(table.open().results, setting or ())
        synthetic = [one.name for one in faces if one.synthetic]
    evidence = weigh_hypotheses(tested, datasets, level=level)
    findings = judge_faces(evidence, synthetic, texture or TEXTURES)
    shown.show(many_faces_table(findings, evidence, level), table.workspace)
