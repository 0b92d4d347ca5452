"""``shiftbench groups``, ``detect`` and ``calibrate``: beyond accuracy, from predictions that are already there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftbench.cli.options import grouped
from shiftbench.cli.table import Classifiers, Format, Level, Output, Workspace, show_report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shiftbench.api import Run
    from shiftbench.metrics.detection import AnomalyScore
    from shiftbench.reports.table import Table


@dataclass(frozen=True)
class Asked:
    """Of which classifiers, and how the answer is shown."""

    classifier: Classifiers = None
    level: Level = 0.95
    format: Format = "text"
    file: Output = None
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False

    def run(self, workspace: Path) -> Run:
        from shiftbench.api import Run

        return Run.open(workspace, self.classifier or ())

    def show(self, table: Table) -> None:
        show_report(table, "json" if self.json else self.format, self.file)


_DEFAULT = Path("shiftbench-workspace")


@grouped
def groups_command(
    by: Annotated[str, typer.Option("--by", "-b", help="A column, such as country; `class` is always there.")],
    workspace: Workspace = _DEFAULT,
    setting: Annotated[str | None, typer.Option("--setting", "-s", help="Default: all that have the column.")] = None,
    table: Annotated[
        Path | None,
        typer.Option("--table", "-t", help="CSV, JSONL or Parquet with a column `id` (or `path`) and the column."),
    ] = None,
    *,
    asked: Asked,
) -> None:
    """Accuracy by group, and of the worst group.

    A good average can hide a group that does badly: one country, one camera, one class. Each group has its own
    Clopper-Pearson interval; that of the worst one is simultaneous over all groups, because the least of many noisy
    numbers looks worse than it is.

    The columns are those that the data set's table had when it was evaluated (a manifest, a factor-split table), or
    those of --table.

    \b
    Examples:
      shiftbench groups -w W -s shops.test --by country
      shiftbench groups -w W -s val --by class
      shiftbench groups -w W -s val --by photographer --table photographs.csv
    """
    asked.show(asked.run(workspace).groups(by, setting, table=table, level=asked.level))


@grouped
def detect_command(
    workspace: Workspace = _DEFAULT,
    inside: Annotated[
        str | None, typer.Option("--in", help="The setting of known images. Default: the out-set's reference.")
    ] = None,
    outside: Annotated[
        str | None, typer.Option("--out", help="The setting of unknown images. Default: imagenet-o.")
    ] = None,
    score: Annotated[
        str, typer.Option(help="max_softmax, max_logit, energy, entropy, several with commas, or all.")
    ] = "max_softmax",
    published: Annotated[
        bool,
        typer.Option(
            "--published", help="FPR95 as the papers' code takes it: the recall nearest to 95 %, from below too."
        ),
    ] = False,
    *,
    asked: Asked,
) -> None:
    """Are images of unknown kinds told from known ones?

    Every image gets an anomaly score: minus the largest softmax probability, minus the largest logit, the energy, or
    the entropy. AUPR (out-images are the positives), AUROC, and FPR95, the share of known images that are called
    unknown by the threshold which finds 95 % of the unknown ones. All but max_softmax need runs with --keep-scores.

    \b
    Examples:
      ImageNet-O against ImageNet val of its 200 classes
        shiftbench eval model.onnx -s natural-adversarial -d FOLDER -w W
        shiftbench detect -w W
      any pictures of no known class
        shiftbench eval model.onnx -d val/ -w W --keep-scores
        shiftbench eval model.onnx -d unlabelled:textures/ -w W \\
          --labels imagenet-1k --keep-scores
        shiftbench detect -w W --in val --out textures --score all
    """
    scores = _anomaly_scores(score)
    asked.show(asked.run(workspace).detection(inside, outside, scores, published=published, level=asked.level))


@grouped
def calibrate_command(
    workspace: Workspace = _DEFAULT,
    setting: Annotated[
        str | None, typer.Option("--setting", "-s", help="What is scored. Default: the only one.")
    ] = None,
    fit: Annotated[
        str | None, typer.Option("--fit", help="Fit the temperature in this setting, on other images than are scored.")
    ] = None,
    split: Annotated[
        float | None,
        typer.Option("--split", help="Hold out this share of the images to fit on; 0.5 where --fit is not given."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Which images are held out.")] = 0,
    diagram: Annotated[bool, typer.Option("--diagram", "-d", help="Draw reliability diagrams too.")] = False,
    *,
    asked: Asked,
) -> None:
    """Does a confidence of 60 % mean right 60 % of the time? Before and after temperature scaling.

    RMS calibration error (as published, and with its last bin), MAD, ECE, classwise ECE, Brier score and negative
    log-likelihood, as the classifier is and at the temperature with the least log-loss on held-out images. No image is
    fitted on and scored; the same picture under another shift counts as the same. Needs runs with --keep-scores.

    \b
    Examples:
      one half of the images fits, the other is scored
        shiftbench calibrate -w W -s val
      other images fit
        shiftbench calibrate -w W -s imagenet-a --fit val --diagram
      a fifth of the clean images fits, the others are scored under fog
        shiftbench calibrate -w W -s imagenet-c.fog.3 --fit val --split 0.2
    """
    run = asked.run(workspace)
    asked.show(run.calibration(setting, fit=fit, split=split, seed=seed, diagrams=diagram, level=asked.level))


def _anomaly_scores(text: str) -> Sequence[AnomalyScore] | None:
    """As named; None for all."""
    from shiftbench.metrics.detection import ANOMALY_SCORES

    if text == "all":
        return None
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in ANOMALY_SCORES]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r} is not one of {', '.join(ANOMALY_SCORES)}, all", param_hint="--score")
    return [score for score in ANOMALY_SCORES if score in names]
