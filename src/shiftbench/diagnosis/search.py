"""Which preprocessing and order of classes fit a model best, and is that better than the stated ones?

One half of the images is searched, factor by factor: candidates are ranked by the likelihood of the labels on a few
images, and the best third of them on three times as many, until one is left (successive halving). What the search
found is tested once, on the other half, so that no correction for the number of candidates is needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Unpack, cast

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import FloatArray, IntArray, Pixels
from shiftbench.classifiers.base import Classifier, Outputs
from shiftbench.classifiers.description import description_text, fact_text, flat_description
from shiftbench.classifiers.options import looks_like_probabilities
from shiftbench.diagnosis.images import Examination, Images, LoadingOptions, admit, finite_scores, with_preprocessing
from shiftbench.diagnosis.wiring import FITTED, INPUT_SIZE, REFINED, VALUES, Wiring, alternatives, factors, reverted
from shiftbench.errors import argument
from shiftbench.io import html
from shiftbench.jobs.progress import progress_bar
from shiftbench.labels.guard import best_mapping, outcome_warnings, usual_mistakes
from shiftbench.labels.space import Scores
from shiftbench.metrics.intervals import clopper_pearson, images_needed_to_tell_apart
from shiftbench.metrics.paired import difference_interval, mcnemar
from shiftbench.settings.roles import Data

LABEL_ORDER = "label order"
#: A smaller gain is not reported as a fault: a model may be slightly better with another input than in training.
LEAST_GAIN = 0.01
#: What a factor must gain on the searched half. Inputs somewhat larger than in training help many models that are fed
#: correctly (Touvron et al. 2019), and some contrast may: these are only taken for wrong where they cost much.
_LEAST_FACTOR_GAIN, _LEAST_FITTED_GAIN = {INPUT_SIZE: 0.1}, 0.05
#: Images of the first rung of the halving, and the factor from rung to rung.
_FIRST_RUNG, _RUNG_FACTOR = 32, 3
#: What the search takes for progress; the test on the other half is separate.
_PROGRESS_Z, _PROGRESS_P = 2.5, 0.02
#: The same for each part of a change on the other half, where it may have come along by chance.
_PART_Z = 1.64
_TEMPERATURES = 2.0 ** np.arange(-4, 9)
#: Changes that are made at most, and moves of mean and std.
_STEPS, _MOVES = 6, 12
#: Change of scores, in units of their deviation, that rounding does not make.
_MIXED = 0.1
#: Of the test, for the effect that it could show.
_POWER = 0.8
#: Images per class from which an unknown order of the classes is learnt.
_LEARNABLE = 4


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """What was found about the preprocessing and the labels of a model.

    Attributes:
        model: Name of the model.
        status: ``"fault"``: another wiring is significantly better, or the outputs are wrong; ``"nothing found"``:
            nothing that was tried is better; ``"unexplained"``: nothing is, but the model is at chance level, confuses
            classes systematically, or is below ``expected``.
        searched: Number of images of the search.
        confirmed: Number of images of the test.
        unreadable: Images that could not be read.
        changes: For each fact that is wrong: its present value and the better one.
        before: Accuracy as stated, on the images of the test.
        after: Accuracy with the changes.
        low: Lower end of the interval of the gain.
        high: Upper end.
        p: Exact one-sided McNemar test of the gain; 1 if nothing was found to test.
        level: Confidence level; a fault has p <= 1 - level.
        expected: Accuracy that the model should reach, if stated.
        preprocess: Value for ``preprocessing`` (``--preprocess``) that fixes it; empty if that is right.
        labels: The classes in the order of the model's outputs; None if that is right.
        notes: What else was seen.
        factors: What was searched, and the number of alternatives that the model accepts.
        forward_passes: Images that the model was run on.
        classifier: The model with the fix applied, as a sidecar would describe it.
    """

    model: str
    status: str
    searched: int
    confirmed: int
    unreadable: tuple[str, ...]
    changes: Mapping[str, tuple[object, object]]
    before: float
    after: float
    low: float
    high: float
    p: float
    level: float
    expected: float | None
    preprocess: Mapping[str, object]
    labels: tuple[str, ...] | None
    notes: tuple[str, ...]
    factors: Mapping[str, int]
    forward_passes: int
    classifier: Classifier = field(repr=False, compare=False)

    @property
    def gain(self) -> float:
        """Accuracy after minus before."""
        return self.after - self.before

    @property
    def verdict(self) -> str:
        """What was found, in one sentence."""
        before, after, low, high = (f"{100 * one:.1f}" for one in (self.before, self.after, self.low, self.high))
        if self.changes and not self.high:
            return "the outputs, as noted below"
        if self.changes:
            gain = f"{100 * self.gain:+.1f} points [{low}, {high}], p = {self.p:.2g}"
            return f"{before} % as it is, {after} % with the changes below: {gain}"
        ends = clopper_pearson(round(self.before * self.confirmed), self.confirmed, self.level)
        accuracy = f"{before} % [{100 * ends.low:.1f}, {100 * ends.high:.1f}]"
        if self.status == "nothing found":
            return f"{accuracy}; nothing that was tried is significantly better"
        wanted = "" if self.expected is None else f" ({100 * self.expected:g} % expected)"
        return f"{accuracy} is too low{wanted}, and nothing that was tried explains it"

    def __repr__(self) -> str:
        return f"<Diagnosis of {self.model}: {self.status}; {self.verdict}>"

    def _repr_html_(self) -> str:
        fix = [f"fix: preprocessing={description_text(self.preprocess)!r}"] if self.preprocess else []
        fix += [f"fix: labels={list(self.labels)}"] if self.labels is not None else []
        rows = [tuple(map(html.text, (fact, *map(fact_text, values)))) for fact, values in self.changes.items()]
        changes = html.table(("fact", "now", "better"), rows, left=3) if rows else ""
        about = f"{self.model}: {self.verdict}"
        return html.block(html.title(self.status, about), changes, html.notes([*self.notes, *fix]))

    def as_dict(self) -> dict[str, object]:
        """JSON-able."""
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "classifier"}
        return {**values, "gain": self.gain}


def doctor(
    model: object,
    data: Data,
    *,
    expected: float | None = None,
    sample: int = 400,
    seed: int = 0,
    level: float = 0.95,
    progress: bool = True,
    **loading: Unpack[LoadingOptions],
) -> Diagnosis:
    """Find a wrong preprocessing or order of classes, and the options that fix it.

    Args:
        model: As for ``evaluate``.
        data: A few hundred labelled images.
        expected: Accuracy from 0 to 1 that the model should reach, such as after training; missing it is reported.
        sample: Number of images to use at most; half of them search, half of them test.
        seed: Seed of the sample and of the halves.
        level: Confidence level of test and interval.
        progress: Whether a progress bar is shown.
        **loading: ``labels``, ``preprocessing`` (which is doubted), ``name``, ``device``, ``batch_size``,
            ``threads`` and ``trust``, as for ``evaluate``.

    Returns:
        The diagnosis. ``sb.evaluate(model, preprocessing=found.preprocess, labels=found.labels)`` applies a fix.

    Raises:
        ShiftbenchError: No labels, too few images, one class, scores that are not numbers.

    Example:
        >>> import shiftbench as sb
        >>> sb.doctor("model.onnx", "photos/").status  # doctest: +SKIP
        'nothing found'
    """
    classifiers, images = admit([model], data, sample=sample, seed=seed, **loading)
    images.check_labels()
    classifier, exam = classifiers[0], Examination(classifiers[0], images)
    half, other = _halves(images, seed)
    present, everything = Wiring(classifier.preprocessing), [*half, *other]
    stated = exam.scores(present, everything)
    assert stated is not None
    pixels = images.prepared(classifier.preprocessing.geometry, everything[:9])
    wrong_outputs, notes = examined_outputs(classifier, stated, pixels)
    if classifier.takes_pixels:
        notes.append("not tried: mean, std, value range and layout, which are inside a model that takes uint8 pixels")
    outputs: Outputs = "probabilities" if looks_like_probabilities(stated) else "logits"
    search = _Search(exam, half, outputs, progress)
    test = _Test.of(search, present, other, level)
    warned = []
    if not test.confirmed:
        top1 = search.projection(stated).argmax(axis=1)
        warned = outcome_warnings(images.labels[everything], top1, images.dataset.space)
    wired = test.found if test.confirmed and test.found.image == present.image else present
    changes = {**test.changes, **wrong_outputs}
    below = expected is not None and test.reaches_at_most(level) < expected
    status = "fault" if changes else "unexplained" if warned or below else "nothing found"
    notes += [*test.remarks(level), *map(str, warned)]
    if below and changes:
        notes.append(f"with the changes it is still below the {100 * (expected or 0):g} % expected")
    if status == "nothing found":
        least, likely = (f"{100 * loss:.2g} points" for loss in visible_losses(len(other), level))
        notes.append(
            f"{len(other)} images cannot show faults that cost less than {least}, and may miss any below {likely}"
        )
        notes += ["compare with the accuracy after training, or state it: " + argument("expected")] * (expected is None)
    fixed = with_preprocessing(classifier, wired.preprocessing, copy=True)
    fixed.space, fixed.outputs = wired.space(classifier.space), outputs
    return Diagnosis(
        classifier.name, status, len(half), len(other), tuple(images.unreadable), changes,
        before=float(test.before.hits.mean()), after=float(test.better.hits.mean()), low=test.low, high=test.high,
        p=test.p, level=level, expected=expected, preprocess=_fix(classifier, wired, outputs),
        labels=fixed.space.keys if wired.columns is not None else None, notes=tuple(notes), factors=search.factors,
        forward_passes=exam.forward_passes, classifier=fixed,
    )  # fmt: skip


def _halves(images: Images, seed: int) -> tuple[list[int], list[int]]:
    """Two halves with the same share of each class, both in random order."""
    shuffled = np.random.default_rng(seed).permutation(images.rows)
    by_class = shuffled[np.argsort(images.labels[shuffled], kind="stable")]
    keep = np.isin(shuffled, by_class[::2])
    return shuffled[keep].tolist(), shuffled[~keep].tolist()


def _fix(classifier: Classifier, wired: Wiring, outputs: Outputs) -> dict[str, object]:
    """The value of ``preprocessing`` that states a wiring; empty if the classifier has it."""
    if wired.preprocessing == classifier.preprocessing and outputs == classifier.outputs:
        return {}
    fix = dict(flat_description(wired.preprocessing, pixels=classifier.takes_pixels))
    fix |= {"outputs": outputs} if outputs != classifier.outputs else {}
    return fix | ({"output": classifier.output} if classifier.output is not None else {})


def visible_losses(images: int, level: float) -> tuple[float, float]:
    """The smallest loss of accuracy that a test on this number of images can show, and the one that it shows with a
    probability of 80 %, if the fault corrects no image.

    >>> [round(loss, 3) for loss in visible_losses(200, 0.95)]
    [0.025, 0.033]
    """
    from scipy.special import betaincinv  # here, so that importing the package stays light

    least = min(images, math.ceil(math.log2(1 / (1 - level))))
    return least / images, float(betaincinv(least, images - least + 1, _POWER))


@dataclass(frozen=True)
class _Test:
    """What the search found, tested on images that it has not seen."""

    present: Wiring
    found: Wiring
    before: _Trial
    after: _Trial
    p: float
    #: Interval of the gain; zeros if it is not confirmed.
    low: float
    high: float
    confirmed: bool

    @classmethod
    def of(cls, search: _Search, present: Wiring, rows: Sequence[int], level: float) -> _Test:
        found, before = search.run(present), search.known(present, rows)
        if one_sided(*search.known(found, rows).against(before)) <= 1 - level:
            found = search.pruned(found, present, rows)
        after = search.known(found, rows)
        counts = after.against(before)
        p = one_sided(*counts)
        confirmed = found != present and p <= 1 - level and after.gain_over(before) >= LEAST_GAIN
        ends = difference_interval(*counts, len(rows), level) if confirmed else (0.0, 0.0)
        return cls(present, found, before, after, p, *ends, confirmed)

    @property
    def better(self) -> _Trial:
        return self.after if self.confirmed else self.before

    @property
    def changes(self) -> Mapping[str, tuple[object, object]]:
        return self.found.changes_from(self.present) if self.confirmed else {}

    def reaches_at_most(self, level: float) -> float:
        """Upper end of the accuracy, with the changes if they are confirmed."""
        hits = self.better.hits
        return clopper_pearson(int(hits.sum()), len(hits), level).high

    def remarks(self, level: float) -> list[str]:
        """On what was found but not confirmed, or can't be stated by an option."""
        gain, n = self.after.gain_over(self.before), len(self.before.hits)
        if self.confirmed and self.found.image != self.present.image:
            # The two differ by a mirror image, which many models do not notice.
            views = [name for name in ("transposed", "turned left") if name != self.found.image]
            other = f" (or {views[0]}: its mirror image)" if len(views) == 1 else ""
            named = f"no option makes images {self.found.image}{other}"
            return [f"{named}: do so inside the model; other changes help only then"]
        if self.confirmed or self.found == self.present or gain <= 0:
            return []
        disagreement = sum(self.after.against(self.before)) / n
        needed = 2 * images_needed_to_tell_apart(min(gain, 0.999), disagreement=disagreement, level=level)
        words = ", ".join(f"{fact} {new}" for fact, (_, new) in self.found.changes_from(self.present).items())
        return [
            f"not confirmed: {words} gains {100 * gain:.1f} points on the images that were kept back "
            f"(p = {self.p:.2g}); about {needed:,} images would tell"
        ]


@dataclass(frozen=True)
class _Trial:
    """Per image: is it right, and the log-likelihood of its label at the best temperature."""

    hits: NDArray[np.bool_]
    likelihood: FloatArray

    def against(self, other: _Trial) -> tuple[int, int]:
        """Images that only this one gets right, and only the other."""
        return int((self.hits & ~other.hits).sum()), int((other.hits & ~self.hits).sum())

    def gain_over(self, other: _Trial) -> float:
        """Accuracy minus the other's, from counts: a difference of rounded means may miss a threshold it meets."""
        return (int(self.hits.sum()) - int(other.hits.sum())) / len(self.hits)

    def beats(self, other: _Trial, z: float = _PROGRESS_Z) -> bool:
        """Whether the search goes on from here: likelier labels, or more of them right, and never fewer."""
        gain = self.likelihood - other.likelihood
        error = float(gain.std(ddof=1)) / math.sqrt(len(gain))
        more, fewer = self.against(other)
        likelier = gain.mean() > 0 and gain.mean() >= z * error
        return more >= fewer and (bool(likelier) or one_sided(more, fewer) <= _PROGRESS_P)


class _Search:
    def __init__(self, exam: Examination, rows: Sequence[int], outputs: Outputs, show: bool) -> None:
        self.exam, self.rows, self.outputs, self._show = exam, rows, outputs, show
        self.labels, space = exam.images.labels, exam.images.dataset.space
        self.projection = space.projection_from(exam.classifier.space)
        own = exam.classifier.space.relabel_from(space)[self.labels[list(rows)]].astype(np.int64)
        #: Labels of the searched half as classes of the model, if each class is one.
        self.true: IntArray | None = own if self.projection.kind != "max" else None
        self.facts = exam.images.facts(rows)
        self.factors: dict[str, int] = {}
        self._names = [LABEL_ORDER, *factors(exam.classifier.takes_pixels)]

    def run(self, present: Wiring) -> Wiring:
        """The best wiring that the searched half shows."""
        current = present
        for _ in range(_STEPS):
            # The best of all factors first: a wrong one may look right as long as another is wrong.
            steps = [(*step, name) for name in self._names if (step := self._step(name, current))]
            _, best, name = max(steps, key=lambda step: step[0], default=(0, current, ""))
            if not self.exam.classifier.takes_pixels and (name != VALUES or self._guesses(self.known(current))):
                fitted = self._fitted(current)
                best = fitted if self.known(fitted).beats(self.known(best)) else best
            if best == current:
                break
            current = best
        return current

    def trial(self, wiring: Wiring, rows: Sequence[int]) -> _Trial | None:
        scores = self.exam.scores(wiring, rows)
        if scores is None:
            return None
        if self.outputs == "probabilities":
            scores = np.log(np.maximum(scores, 1e-12))
        if wiring.columns is not None:
            scores = scores[:, list(wiring.columns)]
        return judged(self.projection(scores), self.labels[list(rows)])

    def _step(self, name: str, current: Wiring, *, likelier: bool = False) -> tuple[float, Wiring] | None:
        """The best alternative of a factor with its likelihood, if it beats the current wiring (or is ``likelier``)."""
        now = self.known(current)
        candidates = self._orders(current, now) if name == LABEL_ORDER else alternatives(name, current, self.facts)
        if name != LABEL_ORDER and self._guesses(now):
            # Nothing is seen of a better input while the classes are in the wrong order.
            learnt = [order for one in candidates if (order := self._learnt(one, now)) is not None]
            usual = [replace(one, columns=c, order=o) for one in candidates for o, c in self._usual().items()]
            candidates += [*learnt, *usual]
        best, tried = self._halved(name, candidates)
        self.factors[name] = max(tried, self.factors.get(name, 0))
        if best is None:
            return None
        then = self.known(best)
        first = replace(candidates[0], columns=best.columns, order=best.order)
        if name == INPUT_SIZE and (usual_size := self.trial(first, self.rows)) and not then.beats(usual_size):
            best, then = first, usual_size
        better = then.likelihood.mean() > now.likelihood.mean() if likelier else then.beats(now)
        if not better or then.gain_over(now) < _LEAST_FACTOR_GAIN.get(name, -1):
            return None
        return float(then.likelihood.mean()), best

    def _fitted(self, current: Wiring) -> Wiring:
        """Mean and std that no list has, by moves to likelier labels, of which the first must be clearly so."""
        fitted = current
        for _ in range(_MOVES):
            moved = fitted != current
            if (step := self._step(REFINED if moved else FITTED, fitted, likelier=moved)) is None:
                break
            fitted = step[1]
        return fitted if self.known(fitted).gain_over(self.known(current)) >= _LEAST_FITTED_GAIN else current

    def _guesses(self, trial: _Trial) -> bool:
        """Whether it is no better than chance."""
        n = len(trial.hits)
        return bool(trial.hits.mean() < clopper_pearson(math.ceil(n / len(self.projection.groups)), n, 0.95).high)

    def known(self, wiring: Wiring, rows: Sequence[int] | None = None) -> _Trial:
        """On the searched half (or ``rows``), of what the model accepts."""
        return cast(_Trial, self.trial(wiring, rows or self.rows))

    def _halved(self, name: str, candidates: list[Wiring]) -> tuple[Wiring | None, int]:
        """The candidate with the likeliest labels, and how many the model accepts."""
        n = len(self.rows)
        rungs = [*(rung for i in range(9) if (rung := _FIRST_RUNG * _RUNG_FACTOR**i) < n), n]
        total = sum(rung * math.ceil(len(candidates) / _RUNG_FACTOR**i) for i, rung in enumerate(rungs))
        remaining, accepted = candidates, 0
        with progress_bar(name, total, show=self._show, at_most=True) as advance:
            self.exam.advance = advance
            for i, rung in enumerate(rungs):
                tried = [(self.trial(one, self.rows[:rung]), one) for one in remaining]
                possible = [(trial.likelihood.mean(), one) for trial, one in tried if trial is not None]
                possible.sort(key=lambda pair: -pair[0])
                accepted = accepted or len(possible)
                keep = 1 if i == len(rungs) - 1 else math.ceil(len(possible) / _RUNG_FACTOR)
                remaining = [one for _, one in possible[:keep]]
        self.exam.advance = lambda count: None
        return (remaining[0] if remaining else None), accepted

    def _orders(self, current: Wiring, now: _Trial) -> list[Wiring]:
        """The usual mistakes, the most frequent offset, and the order that the predictions suggest."""
        found, n, scores = self._usual(), len(self.exam.classifier.space), self.exam.scores(current, self.rows)
        if self.true is None or scores is None:
            return []
        offset = int(np.bincount((scores.argmax(axis=1) - self.true) % n, minlength=n).argmax())
        if offset not in (0, 1, n - 1):
            shifted = tuple(((np.arange(n) + offset) % n).tolist())
            found[f"predictions are {offset} classes ahead of the labels"] = shifted
        orders = [replace(current, columns=columns, order=order) for order, columns in found.items()]
        learnt = self._learnt(current, now)
        # An order that was learnt from a wrong input may be learnt again.
        return [one for one in (*orders, learnt) if one is not None and one != current]

    def _learnt(self, wiring: Wiring, now: _Trial) -> Wiring | None:
        """With the best assignment of classes to columns, if one half of these images shows it for the other."""
        n, even = len(self.exam.classifier.space), np.arange(len(self.rows)) % 2 == 0
        few = self.true is None or len(self.rows) < _LEARNABLE * len(np.unique(self.true))
        scores = None if few else self.exam.scores(wiring, self.rows)
        if self.true is None or scores is None:
            return None
        labels, top1 = self.true, scores.argmax(axis=1)
        hits, likelihood = np.empty(len(labels), bool), np.empty(len(labels))
        for part in (even, ~even):
            columns = _completed(best_mapping(labels[part], top1[part], n))
            crossed = self.known(replace(wiring, columns=columns), np.array(self.rows)[~part].tolist())
            hits[~part], likelihood[~part] = crossed.hits, crossed.likelihood
        found = replace(wiring, columns=_completed(best_mapping(labels, top1, n)), order="learnt from the predictions")
        return found if _Trial(hits, likelihood).beats(now) else None

    def _usual(self) -> dict[str, tuple[int, ...]]:
        """Usual mistakes in the order of the classes, as columns."""
        space = self.exam.classifier.space
        usual = usual_mistakes(space) if self.true is not None else ()
        return {words: tuple(mapping.tolist()) for words, mapping in usual if len(mapping) == len(space)}

    def pruned(self, found: Wiring, present: Wiring, rows: Sequence[int]) -> Wiring:
        """Without the changes that do not help on these images, which were not searched."""

        def as_good(one: Wiring) -> bool:
            then = self.trial(one, rows)
            return one != found and then is not None and not self.known(found, rows).beats(then, _PART_Z)

        while (simpler := next(filter(as_good, reverted(found, present)), None)) is not None:
            found = simpler
        return found


def judged(logits: Scores, labels: IntArray) -> _Trial:
    """Hits, and log-likelihoods at the temperature that fits best: value ranges change the scale of the scores."""
    table = logits.astype(np.float64)
    table -= table.max(axis=1, keepdims=True)
    own = np.take_along_axis(table, labels[:, None], axis=1)[:, 0]
    best = max((own / t - np.log(np.exp(table / t).sum(axis=1)) for t in _TEMPERATURES), key=np.mean)
    return _Trial(logits.argmax(axis=1) == labels, best)


def one_sided(more: int, fewer: int) -> float:
    """McNemar's exact test of a gain: P(X >= more), X ~ Binomial(more + fewer, 1/2), where that is below 1/2.

    >>> one_sided(9, 1), one_sided(0, 0)
    (0.0107421875, 1.0)
    """
    return float(mcnemar(more, fewer)) / 2 if more > fewer else 1.0


def _completed(mapping: NDArray[np.integer]) -> tuple[int, ...]:
    """Classes that were never seen keep their column if it is free, or take the next free one.

    >>> _completed(np.array([1, -1, 0, -1]))
    (1, 2, 0, 3)
    """
    taken = set(mapping[mapping >= 0].tolist())
    result = [int(i if column < 0 and i not in taken else column) for i, column in enumerate(mapping)]
    free = iter(sorted(set(range(len(mapping))) - set(result)))
    return tuple(column if column >= 0 else next(free) for column in result)


def examined_outputs(
    classifier: Classifier, scores: Scores, pixels: Sequence[Pixels]
) -> tuple[dict[str, tuple[object, object]], list[str]]:
    """What is wrong with the outputs, and why that matters.

    ``pixels``: what the first of the scores were computed from.
    """
    stated, probabilities = classifier.outputs, looks_like_probabilities(scores)
    right = "probabilities" if probabilities else "logits"
    changes: dict[str, tuple[object, object]] = {} if right == stated else {"outputs": (stated, right)}
    notes = []
    if probabilities and _twice(scores):
        changes["softmax in the model"] = ("twice", "once")
        notes.append("the model applies softmax twice: its confidences are far too low; export it without one of them")
    elif right != stated:
        effect = "softmax is applied twice" if probabilities else "softmax is missing"
        notes.append(f"the outputs are {right}, but read as {stated}: {effect}")
    # The same images in reverse order and without the first: other neighbours, other places.
    again = finite_scores(classifier, pixels[8:0:-1])[::-1]
    if np.abs(again - scores[1 : len(again) + 1]).max() > _MIXED * scores.std():
        changes["images of a batch"] = ("mixed", "independent")
        notes.append("images of a batch change each other's scores (training mode?); export the model for inference")
    return changes, notes


def _twice(probabilities: Scores) -> bool:
    """Whether the logarithms are themselves probabilities, up to a constant per image, and some are certain."""
    logs = np.log(np.maximum(probabilities.astype(np.float64), 1e-30))
    inner = logs + (1 - logs.sum(axis=1, keepdims=True)) / logs.shape[1]
    return bool(inner.min() > -1e-3 and 0.95 < inner.max() < 1 + 1e-3 and np.median(inner.max(axis=1)) > 0.5)
