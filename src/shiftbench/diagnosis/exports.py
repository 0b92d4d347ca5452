"""Compare an exported, quantised or served model with the original, stage by stage."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import IntArray
from shiftbench.classifiers.base import Classifier
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
#: Two engines round differently by less than this; half precision by less than the second.
_SAME_PROBABILITY, _CLOSE_PROBABILITY = 1e-4, 0.02

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
    """

    first: str
    second: str
    images: int
    stages: tuple[Stage, ...]
    status: Literal["same", "different", "undecided"]
    reason: str
    least_agreement: float
    level: float

    @property
    def first_difference(self) -> str | None:
        """The first stage that is not the same, or None."""
        return next((one.stage for one in self.stages if one.finding in ("close", "different")), None)

    def __repr__(self) -> str:
        return f"<ExportCheck of {self.first} and {self.second}: {self.status}; {self.reason}>"

    def _repr_html_(self) -> str:
        about = f"{self.first} and {self.second} on {self.images} images: {self.reason}"
        rows = [tuple(map(html.text, (one.stage, one.finding, one.text))) for one in self.stages]
        return html.block(html.title(self.status, about), html.table(("stage", "finding", "measured"), rows, left=3))

    def as_dict(self) -> dict[str, object]:
        """JSON-able."""
        return {**asdict(self), "first_difference": self.first_difference}


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
        The stages, the first that differs, and a verdict.

    Raises:
        ShiftbenchError: The two have other classes, too few images, scores that are not numbers.

    Example:
        >>> import shiftbench as sb
        >>> sb.verify_export("model.onnx", "model-int8.onnx", "photos/").first_difference  # doctest: +SKIP
        'scores'
    """
    (first, second), images = admit([original, export], data, sample=sample, seed=seed, **loading)
    if set(first.space.keys) != set(second.space.keys):
        other = [key for key in second.space.keys if key not in first.space]
        raise LabelError(
            "the two models have different classes",
            found=f"{len(first.space)} and {len(second.space)} classes"
            + (f"; only {second.name} has {listed(other)}" if other else ""),
            expected="the same classes, in any order",
            hint=f"state them: {argument('labels')}, or a sidecar of each model",
        )
    compared = _Compared(first, second, images, level, seed)
    total = len(images.rows) + len(SHIFTS) * len(compared.shifted_places)
    with progress_bar("images", total, show=progress) as advance:
        stages = [*compared.inputs(), *compared.answers()]
        advance(len(images.rows))
        shifted = [compared.shifted(*shift, advance) for shift in SHIFTS]
    # A loss of accuracy counts after Holm's correction for the number of shifts.
    for one, corrected in zip(shifted, holm([one.values.get("p", float("nan")) for one in shifted]), strict=True):
        values = {**one.values, "p_holm": float(corrected)}
        stages.append(replace(one, finding="different" if corrected <= 1 - level else one.finding, values=values))
    found = first.name, second.name, len(images.rows), tuple(stages), *_verdict(stages, least_agreement)
    return ExportCheck(*found, least_agreement, level)


class _Compared:
    def __init__(self, first: Classifier, second: Classifier, images: Images, level: float, seed: int) -> None:
        self.models, self.images, self.level, self.seed = (first, second), images, level, seed
        rows = images.rows.tolist()
        # Evenly spread: the images of folders come class by class.
        self.shifted_places = np.arange(n := min(_SHIFTED, len(rows))) * len(rows) // n
        self.projections = [images.dataset.space.projection_from(one.space) for one in self.models]
        self.true: IntArray | None = images.labels[rows]
        if images.dataset.label_sets is not None or (self.true < 0).any():
            self.true = None
        self.pixels = [images.prepared(one.preprocessing.geometry, rows) for one in self.models]

    def inputs(self) -> list[Stage]:
        """Pixels after resize and crop, what the networks get, and the order of the classes."""
        first, second = self.models
        keys = first.space.keys, second.space.keys
        moved = sum(a != b for a, b in zip(*keys, strict=True))
        order = f"{moved} classes in another place (compared by name)" if moved else "same order"
        labels = Stage("labels", "close" if moved else "same", order, {"moved": float(moved)})
        ours, theirs = self.pixels
        if any(a.shape != b.shape for a, b in zip(ours, theirs, strict=True)):
            sizes = " and ".join(f"{one[0].shape[0]} x {one[0].shape[1]}" for one in self.pixels)
            pixels = Stage("pixels", "different", f"inputs of {sizes} pixels", {})
            return [pixels, Stage("input", "unknown", "other sizes", {}), labels]
        apart = [np.abs(a.astype(np.int16) - b) for a, b in zip(ours, theirs, strict=True)]
        largest, mean = max(int(one.max()) for one in apart), float(np.mean([one.mean() for one in apart]))
        found: Finding = "same" if largest == 0 else "close" if largest <= 2 else "different"
        text = "equal" if largest == 0 else f"up to {largest} of 255 apart, {mean:.2f} on average"
        pixels = Stage("pixels", found, text, {"largest": float(largest), "mean": mean})
        if first.takes_pixels or second.takes_pixels:
            return [pixels, Stage("input", "unknown", "a model normalises for itself", {}), labels]
        # Of one image: the others may have other sizes.
        values = [replace(one.preprocessing.normalisation, layout="nchw")(ours[0][None]) for one in self.models]
        difference = float(np.abs(values[0] - values[1]).max())
        same = difference <= 1e-4 * max(1.0, float(np.abs(values[0]).max()))
        text = f"the same pixels become values up to {difference:.3g} apart (mean, std, scale, colours)"
        found = "same" if same else "different"
        return [pixels, Stage("input", found, "equal" if same else text, {"largest": difference}), labels]

    def answers(self) -> list[Stage]:
        """Kind of the outputs, scores of the same pixels where possible, answers and accuracy of both as wired."""
        raw = [finite_scores(model, pixels) for model, pixels in zip(self.models, self.pixels, strict=True)]
        noted = [examined_outputs(*one)[1] for one in zip(self.models, raw, self.pixels, strict=True)]
        kinds = " and ".join(dict.fromkeys(model.outputs for model in self.models))
        texts = [f"{model.name}: {note}" for model, notes in zip(self.models, noted, strict=True) for note in notes]
        outputs = Stage("outputs", "same" if noted[0] == noted[1] else "different", "; ".join(texts) or kinds, {})
        own = [self._probabilities(place, one) for place, one in enumerate(raw)]
        shared = own[1]
        if any(a.shape != b.shape or (a != b).any() for a, b in zip(*self.pixels, strict=True)):
            with suppress(Exception):  # another input size
                shared = self._probabilities(1, finite_scores(self.models[1], self.pixels[0]))
        largest = float(np.abs(own[0] - shared).max())
        k = min(5, shared.shape[1])
        ranks = [np.argsort(-one, axis=1, kind="stable")[:, :k] for one in (own[0], shared)]
        changed = float((ranks[0] != ranks[1]).any(axis=1).mean())
        close: Finding = "close" if largest <= _CLOSE_PROBABILITY else "different"
        found: Finding = "same" if largest <= _SAME_PROBABILITY else close
        text = f"probabilities up to {largest:.2g} apart; order of the top {k} changes for {100 * changed:.1f} %"
        scores = Stage("scores", found, text, {"largest": largest, "rank_changes": changed})
        top = [one.argmax(axis=1) for one in own]
        return [outputs, scores, self._agreement("top-1", top), self._accuracy("accuracy", top, self.true)]

    def _agreement(self, stage: str, top: Sequence[NDArray[np.integer]]) -> Stage:
        n, agree = len(top[0]), int((top[0] == top[1]).sum())
        low, high = clopper_pearson(agree, n, self.level)
        found: Finding = "same" if agree == n else "close" if high >= 1 - _CLOSE_PROBABILITY else "different"
        text = f"{100 * agree / n:.1f} % of {n} answers agree [{100 * low:.1f}, {100 * high:.1f}]"
        return Stage(stage, found, text, {"agreement": agree / n, "low": low, "high": high, "n": n})

    def _accuracy(self, stage: str, top: Sequence[NDArray[np.integer]], true: IntArray | None) -> Stage:
        if true is None:
            return Stage(stage, "unknown", "not all images have one label", {})
        hits = [one == true for one in top]
        n, gained, lost = len(hits[0]), int((hits[1] & ~hits[0]).sum()), int((hits[0] & ~hits[1]).sum())
        low, high = difference_interval(gained, lost, n, self.level)
        p = float(mcnemar(gained, lost))
        found: Finding = "same" if gained == lost == 0 else "different" if p <= 1 - self.level else "close"
        accuracies = [float(one.mean()) for one in hits]
        text = (
            f"{100 * accuracies[0]:.1f} % and {100 * accuracies[1]:.1f} %: "
            f"{100 * (gained - lost) / n:+.1f} points [{100 * low:.1f}, {100 * high:.1f}], p = {p:.2g}"
        )
        values = {"first": accuracies[0], "second": accuracies[1], "low": low, "high": high, "p": p}
        return Stage(stage, found, text, {"difference": (gained - lost) / n, **values})

    def shifted(self, name: str, severity: float, advance: Advance) -> Stage:
        """Agreement and accuracy under a corruption of each model's own pixels."""
        ids, top = self.images.dataset.ids, []
        for model, prepared, projection in zip(self.models, self.pixels, self.projections, strict=True):
            pixels = [
                corrupt(prepared[at], name, severity, seed=self.seed, image_id=str(ids[self.images.rows[at]]))
                for at in self.shifted_places
            ]
            top.append(projection(finite_scores(model, pixels)).argmax(axis=1))
        advance(len(self.shifted_places))
        title, true = f"{name}.{severity:g}", None if self.true is None else self.true[self.shifted_places]
        agreement, accuracy = self._agreement(title, top), self._accuracy(title, top, true)
        found: Finding = "close" if agreement.finding == "different" else agreement.finding
        text = agreement.text + (f"; accuracy {accuracy.text}" if accuracy.values else "")
        return Stage(title, found, text, {**accuracy.values, **agreement.values})

    def _probabilities(self, place: int, scores: Scores) -> Scores:
        scores = self.projections[place](scores)
        logits = self.models[place].outputs != "probabilities"
        return softmax(scores).astype(np.float32) if logits else scores


def _verdict(stages: Sequence[Stage], least: float) -> tuple[Literal["same", "different", "undecided"], str]:
    by_name = {one.stage: one for one in stages}
    if by_name["outputs"].finding == "different":
        return "different", by_name["outputs"].text
    for one in stages[stages.index(by_name["accuracy"]) :]:
        if one.finding == "different":
            return "different", f"the accuracies differ significantly: {one.stage}"
    agreement, scores = by_name["top-1"].values, by_name["scores"]
    if agreement["high"] < least:
        return "different", f"the answers agree on less than {100 * least:g} % of images"
    if agreement["low"] >= least or (scores.finding == "same" and by_name["top-1"].finding == "same"):
        apart = f", the probabilities do not ({scores.text})" if scores.finding == "different" else ""
        return "same", f"the answers agree on at least {100 * least:g} % of images{apart}"
    return "undecided", f"too few images to show that the answers agree on {100 * least:g} % of images"
