"""``shiftbench detect``: out-of-distribution detection, from stored predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from shiftbench.cli.options import DEFAULT_WORKSPACE, Level, ModelNames, TableOptions, WorkspacePath, grouped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shiftbench.metrics.detection import AnomalyScore


@grouped
def detect_command(
    workspace: WorkspacePath = DEFAULT_WORKSPACE,
    inside: Annotated[
        str | None, typer.Option("--in", help="Setting of known images (default: the reference of the out-set).")
    ] = None,
    outside: Annotated[
        str | None, typer.Option("--out", help="Setting of unknown images (default: imagenet-o).")
    ] = None,
    score: Annotated[
        str, typer.Option(help="max_softmax, max_logit, energy, entropy, a comma-separated list, or all.")
    ] = "max_softmax",
    published: Annotated[
        bool,
        typer.Option(
            "--published", help="FPR95 as in the papers' code: at the recall nearest to 95 %, which may be below it."
        ),
    ] = False,
    classifier: ModelNames = None,
    level: Level = 0.95,
    *,
    shown: TableOptions,
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
    from shiftbench.api import Run

    scores = _anomaly_scores(score)
    shown.show(
        Run.open(workspace, classifier or ()).detection(inside, outside, scores, published=published, level=level)
    )


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
