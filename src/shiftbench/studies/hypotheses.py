"""Hypotheses about what makes models robust (000): evidence for, against, or none, by a written rule.

A hypothesis ("Larger Models", "Pretraining") names pairs of models, one with the change and one without. On a
dataset its *gain* is the mean over its pairs of how much better the changed model does under shift, and its
*excess* is the mean of how much the gap between in-distribution and shifted score shrinks: what is gained
beyond being the better model anyway. The verdict on a hypothesis and a dataset:

    +   gain >= margin, and excess >= gap_margin where in-distribution scores are known,
        and, where hits on images are known, the gain's p-value after Holm is at most 1 - level
    -   gain <= -margin, with the same demand on the p-value
    0   neither: no evidence

Scores and margins are in points, higher is better; errors are turned round. With one pair the p-value is
McNemar's exact one; with several it is that of the mean paired difference per image (normal). Holm's correction
counts all hypotheses and datasets tested together. From published scores alone there is no p-value, and only the
margins decide. 000 itself writes "-" for what is here "-" or "0".

000 states no thresholds. The defaults are ours, chosen so that its tables 4 and 6 follow from the numbers it
prints; any margin above 1.1 and up to 2.2 points with any gap margin above 0 and up to 0.7 gives the same marks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain

import numpy as np

from shiftbench.arrays import BoolArray, FloatArray
from shiftbench.errors import listed
from shiftbench.metrics.bootstrap import percentile_interval, resampled_means
from shiftbench.metrics.paired import holm, mcnemar, normal_p
from shiftbench.studies.base import StudyError

#: Points under shift below which a change counts as none.
MARGIN = 1.5
#: Points by which the gap must shrink.
GAP_MARGIN = 0.5


@dataclass(frozen=True)
class Hypothesis:
    """A name and pairs (model with the change, model without)."""

    name: str
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Evidence:
    """The evidence of one dataset on one hypothesis; points, higher is better."""

    hypothesis: str
    dataset: str
    pairs: int
    gain: float
    #: None where only scores are known, not hits.
    low: float | None
    high: float | None
    p: float | None
    p_holm: float | None
    #: None where no in-distribution scores are known.
    excess: float | None
    verdict: str
    #: What is gained, such as top1, mCE or mAP.
    metric: str = ""
    #: The interval of the excess; None where only scores are known, not hits.
    excess_low: float | None = None
    excess_high: float | None = None

    @property
    def mark(self) -> str:
        """As 000 prints it: "+" for evidence, "-" for its absence or evidence against."""
        return "+" if self.verdict == "+" else "-"

    def rules_out_help_as_in(self, others: Sequence[Evidence]) -> bool:
        """Whether this dataset shows that the change helps less here than on each of ``others``, where it helps.

        A dataset with few images can be without evidence because nobody could have seen the gain. Its interval, of the
        gain or of what lies beyond the reference, must therefore end below what was gained elsewhere. Scores without
        images have no interval, and only the margins decide.
        """
        if self.verdict == "+":
            return False
        if self.verdict == "-" or self.high is None:
            return True
        if self.high < min(other.gain for other in others):
            return True
        other_excesses = [other.excess for other in others if other.excess is not None]
        return self.excess_high is not None and bool(other_excesses) and self.excess_high < min(other_excesses)

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True)
class ScoredData:
    """Scores of models on one dataset, in points; ``reference`` are the in-distribution ones."""

    dataset: str
    shifted: Mapping[str, float]
    reference: Mapping[str, float] | None = None
    #: False for errors.
    higher_is_better: bool = True
    metric: str = ""
    #: The shifted scores under draws of the images, the same draws for every model; empty where images are not known.
    draws: Mapping[str, FloatArray] = field(default_factory=dict)
    #: The in-distribution scores under draws of their images.
    reference_draws: Mapping[str, FloatArray] = field(default_factory=dict)


@dataclass(frozen=True)
class HitData:
    """Right or wrong on the same images for every model."""

    dataset: str
    shifted: Mapping[str, BoolArray]
    reference: Mapping[str, BoolArray] | None = None
    metric: str = "top1"


def weigh_hypotheses(
    hypotheses: Sequence[Hypothesis],
    datasets: Sequence[ScoredData | HitData],
    *,
    margin: float = MARGIN,
    gap_margin: float = GAP_MARGIN,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> list[Evidence]:
    """The evidence of every dataset on every hypothesis of which it has at least one pair."""
    evidence = []
    for dataset in datasets:
        for hypothesis in hypotheses:
            pairs = [pair for pair in hypothesis.pairs if _has_models(dataset.shifted, [pair])]
            if not pairs:
                continue
            if isinstance(dataset, ScoredData):
                evidence.append(_from_scores(hypothesis.name, dataset, pairs, level))
            else:
                evidence.append(_from_hits(hypothesis.name, dataset, pairs, level, resamples, seed))
    if not evidence:
        raise _no_pairs(hypotheses, datasets)
    adjusted = holm([np.nan if entry.p is None else entry.p for entry in evidence])
    judged = []
    for entry, p_holm in zip(evidence, adjusted, strict=True):
        if entry.p is not None:
            entry = replace(entry, p_holm=float(p_holm))
        judged.append(replace(entry, verdict=_verdict(entry, margin, gap_margin, level)))
    return judged


def _has_models(scores: Mapping[str, object], pairs: Sequence[tuple[str, str]]) -> bool:
    """Whether both models of every pair have a score."""
    return all(model in scores and base in scores for model, base in pairs)


def _no_pairs(hypotheses: Sequence[Hypothesis], datasets: Sequence[ScoredData | HitData]) -> StudyError:
    pairs: list[str] = []
    for hypothesis in hypotheses:
        pairs.extend(f"{model} / {base}" for model, base in hypothesis.pairs)
    models = listed(datasets[0].shifted) if datasets else "(no datasets)"
    return StudyError(
        "no dataset has both models of any pair",
        found=f"pairs {listed(pairs)}",
        expected=f"models such as {models}",
    )


def _verdict(evidence: Evidence, margin: float, gap_margin: float, level: float) -> str:
    """The mark by the rule at the top of this module."""
    if evidence.p_holm is not None and not evidence.p_holm <= 1.0 - level:
        return "0"
    # Published scores have one decimal: a difference that prints as the margin counts as the margin.
    least_gain = margin - 1e-9
    least_excess = gap_margin - 1e-9
    if evidence.gain >= least_gain and (evidence.excess is None or evidence.excess >= least_excess):
        return "+"
    if evidence.gain <= -least_gain:
        return "-"
    return "0"


def _from_scores(name: str, data: ScoredData, pairs: Sequence[tuple[str, str]], level: float) -> Evidence:
    """The evidence on a hypothesis where only scores are known, such as mean average precision, and not images.

    The interval and the p-value come from bootstrap draws of the scores; without draws there is only the gain.
    """
    sign = 1.0 if data.higher_is_better else -1.0
    gains = [sign * (data.shifted[model] - data.shifted[base]) for model, base in pairs]
    gain = float(np.mean(gains))
    reference = data.reference or {}
    beyond = []
    for pair_gain, (model, base) in zip(gains, pairs, strict=True):
        if model in reference and base in reference:
            beyond.append(pair_gain - sign * (reference[model] - reference[base]))
    evidence = Evidence(
        hypothesis=name,
        dataset=data.dataset,
        pairs=len(pairs),
        gain=gain,
        low=None,
        high=None,
        p=None,
        p_holm=None,
        excess=float(np.mean(beyond)) if beyond else None,
        verdict="0",
        metric=data.metric,
    )
    if not data.draws:
        return evidence
    drawn_gain = sign * _mean_difference(data.draws, pairs)
    low, high = _interval(drawn_gain, level)
    p = normal_p(gain, float(drawn_gain.std(ddof=1)))
    evidence = replace(evidence, low=low, high=high, p=p, p_holm=p)
    if len(beyond) == len(pairs) and _has_models(data.reference_draws, pairs):
        # The same images in the same order are drawn alike, with and without shift, because the seed is the same.
        drawn_excess = drawn_gain - sign * _mean_difference(data.reference_draws, pairs)
        excess_low, excess_high = _interval(drawn_excess, level)
        evidence = replace(evidence, excess_low=excess_low, excess_high=excess_high)
    return evidence


def _mean_difference(draws: Mapping[str, FloatArray], pairs: Sequence[tuple[str, str]]) -> FloatArray:
    """The mean over the pairs of changed model minus base, for every draw."""
    return np.asarray(np.mean([draws[model] - draws[base] for model, base in pairs], axis=0))


def _interval(draws: FloatArray, level: float) -> tuple[float, float]:
    low, high = percentile_interval(draws, level)
    return float(low), float(high)


def _from_hits(
    name: str, data: HitData, pairs: Sequence[tuple[str, str]], level: float, resamples: int, seed: int
) -> Evidence:
    per_image = _differences(data.shifted, pairs, data.dataset)
    gain = 100.0 * float(per_image.mean())
    drawn_gain = 100.0 * resampled_means(per_image[:, None], resamples=resamples, seed=seed)[:, 0]
    low, high = _interval(drawn_gain, level)
    p = _p_value(per_image, len(pairs))
    evidence = Evidence(
        hypothesis=name,
        dataset=data.dataset,
        pairs=len(pairs),
        gain=gain,
        low=low,
        high=high,
        p=p,
        p_holm=p,
        excess=None,
        verdict="0",
        metric=data.metric,
    )
    if data.reference is None or not _has_models(data.reference, pairs):
        return evidence
    unshifted = _differences(data.reference, pairs, data.dataset)
    # As many images are drawn alike: the pixels of one image, with and without shift, are in the same draws.
    drawn_reference = 100.0 * resampled_means(unshifted[:, None], resamples=resamples, seed=seed)[:, 0]
    excess_low, excess_high = _interval(drawn_gain - drawn_reference, level)
    excess = gain - 100.0 * float(unshifted.mean())
    return replace(evidence, excess=excess, excess_low=excess_low, excess_high=excess_high)


def _p_value(differences: FloatArray, pairs: int) -> float:
    """The p-value of the mean difference per image, which is a mean over this number of pairs."""
    if pairs == 1:
        return float(mcnemar(int((differences > 0).sum()), int((differences < 0).sum())))
    n = len(differences)
    mean = float(differences.mean())
    spread = float(differences.std(ddof=1)) if n > 1 else 0.0
    if spread == 0.0 and mean:
        return min(1.0, 2.0 * 0.5**n)  # every image has the same difference: the sign test
    return normal_p(mean, spread / float(np.sqrt(n)))


def _differences(hits: Mapping[str, BoolArray], pairs: Sequence[tuple[str, str]], dataset: str) -> FloatArray:
    """For each image, the mean over pairs of right with the change minus right without."""
    sizes = {len(hits[model]) for model in chain.from_iterable(pairs)}
    if len(sizes) != 1 or sizes == {0}:
        raise StudyError(f"the models are not on the same images of {dataset!r}", found=f"{sorted(sizes)} images")
    differences = [hits[model].astype(float) - hits[base].astype(float) for model, base in pairs]
    return np.asarray(np.mean(differences, axis=0))


def hypotheses_from_models(changes: Mapping[str, Sequence[str]], bases: Mapping[str, str]) -> list[Hypothesis]:
    """Hypotheses from a table of models: each tag in ``changes`` is one, its pairs the models with that tag."""
    pairs: dict[str, list[tuple[str, str]]] = {}
    for model, tags in changes.items():
        for tag in tags:
            if model in bases:
                pairs.setdefault(tag, []).append((model, bases[model]))
    return [Hypothesis(tag, tuple(tag_pairs)) for tag, tag_pairs in pairs.items()]
