"""What the command line shows of studies that compare two test sets: gaps, frequency bins, difficulties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from shiftbench.reports import formatting
from shiftbench.reports.study_tables import Field, StudyTable
from shiftbench.studies.base import count_of, finite_or_none, whole
from shiftbench.studies.difficulty_fit import DifficultyFit
from shiftbench.studies.fits import Fit
from shiftbench.studies.gaps import Gaps
from shiftbench.studies.reproducibility import FrequencyBin, Reproducibility


def reproducibility_table(result: Reproducibility, original: str, new: str) -> StudyTable:
    """The table of 004."""
    times = 100.0 / whole(result.unit)
    fields = [
        Field("model", "model"),
        Field("rank", "rank", "count"),
        Field("original", "original", "number", ("original_low", "original_high"), places=1, times=times),
        Field("new", "new", "number", ("new_low", "new_high"), places=1, times=times),
        Field("gap", "gap", "number", places=1, times=times),
        Field("new_rank", "new rank", "count"),
        Field("rank_change", "change", "rank"),
    ]
    data = {"original": original, "new": new, **result.as_dict()}
    notes = [
        f"{formatting.level_text(result.level)} intervals: clopper-pearson; per cent",
        f"mean change: {result.mean_change * times:+.1f} points over {len(result.rows)} models",
        "change: places won on the new test set",
        *result.notes,
    ]
    return StudyTable(fields, data["models"], title=f"{original} and {new}", notes=notes, data={**data, "notes": notes})


def gap_table(result: Gaps, original: str, new: str, fresh: str | None) -> StudyTable:
    """One row a model: its gap, what chance can do, and the rest, split in two where that is possible."""
    apart = any(row.parts.adaptivity is not None for row in result.rows)
    fields = [
        Field("model", "model"),
        Field("original", "original", "number", places=1, times=100.0, optional=True),
        Field("new", "new", "number", places=1, times=100.0, optional=True),
        Field("gap", "gap", "points", places=1, times=100.0),
        Field("reach", "chance"),
        Field("rest", "systematic"),
    ]
    if apart:
        fields += [
            Field("adaptivity", "adaptivity", "points", ("adaptivity_low", "adaptivity_high"), 1, 100.0),
            Field("distribution", "distribution", "points", ("distribution_low", "distribution_high"), 1, 100.0),
        ]
    rows = [row.as_dict() for row in result.rows]
    shown = [
        {
            **row,
            "reach": formatting.interval(row["generalisation_low"], row["generalisation_high"], 1, signed=True),
            "rest": formatting.interval(row["systematic_low"], row["systematic_high"], 1, signed=True),
        }
        for row in rows
    ]
    by_chance = sum(row["chance_alone"] for row in rows)
    lead = [
        f"gap = {original} minus {new} = adaptivity + distribution + chance, in percentage points",
        f"chance alone could explain the gap of {by_chance} of {count_of(len(rows), 'model')}",
    ]
    notes = [
        f"chance: how far sampling the images of {new} can move the accuracy ({formatting.level_text(result.level)})",
        "systematic: adaptivity and distribution together; an interval that holds 0 may be chance alone",
        f"adaptivity: {original} minus {fresh}, fresh images of its distribution; distribution: {fresh} minus {new}"
        if apart
        else "two test sets can't tell adaptivity from distribution; --fresh, a setting with fresh images of the "
        "original distribution, can",
        *result.notes,
    ]
    data = {"original": original, "new": new, "fresh": fresh, "level": result.level, "models": rows, "notes": notes}
    return StudyTable(
        fields, rows, shown=shown, title=f"what the gap is made of: {original} and {new}", lead=lead, notes=notes,
        data=data,
    )  # fmt: skip


def bins_table(
    bins: Sequence[tuple[str, Sequence[FrequencyBin]]], setting: str, level: float, notes: Sequence[str]
) -> StudyTable:
    """One row a bin, for each (name, bins): the mean over all classifiers, and single ones."""
    fields = [
        Field("model", "model"),
        Field("bin", "selection frequency"),
        Field("images", "images", "count"),
        Field("accuracy", "accuracy %", "number", ("low", "high"), places=1, times=100.0),
    ]
    rows = [
        {"model": name, "bin": bin_text(one, last=one is found[-1]), **asdict(one)}
        for name, found in bins
        for one in found
    ]
    notes = [
        f"{formatting.level_text(level)} intervals: clopper-pearson; of a mean over models, for that many images: "
        "they all see the same pictures",
        *notes,
    ]
    data = {"setting": setting, "level": level, "bins": rows, "notes": notes}
    return StudyTable(fields, rows, title=f"accuracy by selection frequency, {setting}", notes=notes, data=data)


def bin_text(one: FrequencyBin, *, last: bool) -> str:
    """
    >>> bin_text(FrequencyBin(0.8, 1.0, 0, None, None, None), last=True)
    '[0.8, 1]'
    """
    return f"[{one.low_edge:g}, {one.high_edge:g}{']' if last else ')'}"


def difficulty_table(result: DifficultyFit, x: str | None = None, y: str | None = None) -> StudyTable:
    """u and v by the formula, in the simulation, and, where there are real models, in their line."""
    found = result.recovered
    rows: list[dict[str, Any]] = [{"what": "formula", "u": found.u, "v": found.v}]
    rows.append({"what": "simulated models", **_coefficients(found.line)})
    if result.line is not None:
        rows.append({"what": "real models", **_coefficients(result.line)})
    fields = [
        Field("what", ""),
        Field("u", "slope u", "number", ("u_low", "u_high"), places=4),
        Field("v", "intercept v", "number", ("v_low", "v_high"), places=4),
        Field("r2", "r2", "number", places=4),
    ]
    first, second = result.first, result.second
    names = (x or "first test set", y or "second test set")
    sets = zip(names, (first, second), (result.n_first, result.n_second), strict=True)
    lead = [
        *(f"{name}: difficulties Normal({one.mean:.3g}, {one.spread:.3g}²), {n:,} images" for name, one, n in sets),
        f"{len(result.skills)} models with skills from {result.skills.min():.2f} to {result.skills.max():.2f}",
        "the simulation recovers u and v" if found.agrees else "u or v lies outside the simulation's intervals",
    ]
    if result.same_line is not None:
        lead.append(f"the real line {'agrees' if result.same_line else 'does not agree'} with the simulated one")
    notes = [
        "model s is right on an image of difficulty t with probability Phi(s - t); probit(y) = u probit(x) + v",
        f"{formatting.level_text(found.line.level)} intervals from {found.line.resamples:,} resamples: of images and "
        "models of the simulation, of the models where they are real",
    ]
    if result.line is not None:
        notes.append(
            f"the difficulties of {names[1]} follow from the real line and those of {names[0]}, which are assumed; "
            "so u and v by the formula are the real line's own, and what the simulation tests is chance: a lower r2 "
            "of the real models means that more than skill and sampling sets them apart"
        )
    data = {"x": x, "y": y, **result.as_dict(), "notes": notes}
    return StudyTable(fields, rows, title="the Gaussian difficulty model", lead=lead, notes=notes, data=data)


def _coefficients(line: Fit) -> dict[str, Any]:
    row: dict[str, Any] = {"u": line.slope, "v": line.intercept, "r2": finite_or_none(line.r2)}
    for name, ends in (("u", line.slope_interval), ("v", line.intercept_interval)):
        row |= {f"{name}_low": ends.low if ends else None, f"{name}_high": ends.high if ends else None}
    return row
