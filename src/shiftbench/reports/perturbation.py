"""Flips of a run over perturbation sequences: how often a model changes its prediction, with intervals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shiftbench.errors import SettingError
from shiftbench.metrics.base import Score
from shiftbench.metrics.bootstrap import RESAMPLES, percentile_interval, resampled_means
from shiftbench.metrics.flips import flip_probability, flips_by_clip, stack_frames, top5_distance
from shiftbench.reports.scores import Entries, score_table
from shiftbench.reports.table import Table
from shiftbench.store.workspace import Result, Workspace

#: Cells by (row title, perturbation), in order of frames.
_Sequences = dict[tuple[str, str], list[Result]]


def flip_table(workspace: Workspace, results: Sequence[Result], *, family: str, level: float = 0.95) -> Table:
    """One row per model: flip probability and top-5 distance of every perturbation, and the mean flips.

    Flip probabilities are not divided by AlexNet's: dividing needs a baseline on the same images.
    """
    return score_table(flip_entries(workspace, results, family, level), title=f"{family}: flips between frames")


def flip_entries(workspace: Workspace, results: Sequence[Result], family: str, level: float) -> Entries:
    sequences = _sequences(workspace, results, family)
    if not sequences:
        raise SettingError(f"no perturbation sequences of the family {family!r}")
    entries: Entries = []
    for title in dict.fromkeys(title for title, _ in sequences):
        entries += _row(workspace, title, {name: c for (t, name), c in sequences.items() if t == title}, family, level)
    return entries


def perturbation_families(workspace: Workspace, results: Sequence[Result]) -> dict[str, list[Result]]:
    """Family to its results: all frames of all sequences."""
    found: dict[str, list[Result]] = {}
    for result in results:
        member = workspace.setting_record(result).member
        if member is not None and result.spec.shift.frame is not None:
            found.setdefault(member.family, []).append(result)
    return found


def _sequences(workspace: Workspace, results: Sequence[Result], family: str) -> _Sequences:
    found: _Sequences = {}
    for result in perturbation_families(workspace, results).get(family, ()):
        found.setdefault((result.title, result.spec.shift.name), []).append(result)
    for sequence in found.values():
        sequence.sort(key=lambda result: result.spec.shift.frame or 0)
    return found


def _row(
    workspace: Workspace, title: str, sequences: dict[str, list[Result]], family: str, level: float
) -> list[tuple[str, str, Score]]:
    flips, entries, provenance = [], [], ""
    for name, results in sequences.items():
        predictions = [workspace.read(result, top_k=5, confidence=False, scores=False) for result in results]
        frames = stack_frames(predictions)
        spec = results[0].spec
        step, noise, provenance = spec.shift.difficulty, spec.shift.noise, str(spec.family)
        flips.append(flips_by_clip(frames[:, :, 0], step=step, noise=noise))
        entries.append(
            (title, name, flip_probability(frames[:, :, 0], step=step, noise=noise, level=level, provenance=provenance))
        )
        if frames.shape[2] >= 5:
            entries.append(
                (title, name, top5_distance(frames, step=step, noise=noise, level=level, provenance=provenance))
            )
    if len({len(values) for values in flips}) == 1:
        entries.insert(0, (title, family, _mean_flips(np.stack(flips, axis=1), level, provenance)))
    return entries


def _mean_flips(by_clip: np.ndarray[tuple[int, int], np.dtype[np.float64]], level: float, provenance: str) -> Score:
    """The mean over perturbations; the same images are drawn for all of them."""
    means = by_clip.mean(axis=1)
    low, high = percentile_interval(resampled_means(means[:, None]), level)
    name = f"mean flip probability over {by_clip.shape[1]}"
    method = f"bootstrap by clip, {RESAMPLES:,} resamples"
    return Score(
        name, float(means.mean()), float(low[0]), float(high[0]), len(means), level, method, provenance,
        higher_is_better=False,
    )  # fmt: skip
