"""What the command line shows of a study: tables, and the same as JSON-able data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shiftbench.errors import listed
from shiftbench.reports import formatting
from shiftbench.reports.study_tables import Field, StudyTable
from shiftbench.studies.agreement import Agreement
from shiftbench.studies.base import count_of, whole
from shiftbench.studies.correlation import Correlation
from shiftbench.studies.fits import Fit
from shiftbench.studies.hypotheses import GAP_MARGIN, MARGIN, Evidence
from shiftbench.studies.knee_images import IMAGES
from shiftbench.studies.piecewise import Line, PiecewiseFit
from shiftbench.studies.robustness import EffectiveRobustness, RelativeRobustness, sentence
from shiftbench.studies.study import Study, unlisted

#: How many rows of a long list a terminal shows from either end.
_EXTREMES = 8


def effective_table(
    study: Study,
    x: str,
    y: str,
    result: EffectiveRobustness,
    *,
    extremes: bool = False,
    own: Sequence[str] = (),
) -> StudyTable:
    """The line and rho of every model, highest first; ``extremes`` shows people only the ends of a long list.

    ``own`` are models that get a sentence of their own.
    """
    rows = [
        {"category": study.category_of(row["model"]), **row}
        for row in sorted(result.as_dict()["models"], key=lambda row: -row["rho"])
    ]
    shown, hidden = rows, list[str]()
    if extremes:
        shown, hidden = _extremes(rows, "models", "`study effective` and --json have them all")
    notes = [
        f"rho: y minus the line, percentage points; {formatting.level_text(result.level)} intervals: {result.sources}",
        *_line_note(result.line),
        *result.line.notes,
        *result.notes,
        *study.results.notes,
        *unlisted(study),
    ]
    data = {
        "x": x, "y": y, **result.line.as_dict(), "rho_level": result.level, "rho_sources": result.sources,
        "models": [_renamed(row) for row in rows], "notes": notes,
    }  # fmt: skip
    times = 100.0 / whole(result.line.unit)
    fields = [
        Field("model", "model"),
        Field("category", "category", optional=True),
        Field("x", "x", "number", times=times),
        Field("y", "y", "number", times=times),
        Field("expected", "line", "number", times=times, optional=True),
        Field("rho", "rho", "points", ("low", "high"), times=times),
    ]
    lead = [*line_text(result.line), *(sentence(result, model) for model in own if model in result.rho)]
    return StudyTable(
        fields,
        rows,
        shown=shown,
        title=f"{y} against {x}",
        lead=lead,
        notes=hidden + notes,
        data=data,
    )


def _extremes(rows: list[dict[str, Any]], what: str, where: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Both ends of a long list, and a note on the rest; a short list whole."""
    cut = len(rows) - 2 * _EXTREMES
    if cut < 2:
        return rows, []
    return rows[:_EXTREMES] + rows[-_EXTREMES:], [f"{cut:,} {what} in between are not shown; {where}"]


def _renamed(row: dict[str, Any]) -> dict[str, Any]:
    ends = {"low": "rho_low", "high": "rho_high"}
    return {ends.get(key, key): value for key, value in row.items()}


def line_text(line: Line) -> list[str]:
    """The line in words and numbers."""
    if isinstance(line, PiecewiseFit):
        pivot = line.pivot * 100.0 / whole(line.unit)
        return [
            f"two lines, pivot {pivot:.2f} %",
            *(f"below: {text}" for text in line_text(line.below)),
            *(f"above: {text}" for text in line_text(line.above)),
        ]
    return [
        f"{line.scale} scale, {line.n} baseline models, r2 {formatting.number(line.r2, 4, '')}",
        f"slope {line.slope:.4f} {_ends(line, line.slope_interval, slope=True)}".rstrip(),
        f"intercept {_intercept(line, line.intercept)} {_ends(line, line.intercept_interval)}".rstrip(),
    ]


def _intercept(line: Fit, value: float) -> str:
    if line.scale != "linear":
        return f"{value:.4f}"
    return f"{value * 100.0 / whole(line.unit):.2f} %"


def _ends(line: Fit, ends: Sequence[float] | None, *, slope: bool = False) -> str:
    if ends is None:
        return ""
    shown = [f"{end:.4f}" if slope else _intercept(line, end) for end in ends]
    return f"[{shown[0]}, {shown[1]}]"


def _line_note(line: Line) -> list[str]:
    one = line.below if isinstance(line, PiecewiseFit) else line
    if one.slope_interval is None:
        return []
    what = "images" if one.procedure == IMAGES else "the models"
    return [f"line: {formatting.level_text(one.level)} intervals from {one.resamples:,} resamples of {what}"]


def relative_table(study: Study, y: str, result: RelativeRobustness) -> StudyTable:
    """tau of every model with a base, highest first."""
    data = result.as_dict()
    rows = [
        {"category": study.category_of(row["model"]), **row}
        for row in sorted(data["models"], key=lambda row: -row["tau"])
    ]
    times = 100.0 / whole(result.unit)
    interval = rows and rows[0]["low"] is not None
    notes = [
        f"tau: accuracy on {y} minus the base model's, percentage points",
        *([f"{formatting.level_text(result.level)} intervals from both models' images"] if interval else []),
        *result.notes,
    ]
    fields = [
        Field("model", "model"),
        Field("base", "base"),
        Field("category", "category", optional=True),
        Field("y", "y", "number", times=times),
        Field("y_base", "y of base", "number", times=times, optional=True),
        Field("tau", "tau", "points", ("low", "high"), times=times),
    ]
    models = [{**row, "tau_low": row.pop("low"), "tau_high": row.pop("high")} for row in map(dict, rows)]
    payload = {"y": y, "unit": result.unit, "level": result.level, "models": models, "notes": notes}
    return StudyTable(fields, rows, title=f"relative robustness, {y}", notes=notes, data=payload)


def correlation_table(pairs: Sequence[tuple[str, str, Correlation]], level: float) -> StudyTable:
    """One row a pair of shifts."""
    rows: list[dict[str, Any]] = []
    for first, second, one in pairs:
        row = {"first": first, "second": second, **one.as_dict()}
        for kind in ("pearson", "spearman"):
            low, high = row[f"{kind}_interval"] or (None, None)
            row |= {f"{kind}_low": low, f"{kind}_high": high}
        rows.append(row)
    notes = [
        "correlation of effective robustness over the models outside the baseline category; "
        f"{formatting.level_text(level)} intervals on Fisher's scale",
        *dict.fromkeys(note for row in rows for note in row["notes"]),
    ]
    fields = [
        Field("first", "synthetic"),
        Field("second", "natural"),
        Field("n", "n", "count"),
        Field("pearson", "Pearson", "points", ("pearson_low", "pearson_high")),
        Field("spearman", "rank", "points", ("spearman_low", "spearman_high"), optional=True),
    ]
    keep = ("first", "second", "n", "pearson", "pearson_interval", "pearson_p", "spearman", "spearman_interval",
            "spearman_p")  # fmt: skip
    data = {"level": level, "correlations": [{key: row[key] for key in keep} for row in rows], "notes": notes}
    return StudyTable(fields, rows, title="is robustness to one shift robustness to another?", notes=notes, data=data)


def agreement_table(result: Agreement, setting: str) -> StudyTable:
    """Who fails together: one row a pair of models."""
    fields = [
        Field("stronger", "stronger"),
        Field("weaker", "weaker"),
        Field("kappa", "kappa", "number", ("kappa_low", "kappa_high"), places=3),
        Field("observed", "agree %", "number", places=1, times=100.0, optional=True),
        Field("by_chance", "by chance %", "number", places=1, times=100.0, optional=True),
        Field("dominance", "only weaker right %", "number", places=1, times=100.0),
    ]
    lead = [
        f"{len(result.models)} models on {result.n:,} images",
        f"every model fails on {len(result.all_fail):,}, every model is right on {result.all_right:,}",
    ]
    notes = [
        "kappa: agreement on right and wrong beyond what the accuracies make likely; 0 is chance, 1 the same errors; "
        f"{formatting.level_text(result.level)} intervals",
        "only weaker right: 0 means that the stronger model dominates",
        *([f"all fail on: {listed(result.all_fail, 8)}"] if result.all_fail else []),
    ]
    data = {"setting": setting, **result.as_dict(), "notes": notes}
    pairs = sorted(data["pairs"], key=lambda pair: 2.0 if pair["kappa"] is None else -pair["kappa"])
    shown, hidden = _extremes(pairs, "pairs", "--json and --format csv have them all")
    return StudyTable(
        fields,
        pairs,
        shown=shown,
        title=f"do they fail together? {setting}",
        lead=lead,
        notes=hidden + notes,
        data=data,
    )


def hypotheses_table(found: Sequence[Evidence], level: float) -> StudyTable:
    """One row for each hypothesis and data set."""
    fields = [
        Field("hypothesis", "hypothesis"),
        Field("dataset", "data set"),
        Field("verdict", "evidence"),
        Field("gain", "gain", "points", ("low", "high")),
        Field("excess", "beyond reference", "points"),
    ]
    images = any(one.p is not None for one in found)
    if images:
        fields.append(Field("p_holm", "p (Holm)", "p"))
    rows = [one.as_dict() for one in found]
    sure = f", and p (Holm) at most {1 - level:.3g}" if images else ""
    notes = [
        "gain: mean over the pairs of changed model minus base, percentage points",
        f"+ : a gain of {MARGIN:g} or more, {GAP_MARGIN:g} or more of it beyond the reference where that is known"
        f"{sure}; - : a loss of {MARGIN:g} or more{sure}; 0 : no evidence",
        f"p: exact McNemar test of one pair, mean difference per image of several; Holm's correction over "
        f"{count_of(len(found), 'test')}"
        if images
        else "no p-values: only scores are known, not images",
    ]
    return StudyTable(fields, rows, title="hypotheses", notes=notes, data={"evidence": rows, "notes": notes})
