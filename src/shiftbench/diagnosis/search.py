"""Which preprocessing and order of classes fit a model best, and is that better than the stated ones?

One half of the images is searched, factor by factor: candidates are ranked by the likelihood of the labels on a few
images, and the best third of them on three times as many, until one is left (successive halving). What the search
found is tested once, on the other half, so that no correction for the number of candidates is needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import FloatArray, IntArray
from shiftbench.classifiers.base import Classifier, Outputs
from shiftbench.classifiers.description import description_text, fact_text, flat_description
from shiftbench.classifiers.options import looks_like_probabilities
from shiftbench.diagnosis.images import Examination, Images, admit, with_preprocessing
from shiftbench.diagnosis.wiring import FACTORS, NORMALISATION_FACTORS, Wiring, alternatives, reverted
from shiftbench.io import html
from shiftbench.jobs.progress import progress_bar
from shiftbench.labels.catalogue import LabelsArgument
from shiftbench.labels.guard import best_mapping, outcome_warnings, usual_mistakes
from shiftbench.labels.space import LabelSpace, Scores
from shiftbench.metrics.intervals import clopper_pearson, images_needed_to_tell_apart
from shiftbench.metrics.paired import difference_interval
from shiftbench.settings.roles import Data

if TYPE_CHECKING:
    from rich.console import Console

LABEL_ORDER = "label order"
#: A smaller gain is not called a fault: a model may do slightly better under another input than it was trained with.
LEAST_GAIN = 0.01
#: What a factor must gain on the searched half. Inputs somewhat larger than in training help many models that are fed
#: correctly (Touvron et al. 2019): an input size is only taken for wrong where it costs much.
_LEAST_FACTOR_GAIN = {"input size": 0.1}
#: Images of the first rung of the halving, and the factor from rung to rung.
_FIRST_RUNG, _RUNG_FACTOR = 32, 3
#: What the search takes for progress; the test on the other half is separate.
_PROGRESS_Z, _PROGRESS_P = 2.5, 0.02
_TEMPERATURES = 2.0 ** np.arange(-4, 9)
#: Changes that are made at most.
_STEPS = 5
#: Images per class from which an unknown order of the classes is learnt.
_LEARNABLE = 4


@dataclass(frozen=True)
class SearchedFactor:
    """One factor: how many alternatives were tried, and the best of them on the searched half.

    Attributes:
        factor: What was varied.
        tried: Number of alternatives that the model accepts.
        best: The facts that the best alternative changes.
        gain: Its accuracy minus that before, on the searched half.
        taken: Whether it became part of what was tested.
    """

    factor: str
    tried: int
    best: Mapping[str, object]
    gain: float
    taken: bool


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """What was found about the preprocessing and the labels of a model.

    Attributes:
        model: Name of the model.
        status: ``"fault"``: another wiring is significantly better; ``"fine"``: none is; ``"unexplained"``: the
            model is at chance level and nothing that was tried helps.
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
        preprocess: Value for ``preprocessing`` (``--preprocess``) that fixes it; empty if that is right.
        labels: The classes in the order of the model's outputs; None if that is right.
        outputs: ``"logits"`` or ``"probabilities"`` where the other is stated; None if that is right.
        notes: What else was seen.
        factors: What was searched.
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
    preprocess: Mapping[str, object]
    labels: tuple[str, ...] | None
    outputs: Outputs | None
    notes: tuple[str, ...]
    factors: tuple[SearchedFactor, ...]
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
        if self.status == "unexplained":
            return "chance level, and nothing that was tried helps"
        if not self.changes:
            return f"{before} %; no other preprocessing or order of classes is significantly better"
        if not self.high:
            return "the kind of the outputs"
        gain = f"{100 * self.gain:+.1f} points [{low}, {high}], p = {self.p:.2g}"
        return f"{before} % as it is, {after} % with the changes below: {gain}"

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
        return {**values, "factors": [asdict(one) for one in self.factors], "gain": self.gain}


def doctor(
    model: object,
    data: Data,
    *,
    labels: LabelsArgument = None,
    preprocessing: object = None,
    sample: int = 400,
    seed: int = 0,
    level: float = 0.95,
    name: str | Sequence[str] | None = None,
    device: str = "auto",
    batch_size: int | None = None,
    threads: int | None = None,
    trust: bool = False,
    progress: bool = True,
    console: Console | None = None,
) -> Diagnosis:
    """Find a wrong preprocessing or order of classes, and the options that fix it.

    Args:
        model: As for ``evaluate``.
        data: A few hundred labelled images.
        labels: As for ``evaluate``.
        preprocessing: As for ``evaluate``; what is doubted.
        sample: Number of images to use at most; half of them search, half of them test.
        seed: Seed of the sample and of the halves.
        level: Confidence level of test and interval.
        name: As for ``evaluate``.
        device: As for ``evaluate``.
        batch_size: As for ``evaluate``.
        threads: Threads per model; default: one per core.
        trust: As for ``evaluate``.
        progress: Whether a progress bar is shown.
        console: Where progress is printed; default: standard error.

    Returns:
        The diagnosis. ``sb.evaluate(model, preprocessing=found.preprocess, labels=found.labels)`` applies a fix.

    Raises:
        ShiftbenchError: No labels, too few images, one class, scores that are not numbers.

    Example:
        >>> import shiftbench as sb
        >>> sb.doctor("model.onnx", "photos/").status  # doctest: +SKIP
        'fine'
    """
    loading: dict[str, object] = {"preprocessing": preprocessing, "name": name, "trust": trust}
    loading |= {"device": device, "batch_size": batch_size, "threads": threads}
    classifiers, images = admit([model], data, labels=labels, sample=sample, seed=seed, **loading)
    images.check_labels()
    return examine(classifiers[0], images, seed=seed, level=level, show=progress, console=console)


def examine(
    classifier: Classifier,
    images: Images,
    *,
    seed: int = 0,
    level: float = 0.95,
    show: bool = False,
    console: Console | None = None,
) -> Diagnosis:
    """``doctor`` for what is loaded already."""
    exam = Examination(classifier, images)
    # Two halves with the same share of each class, both in random order.
    shuffled = np.random.default_rng(seed).permutation(images.rows)
    by_class = shuffled[np.argsort(images.labels[shuffled], kind="stable")]
    keep = np.isin(shuffled, by_class[::2])
    half, other = shuffled[keep].tolist(), shuffled[~keep].tolist()
    present, everything = Wiring(classifier.preprocessing), [*half, *other]
    stated = exam.scores(present.preprocessing, everything)
    assert stated is not None
    outputs, notes = _examined_outputs(classifier, stated)
    space = images.dataset.space
    search = _Search(exam, space, half, outputs or classifier.outputs, show, console)
    found = search.run(present)
    before, after = (search.trial(one, other) for one in (present, found))
    assert before is not None and after is not None
    only_after, only_before = int((after.hits & ~before.hits).sum()), int((before.hits & ~after.hits).sum())
    n, p = len(other), one_sided(only_after, only_before) if found != present else 1.0
    gain = (only_after - only_before) / n
    low, high = difference_interval(only_after, only_before, n, level)
    confirmed = found != present and p <= 1 - level and gain >= LEAST_GAIN
    differences = found.changes_from(present)
    if found != present and not confirmed and gain > 0:
        disagreement = (only_after + only_before) / n
        needed = 2 * images_needed_to_tell_apart(min(gain, 0.999), disagreement=disagreement, level=level)
        words = ", ".join(f"{fact} {new}" for fact, (_, new) in differences.items())
        notes.append(
            f"not confirmed: {words} gains {100 * gain:.1f} points on the images that were kept back (p = {p:.2g}); "
            f"about {needed:,} images would tell"
        )
    top1 = space.projection_from(classifier.space)(stated).argmax(axis=1)
    chance = [one for one in outcome_warnings(images.labels[everything], top1, space) if one.code == "chance-level"]
    if chance and not confirmed:
        notes.append(str(chance[0]))
    changes = dict(differences) if confirmed else {}
    wired = found if confirmed else present
    rewired = wired.preprocessing != present.preprocessing
    preprocess = flat_description(wired.preprocessing, pixels=classifier.takes_pixels) if rewired else {}
    if rewired and classifier.output is not None:
        preprocess["output"] = classifier.output
    if outputs is not None:
        changes["outputs"] = (classifier.outputs, outputs)
        preprocess["outputs"] = outputs
    fixed = with_preprocessing(classifier, wired.preprocessing, copy=True)
    fixed.space, fixed.outputs = wired.space(classifier.space), outputs or classifier.outputs
    return Diagnosis(
        model=classifier.name,
        status="fault" if changes else "unexplained" if chance else "fine",
        searched=len(half),
        confirmed=n,
        unreadable=tuple(images.unreadable),
        changes=changes,
        before=float(before.hits.mean()),
        after=float((after if confirmed else before).hits.mean()),
        low=low if confirmed else 0.0,
        high=high if confirmed else 0.0,
        p=p,
        level=level,
        preprocess=preprocess,
        labels=fixed.space.keys if wired.columns is not None else None,
        outputs=outputs,
        notes=tuple(notes),
        factors=tuple(search.factors.values()),
        forward_passes=exam.forward_passes,
        classifier=fixed,
    )


@dataclass(frozen=True)
class _Trial:
    """Per image: is it right, and the log-likelihood of its label at the best temperature."""

    hits: NDArray[np.bool_]
    likelihood: FloatArray

    def gain_over(self, other: _Trial) -> float:
        """Accuracy minus the other's, from counts: a difference of rounded means may miss a threshold it meets."""
        return (int(self.hits.sum()) - int(other.hits.sum())) / len(self.hits)

    def beats(self, other: _Trial) -> bool:
        """Whether the search goes on from here: likelier labels, or more of them right, and never fewer."""
        gain = self.likelihood - other.likelihood
        error = float(gain.std(ddof=1)) / math.sqrt(len(gain))
        more, fewer = int((self.hits & ~other.hits).sum()), int((other.hits & ~self.hits).sum())
        likelier = gain.mean() > 0 and gain.mean() >= _PROGRESS_Z * error
        return more >= fewer and (bool(likelier) or one_sided(more, fewer) <= _PROGRESS_P)


class _Search:
    def __init__(
        self,
        exam: Examination,
        space: LabelSpace,
        rows: Sequence[int],
        outputs: Outputs,
        show: bool,
        console: Console | None,
    ) -> None:
        self.exam, self.rows, self.outputs = exam, rows, outputs
        self._show, self._console = show, console
        self.labels = exam.images.labels
        self.projection = space.projection_from(exam.classifier.space)
        #: Of the model's classes, for each class of the data.
        self.owner = exam.classifier.space.relabel_from(space) if self.projection.kind != "max" else None
        self.facts = exam.images.facts(rows)
        self.factors: dict[str, SearchedFactor] = {}
        factors = [name for name in FACTORS if not (exam.classifier.takes_pixels and name in NORMALISATION_FACTORS)]
        self._names = [LABEL_ORDER, *factors]

    def run(self, present: Wiring) -> Wiring:
        """The best wiring that the searched half shows."""
        current = present
        for _ in range(_STEPS):
            # The best of all factors first: a wrong one may look right as long as another is wrong.
            steps = [step for name in self._names if (step := self._step(name, current)) is not None]
            if not steps:
                break
            _, name, current = max(steps, key=lambda step: step[0])
            self.factors[name] = replace(self.factors[name], taken=True)
        return self._pruned(current, present)

    def trial(self, wiring: Wiring, rows: Sequence[int]) -> _Trial | None:
        scores = self.exam.scores(wiring.preprocessing, rows)
        if scores is None:
            return None
        if self.outputs == "probabilities":
            scores = np.log(np.maximum(scores, 1e-12))
        if wiring.columns is not None:
            scores = scores[:, list(wiring.columns)]
        return judged(self.projection(scores), self.labels[list(rows)])

    def _step(self, name: str, current: Wiring) -> tuple[float, str, Wiring] | None:
        """The best alternative of a factor with its likelihood, if it beats the current wiring."""
        now = self.trial(current, self.rows)
        assert now is not None
        candidates = self._orders(current, now) if name == LABEL_ORDER else alternatives(name, current, self.facts)
        n = len(now.hits)
        guessing = clopper_pearson(math.ceil(n / len(self.projection.groups)), n, 0.95).high
        if name != LABEL_ORDER and current.columns is None and now.hits.mean() < guessing:
            # Nothing is seen of a better input while the classes are in the wrong order.
            candidates += [replace(one, columns=c, order=o) for one in candidates for o, c in self._usual().items()]
        best, tried = self._halved(name, candidates)
        if best is None:
            self.factors.setdefault(name, SearchedFactor(name, 0, {}, 0.0, False))
            return None
        then = self.trial(best, self.rows)
        assert then is not None
        gain = then.gain_over(now)
        if name not in self.factors or not self.factors[name].taken:
            better = {fact: new for fact, (_, new) in best.changes_from(current).items()}
            self.factors[name] = SearchedFactor(name, tried, better, gain, False)
        if not then.beats(now) or gain < _LEAST_FACTOR_GAIN.get(name, 0.0):
            return None
        return float(then.likelihood.mean()), name, best

    def _halved(self, name: str, candidates: list[Wiring]) -> tuple[Wiring | None, int]:
        """The candidate with the likeliest labels, and how many the model accepts."""
        n = len(self.rows)
        rungs = [*(rung for i in range(9) if (rung := _FIRST_RUNG * _RUNG_FACTOR**i) < n), n]
        total = sum(rung * math.ceil(len(candidates) / _RUNG_FACTOR**i) for i, rung in enumerate(rungs))
        remaining, accepted = candidates, 0
        with progress_bar(name, total, show=self._show, console=self._console, at_most=True) as advance:
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
        if self.owner is None or current.columns is not None:
            return []
        scores = self.exam.scores(current.preprocessing, self.rows)
        assert scores is not None
        # On the searched half, both as classes of the model.
        labels, top1 = self.owner[self.labels[list(self.rows)]].astype(np.int64), scores.argmax(axis=1)
        n = len(self.exam.classifier.space)
        offset = int(np.bincount((top1 - labels) % n, minlength=n).argmax())
        found = self._usual()
        if offset not in (0, 1, n - 1):
            shifted = tuple(((np.arange(n) + offset) % n).tolist())
            found[f"predictions are {offset} classes ahead of the labels"] = shifted
        if (learnt := self._learnt(current, now, labels, top1)) is not None:
            found["learnt from the predictions"] = learnt
        return [replace(current, columns=columns, order=order) for order, columns in found.items()]

    def _learnt(self, current: Wiring, now: _Trial, labels: IntArray, top1: IntArray) -> tuple[int, ...] | None:
        """By the best assignment of classes to columns, if one half of these images shows it for the other."""
        n, even = len(self.exam.classifier.space), np.arange(len(labels)) % 2 == 0
        if len(labels) < _LEARNABLE * len(np.unique(labels)):
            return None
        hits, likelihood = np.empty(len(labels), bool), np.empty(len(labels))
        for part in (even, ~even):
            columns = _completed(best_mapping(labels[part], top1[part], n))
            crossed = self.trial(replace(current, columns=columns), np.array(self.rows)[~part].tolist())
            assert crossed is not None
            hits[~part], likelihood[~part] = crossed.hits, crossed.likelihood
        return _completed(best_mapping(labels, top1, n)) if _Trial(hits, likelihood).beats(now) else None

    def _usual(self) -> dict[str, tuple[int, ...]]:
        """Usual mistakes in the order of the classes, as columns."""
        space = self.exam.classifier.space
        usual = usual_mistakes(space) if self.owner is not None else ()
        return {words: tuple(mapping.tolist()) for words, mapping in usual if len(mapping) == len(space)}

    def _pruned(self, found: Wiring, present: Wiring) -> Wiring:
        """Without the changes that do not matter."""
        for _ in range(len(FACTORS)):
            now = self.trial(found, self.rows)
            for one in reverted(found, present):
                then = self.trial(one, self.rows) if one != found else None
                if now is not None and then is not None and not now.beats(then) and then.hits.mean() >= now.hits.mean():
                    found = one
                    break
            else:
                break
        return found


def judged(logits: Scores, labels: IntArray) -> _Trial:
    """Hits, and log-likelihoods at the temperature that fits best: value ranges change the scale of the scores."""
    table = logits.astype(np.float64)
    table -= table.max(axis=1, keepdims=True)
    own = np.take_along_axis(table, labels[:, None], axis=1)[:, 0]
    best = max(
        (own / t - np.log(np.exp(table / t).sum(axis=1)) for t in _TEMPERATURES),
        key=lambda values: float(values.mean()),
    )
    return _Trial(logits.argmax(axis=1) == labels, best)


def one_sided(more: int, fewer: int) -> float:
    """P(X >= more), X ~ Binomial(more + fewer, 1/2): McNemar's test for a gain.

    >>> one_sided(9, 1), one_sided(0, 0)
    (0.0107421875, 1.0)
    """
    from scipy.special import bdtr

    return float(bdtr(fewer, more + fewer, 0.5))


def _completed(mapping: NDArray[np.integer]) -> tuple[int, ...]:
    """Classes that were never seen keep their column if it is free, or take the next free one.

    >>> _completed(np.array([1, -1, 0, -1]))
    (1, 2, 0, 3)
    """
    taken = set(mapping[mapping >= 0].tolist())
    result = [int(i if column < 0 and i not in taken else column) for i, column in enumerate(mapping)]
    free = iter(sorted(set(range(len(mapping))) - set(result)))
    return tuple(column if column >= 0 else next(free) for column in result)


def _examined_outputs(classifier: Classifier, scores: Scores) -> tuple[Outputs | None, list[str]]:
    """The kind of the outputs if another is stated, and whether a softmax was applied twice."""
    probabilities = looks_like_probabilities(scores)
    if probabilities and _twice(scores):
        return (None if classifier.outputs == "probabilities" else "probabilities"), [
            "the model applies softmax twice: its confidences are far too low. Accuracy is not affected; export it "
            "without one of them"
        ]
    if probabilities and classifier.outputs == "logits":
        return "probabilities", ["the outputs are probabilities, but read as logits: softmax is applied twice"]
    if not probabilities and classifier.outputs == "probabilities":
        return "logits", ["the outputs are logits, but read as probabilities: softmax is missing"]
    return None, []


def _twice(probabilities: Scores) -> bool:
    """Whether the logarithms are themselves probabilities, up to a constant per image, and some are confident."""
    logs = np.log(np.maximum(probabilities.astype(np.float64), 1e-30))
    inner = logs + (1 - logs.sum(axis=1, keepdims=True)) / logs.shape[1]
    return bool(inner.min() > -1e-3 and inner.max() < 1 + 1e-3 and np.median(inner.max(axis=1)) > 0.5)
