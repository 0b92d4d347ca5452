"""What confidences are worth, as tables: calibration, temperature scaling, detection of unknown images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial

from shiftbench.errors import ShiftbenchError, UnknownNameError, argument, check_names
from shiftbench.metrics.arrays import gives_probabilities
from shiftbench.metrics.base import metrics
from shiftbench.metrics.calibration import ReliabilityBin, reliability_diagram
from shiftbench.metrics.detection import ANOMALY_SCORES, AnomalyScore, Detection, detect
from shiftbench.metrics.temperature import BOUNDS, Calibrated, calibrate
from shiftbench.reports import formatting
from shiftbench.reports.scores import Entries, in_one_column, score_table
from shiftbench.reports.table import Diagram, Number, Table, interval_chart
from shiftbench.reports.writers import plain
from shiftbench.runs.results import StoredResults
from shiftbench.store.workspace import Result, Workspace

_FROM_CONFIDENCE = ("rms_calibration_error", "rms_calibration_error_published", "mad_calibration_error", "ece")
_FROM_SCORES = ("classwise_ece", "brier", "nll")
_PUBLISHED, _BIN = "rms_calibration_error_published", 100
_DIAGRAM_BINS = 10
_LEGEND = "interval: share that is right; ◇: mean confidence. A mark to the right of its interval is overconfident."
_WITHOUT_SCORES = "no temperature, classwise_ece, brier or nll, because not all scores were kept (eval --keep-scores)"
_BINS_NOTE = (
    "rms and mad: adaptive bins of 100 images; _published leaves out the most confident bin, as the papers' code does; "
    "ece: 15 equal bins. Every binned error is raised by noise: compare at the same number of images"
)
#: The out-set that is meant where none is named.
IMAGENET_O = "imagenet-o"


def calibration_table(
    workspace: Workspace,
    results: Sequence[Result],
    setting: str,
    *,
    fit: str | None = None,
    split: float | None = None,
    seed: int = 0,
    diagrams: bool = False,
    level: float = 0.95,
) -> Table:
    """Each model in ``setting`` as it is and at the temperature that held-out images give it.

    The temperature is fitted in the setting ``fit``, or on a share ``split`` of the images, which is then not scored;
    see ``metrics.temperature.calibrate``. Where all scores were not kept there is no temperature: then what the
    confidences alone show is reported, over all images.
    """
    entries: Entries = []
    without: list[str] = []
    drawn: dict[str, Sequence[ReliabilityBin]] = {}
    remarks: list[str] = []
    for result in (one for one in results if one.setting == setting):
        title, scored = result.title, workspace.read(result)
        rows = {title: scored}
        if scored.scores is None and fit is None and split is None:
            without.append(title)
        else:
            other = None
            if fit is not None:
                same = [one for one in results if one.setting == fit and one.title == title]
                if len(same) != 1:
                    raise ShiftbenchError(
                        f"which predictions of {title!r} should its temperature be fitted on?",
                        found=f"{len(same)} in the setting {fit!r}",
                        expected="one",
                        hint="keep one dataset per workspace"
                        if same
                        else f"evaluate it there with {argument('keep_scores', True)}",
                    )
                other = workspace.read(same[0])
            done = calibrate(scored, other, split=split, seed=seed)
            # The row's name gives the temperature; its provenance must be that of the row above to share its columns.
            after = replace(done.after, spec=replace(done.after.spec, provenance=done.before.provenance))
            rows = {title: done.before, f"{title} at T = {done.temperature:.3g}": after}
            remarks.append(f"{title}: {_fitted(done)}")
        for name, predictions in rows.items():
            enough = int(predictions.valid.sum()) >= _BIN
            kinds = [kind for kind in _FROM_CONFIDENCE if kind != _PUBLISHED or enough]
            kinds += _FROM_SCORES if predictions.scores is not None else ()
            entries += [(name, setting, metrics.get(kind)(predictions, level=level)) for kind in kinds]
            if diagrams:
                confidence, hits = predictions.confidence[predictions.valid], predictions.correct
                drawn[name] = reliability_diagram(confidence, hits, _DIAGRAM_BINS, level=level)
    if without:
        remarks.append(f"{formatting.named(without)}: {_WITHOUT_SCORES}")
    if any(score.n < _BIN for *_, score in entries):
        remarks.append(f"{_PUBLISHED} needs at least {_BIN} images")
    # The last diagram explains them all.
    shown = [Diagram(name, partial(_diagram, bins), _LEGEND if name == list(drawn)[-1] else "")
             for name, bins in drawn.items()]  # fmt: skip
    table = score_table(in_one_column(entries), title="calibration", remarks=[*remarks, _BINS_NOTE], diagrams=shown)
    if drawn:
        bins_of = {name: [plain(asdict(one)) for one in bins] for name, bins in drawn.items()}
        table.data = {**table.as_data(), "diagrams": bins_of}
    return table


def _fitted(done: Calibrated) -> str:
    held = done.held_out
    where = "the setting, which are not scored" if held.setting == done.before.setting else held.setting
    classes = "" if held.space.keys == done.before.space.keys else f" over {held.space.name} ({len(held.space)})"
    end = ", the end of the search: these images do not determine it" if done.temperature in BOUNDS else ""
    images = formatting.count(int(held.valid.sum()))
    return f"temperature {done.temperature:.4g}, fitted on {images} images of {where}{classes}{end}"


def _diagram(bins: Sequence[ReliabilityBin], width: int, ascii_only: bool) -> list[str]:
    """A reliability diagram in characters: one line per bin, the most confident last."""
    values: list[tuple[str, Number | None]] = []
    for one in bins:
        name = f"{100 * one.start:.3g}–{100 * one.stop:.3g} %, n = {formatting.count(one.n)}"
        values.append((name, Number(one.accuracy, one.low, one.high) if one.n else None))
    return interval_chart(values, width, ascii_only, [one.confidence if one.n else None for one in bins])


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
    sizes = dict.fromkeys((one.in_images, one.out_images, one.chance_aupr) for *_, one in found)
    remarks = [
        *(
            f"{formatting.count(outs)} out-images against {formatting.count(ins)} in-images: chance is "
            f"{formatting.number(chance, 1)} for aupr, 50 for auroc, 95 for fpr95"
            for ins, outs, chance in sizes
        ),
        "out-images are the positives; aupr and auroc: higher is better, fpr95: lower",
        *(f"{formatting.named(titles)}: {why}" for why, titles in without.items()),
    ]
    return score_table(entries, title=f"{unknown} (out) against {known} (in)", remarks=remarks)


def _detections(
    workspace: Workspace, results: Sequence[Result], inside: str | None, outside: str | None,
    scores: Sequence[AnomalyScore] | None, published: bool, level: float,
) -> tuple[str, str, list[tuple[str, AnomalyScore, Detection]], dict[str, list[str]]]:  # fmt: skip
    """In-set, out-set, (model, anomaly score, detection), and the models without some scores by the reason."""
    known, unknown = _pair(results, inside, outside)
    found: list[tuple[str, AnomalyScore, Detection]] = []
    without: dict[str, list[str]] = {}
    by_title: dict[str, dict[str, list[Result]]] = {known: {}, unknown: {}}
    for result in results:
        if result.setting in by_title:
            by_title[result.setting].setdefault(result.title, []).append(result)
    pairs = [
        (title, one, other)
        for title, own in by_title[known].items()
        for one in own
        for other in by_title[unknown].get(title, ())
    ]
    if not pairs:
        raise ShiftbenchError(
            "no model has seen both sets",
            found="; ".join(f"{name}: {', '.join(sorted(titles))}" for name, titles in by_title.items()),
            hint="evaluate the same model on both",
        )
    for title, one, other in pairs:
        pair = workspace.read(one, top_k=1), workspace.read(other, top_k=1)
        possible, why = scores if scores is not None else ANOMALY_SCORES, ""
        if scores is None and any(side.scores is None for side in pair):
            possible = ("max_softmax",)
            why = "no max_logit, energy or entropy, because not all scores were kept (eval --keep-scores)"
        elif scores is None and gives_probabilities(pair[0]):
            possible, why = ("max_softmax", "entropy"), "no max_logit or energy, for it gives probabilities"
        found += [(title, name, detect(*pair, name, published=published, level=level)) for name in possible]
        if why:
            without.setdefault(why, []).append(title)
    return known, unknown, found, without


def _pair(results: Sequence[Result], inside: str | None, outside: str | None) -> tuple[str, str]:
    settings = list(dict.fromkeys(result.setting for result in results))
    name_known = argument("inside", "SETTING", flag="--in")
    if outside is None and IMAGENET_O not in settings:
        raise ShiftbenchError(
            "which images are the unknown ones?",
            found=f"settings {', '.join(settings[:8]) or 'none'}",
            hint=f"name them: {argument('outside', 'SETTING', flag='--out')}, and the known ones: {name_known}",
        )
    unknown = outside or IMAGENET_O
    check_names("setting", [unknown], settings)
    reference = next(result.spec.reference for result in results if result.setting == unknown)
    known = inside or reference
    if known is None:
        raise ShiftbenchError(f"which images are known? {unknown!r} names no reference setting", hint=name_known)
    if known not in settings:
        if inside is not None:
            raise UnknownNameError("setting", known, settings)
        raise ShiftbenchError(
            f"{unknown!r} is held against {known!r}, which was not evaluated",
            found=f"settings {', '.join(settings[:8])}",
            hint=f"evaluate it too ({argument('data', {'imagenet-val': 'FOLDER'})}), or name another: {name_known}",
        )
    if known == unknown:
        raise ShiftbenchError("the in-set and the out-set are the same", found=known, expected="two settings")
    return known, unknown
