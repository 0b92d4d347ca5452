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

    @property
    def mark(self) -> str:
        """As 000 prints it: "+" for evidence, "-" for its absence or evidence against."""
        return "+" if self.verdict == "+" else "-"

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
    found = []
    for dataset in datasets:
        for hypothesis in hypotheses:
            known = [pair for pair in hypothesis.pairs if all(model in dataset.shifted for model in pair)]
            if not known:
                continue
            if isinstance(dataset, ScoredData):
                found.append(_from_scores(hypothesis.name, dataset, known, level))
            else:
                found.append(_from_hits(hypothesis.name, dataset, known, level, resamples, seed))
    if not found:
        raise StudyError(
            "no dataset has both models of any pair",
            found=f"pairs {listed([f'{a} / {b}' for h in hypotheses for a, b in h.pairs])}",
            expected=f"models such as {listed(datasets[0].shifted) if datasets else '(no datasets)'}",
        )
    adjusted = holm([np.nan if one.p is None else one.p for one in found])
    made = [replace(one, p_holm=None if one.p is None else float(p)) for one, p in zip(found, adjusted, strict=True)]
    # Published scores have one decimal: a difference that prints as the margin counts as the margin.
    least, least_excess = margin - 1e-9, gap_margin - 1e-9
    for place, one in enumerate(made):
        if one.p_holm is None or one.p_holm <= 1.0 - level:
            better = one.gain >= least and (one.excess is None or one.excess >= least_excess)
            made[place] = replace(one, verdict="+" if better else "-" if one.gain <= -least else "0")
    return made


def _from_scores(name: str, data: ScoredData, pairs: Sequence[tuple[str, str]], level: float) -> Evidence:
    sign = 1.0 if data.higher_is_better else -1.0
    gains = [sign * (data.shifted[model] - data.shifted[base]) for model, base in pairs]
    reference = data.reference or {}
    beyond = [
        gain - sign * (reference[model] - reference[base])
        for gain, (model, base) in zip(gains, pairs, strict=True)
        if model in reference and base in reference
    ]
    gain, low, high, p = float(np.mean(gains)), None, None, None
    if data.draws:
        drawn = sign * np.mean([data.draws[model] - data.draws[base] for model, base in pairs], axis=0)
        low, high = (float(end) for end in percentile_interval(drawn, level))
        p = normal_p(gain, float(drawn.std(ddof=1)))
    excess = float(np.mean(beyond)) if beyond else None
    return Evidence(name, data.dataset, len(pairs), gain, low, high, p, p, excess, "0", data.metric)


def _from_hits(
    name: str, data: HitData, pairs: Sequence[tuple[str, str]], level: float, resamples: int, seed: int
) -> Evidence:
    per_image = _differences(data.shifted, pairs, data.dataset)
    mean, n = float(per_image.mean()), len(per_image)
    low, high = percentile_interval(100.0 * resampled_means(per_image[:, None], resamples=resamples, seed=seed), level)
    excess = None
    if data.reference and all(model in data.reference for pair in pairs for model in pair):
        excess = 100.0 * mean - 100.0 * float(_differences(data.reference, pairs, data.dataset).mean())
    spread = float(per_image.std(ddof=1)) if n > 1 else 0.0
    if len(pairs) == 1:
        p = float(mcnemar(int((per_image > 0).sum()), int((per_image < 0).sum())))
    elif spread == 0.0 and mean:
        p = min(1.0, 2.0 * 0.5**n)  # every image has the same difference: the sign test
    else:
        p = normal_p(mean, spread / float(np.sqrt(n)))
    ends = float(low[0]), float(high[0])
    return Evidence(name, data.dataset, len(pairs), 100.0 * mean, *ends, p, p, excess, "0", data.metric)


def _differences(hits: Mapping[str, BoolArray], pairs: Sequence[tuple[str, str]], dataset: str) -> FloatArray:
    """For each image, the mean over pairs of right with the change minus right without."""
    sizes = {len(hits[model]) for pair in pairs for model in pair}
    if len(sizes) != 1 or sizes == {0}:
        raise StudyError(f"the models are not on the same images of {dataset!r}", found=f"{sorted(sizes)} images")
    return np.asarray(np.mean([hits[model].astype(float) - hits[base].astype(float) for model, base in pairs], axis=0))


def hypotheses_from_models(changes: Mapping[str, Sequence[str]], bases: Mapping[str, str]) -> list[Hypothesis]:
    """Hypotheses from a table of models: each tag in ``changes`` is one, its pairs the models with that tag."""
    pairs: dict[str, list[tuple[str, str]]] = {}
    for model, tags in changes.items():
        for tag in tags:
            if model in bases:
                pairs.setdefault(tag, []).append((model, bases[model]))
    return [Hypothesis(tag, tuple(made)) for tag, made in pairs.items()]
