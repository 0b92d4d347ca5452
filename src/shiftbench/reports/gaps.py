"""Gaps: by how much a model is worse in a setting than in its reference, as the papers' tables show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shiftbench.metrics.base import Score, SettingScore
from shiftbench.metrics.intervals import Interval, difference_of_shares

_METHOD = "from both intervals"


def with_gaps(scores: Sequence[SettingScore], references: Mapping[str, str]) -> list[SettingScore]:
    """The scores, each followed by its gap to the score of the same model and metric in the reference of its setting.

    Args:
        scores: Scores of models in settings.
        references: For each setting the one that it is compared with.
    """
    by_key = {(entry.model, entry.setting, entry.score.metric): entry.score for entry in scores}
    with_their_gaps = []
    for entry in scores:
        with_their_gaps.append(entry)
        reference = by_key.get((entry.model, references.get(entry.setting, ""), entry.score.metric))
        if reference is not None:
            with_their_gaps.append(entry._replace(score=_gap(reference, entry.score)))
    return with_their_gaps


def _gap(reference: Score, shifted: Score) -> Score:
    """The reference minus the shifted score; positive if the shift costs something.

    The two are treated as independent, which they are where the images differ. Where they are the same images, the
    interval is too wide rather than too narrow, because models tend to fail on the same ones.
    """
    better, worse = reference, shifted
    if not shifted.higher_is_better:
        better, worse = shifted, reference
    ends = difference_of_shares(
        better.value, Interval(better.low, better.high), worse.value, Interval(worse.low, worse.high), 0.0
    )
    return Score(
        f"{shifted.metric} gap",
        better.value - worse.value,
        *ends,
        n=shifted.n,
        level=shifted.level,
        method=_METHOD,
        provenance=shifted.provenance,
        unit=shifted.unit,
        higher_is_better=False,
    )
