"""Studies as tables: fits, robustness, correlations, evidence, and comparisons of two test sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from shiftbench.errors import listed
from shiftbench.grouping import by_key
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.reports import formatting
from shiftbench.reports.table import Column, Name, Table, columns_of
from shiftbench.studies.agreement import ModelAgreement
from shiftbench.studies.base import count_of, finite_or_none, left_out, whole
from shiftbench.studies.difficulty import DifficultyFit, line_of
from shiftbench.studies.fits import Correlation, Fit, Line, PiecewiseFit
from shiftbench.studies.hypotheses import GAP_MARGIN, MARGIN, Evidence
from shiftbench.studies.image_bootstrap import IMAGES
from shiftbench.studies.many_faces import Finding
from shiftbench.studies.reproducibility import FrequencyBin, Gaps, Reproducibility
from shiftbench.studies.robustness import EffectiveRobustness, RelativeRobustness, sentence
from shiftbench.studies.study import GroupMean, Study, unlisted

if TYPE_CHECKING:  # what it imports runs models
    from shiftbench.studies.colours import ColourEffect

#: Behind the names of own models among published ones.
OWN_MARK = "★"
#: How many rows of a long list a terminal shows from either end.
_EXTREMES = 8


def effective_table(
    study: Study, x: str, y: str, result: EffectiveRobustness, *, extremes: bool = False, own: Sequence[str] = ()
) -> Table:
    """The line and rho of every model, highest first; ``extremes`` shows people only the ends of a long list."""
    rows = [
        {"category": study.category_of(row["model"]), **row}
        for row in sorted(result.as_dict()["models"], key=lambda row: -row["rho"])
    ]
    shown, hidden = rows, list[str]()
    if extremes:
        shown, hidden = _extremes(rows, "models", "`study effective` and --json have them all")
    notes = [
        *([f"{OWN_MARK} own models"] if own else []),
        f"rho: y minus the line, percentage points; {formatting.level_text(result.level)} intervals: {result.sources}",
        *_line_note(result.line),
        *result.line.notes,
        *result.notes,
        *study.results.notes,
        *unlisted(study),
    ]
    ends = {"low": "rho_low", "high": "rho_high"}
    models = [{ends.get(key, key): value for key, value in row.items()} for row in rows]
    data = {
        "x": x, "y": y, **result.line.as_dict(), "rho_level": result.level, "rho_sources": result.sources,
        "models": models, "notes": notes,
    }  # fmt: skip
    times = 100.0 / whole(result.line.unit)
    fields = columns_of("effective", times=times)
    lead = [*line_text(result.line), *(sentence(result, model) for model in own if model in result.rho)]
    title, shown = f"{y} against {x}", _marked(shown, own)
    return Table(fields, rows, shown=shown, title=title, lead=lead, notes=hidden + notes, data=data)


def _marked(rows: Sequence[dict[str, object]], own: Sequence[str]) -> list[dict[str, object]]:
    """The same with a mark behind the names of own models."""
    return [{**row, "model": Name(str(row["model"]), OWN_MARK)} if row["model"] in own else row for row in rows]


def _extremes(rows: list[dict[str, object]], what: str, where: str) -> tuple[list[dict[str, object]], list[str]]:
    """Both ends of a long list, and a note on the rest; a short list whole."""
    cut = len(rows) - 2 * _EXTREMES
    if cut < 2:
        return rows, []
    return rows[:_EXTREMES] + rows[-_EXTREMES:], [f"{cut:,} {what} in between are not shown; {where}"]


def line_text(line: Line) -> list[str]:
    if isinstance(line, PiecewiseFit):
        pivot = line.pivot * 100.0 / whole(line.unit)
        return [
            f"two lines, pivot {pivot:.2f} %",
            *(f"below: {text}" for text in line_text(line.below)),
            *(f"above: {text}" for text in line_text(line.above)),
        ]

    def intercept(value: float) -> str:
        return f"{value:.4f}" if line.scale != "linear" else f"{value * 100.0 / whole(line.unit):.2f} %"

    slopes, intercepts = "", ""
    if line.slope_interval is not None and line.intercept_interval is not None:
        slopes = f" [{', '.join(f'{end:.4f}' for end in line.slope_interval)}]"
        intercepts = f" [{', '.join(map(intercept, line.intercept_interval))}]"
    return [
        f"{line.scale} scale, {line.n} baseline models, r2 {formatting.number(line.r2, 4, '')}",
        f"slope {line.slope:.4f}{slopes}",
        f"intercept {intercept(line.intercept)}{intercepts}",
    ]


def _line_note(line: Line) -> list[str]:
    one = line.below if isinstance(line, PiecewiseFit) else line
    if one.slope_interval is None:
        return []
    what = "images" if one.procedure == IMAGES else "the models"
    return [f"line: {formatting.level_text(one.level)} intervals from {one.resamples:,} resamples of {what}"]


def _notes_of(shifts: Mapping[str, Sequence[str]]) -> list[str]:
    """The notes on several shifts, each once; if not on all of them, with their names."""
    where = by_key((note, shift) for shift, notes in shifts.items() for note in dict.fromkeys(notes))
    return [note if len(names) == len(shifts) else f"{listed(names, 3)}: {note}" for note, names in where.items()]


def lines_table(lines: Mapping[str, Line]) -> Table:
    """One row per line: its slope, intercept and r2 on several shifts."""
    rows = []
    for name, line in lines.items():
        sides = [("", line)] if isinstance(line, Fit) else [(" (below)", line.below), (" (above)", line.above)]
        rows += [{"shift": f"{name}{side}", "n": one.n, **_coefficients(one)} for side, one in sides]
    fields = columns_of("lines")
    notes = _notes_of({name: [*_line_note(line), *line.notes] for name, line in lines.items()})
    return Table(fields, rows, title="lines of the baseline models", notes=notes, data={"lines": rows, "notes": notes})


def wide_table(
    study: Study,
    found: Mapping[str, EffectiveRobustness] | Mapping[str, RelativeRobustness],
    measure: str,
    *,
    own: Sequence[str] = (),
) -> Table:
    """rho or tau of every model on several shifts: one row per model, own models first and marked."""
    by_shift = {shift: {row.model: row for row in result.rows} for shift, result in found.items()}
    results = study.results
    order = [*own, *(name for name in results.models if name not in own)]
    rows = []
    for model in order:
        values = {shift: known[model] for shift, known in by_shift.items() if model in known}
        if not values:
            continue
        row: dict[str, object] = {"model": model, "category": study.category_of(model), "own": model in own}
        for shift, one in values.items():
            row |= _with_ends(shift, getattr(one, measure), finite_or_none(one.low), finite_or_none(one.high))
        rows.append(row)
    times = 100.0 / whole(results.unit)
    fields = [Column("model", "model"), Column("category", "category", optional=True)]
    fields += [Column(shift, shift, "points", times=times) for shift in found]
    level = next(one.level for one in found.values())
    what = "y minus the line" if measure == "rho" else "accuracy minus the base model's"
    notes = [
        f"{measure}: {what}, percentage points; {formatting.level_text(level)} intervals in --json and --format csv",
        *([f"{OWN_MARK} own models"] if own else []),
        *_notes_of({shift: result.notes for shift, result in found.items()}),
        *results.notes,
    ]
    names = {"rho": "effective", "tau": "relative"}
    keys = list(dict.fromkeys(key for row in rows for key in row))
    return Table(
        fields, rows, shown=_marked(rows, own), keys=keys, notes=notes,
        title=f"{names[measure]} robustness ({measure})",
        data={"measure": measure, "shifts": list(found), "level": level, "unit": results.unit, "models": rows,
              "notes": notes},
    )  # fmt: skip


def interventions_table(study: Study, found: Sequence[GroupMean], by: str, level: float) -> Table:
    rows: dict[tuple[str, str], dict[str, object]] = {}
    for one in found:
        row = rows.setdefault((one.shift, one.group), {"shift": one.shift, "group": one.group})
        ends = finite_or_none(one.low), finite_or_none(one.high)
        row |= {f"{one.measure}_models": one.n, **_with_ends(one.measure, one.mean, *ends)}
    fields = columns_of("interventions", group=by)
    lost = [name for name in study.results.models if not (study.models and study.models.column(name, by))]
    notes = [
        "rho: accuracy beyond the line of the baseline models; tau: beyond the base model; percentage points",
        f"means with {formatting.level_text(level)} t intervals over the models of a {by}",
        *left_out(f"without {by}, not counted", lost),
        *study.results.notes,
    ]
    flat = list(rows.values())
    shown = [{**row, "group": str(row["group"]).replace("_", " ")} for row in flat]
    data = {"by": by, "level": level, "means": flat, "notes": notes}
    return Table(fields, flat, shown=shown, title="what helps against which shift", notes=notes, data=data)


def relative_table(study: Study, y: str, result: RelativeRobustness, *, own: Sequence[str] = ()) -> Table:
    data = result.as_dict()
    rows = [
        {"category": study.category_of(row["model"]), **row}
        for row in sorted(data["models"], key=lambda row: -row["tau"])
    ]
    times = 100.0 / whole(result.unit)
    interval = rows and rows[0]["low"] is not None
    notes = [
        *([f"{OWN_MARK} own models"] if own else []),
        f"tau: accuracy on {y} minus the base model's, percentage points",
        *([f"{formatting.level_text(result.level)} intervals from both models' images"] if interval else []),
        *result.notes,
    ]
    fields = columns_of("relative", times=times)
    models = [{**row, "tau_low": row.pop("low"), "tau_high": row.pop("high")} for row in map(dict, rows)]
    payload = {"y": y, "unit": result.unit, "level": result.level, "models": models, "notes": notes}
    title, shown = f"relative robustness, {y}", _marked(rows, own)
    return Table(fields, rows, shown=shown, title=title, notes=notes, data=payload)


def correlation_table(pairs: Sequence[tuple[str, str, Correlation]], level: float) -> Table:
    rows: list[dict[str, object]] = []
    for first, second, one in pairs:
        row = {"first": first, "second": second, **one.as_dict()}
        for kind in ("pearson", "spearman"):
            row |= _with_ends(kind, row[kind], *(row[f"{kind}_interval"] or ()))
        rows.append(row)
    notes = [
        "correlation of effective robustness over the models outside the baseline category; "
        f"{formatting.level_text(level)} intervals on Fisher's scale",
        *_notes_of({f"{first} and {second}": one.notes for first, second, one in pairs}),
    ]
    fields = columns_of("correlation")
    keep = ["first", "second", "n", *(f"{kind}{part}" for kind in ("pearson", "spearman")
                                      for part in ("", "_interval", "_p"))]  # fmt: skip
    data = {"level": level, "correlations": [{key: row[key] for key in keep} for row in rows], "notes": notes}
    return Table(fields, rows, title="is robustness to one shift robustness to another?", notes=notes, data=data)


def agreement_table(result: ModelAgreement, setting: str) -> Table:
    """Which models fail together: one row per pair."""
    fields = columns_of("agreement")
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
    title = f"do they fail together? {setting}"
    return Table(fields, pairs, shown=shown, title=title, lead=lead, notes=hidden + notes, data=data)


def colour_table(found: Mapping[str, Sequence[ColourEffect]], level: float) -> Table:
    """What changed colours do to the mistakes of models, and to what they get right."""
    shares = {"disappears": "wrong class gone %", "corrected": "right instead %", "lost": "of right ones lost %"}
    fields = [Column("model", "model"), Column("variant", "colours")]
    fields += [
        Column(key, heading, "number", (f"{key}_low", f"{key}_high"), 1, 100.0) for key, heading in shares.items()
    ]
    rows = []
    for model, effects in found.items():
        for one in effects:
            row: dict[str, object] = {"model": model, "variant": one.variant, "wrong": one.wrong, "right": one.right}
            for key in shares:
                n, count = one.right if key == "lost" else one.wrong, getattr(one, key)
                share = count / n if n else None
                row |= {**_with_ends(key, share, *clopper_pearson(count, n, level)), f"{key}_images": count}
            rows.append(row)
    lead = [
        f"{model}: {own[0].wrong} images wrong and {own[0].right} right as they are" for model, own in found.items()
    ]
    notes = [
        "hue n: all hues rotated by n degrees; any: whether one of the variants does it",
        f"{formatting.level_text(level)} Clopper-Pearson intervals",
    ]
    data = {"rows": rows, "notes": notes}
    return Table(fields, rows, title="do mistakes depend on colour?", lead=lead, notes=notes, data=data)


#: What the p-values of ``weigh_hypotheses`` are.
_TESTS = (
    "exact McNemar test of one pair, mean difference per image of several, spread of the bootstrap for mAP and "
    "means over settings"
)


def hypotheses_table(found: Sequence[Evidence], level: float, test: str = _TESTS) -> Table:
    """``test``: what the p-values are."""
    fields = columns_of("hypotheses")
    if any(one.metric for one in found):
        fields.insert(2, Column("metric", "metric"))
    images = any(one.p is not None for one in found)
    if images:
        fields.append(Column("p_holm", "p (Holm)", "p"))
    rows = [one.as_dict() for one in found]
    sure = f", and p (Holm) at most {1 - level:.3g}" if images else ""
    notes = [
        "gain: mean over the pairs of changed model minus base, percentage points",
        f"evidence +: a gain of {MARGIN:g} or more, {GAP_MARGIN:g} or more of it beyond the reference where that is "
        f"known{sure}; -: a loss of {MARGIN:g} or more{sure}; 0: no evidence",
        f"p: {test}; Holm's correction over {count_of(len(found), 'test')}"
        if images
        else "no p-values: only scores are known, not images",
    ]
    return Table(fields, rows, title="hypotheses", notes=notes, data={"evidence": rows, "notes": notes})


def many_faces_table(findings: Sequence[Finding], evidence: Sequence[Evidence], level: float) -> Table:
    """A verdict on each of the eight hypotheses, and the evidence on the methods below."""
    fields = [Column("hypothesis", "hypothesis"), Column("verdict", "verdict"), Column("reason", "because")]
    rows = [asdict(one) for one in findings]
    below = hypotheses_table(evidence, level)
    notes = [
        "methods: supported if they help (+) on all datasets, mixed on some, contradicted if they only harm (-)",
        "Texture Bias: the evidence on augmentation where textures change; Only IID Accuracy Matters: contradicted by "
        "a gain beyond the reference; Synthetic does not imply Natural: contradicted by augmentation that helps on a "
        "natural shift; Multivariate: supported if methods help on some datasets and none on all",
        *below.notes,
    ]
    below.notes = []
    data = {"findings": rows, "evidence": below.rows, "notes": notes}
    return Table(fields, rows, title="many faces", notes=notes, parts=[below], data=data)


def reproducibility_table(result: Reproducibility, original: str, new: str) -> Table:
    """The table of 004."""
    times = 100.0 / whole(result.unit)
    fields = columns_of("reproducibility", times=times)
    data = {"original": original, "new": new, **result.as_dict()}
    notes = [
        f"{formatting.level_text(result.level)} intervals: clopper-pearson; per cent",
        f"mean change: {result.mean_change * times:+.1f} points over {len(result.rows)} models",
        "change: places won on the new test set",
        *result.notes,
    ]
    return Table(fields, data["models"], title=f"{original} and {new}", notes=notes, data={**data, "notes": notes})


def gap_table(result: Gaps, original: str, new: str, fresh: str | None) -> Table:
    """One row per model: its gap, what chance can do, and the rest, split in two where that is possible."""
    apart = any(row.adaptivity is not None for row in result.rows)
    fields = columns_of("gap")
    if apart:
        fields += [
            Column("adaptivity", "adaptivity", "points", ("adaptivity_low", "adaptivity_high"), 1, 100.0),
            Column("distribution", "distribution", "points", ("distribution_low", "distribution_high"), 1, 100.0),
        ]
    rows = [row.as_dict() for row in result.rows]
    names = {"reach": "generalisation", "rest": "systematic"}
    shown = [
        {**row, **{key: formatting.interval(row[f"{name}_low"], row[f"{name}_high"], 1, signed=True)
                   for key, name in names.items()}}
        for row in rows
    ]  # fmt: skip
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
        else "two test sets can't separate adaptivity from distribution; --fresh, a setting with fresh images of the "
        "original distribution, can",
        *result.notes,
    ]
    data = {"original": original, "new": new, "fresh": fresh, "level": result.level, "models": rows, "notes": notes}
    title = f"what the gap is made of: {original} and {new}"
    return Table(fields, rows, shown=shown, title=title, lead=lead, notes=notes, data=data)


def bins_table(
    bins: Sequence[tuple[str, Sequence[FrequencyBin]]], setting: str, level: float, notes: Sequence[str]
) -> Table:
    """One row per bin, for each (name, bins): the mean over all models, and single ones."""
    fields = columns_of("bins")
    rows = [
        {"model": name, "bin": bin_text(one, last=one is found[-1]), **asdict(one)}
        for name, found in bins
        for one in found
    ]
    notes = [
        f"{formatting.level_text(level)} intervals: clopper-pearson; of a mean over models, for that many images: "
        "they all see the same images",
        *notes,
    ]
    data = {"setting": setting, "level": level, "bins": rows, "notes": notes}
    return Table(fields, rows, title=f"accuracy by selection frequency, {setting}", notes=notes, data=data)


def bin_text(one: FrequencyBin, *, last: bool) -> str:
    return f"[{one.low_edge:g}, {one.high_edge:g}{']' if last else ')'}"


def difficulty_table(result: DifficultyFit, x: str | None = None, y: str | None = None) -> Table:
    """u and v by the formula, in the simulation, and, where there are real models, in their line."""
    simulated = result.simulated
    u, v = line_of(result.first, result.second)
    rows: list[dict[str, object]] = [{"what": "formula", "u": u, "v": v}]
    rows.append({"what": "simulated models", **_coefficients(simulated, "u", "v")})
    if result.line is not None:
        rows.append({"what": "real models", **_coefficients(result.line, "u", "v")})
    fields = columns_of("difficulty")
    first, second = result.first, result.second
    names = (x or "first test set", y or "second test set")
    sets = zip(names, (first, second), (result.n_first, result.n_second), strict=True)
    lead = [
        *(f"{name}: difficulties Normal({one.mean:.3g}, {one.spread:.3g}²), {n:,} images" for name, one, n in sets),
        f"{len(result.skills)} models with skills from {result.skills.min():.2f} to {result.skills.max():.2f}",
        "the simulation recovers u and v" if result.agrees else "u or v lies outside the simulation's intervals",
    ]
    if result.same_line is not None:
        lead.append(f"the real line {'agrees' if result.same_line else 'does not agree'} with the simulated one")
    notes = [
        "model s is right on an image of difficulty t with probability Phi(s - t); probit(y) = u probit(x) + v",
        f"{formatting.level_text(simulated.level)} intervals from {simulated.resamples:,} resamples: of images and "
        "models of the simulation, of the models where they are real",
    ]
    if result.line is not None:
        notes.append(
            f"the difficulties of {names[1]} follow from the real line and those of {names[0]}, which are assumed; "
            "so u and v by the formula are the real line's own, and what the simulation tests is chance: a lower r2 "
            "of the real models means that more than skill and sampling sets them apart"
        )
    data = {"x": x, "y": y, **result.as_dict(), "notes": notes}
    return Table(fields, rows, title="the Gaussian difficulty model", lead=lead, notes=notes, data=data)


def _coefficients(line: Fit, slope: str = "slope", intercept: str = "intercept") -> dict[str, object]:
    slopes = _with_ends(slope, line.slope, *(line.slope_interval or ()))
    intercepts = _with_ends(intercept, line.intercept, *(line.intercept_interval or ()))
    return {**slopes, **intercepts, "r2": finite_or_none(line.r2)}


def _with_ends(name: str, value: object, low: object = None, high: object = None) -> dict[str, object]:
    """A number of a row, and the ends of its interval."""
    return {name: value, f"{name}_low": low, f"{name}_high": high}
