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
from shiftbench.classifiers.description import description_text, fact_text
from shiftbench.classifiers.options import looks_like_probabilities
from shiftbench.diagnosis.images import (
    Examination,
    Images,
    LoadingOptions,
    admit,
    finite_scores,
    fixed_classifier,
    fixing_description,
)
from shiftbench.diagnosis.wiring import FITTED, INPUT_SIZE, REFINED, VALUES, Wiring, alternatives, factors, reverted
from shiftbench.errors import ResultWarning, argument
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
#: What an input size must gain on the searched half. Inputs somewhat larger than in training help many models that are
#: fed correctly (Touvron et al. 2019), so that another size is only taken for wrong where it costs much.
_LEAST_SIZE_GAIN = 0.1
#: What a fitted mean and std must gain: some contrast may help a model that is fed correctly.
_LEAST_FITTED_GAIN = 0.05
#: Images of the first rung of the halving.
_FIRST_RUNG = 32
#: From rung to rung there are this many times more images, and fewer candidates.
_RUNG_FACTOR = 3
#: What the search takes for progress, in standard errors of the likelihood; the test on the other half is separate.
_PROGRESS_Z = 2.5
#: What the search takes for progress, as the p-value of McNemar's test.
_PROGRESS_P = 0.02
#: The standard errors for each part of a change on the other half, where it may have come along by chance.
_PART_Z = 1.64
_TEMPERATURES = 2.0 ** np.arange(-4, 9)
#: Changes that are made at most.
_MOST_CHANGES = 6
#: Moves of mean and std that are made at most.
_MOST_MOVES = 12
#: Change of scores, in units of their deviation, that rounding does not make.
_MIXED = 0.1
#: Probability with which the loss that is printed as detectable is found.
POWER = 0.8
#: Images per class from which an unknown order of the classes is learnt.
_LEARNABLE = 4
#: Smallest probability of which the logarithm is taken.
_TINY = 1e-12


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
        detectable_loss: If nothing was found: loss of accuracy that is found with a probability of at least 80 %, of a
            fault that changes as many answers as the best alternative that was tried.
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
    detectable_loss: float | None = None

    @property
    def gain(self) -> float:
        """Accuracy after minus before."""
        return self.after - self.before

    @property
    def verdict(self) -> str:
        """What was found, in one sentence."""
        if self.changes and not self.high:
            return "the outputs, as noted below"
        if self.changes:
            interval = f"[{100 * self.low:.1f}, {100 * self.high:.1f}]"
            gain = f"{100 * self.gain:+.1f} points {interval}, p = {self.p:.2g}"
            return f"{100 * self.before:.1f} % as it is, {100 * self.after:.1f} % with the changes below: {gain}"
        interval_ends = clopper_pearson(round(self.before * self.confirmed), self.confirmed, self.level)
        accuracy = f"{100 * self.before:.1f} % [{100 * interval_ends.low:.1f}, {100 * interval_ends.high:.1f}]"
        if self.status == "nothing found":
            return f"{accuracy}; nothing that was tried is significantly better"
        expectation = "" if self.expected is None else f" ({100 * self.expected:g} % expected)"
        return f"{accuracy} is too low{expectation}, and nothing that was tried explains it"

    def __repr__(self) -> str:
        return f"<Diagnosis of {self.model}: {self.status}; {self.verdict}>"

    def _repr_html_(self) -> str:
        notes = list(self.notes)
        if self.preprocess:
            notes.append(f"fix: preprocessing={description_text(self.preprocess)!r}")
        if self.labels is not None:
            notes.append(f"fix: labels={list(self.labels)}")
        rows = []
        for fact, (present, better) in self.changes.items():
            rows.append((html.text(fact), html.text(fact_text(present)), html.text(fact_text(better))))
        changes = html.table(("fact", "now", "better"), rows, left=3) if rows else ""
        return html.block(html.title(self.status, f"{self.model}: {self.verdict}"), changes, html.notes(notes))

    def as_dict(self) -> dict[str, object]:
        """JSON-able."""
        names = [attribute.name for attribute in fields(self) if attribute.name != "classifier"]
        return {**{name: getattr(self, name) for name in names}, "gain": self.gain}


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
    [classifier], images = admit([model], data, sample=sample, seed=seed, **loading)
    images.check_labels()
    exam = Examination(classifier, images)
    searched, tested = _halves(images, seed)
    everything = [*searched, *tested]
    present = Wiring(classifier.preprocessing)
    stated = exam.scores(present, everything)
    assert stated is not None
    pixels = images.prepared(classifier.preprocessing.geometry, everything[:9])
    wrong_outputs, notes = examined_outputs(classifier, stated, pixels)
    if classifier.takes_pixels:
        notes.append("not tried: mean, std, value range and layout, which are inside a model that takes uint8 pixels")
    outputs: Outputs = "probabilities" if looks_like_probabilities(stated) else "logits"
    search = _Search(exam, searched, outputs, progress)
    test = _Test.of(search, present, tested, level)
    warned: list[ResultWarning] = []
    if not test.confirmed:
        top1 = search.projection(stated).argmax(axis=1)
        warned = outcome_warnings(images.labels[everything], top1, images.dataset.space)
    changes = {**test.changes, **wrong_outputs}
    below = expected is not None and test.reaches_at_most(level) < expected
    notes += [*test.remarks(level), *map(str, warned)]
    if below and changes:
        notes.append(f"with the changes it is still below the {100 * (expected or 0):g} % expected")
    status = "nothing found"
    detectable_loss = None
    if changes:
        status = "fault"
    elif warned or below:
        status = "unexplained"
    else:
        alternative = test.best_alternative(search)
        disagreement = 0.0 if alternative is None else alternative.disagreement
        detectable_loss = detectable(len(searched), len(tested), level, disagreement)
        notes.append(_limit_text(len(everything), detectable_loss, alternative))
        if expected is None:
            notes.append("compare with the accuracy after training, or state it: " + argument("expected"))
    # No option changes the view of the images, and other changes help only together with it.
    has_option = test.confirmed and test.better_wiring.image == present.image
    wired = test.better_wiring if has_option else present
    fixed = fixed_classifier(classifier, wired.preprocessing)
    fixed.space = wired.space(classifier.space)
    fixed.outputs = outputs
    return Diagnosis(
        model=classifier.name,
        status=status,
        searched=len(searched),
        confirmed=len(tested),
        unreadable=tuple(images.unreadable),
        changes=changes,
        before=float(test.before.hits.mean()),
        after=float(test.better.hits.mean()),
        low=test.low,
        high=test.high,
        p=test.p,
        level=level,
        expected=expected,
        preprocess=_fix(classifier, wired, outputs),
        labels=fixed.space.keys if wired.columns is not None else None,
        notes=tuple(notes),
        factors=search.factors,
        forward_passes=exam.forward_passes,
        classifier=fixed,
        detectable_loss=detectable_loss,
    )


def _halves(images: Images, seed: int) -> tuple[list[int], list[int]]:
    """Two halves with the same share of each class, both in random order."""
    shuffled = np.random.default_rng(seed).permutation(images.rows)
    by_class = shuffled[np.argsort(images.labels[shuffled], kind="stable")]
    keep = np.isin(shuffled, by_class[::2])
    return shuffled[keep].tolist(), shuffled[~keep].tolist()


def _fix(classifier: Classifier, wired: Wiring, outputs: Outputs) -> dict[str, object]:
    """The value of ``preprocessing`` that leads to a wiring; empty if the classifier has it."""
    if wired.preprocessing == classifier.preprocessing and outputs == classifier.outputs:
        return {}
    fix = fixing_description(classifier, wired.preprocessing)
    if outputs != classifier.outputs:
        fix["outputs"] = outputs
    if classifier.output is not None:
        fix["output"] = classifier.output
    return fix


@dataclass(frozen=True)
class _Alternative:
    """The best of the wirings that were tried, and the share of images on which exactly one of the two is right."""

    words: str
    disagreement: float


def _limit_text(images: int, loss: float, alternative: _Alternative | None) -> str:
    """Which fault would have been found, with which probability, and on which assumption."""
    limit = f"with {images} images, a fault that costs {100 * loss:.1f} points is found with a probability of at least "
    limit += f"{100 * POWER:g} %"
    if alternative is None:
        return f"{limit}, if it corrects no answer by chance; smaller faults may be missed"
    share = f"{100 * alternative.disagreement:.1f} % of the images"
    return (
        f"{limit}, if it decides whether {share} are right, as does the best alternative that was tried "
        f"({alternative.words}); smaller faults may be missed"
    )


def detectable(searched: int, tested: int, level: float, disagreement: float, power: float = POWER) -> float:
    """The loss of accuracy that is found with probability ``power``: by the search, and then by the test.

    The search takes more correct answers for progress, or likelier labels, which often show a fault sooner. Only the
    correct answers are counted here, so that the probability is at least this.

    Args:
        searched: Images of the search.
        tested: Images of the test.
        level: Confidence level of the test.
        disagreement: Share of images on which exactly one of the faulty and the right model is right. A fault that
            costs 3 points may spoil 8 % of the answers and correct 5 % by chance; this is the noise that hides it.
        power: Probability with which the loss is found.

    >>> round(detectable(200, 200, 0.95, 0.0), 3), round(detectable(200, 200, 0.95, 0.2), 3)
    (0.043, 0.1)
    """
    too_small = 0.0
    enough = 1.0
    while enough - too_small > 1e-5:
        loss = (too_small + enough) / 2
        differing = max(disagreement, loss)
        by_search = _power_of_test(searched, loss, differing, _PROGRESS_P)
        by_test = _power_of_test(tested, loss, differing, 1 - level)
        if by_search * by_test < power:
            too_small = loss
        else:
            enough = loss
    return max(enough, LEAST_GAIN)


def _power_of_test(images: int, loss: float, disagreement: float, alpha: float) -> float:
    """Probability that McNemar's exact one-sided test shows a loss, summed over the number of images that differ."""
    from scipy.stats import binom  # here, so that importing the package stays light

    discordant = np.arange(images + 1)
    likely = discordant[binom.pmf(discordant, images, disagreement) > 1e-9]
    # One more than the largest count of correct answers that is not significant.
    critical = binom.isf(alpha, likely, 0.5) + 1
    share = (1 + loss / disagreement) / 2
    probability = binom.sf(critical - 1, likely, share)
    return float((binom.pmf(likely, images, disagreement) * probability).sum())


@dataclass(frozen=True)
class _Test:
    """What the search found, tested on images that it has not seen."""

    #: The images of the test.
    rows: Sequence[int]
    present: Wiring
    better_wiring: Wiring
    before: _Trial
    after: _Trial
    p: float
    #: Interval of the gain; zeros if it is not confirmed.
    low: float
    high: float
    confirmed: bool

    @classmethod
    def of(cls, search: _Search, present: Wiring, rows: Sequence[int], level: float) -> _Test:
        wiring = search.run(present)
        before = search.accepted(present, rows)
        if one_sided(*search.accepted(wiring, rows).against(before)) <= 1 - level:
            wiring = search.pruned(wiring, present, rows)
        after = search.accepted(wiring, rows)
        counts = after.against(before)
        p = one_sided(*counts)
        confirmed = wiring != present and p <= 1 - level and after.gain_over(before) >= LEAST_GAIN
        low, high = difference_interval(*counts, len(rows), level) if confirmed else (0.0, 0.0)
        return cls(rows, present, wiring, before, after, p, low, high, confirmed)

    @property
    def better(self) -> _Trial:
        return self.after if self.confirmed else self.before

    @property
    def changes(self) -> Mapping[str, tuple[object, object]]:
        return self.better_wiring.changes_from(self.present) if self.confirmed else {}

    def reaches_at_most(self, level: float) -> float:
        """Upper end of the accuracy, with the changes if they are confirmed."""
        hits = self.better.hits
        return clopper_pearson(int(hits.sum()), len(hits), level).high

    def best_alternative(self, search: _Search) -> _Alternative | None:
        """What the search found if the test did not confirm it, else the likeliest wiring that is not the present.

        The disagreement is that of both halves: where the test missed a fault, its half has fewer images that differ.
        """
        wiring: Wiring | None = self.better_wiring
        rows = [*search.rows, *self.rows]
        if wiring == self.present:
            wiring = search.runner_up
            rows = list(search.rows)
        if wiring is None:
            return None
        disagreement = search.accepted(wiring, rows).disagreement(search.accepted(self.present, rows))
        return _Alternative(_changes_text(wiring.changes_from(self.present)), disagreement)

    @property
    def _words(self) -> str:
        return _changes_text(self.better_wiring.changes_from(self.present))

    def remarks(self, level: float) -> list[str]:
        """On what was found but not confirmed, or can't be stated by an option."""
        if self.confirmed and self.better_wiring.image != self.present.image:
            return [self._view_text()]
        gain = self.after.gain_over(self.before)
        if self.confirmed or self.better_wiring == self.present or gain <= 0:
            return []
        disagreement = self.after.disagreement(self.before)
        needed = 2 * images_needed_to_tell_apart(min(gain, 0.999), disagreement=disagreement, level=level)
        return [
            f"not confirmed: {self._words} gains {100 * gain:.1f} points on the images that were kept back "
            f"(p = {self.p:.2g}); about {needed:,} images would tell"
        ]

    def _view_text(self) -> str:
        # Transposed and turned left differ by a mirror image, which many models do not notice.
        mirrored = {"transposed": "turned left", "turned left": "transposed"}
        view = self.better_wiring.image
        if view in mirrored:
            view += f" (or {mirrored[view]}: its mirror image)"
        return f"no option makes images {view}: do so inside the model; other changes help only then"


def _changes_text(changes: Mapping[str, tuple[object, object]]) -> str:
    return ", ".join(f"{fact} {fact_text(new)}" for fact, (_, new) in changes.items())


@dataclass(frozen=True)
class _Trial:
    """Per image: is it right, and the log-likelihood of its label at the best temperature."""

    hits: NDArray[np.bool_]
    likelihood: FloatArray

    def against(self, other: _Trial) -> tuple[int, int]:
        """Images that only this one gets right, and only the other."""
        return int((self.hits & ~other.hits).sum()), int((other.hits & ~self.hits).sum())

    def disagreement(self, other: _Trial) -> float:
        """Share of images that exactly one of the two gets right."""
        return float((self.hits != other.hits).mean())

    def gain_over(self, other: _Trial) -> float:
        """Accuracy minus the other's, from counts: a difference of rounded means may miss a threshold it meets."""
        return (int(self.hits.sum()) - int(other.hits.sum())) / len(self.hits)

    def beats(self, other: _Trial, z: float = _PROGRESS_Z) -> bool:
        """Whether the search goes on from here: likelier labels, or more of them right, and never fewer."""
        gain = self.likelihood - other.likelihood
        error = float(gain.std(ddof=1)) / math.sqrt(len(gain))
        gained, lost = self.against(other)
        likelier = gain.mean() > 0 and gain.mean() >= z * error
        return gained >= lost and (bool(likelier) or one_sided(gained, lost) <= _PROGRESS_P)


@dataclass(frozen=True)
class _Step:
    """A change of one factor that helps, and the mean log-likelihood of the labels after it."""

    wiring: Wiring
    likelihood: float


class _Search:
    """Looks for the wiring with the likeliest labels, on one half of the images.

    Attributes:
        exam: The model and its images.
        rows: The searched half.
        outputs: Whether the model's scores are logits or probabilities.
        projection: From the model's classes to those of the data.
        true: Labels of the searched half as classes of the model; None unless each class is one of the model's.
        factors: What was searched, and the number of alternatives that the model accepts.
        runner_up: The likeliest wiring that was tried beside the present one.
    """

    def __init__(self, exam: Examination, rows: Sequence[int], outputs: Outputs, show: bool) -> None:
        self.exam = exam
        self.rows = rows
        self.outputs = outputs
        self._show = show
        self.labels = exam.images.labels
        space = exam.images.dataset.space
        self.projection = space.projection_from(exam.classifier.space)
        self.true: IntArray | None = None
        if self.projection.kind != "max":
            self.true = exam.classifier.space.relabel_from(space)[self.labels[list(rows)]].astype(np.int64)
        self.facts = exam.images.facts(rows)
        self.factors: dict[str, int] = {}
        self.runner_up: Wiring | None = None
        self._runner_up_likelihood = -math.inf
        self._names = [LABEL_ORDER, *factors(exam.classifier.takes_pixels)]

    def run(self, present: Wiring) -> Wiring:
        """The best wiring that the searched half shows."""
        current = present
        for _ in range(_MOST_CHANGES):
            better = self._better(current)
            if better == current:
                break
            current = better
        return current

    def _better(self, current: Wiring) -> Wiring:
        """The current wiring with the one change that helps most, or as it is.

        All factors are searched, because a wrong one may look right as long as another is wrong.
        """
        best = current
        best_factor = ""
        best_likelihood = -math.inf
        for factor in self._names:
            step = self._step(factor, current)
            if step is not None and step.likelihood > best_likelihood:
                best = step.wiring
                best_factor = factor
                best_likelihood = step.likelihood
        if self.exam.classifier.takes_pixels:
            # The model normalises for itself, so that there is no mean and std to fit.
            return best
        # Where listed values help most they are taken first, and a later round can fit them. At chance level that
        # choice may be a guess, so that fitted values compete with it at once.
        if best_factor != VALUES or self._guesses(self.accepted(current)):
            fitted = self._fitted(current)
            if self.accepted(fitted).beats(self.accepted(best)):
                return fitted
        return best

    def trial(self, wiring: Wiring, rows: Sequence[int]) -> _Trial | None:
        """What the model does under a wiring; None if it does not accept this input."""
        scores = self.exam.scores(wiring, rows)
        if scores is None:
            return None
        if self.outputs == "probabilities":
            scores = np.log(np.maximum(scores, _TINY))
        if wiring.columns is not None:
            scores = scores[:, list(wiring.columns)]
        return judged(self.projection(scores), self.labels[list(rows)])

    def accepted(self, wiring: Wiring, rows: Sequence[int] | None = None) -> _Trial:
        """The trial of a wiring that the model is known to accept, on the searched half or on ``rows``."""
        return cast(_Trial, self.trial(wiring, rows or self.rows))

    def _step(self, name: str, current: Wiring, *, likelier: bool = False) -> _Step | None:
        """The best alternative of a factor, if it beats the current wiring; with ``likelier``, if they are likelier."""
        present = self.accepted(current)
        candidates = self._candidates(name, current, present)
        best, tried = self._halved(name, candidates)
        self.factors[name] = max(tried, self.factors.get(name, 0))
        if best is None:
            return None
        then = self.accepted(best)
        if name == INPUT_SIZE:
            # The images' own size, unless another is clearly better.
            usual_size = replace(candidates[0], columns=best.columns, order=best.order)
            usual_trial = self.trial(usual_size, self.rows)
            if usual_trial is not None and not then.beats(usual_trial):
                best = usual_size
                then = usual_trial
            if then.gain_over(present) < _LEAST_SIZE_GAIN:
                return None
        likelihood = float(then.likelihood.mean())
        self._note_runner_up(best, likelihood)
        is_better = likelihood > present.likelihood.mean() if likelier else then.beats(present)
        return _Step(best, likelihood) if is_better else None

    def _note_runner_up(self, wiring: Wiring, likelihood: float) -> None:
        if likelihood > self._runner_up_likelihood:
            self.runner_up = wiring
            self._runner_up_likelihood = likelihood

    def _candidates(self, name: str, current: Wiring, now: _Trial) -> list[Wiring]:
        """The alternatives of a factor; at chance level each also with other orders of the classes.

        Nothing is seen of a better input while the classes are in the wrong order.
        """
        if name == LABEL_ORDER:
            return self._orders(current, now)
        candidates = alternatives(name, current, self.facts)
        if not self._guesses(now):
            return candidates
        learnt = [self._learnt(candidate, now) for candidate in candidates]
        usual: list[Wiring] = []
        for candidate in candidates:
            usual += self._in_usual_orders(candidate)
        return [*candidates, *(wiring for wiring in learnt if wiring is not None), *usual]

    def _fitted(self, current: Wiring) -> Wiring:
        """A mean and std that no list has: moved in small steps as long as the labels become likelier.

        The first step must be clear progress, because small ones may come by chance.
        """
        fitted = current
        for _ in range(_MOST_MOVES):
            has_moved = fitted != current
            step = self._step(REFINED if has_moved else FITTED, fitted, likelier=has_moved)
            if step is None:
                break
            fitted = step.wiring
        gain = self.accepted(fitted).gain_over(self.accepted(current))
        return fitted if gain >= _LEAST_FITTED_GAIN else current

    def _guesses(self, trial: _Trial) -> bool:
        """Whether it is no better than chance."""
        n = len(trial.hits)
        by_chance = math.ceil(n / len(self.projection.groups))
        return bool(trial.hits.mean() < clopper_pearson(by_chance, n, 0.95).high)

    def _halved(self, name: str, candidates: list[Wiring]) -> tuple[Wiring | None, int]:
        """The candidate with the likeliest labels, and how many the model accepts."""
        rungs = self._rungs()
        total = sum(rung * math.ceil(len(candidates) / _RUNG_FACTOR**i) for i, rung in enumerate(rungs))
        remaining = candidates
        accepted = 0
        with progress_bar(name, total, show=self._show, at_most=True) as advance:
            self.exam.advance = advance
            for rung in rungs:
                ranked = self._ranked(remaining, rung)
                accepted = accepted or len(ranked)
                keep = 1 if rung == rungs[-1] else math.ceil(len(ranked) / _RUNG_FACTOR)
                remaining = ranked[:keep]
        self.exam.advance = lambda count: None
        return (remaining[0] if remaining else None), accepted

    def _rungs(self) -> list[int]:
        """Numbers of images on which candidates are tried, the last one all of the half."""
        rungs = []
        rung = _FIRST_RUNG
        while rung < len(self.rows):
            rungs.append(rung)
            rung *= _RUNG_FACTOR
        return [*rungs, len(self.rows)]

    def _ranked(self, candidates: Sequence[Wiring], images: int) -> list[Wiring]:
        """Those that the model accepts, the likeliest labels first."""
        likelihoods: list[tuple[float, Wiring]] = []
        for candidate in candidates:
            trial = self.trial(candidate, self.rows[:images])
            if trial is not None:
                likelihoods.append((float(trial.likelihood.mean()), candidate))
        likelihoods.sort(key=lambda entry: -entry[0])
        return [candidate for _, candidate in likelihoods]

    def _orders(self, current: Wiring, now: _Trial) -> list[Wiring]:
        """The usual mistakes, the most frequent offset, and the order that the predictions suggest."""
        scores = self.exam.scores(current, self.rows)
        if self.true is None or scores is None:
            return []
        orders = self._in_usual_orders(current)
        n = len(self.exam.classifier.space)
        offset = int(np.bincount((scores.argmax(axis=1) - self.true) % n, minlength=n).argmax())
        if offset not in (0, 1, n - 1):  # these are usual mistakes
            shifted = tuple(((np.arange(n) + offset) % n).tolist())
            words = f"predictions are {offset} classes ahead of the labels"
            orders.append(replace(current, columns=shifted, order=words))
        learnt = self._learnt(current, now)
        if learnt is not None:
            orders.append(learnt)
        # An order that was learnt from a wrong input may be learnt again.
        return [wiring for wiring in orders if wiring != current]

    def _learnt(self, wiring: Wiring, now: _Trial) -> Wiring | None:
        """With the best assignment of classes to columns, if one half of these images shows it for the other."""
        if self.true is None or len(self.rows) < _LEARNABLE * len(np.unique(self.true)):
            return None
        scores = self.exam.scores(wiring, self.rows)
        if scores is None:
            return None
        n = len(self.exam.classifier.space)
        top1 = scores.argmax(axis=1)
        hits = np.empty(len(top1), bool)
        likelihood = np.empty(len(top1))
        even = np.arange(len(self.rows)) % 2 == 0
        for learnt_from in (even, ~even):
            columns = _completed(best_mapping(self.true[learnt_from], top1[learnt_from], n))
            tested_on = np.array(self.rows)[~learnt_from].tolist()
            crossed = self.accepted(replace(wiring, columns=columns), tested_on)
            hits[~learnt_from] = crossed.hits
            likelihood[~learnt_from] = crossed.likelihood
        if not _Trial(hits, likelihood).beats(now):
            return None
        columns = _completed(best_mapping(self.true, top1, n))
        return replace(wiring, columns=columns, order="learnt from the predictions")

    def _in_usual_orders(self, wiring: Wiring) -> list[Wiring]:
        """The same input with the usual mistakes in the order of the classes."""
        space = self.exam.classifier.space
        if self.true is None:
            return []
        wirings = []
        for words, mapping in usual_mistakes(space):
            if len(mapping) == len(space):
                wirings.append(replace(wiring, columns=tuple(mapping.tolist()), order=words))
        return wirings

    def pruned(self, candidate: Wiring, present: Wiring, rows: Sequence[int]) -> Wiring:
        """Without the changes that do not help on these images, which were not searched."""
        wiring = candidate
        simpler = self._simpler(wiring, present, rows)
        while simpler is not None:
            wiring = simpler
            simpler = self._simpler(wiring, present, rows)
        return wiring

    def _simpler(self, candidate: Wiring, present: Wiring, rows: Sequence[int]) -> Wiring | None:
        """The candidate with one change taken back that does not clearly help; None if each one does."""
        for simpler in reverted(candidate, present):
            if simpler == candidate:
                continue
            trial = self.trial(simpler, rows)
            if trial is not None and not self.accepted(candidate, rows).beats(trial, _PART_Z):
                return simpler
        return None


def judged(logits: Scores, labels: IntArray) -> _Trial:
    """Hits, and log-likelihoods at the temperature that fits best: value ranges change the scale of the scores."""
    table = logits.astype(np.float64)
    table -= table.max(axis=1, keepdims=True)
    of_label = np.take_along_axis(table, labels[:, None], axis=1)[:, 0]
    likelihoods = [of_label / t - np.log(np.exp(table / t).sum(axis=1)) for t in _TEMPERATURES]
    return _Trial(logits.argmax(axis=1) == labels, max(likelihoods, key=np.mean))


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
    columns = mapping.tolist()
    taken = set(columns)
    for i, column in enumerate(columns):
        if column < 0 and i not in taken:
            columns[i] = i
    free = iter(sorted(set(range(len(columns))) - set(columns)))
    for i, column in enumerate(columns):
        if column < 0:
            columns[i] = next(free)
    return tuple(columns)


def examined_outputs(
    classifier: Classifier, scores: Scores, pixels: Sequence[Pixels]
) -> tuple[dict[str, tuple[object, object]], list[str]]:
    """What is wrong with the outputs, and why that matters.

    ``pixels``: what the first of the scores were computed from.
    """
    stated = classifier.outputs
    probabilities = looks_like_probabilities(scores)
    right = "probabilities" if probabilities else "logits"
    changes: dict[str, tuple[object, object]] = {}
    if right != stated:
        changes["outputs"] = (stated, right)
    notes = []
    if probabilities and _twice(scores):
        changes["softmax in the model"] = ("twice", "once")
        notes.append("the model applies softmax twice: its confidences are far too low; export it without one of them")
    elif right != stated:
        effect = "softmax is applied twice" if probabilities else "softmax is missing"
        notes.append(f"the outputs are {right}, but read as {stated}: {effect}")
    # The same images in reverse order and without the first have other neighbours and other places.
    again = finite_scores(classifier, pixels[8:0:-1])[::-1]
    differs = np.abs(again - scores[1 : len(again) + 1]).max() > _MIXED * scores.std()
    if differs or classifier.one_at_a_time:
        changes["images of a batch"] = ("mixed", "independent")
        notes.append(
            "images of a batch change each other's scores (training mode, dynamic quantisation); export the model for "
            "inference, with fixed ranges"
        )
    return changes, notes


def _twice(probabilities: Scores) -> bool:
    """Whether the logarithms are themselves probabilities, up to a constant per image, and some are certain."""
    logs = np.log(np.maximum(probabilities.astype(np.float64), 1e-30))
    inner = logs + (1 - logs.sum(axis=1, keepdims=True)) / logs.shape[1]
    return bool(inner.min() > -1e-3 and 0.95 < inner.max() < 1 + 1e-3 and np.median(inner.max(axis=1)) > 0.5)
