"""How well anomaly scores separate an out-set from an in-set, as a table over models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shiftbench.errors import ShiftbenchError, UnknownNameError
from shiftbench.metrics.arrays import gives_probabilities
from shiftbench.metrics.detection import ANOMALY_SCORES, AnomalyScore, Detection, detect
from shiftbench.reports import formatting
from shiftbench.reports.scores import Entries, in_one_column, named, score_table
from shiftbench.reports.table import Table
from shiftbench.runs.results import StoredResults
from shiftbench.store.predictions import Predictions
from shiftbench.store.workspace import Result, Workspace

#: The out-set that is meant where none is named.
IMAGENET_O = "imagenet-o"


def detection_entries(
    run: StoredResults, inside: str | None = None, outside: str | None = None, *, level: float = 0.95
) -> Entries:
    """(model, out-set, score) of AUPR, AUROC and FPR95 by the largest softmax probability."""
    _, unknown, found, _ = _detections(run.workspace, run.results, inside, outside, ("max_softmax",), False, level)
    return in_one_column((title, unknown, score) for title, _, one in found for score in one.scores())


def detection_table(
    workspace: Workspace,
    results: Sequence[Result],
    inside: str | None = None,
    outside: str | None = None,
    scores: Sequence[AnomalyScore] | None = ("max_softmax",),
    *,
    published: bool = False,
    level: float = 0.95,
) -> Table:
    """AUPR, AUROC and FPR95 of every model that has seen both sets.

    Without names the out-set is ImageNet-O, and the in-set what the out-set's setting names as its reference.
    ``scores=None`` takes every anomaly score that the stored predictions can give, and notes those that are missing.
    """
    known, unknown, found, without = _detections(workspace, results, inside, outside, scores, published, level)
    entries = in_one_column(
        # The column names the score.
        (title, name, replace(score, provenance=score.provenance.removeprefix(f"{name}; ")))
        for title, name, one in found
        for score in one.scores()
    )
    remarks = [f"{named(titles)}: {why}" for why, titles in without.items()]
    title = f"{unknown} (out) against {known} (in)"
    return score_table(entries, title=title, remarks=[*_meaning([one for *_, one in found]), *remarks])


def _detections(
    workspace: Workspace, results: Sequence[Result], inside: str | None, outside: str | None,
    scores: Sequence[AnomalyScore] | None, published: bool, level: float,
) -> tuple[str, str, list[tuple[str, AnomalyScore, Detection]], dict[str, list[str]]]:  # fmt: skip
    """In-set, out-set, (model, anomaly score, detection), and the models without some scores by the reason."""
    known, unknown = _pair(results, inside, outside)
    found: list[tuple[str, AnomalyScore, Detection]] = []
    without: dict[str, list[str]] = {}
    for title, one, other in _same_classifier(results, known, unknown):
        pair = workspace.read(one, top_k=1), workspace.read(other, top_k=1)
        possible, why = (scores, "") if scores is not None else _possible(*pair)
        found += [(title, name, detect(*pair, name, published=published, level=level)) for name in possible]
        if why:
            without.setdefault(why, []).append(title)
    return known, unknown, found, without


def _possible(inside: Predictions, outside: Predictions) -> tuple[Sequence[AnomalyScore], str]:
    """The anomaly scores that these predictions can give, and why not all."""
    if inside.scores is None or outside.scores is None:
        return ["max_softmax"], "no max_logit, energy or entropy, for not all scores were kept (eval --keep-scores)"
    if gives_probabilities(inside):
        return ["max_softmax", "entropy"], "no max_logit or energy, for it gives probabilities"
    return ANOMALY_SCORES, ""


def _meaning(found: Sequence[Detection]) -> list[str]:
    sizes = dict.fromkeys((one.in_images, one.out_images, one.chance_aupr) for one in found)
    counts = [
        f"{formatting.count(outs)} out-images against {formatting.count(ins)} in-images: chance is "
        f"{formatting.number(chance, 1)} for aupr, 50 for auroc, 95 for fpr95"
        for ins, outs, chance in sizes
    ]
    return [*counts, "out-images are the positives; aupr and auroc: higher is better, fpr95: lower"]


def _pair(results: Sequence[Result], inside: str | None, outside: str | None) -> tuple[str, str]:
    settings = list(dict.fromkeys(result.setting for result in results))
    if outside is None and IMAGENET_O not in settings:
        raise ShiftbenchError(
            "which images are the unknown ones?",
            found=f"settings {', '.join(settings[:8]) or 'none'}",
            hint="name them: --out SETTING, and the known ones with --in SETTING",
        )
    unknown = outside or IMAGENET_O
    if unknown not in settings:
        raise UnknownNameError("setting", unknown, settings)
    reference = next(result.spec.reference for result in results if result.setting == unknown)
    known = inside or reference
    if known is None:
        raise ShiftbenchError(
            f"which images are the known ones? {unknown!r} names no reference setting", hint="--in SETTING"
        )
    if known not in settings:
        if inside is not None:
            raise UnknownNameError("setting", known, settings)
        raise ShiftbenchError(
            f"{unknown!r} is held against {known!r}, which was not evaluated",
            found=f"settings {', '.join(settings[:8])}",
            hint="evaluate it too (--data imagenet-val=FOLDER), or name another in-set with --in",
        )
    if known == unknown:
        raise ShiftbenchError("the in-set and the out-set are the same", found=known, expected="two settings")
    return known, unknown


def _same_classifier(results: Sequence[Result], known: str, unknown: str) -> list[tuple[str, Result, Result]]:
    chosen = [result for result in results if result.setting in (known, unknown)]
    pairs = [
        (one.title, one, other)
        for one in chosen
        for other in chosen
        if (one.setting, other.setting) == (known, unknown) and one.title == other.title
    ]
    if not pairs:
        seen = {name: sorted({c.title for c in chosen if c.setting == name}) for name in (known, unknown)}
        raise ShiftbenchError(
            "no model has seen both sets",
            found="; ".join(f"{name}: {', '.join(classifiers)}" for name, classifiers in seen.items()),
            hint="evaluate the same model on both",
        )
    return pairs
