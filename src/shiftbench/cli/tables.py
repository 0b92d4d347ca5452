"""Tables of stored predictions: ``table``, ``compare``, ``history``, ``groups``, ``detect``, ``calibrate``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import shiftbench as sb
from shiftbench.cli.console import show
from shiftbench.cli.options import (
    DEFAULT_WORKSPACE,
    Json,
    Level,
    ModelNames,
    SettingNames,
    StoredOptions,
    TableOptions,
    WorkspacePath,
    choice,
    complete_workspace_models,
)
from shiftbench.io.paths import place

if TYPE_CHECKING:
    from shiftbench.reports.table import Table


def table_command(
    stored: StoredOptions,
    setting: SettingNames = None,
    metric: Annotated[str | None, "-m", "Metric, or several separated by commas; see `list metrics`."] = None,
    mce: Annotated[bool, {"panel": "Corruption errors"}, "Corruption errors: mCE, relative mCE, CE per type."] = False,
    baseline: Annotated[
        str | None, {"panel": "Corruption errors"}, "With --mce: divide by this model instead of the published AlexNet."
    ] = None,
    relative: Annotated[
        bool, {"panel": "Corruption errors"}, "With --mce: relative CE per type, the rise over the clean error."
    ] = False,
    modelled: Annotated[
        bool,
        {"panel": "Corruption errors"},
        "With --mce and a design: each corruption, severity and setting by a partially pooled model.",
    ] = False,
    results: Annotated[
        Path | None,
        "-r",
        {"panel": "Corruption errors"},
        "With --mce: a table of results (.csv, .parquet) in place of a workspace.",
    ] = None,
    family: Annotated[
        str | None,
        {"panel": "Corruption errors"},
        "With --results: family of corrupted settings, such as imagenet-c_on-disk.",
    ] = None,
    all_models: Annotated[
        bool,
        {"panel": "Corruption errors"},
        "With --results: all models of the testbed's public table, not only the paper's 204.",
    ] = False,
    gaps: Annotated[bool, "Also by how much each score is worse than in the setting's reference."] = False,
    pivot: Annotated[
        bool, "One row per model, one column per setting, values only, as studies read them from `--results`."
    ] = False,
    provenance: Annotated[bool, "Date, versions, assumed preprocessing and data of every result."] = False,
    *,
    table_options: TableOptions,
) -> None:
    """Scores of a workspace, with intervals.

    No model is run: every number is computed from stored predictions.

    \b
    shiftbench table -w W
    shiftbench table -w W --gaps
    shiftbench table -w W --pivot -o wide.csv
    shiftbench table -w W --mce --relative
    shiftbench table --mce -r results.csv --family imagenet-c_on-disk
    """
    if mce and metric is not None:
        raise typer.BadParameter("--mce has its own metrics; see --relative", param_hint="--metric")
    if modelled and (not mce or relative or baseline or results is not None):
        raise typer.BadParameter("needs --mce, without --relative, --baseline and --results", param_hint="--modelled")
    if not mce:
        _refuse_without_mce({"--relative": relative, "--results": results is not None})
    if (gaps or pivot) and (mce or provenance):
        raise typer.BadParameter("not with --mce or --provenance", param_hint="--gaps" if gaps else "--pivot")
    if results is not None:
        if setting is not None:
            raise typer.BadParameter("of a table of results: --family", param_hint="--setting")
        table_options.show(
            _ce_table_of_file(results, stored.classifier, family, baseline, relative=relative, all_models=all_models)
        )
        return
    run = stored.run(setting)
    if provenance:
        from shiftbench.reports.models import provenance_table

        table_options.show(provenance_table(run))
    elif mce:
        table = run.corruption_table(baseline=baseline, relative=relative, modelled=modelled, level=stored.level)
        table_options.show(table)
    else:
        table_options.show(run.table(metric, level=stored.level, gaps=gaps, pivot=pivot))


def _refuse_without_mce(options: Mapping[str, bool]) -> None:
    """Refuse the first of these options that is used; by name, whether each of them is."""
    for name, is_used in options.items():
        if is_used:
            raise typer.BadParameter("needs --mce", param_hint=name)


def _ce_table_of_file(
    file: Path,
    models: Sequence[str] | None,
    family: str | None,
    baseline: str | None,
    *,
    relative: bool,
    all_models: bool,
) -> Table:
    """The corruption errors in a table of results, of all models or of these."""
    from shiftbench.published.importers import open_table
    from shiftbench.reports.accuracy_grids import ce_table, severity_grid

    accuracies = open_table(file, all_models=all_models).results
    grid = severity_grid(accuracies, family=family, clean="val" if "val" in accuracies.settings else None)
    return ce_table(grid, baseline=baseline, relative=relative, models=models or (), notes=accuracies.notes)


def compare_command(
    workspace: Annotated[
        list[str] | None,
        "-w",
        {"metavar": "PATH|URL"},
        "Workspace with the results; several are compared (repeatable).",
    ] = None,
    setting: Annotated[
        str | None, "-s", "Setting, family such as imagenet-c, or mean over settings (default: the first setting)."
    ] = None,
    classifier: ModelNames = None,
    level: Level = 0.95,
    *,
    table_options: TableOptions,
) -> None:
    """Compare models image by image.

    Exact McNemar test on the same images, with Holm's correction for the number of pairs, and an interval of
    the difference that agrees with the test. For a family of settings: the difference in mean accuracy, also as a
    design (docs/designs.md) estimates it.

    \b
    Examples:
      shiftbench compare -w W --setting val
      models of two workspaces, on the same images
        shiftbench compare -w A -w B --setting val
    """
    from shiftbench.reports.comparisons import compare_runs

    # A workspace that is named twice counts once.
    folders = list(dict.fromkeys(map(place, workspace or ()))) or [DEFAULT_WORKSPACE]
    if len(folders) == 1:
        run = sb.Run.open(folders[0], classifier or ())
        table_options.show(run.compare(setting, level=level))
    else:
        runs = [sb.Run.open(folder) for folder in folders]
        table_options.show(compare_runs(runs, setting, classifier or (), level=level))


def images_needed_command(
    half_width: Annotated[
        float | None, typer.Argument(help="Half-width of the interval in points: 1 is ±1 %.", show_default=False)
    ] = None,
    accuracy: Annotated[float | None, "Expected accuracy in percent (default: 50, the worst case)."] = None,
    difference: Annotated[
        float | None, "Instead of a half-width: the difference between two models, in points, that a test is to show."
    ] = None,
    disagreement: Annotated[
        float | None, "With --difference: the percentage of images on which exactly one of the two models is right."
    ] = None,
    power: Annotated[
        float | None, "With --difference: the probability that the test shows the difference (default: 0.8)."
    ] = None,
    level: Level = 0.95,
    json: Json = False,
) -> None:
    """Number of images for an interval of a given width, or to tell two models apart.

    Two models are compared on the same images, by the exact test of McNemar, as `shiftbench compare` does.

    \b
    Examples:
      shiftbench images-needed 1 --accuracy 76
      two models that differ by 2 points and disagree on 10 % of the images
        shiftbench images-needed --difference 2 --disagreement 10
    """
    if difference is not None:
        if half_width is not None or accuracy is not None:
            raise typer.BadParameter(
                "a difference needs no half-width and no accuracy: leave them out", param_hint="--difference"
            )
        if disagreement is None:
            raise typer.BadParameter(
                "state --disagreement too: the fewer images the models disagree on, the fewer are needed",
                param_hint="--difference",
            )
        _show_images_for_a_difference(difference, disagreement, 0.8 if power is None else power, level, json)
        return
    if half_width is None or disagreement is not None or power is not None:
        raise typer.BadParameter(
            "state HALF_WIDTH for the interval of an accuracy, or --difference and --disagreement for two models",
            param_hint="HALF_WIDTH",
        )
    _show_images_for_an_interval(half_width, 50.0 if accuracy is None else accuracy, level, json)


def _show_images_for_an_interval(half_width: float, accuracy: float, level: float, json: bool) -> None:
    from shiftbench.metrics.intervals import images_needed

    if not 0 < half_width < 100 or not 0 <= accuracy <= 100:
        raise typer.BadParameter("half-width and accuracy are percentage points, from 0 to 100")
    n = images_needed(half_width / 100, accuracy=accuracy / 100, level=level)
    data = {"images": n, "half_width": half_width, "accuracy": accuracy, "level": level}
    show(data, f"{n:,} images for {accuracy:g} % ± {half_width:g} points at level {level:g}", as_json=json)


def _show_images_for_a_difference(
    difference: float, disagreement: float, power: float, level: float, json: bool
) -> None:
    from shiftbench.metrics.intervals import images_needed_to_tell_apart

    if not 0 < difference < 100 or not 0 < disagreement <= 100:
        raise typer.BadParameter("difference and disagreement are percentage points, above 0 and up to 100")
    n = images_needed_to_tell_apart(difference / 100, disagreement=disagreement / 100, level=level, power=power)
    data = {"images": n, "difference": difference, "disagreement": disagreement, "power": power, "level": level}
    text = (
        f"{n:,} images to show a difference of {difference:g} points at level {level:g} with power {power:g}, if "
        f"exactly one of the models is right on {disagreement:g} % of them"
    )
    show(data, text, as_json=json)


def history_command(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names, or ids (name@hash) (default: all models).", autocompletion=complete_workspace_models
        ),
    ] = None,
    workspace: WorkspacePath = DEFAULT_WORKSPACE,
    setting: SettingNames = None,
    level: Level = 0.95,
    *,
    table_options: TableOptions,
) -> None:
    """Versions of a model in order of their first run: accuracy, means under shift, and what changed.

    A version is a model with its weights and preprocessing. Evaluate each new one under the same name in the same
    workspace; the change is against the version before, on the same images.

    \b
    Examples:
      shiftbench history resnet50 -w W
      shiftbench history v1 v2 v3 -w W --setting val --json
    """
    from shiftbench.reports.models import history_table

    run = sb.Run.open(workspace, models or (), setting or ())
    table_options.show(history_table(run, level=level))


def groups_command(
    by: Annotated[str, "-b", "Column to group by, such as country; `class` is always available."],
    stored: StoredOptions,
    setting: Annotated[str | None, "-s", "Setting (default: all settings with that column)."] = None,
    table: Annotated[Path | None, "-t", "CSV, JSONL or Parquet with a column `id` (or `path`) and the column."] = None,
    *,
    table_options: TableOptions,
) -> None:
    """Accuracy by group, and of the worst group.

    A good average can hide a weak group: one country, one camera, one class. Each group has its own
    Clopper-Pearson interval; the interval of the worst one is simultaneous over all groups, because the lowest of many
    noisy numbers looks worse than it is.

    The columns are those of the dataset's table at evaluation (a manifest, a factor-split table), or those of --table.

    \b
    Examples:
      shiftbench groups -w W -s shops.test --by country
      shiftbench groups -w W -s val --by class
      shiftbench groups -w W -s val --by photographer --table photographs.csv
    """
    table_options.show(stored.run().groups(by, setting, table=table, level=stored.level))


def detect_command(
    stored: StoredOptions,
    inside: Annotated[str | None, "--in", "Setting of known images (default: the reference of the out-set)."] = None,
    outside: Annotated[str | None, "--out", "Setting of unknown images (default: imagenet-o)."] = None,
    score: Annotated[str, "max_softmax, max_logit, energy, entropy, a comma-separated list, or all."] = "max_softmax",
    published: Annotated[
        bool, "FPR95 as in the papers' code: at the recall nearest to 95 %, which may be below it."
    ] = False,
    *,
    table_options: TableOptions,
) -> None:
    """Are images of unknown classes detected?

    Every image gets an anomaly score: minus the largest softmax probability, minus the largest logit, the energy, or
    the entropy. Reported are AUPR (out-images are the positives), AUROC, and FPR95, the share of known images that are
    called unknown at the threshold that detects 95 % of the unknown ones. All but max_softmax need --keep-scores.

    \b
    Examples:
      ImageNet-O against ImageNet val of its 200 classes
        shiftbench eval model.onnx -s natural-adversarial -d FOLDER -w W
        shiftbench detect -w W
      any images of no known class
        shiftbench eval model.onnx -d val/ -w W --keep-scores
        shiftbench eval model.onnx -d unlabelled:textures/ -w W \\
          --labels imagenet-1k --keep-scores
        shiftbench detect -w W --in val --out textures --score all
    """
    from shiftbench.metrics.detection import ANOMALY_SCORES

    names = [choice(name.strip(), (*ANOMALY_SCORES, "all"), "--score") for name in score.split(",")]
    scores = None
    if "all" not in names:
        # The order is that of the registry, not that of the option.
        scores = [anomaly_score for anomaly_score in ANOMALY_SCORES if anomaly_score in names]
    table_options.show(stored.run().detection(inside, outside, scores, published=published, level=stored.level))


def calibrate_command(
    stored: StoredOptions,
    setting: Annotated[str | None, "-s", "Setting to score (default: the only one)."] = None,
    fit: Annotated[str | None, "Setting to fit the temperature in, on other images than those scored."] = None,
    split: Annotated[float | None, "Share of the images to fit on, not scored (default: 0.5 without --fit)."] = None,
    seed: Annotated[int, "Seed of the held-out images."] = 0,
    diagram: Annotated[bool, "-d", "Also draw reliability diagrams."] = False,
    *,
    table_options: TableOptions,
) -> None:
    """Calibration before and after temperature scaling: is a confidence of 60 % right 60 % of the time?

    RMS calibration error (as published, and with its last bin), MAD, ECE, classwise ECE, Brier score and negative
    log-likelihood, of the model as it is and at the temperature with the least log-loss on held-out images. No image is
    both fitted on and scored; an image under another shift counts as the same image. Needs --keep-scores.

    \b
    Examples:
      one half of the images fits, the other is scored
        shiftbench calibrate -w W -s val
      other images fit
        shiftbench calibrate -w W -s imagenet-a --fit val --diagram
      a fifth of the clean images fits, the others are scored under fog
        shiftbench calibrate -w W -s imagenet-c.fog.3 --fit val --split 0.2
    """
    table_options.show(
        stored.run().calibration(setting, fit=fit, split=split, seed=seed, diagrams=diagram, level=stored.level)
    )
