"""Compare an exported, quantised or served model with the original, stage by stage."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import IntArray
from shiftbench.classifiers.base import Classifier
from shiftbench.diagnosis.causes import SAME_PROBABILITY, Cause, find_cause
from shiftbench.diagnosis.images import Images, LoadingOptions, admit, finite_scores
from shiftbench.diagnosis.search import examined_outputs
from shiftbench.errors import LabelError, argument, listed
from shiftbench.io import html
from shiftbench.jobs.progress import Advance, progress_bar
from shiftbench.labels.space import Scores
from shiftbench.metrics.arrays import softmax
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.metrics.paired import difference_interval, holm, mcnemar
from shiftbench.settings.roles import Data
from shiftbench.shifts.corruptions.api import corrupt

#: One of each family, at a severity at which most models still have some accuracy.
SHIFTS = (("gaussian_noise", 3.0), ("motion_blur", 3.0), ("brightness", 3.0), ("jpeg_compression", 3.0))
#: Images per shift.
_SHIFTED = 100
#: Half precision rounds differently by less than this.
_CLOSE_PROBABILITY = 0.02
#: Values of 0 to 255 that resizing in two libraries may differ by.
_CLOSE_PIXEL = 2
#: Values of the networks' inputs that differ by less are equal, relative to the largest.
_SAME_INPUT = 1e-4

Finding = Literal["same", "close", "different", "unknown"]


@dataclass(frozen=True)
class Stage:
    """One stage of the comparison.

    Attributes:
        stage: ``pixels``, ``input``, ``labels``, ``outputs``, ``scores``, ``top-1``, ``accuracy``, or a shift.
        finding: ``same``, ``close`` (rounding), ``different``, or ``unknown`` if it cannot be compared.
        text: What was measured, for people.
        values: The numbers.
    """

    stage: str
    finding: Finding
    text: str
    values: dict[str, float]


@dataclass(frozen=True, repr=False)
class ExportCheck:
    """Two models, stage by stage.

    Attributes:
        first: Name of the original.
        second: Name of the export.
        images: Number of images.
        stages: In the order of the data: pixels, input, labels, outputs, scores, top-1, accuracy, then each shift.
        status: ``"same"``, ``"different"``, or ``"undecided"`` if there are too few images to tell.
        reason: Why.
        least_agreement: Share of images on which the two must agree.
        level: Confidence level.
        cause: What explains the difference, if it is one of the usual faults: another order of the outputs, other
            channels, another range of values.
    """

    first: str
    second: str
    images: int
    stages: tuple[Stage, ...]
    status: Literal["same", "different", "undecided"]
    reason: str
    least_agreement: float
    level: float
    cause: Cause | None = None

    @property
    def first_difference(self) -> str | None:
        """The first stage that is not the same, or None."""
        return next((stage.stage for stage in self.stages if stage.finding in ("close", "different")), None)

    def __repr__(self) -> str:
        return f"<ExportCheck of {self.first} and {self.second}: {self.status}; {self.reason}>"

    def _repr_html_(self) -> str:
        summary = f"{self.first} and {self.second} on {self.images} images: {self.reason}"
        rows = []
        for stage in self.stages:
            rows.append((html.text(stage.stage), html.text(stage.finding), html.text(stage.text)))
        table = html.table(("stage", "finding", "measured"), rows, left=3)
        notes = [f"cause: {self.cause.text}"] if self.cause else []
        return html.block(html.title(self.status, summary), table, html.notes(notes))

    def as_dict(self) -> dict[str, object]:
        """JSON-able."""
        values = _field_values(self)
        values["stages"] = [_field_values(stage) for stage in self.stages]
        if self.cause is not None:
            values["cause"] = _field_values(self.cause)
            del values["cause"]["classifier"]
        return {**values, "first_difference": self.first_difference}


def _field_values(instance: Any) -> dict[str, Any]:
    return {field.name: getattr(instance, field.name) for field in fields(instance)}


def verify_export(
    original: object,
    export: object,
    data: Data,
    *,
    least_agreement: float = 0.98,
    sample: int = 400,
    seed: int = 0,
    level: float = 0.95,
    progress: bool = True,
    **loading: Unpack[LoadingOptions],
) -> ExportCheck:
    """Compare an export with its original, from the pixels to the accuracy under shift.

    Args:
        original: As for ``evaluate``.
        export: The exported, quantised or served model.
        data: A few hundred images; accuracies need labels.
        least_agreement: Share of images on which both must answer the same.
        sample: Number of images to use at most.
        seed: Seed of the sample and of the shifts.
        level: Confidence level.
        progress: Whether a progress bar is shown.
        **loading: ``labels``, ``preprocessing`` (one for both, or a list of two), ``name``, ``device``, ``batch_size``,
            ``threads`` and ``trust``, as for ``evaluate``.

    Returns:
        The stages, the first that differs, a verdict, and the cause if it is one of the usual faults.

    Raises:
        ShiftbenchError: The two have other classes, too few images, scores that are not numbers.

    Example:
        >>> import shiftbench as sb
        >>> sb.verify_export("model.onnx", "model-int8.onnx", "photos/").first_difference  # doctest: +SKIP
        'scores'
    """
    classifiers, images = admit([original, export], data, sample=sample, seed=seed, **loading)
    first = classifiers[0]
    second = classifiers[-1]  # one model that is given twice is loaded once
    _check_same_classes(first, second)
    comparison = _Comparison(first, second, images, level, seed)
    total = len(images.rows) + len(SHIFTS) * len(comparison.shifted_places)
    with progress_bar("images", total, show=progress) as advance:
        stages = [*comparison.inputs(), *comparison.answers()]
        cause = comparison.cause()
        advance(len(images.rows))
        shifted = [comparison.shifted(name, severity, advance) for name, severity in SHIFTS]
    stages += _corrected(shifted, level)
    status, reason = _verdict(stages, least_agreement)
    return ExportCheck(
        first=first.name,
        second=second.name,
        images=len(images.rows),
        stages=tuple(stages),
        status=status,
        reason=reason,
        least_agreement=least_agreement,
        level=level,
        cause=cause,
    )


def _check_same_classes(first: Classifier, second: Classifier) -> None:
    if set(first.space.keys) == set(second.space.keys):
        return
    counts = f"{len(first.space)} and {len(second.space)} classes"
    only_second = [key for key in second.space.keys if key not in first.space]
    if only_second:
        counts += f"; only {second.name} has {listed(only_second)}"
    raise LabelError(
        "the two models have different classes",
        found=counts,
        expected="the same classes, in any order",
        hint=f"state them: {argument('labels')}, or a sidecar of each model",
    )


def _corrected(shifted: Sequence[Stage], level: float) -> list[Stage]:
    """A loss of accuracy counts after Holm's correction for the number of shifts."""
    p_values = holm([stage.values.get("p", float("nan")) for stage in shifted])
    stages = []
    for stage, p in zip(shifted, p_values, strict=True):
        finding: Finding = "different" if p <= 1 - level else stage.finding
        stages.append(replace(stage, finding=finding, values={**stage.values, "p_holm": float(p)}))
    return stages


class _Comparison:
    """Two models on the same images."""

    def __init__(self, first: Classifier, second: Classifier, images: Images, level: float, seed: int) -> None:
        self.models = (first, second)
        self.images = images
        self.level = level
        self.seed = seed
        rows = images.rows.tolist()
        # The places are evenly spread, because the images of folders come class by class.
        count = min(_SHIFTED, len(rows))
        self.shifted_places = np.arange(count) * len(rows) // count
        self.projections = [images.dataset.space.projection_from(model.space) for model in self.models]
        #: The label of each image; None if some image has none, or several.
        self.true: IntArray | None = images.labels[rows]
        if images.dataset.label_sets is not None or (self.true < 0).any():
            self.true = None
        self.pixels = [images.prepared(model.preprocessing.geometry, rows) for model in self.models]
        #: The scores of each model on its own pixels, in the order of its outputs.
        self.scores: list[Scores] = []

    def inputs(self) -> list[Stage]:
        """Pixels after resize and crop, what the networks get, and the order of the classes."""
        labels = self._label_order()
        ours, theirs = self.pixels
        if any(a.shape != b.shape for a, b in zip(ours, theirs, strict=True)):
            sizes = [f"{pixels[0].shape[0]} x {pixels[0].shape[1]}" for pixels in self.pixels]
            pixels = Stage("pixels", "different", f"inputs of {' and '.join(sizes)} pixels", {})
            return [pixels, Stage("input", "unknown", "other sizes", {}), labels]
        return [self._pixels(), self._network_input(), labels]

    def _label_order(self) -> Stage:
        """Whether the outputs come in the same order; that both models have the same classes was checked before.

        Another order is no fault ("close", not "different"): answers are compared by the names of the classes.
        """
        first, second = self.models
        moved = 0
        for first_class, second_class in zip(first.space.keys, second.space.keys, strict=True):
            if first_class != second_class:
                moved += 1
        if moved == 0:
            return Stage("labels", "same", "same order", {"moved": 0.0})
        text = f"{moved} classes in another place (compared by name)"
        return Stage("labels", "close", text, {"moved": float(moved)})

    def _pixels(self) -> Stage:
        differences = [np.abs(a.astype(np.int16) - b) for a, b in zip(*self.pixels, strict=True)]
        largest = max(int(difference.max()) for difference in differences)
        mean = float(np.mean([difference.mean() for difference in differences]))
        values = {"largest": float(largest), "mean": mean}
        if largest == 0:
            return Stage("pixels", "same", "equal", values)
        finding: Finding = "close" if largest <= _CLOSE_PIXEL else "different"
        return Stage("pixels", finding, f"up to {largest} of 255 apart, {mean:.2f} on average", values)

    def _network_input(self) -> Stage:
        if any(model.takes_pixels for model in self.models):
            return Stage("input", "unknown", "a model normalises for itself", {})
        # One image is enough, and the others may have other sizes.
        image = self.pixels[0][0][None]
        normalisations = [replace(model.preprocessing.normalisation, layout="nchw") for model in self.models]
        ours, theirs = (normalise(image) for normalise in normalisations)
        difference = float(np.abs(ours - theirs).max())
        if difference <= _SAME_INPUT * max(1.0, float(np.abs(ours).max())):
            return Stage("input", "same", "equal", {"largest": difference})
        text = f"the same pixels become values up to {difference:.3g} apart (mean, std, scale, colours)"
        return Stage("input", "different", text, {"largest": difference})

    def answers(self) -> list[Stage]:
        """Kind of the outputs, scores of the same pixels where possible, answers and accuracy of both as wired."""
        self.scores = [finite_scores(model, pixels) for model, pixels in zip(self.models, self.pixels, strict=True)]
        probabilities = [self._probabilities(number, scores) for number, scores in enumerate(self.scores)]
        top = [table.argmax(axis=1) for table in probabilities]
        return [
            self._outputs(),
            self._score_difference(probabilities[0], probabilities[1]),
            self._agreement("top-1", top),
            self._accuracy("accuracy", top, self.true),
        ]

    def cause(self) -> Cause | None:
        """One of the usual faults, if it explains the difference."""
        true = None
        if self.true is not None and self.projections[0].kind != "max":
            true = self.models[0].space.relabel_from(self.images.dataset.space)[self.true].astype(np.int64)
        return find_cause(self.models, self.pixels, self.scores, true)

    def _outputs(self) -> Stage:
        """Whether both give logits or probabilities as stated."""
        notes = []
        texts = []
        for model, scores, pixels in zip(self.models, self.scores, self.pixels, strict=True):
            _, model_notes = examined_outputs(model, scores, pixels)
            notes.append(model_notes)
            texts += [f"{model.name}: {note}" for note in model_notes]
        kinds = " and ".join(dict.fromkeys(model.outputs for model in self.models))
        finding: Finding = "same" if notes[0] == notes[1] else "different"
        return Stage("outputs", finding, "; ".join(texts) or kinds, {})

    def _score_difference(self, first: Scores, second: Scores) -> Stage:
        """Between the scores of the same pixels: if the second model gets others, it is run on the first one's."""
        ours, theirs = self.pixels
        have_same_pixels = all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
        if not have_same_pixels:
            with suppress(Exception):  # another input size
                second = self._probabilities(1, finite_scores(self.models[1], ours))
        largest = float(np.abs(first - second).max())
        k = min(5, second.shape[1])
        ranks = [np.argsort(-table, axis=1, kind="stable")[:, :k] for table in (first, second)]
        changed = float((ranks[0] != ranks[1]).any(axis=1).mean())
        finding: Finding = "different"
        if largest <= SAME_PROBABILITY:
            finding = "same"
        elif largest <= _CLOSE_PROBABILITY:
            finding = "close"
        text = f"probabilities up to {largest:.2g} apart; order of the top {k} changes for {100 * changed:.1f} %"
        return Stage("scores", finding, text, {"largest": largest, "rank_changes": changed})

    def _agreement(self, stage: str, top: Sequence[NDArray[np.integer]]) -> Stage:
        n = len(top[0])
        agree = int((top[0] == top[1]).sum())
        low, high = clopper_pearson(agree, n, self.level)
        finding: Finding = "different"
        if agree == n:
            finding = "same"
        elif high >= 1 - _CLOSE_PROBABILITY:
            finding = "close"
        text = f"{100 * agree / n:.1f} % of {n} answers agree [{100 * low:.1f}, {100 * high:.1f}]"
        return Stage(stage, finding, text, {"agreement": agree / n, "low": low, "high": high, "n": n})

    def _accuracy(self, stage: str, top: Sequence[NDArray[np.integer]], true: IntArray | None) -> Stage:
        """The accuracies of both models on the same images, with the interval and the test of their difference."""
        if true is None:
            return Stage(stage, "unknown", "not all images have one label", {})
        hits = [answers == true for answers in top]
        n = len(true)
        gained = int((hits[1] & ~hits[0]).sum())
        lost = int((hits[0] & ~hits[1]).sum())
        difference = (gained - lost) / n
        low, high = difference_interval(gained, lost, n, self.level)
        p = float(mcnemar(gained, lost))
        finding: Finding = "close"
        if gained == lost == 0:
            finding = "same"
        elif p <= 1 - self.level:
            finding = "different"
        first, second = (float(right.mean()) for right in hits)
        text = (
            f"{100 * first:.1f} % and {100 * second:.1f} %: "
            f"{100 * difference:+.1f} points [{100 * low:.1f}, {100 * high:.1f}], p = {p:.2g}"
        )
        values = {"difference": difference, "first": first, "second": second, "low": low, "high": high, "p": p}
        return Stage(stage, finding, text, values)

    def shifted(self, name: str, severity: float, advance: Advance) -> Stage:
        """Agreement and accuracy under a corruption of each model's own pixels."""
        ids = self.images.dataset.ids
        top = []
        for model, prepared, projection in zip(self.models, self.pixels, self.projections, strict=True):
            pixels = []
            for row in self.shifted_places:
                image_id = str(ids[self.images.rows[row]])
                pixels.append(corrupt(prepared[row], name, severity, seed=self.seed, image_id=image_id))
            top.append(projection(finite_scores(model, pixels)).argmax(axis=1))
        advance(len(self.shifted_places))
        title = f"{name}.{severity:g}"
        true = None if self.true is None else self.true[self.shifted_places]
        agreement = self._agreement(title, top)
        accuracy = self._accuracy(title, top, true)
        text = agreement.text
        if accuracy.values:
            text += f"; accuracy {accuracy.text}"
        finding: Finding = "close" if agreement.finding == "different" else agreement.finding
        return Stage(title, finding, text, {**accuracy.values, **agreement.values})

    def _probabilities(self, number: int, scores: Scores) -> Scores:
        """In the classes of the data; ``number`` is 0 for the original and 1 for the export."""
        projected = self.projections[number](scores)
        if self.models[number].outputs == "probabilities":
            return projected
        return softmax(projected).astype(np.float32)


def _verdict(stages: Sequence[Stage], least: float) -> tuple[Literal["same", "different", "undecided"], str]:
    """Whether the export may stand for the original, and why.

    Outputs of another kind, or accuracies that differ significantly, decide at once. Otherwise the interval of the
    agreement does: "same" needs its lower end at ``least`` or above, unless all answers and scores are equal anyway.
    """
    by_name = {stage.stage: stage for stage in stages}
    if by_name["outputs"].finding == "different":
        return "different", by_name["outputs"].text
    for stage in stages[stages.index(by_name["accuracy"]) :]:
        if stage.finding == "different":
            return "different", f"the accuracies differ significantly: {stage.stage}"
    agreement = by_name["top-1"].values
    scores = by_name["scores"]
    if agreement["high"] < least:
        return "different", f"the answers agree on less than {100 * least:g} % of images"
    all_same = scores.finding == "same" and by_name["top-1"].finding == "same"
    if agreement["low"] < least and not all_same:
        return "undecided", f"too few images to show that the answers agree on {100 * least:g} % of images"
    reason = f"the answers agree on at least {100 * least:g} % of images"
    if scores.finding == "different":
        reason += f", the probabilities do not ({scores.text})"
    return "same", reason
