"""Studies as tables: fits, robustness, correlations, evidence, and comparisons of two test sets."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from shiftbench.errors import listed
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.reports import formatting
from shiftbench.reports.table import Column, ModelRecords, Name, Row, Table, columns_of
from shiftbench.studies.agreement import ModelAgreement
from shiftbench.studies.base import count_of, finite_or_none, left_out, whole
from shiftbench.studies.difficulty import DifficultyFit, line_of
from shiftbench.studies.fits import STUDENT, Correlation, Fit, Line, PiecewiseFit
from shiftbench.studies.hypotheses import GAP_MARGIN, MARGIN, Evidence
from shiftbench.studies.image_bootstrap import IMAGES
from shiftbench.studies.many_faces import Finding
from shiftbench.studies.reproducibility import FrequencyBin, Gaps, Reproducibility
from shiftbench.studies.robustness import EffectiveRobustness, RelativeRobustness, row_data, sentence
from shiftbench.studies.study import GroupMean, ShiftCorrelation, Study, unlisted

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
    by_rho = sorted(result.rows, key=lambda row: -row.rho)
    rows = _with_categories(study, map(row_data, by_rho))
    shown: Sequence[Row] = rows
    hidden_notes: list[str] = []
    if extremes:
        shown, hidden_notes = _extremes(rows, "models", "`study effective` and --json have them all")
    notes = [
        *_own_note(own),
        f"rho: y minus the line, percentage points; {formatting.level_text(result.level)} intervals: {result.sources}",
        *_line_note(result.line),
        *result.line.notes,
        *result.notes,
        *study.results.notes,
        *unlisted(study),
    ]
    data = {
        "x": x,
        "y": y,
        **result.line.as_dict(),
        "rho_level": result.level,
        "rho_sources": result.sources,
        "models": ModelRecords([_renamed(row, {"low": "rho_low", "high": "rho_high"}) for row in rows]),
        "notes": notes,
    }
    return Table(
        columns_of("effective", times=100.0 / whole(result.line.unit)),
        rows,
        shown=_marked(shown, own),
        title=f"{y} against {x}",
        lead=[*line_text(result.line), *(sentence(result, model) for model in own if model in result.rho)],
        notes=hidden_notes + notes,
        data=data,
    )


def _with_categories(study: Study, rows: Iterable[Row]) -> list[Row]:
    return [{"category": study.category_of(str(row["model"])), **row} for row in rows]


def _own_note(own: Sequence[str]) -> list[str]:
    return [f"{OWN_MARK} own models"] if own else []


def _renamed(row: Mapping[str, object], names: Mapping[str, str]) -> dict[str, object]:
    """The row with other keys where they have a new name."""
    return {names.get(key, key): value for key, value in row.items()}


def _marked(rows: Sequence[Row], own: Sequence[str]) -> list[Row]:
    """The same with a mark behind the names of own models."""
    marked = []
    for row in rows:
        if row["model"] in own:
            row = {**row, "model": Name(str(row["model"]), OWN_MARK)}
        marked.append(row)
    return marked


def _extremes(rows: Sequence[Row], plural: str, elsewhere: str) -> tuple[Sequence[Row], list[str]]:
    """Both ends of a long list, and a note on the rows in between; a short list whole."""
    hidden = len(rows) - 2 * _EXTREMES
    if hidden < 2:
        return rows, []
    return [*rows[:_EXTREMES], *rows[-_EXTREMES:]], [f"{hidden:,} {plural} in between are not shown; {elsewhere}"]


def line_text(line: Line) -> list[str]:
    """A line in words: what it is fitted to, its slope and its intercept; a piecewise one as two lines."""
    if isinstance(line, PiecewiseFit):
        pivot = line.pivot * 100.0 / whole(line.unit)
        lines = [f"two lines, pivot {pivot:.2f} %"]
        lines += [f"below: {text}" for text in line_text(line.below)]
        lines += [f"above: {text}" for text in line_text(line.above)]
        return lines

    def intercept_text(value: float) -> str:
        if line.scale == "linear":
            return f"{value * 100.0 / whole(line.unit):.2f} %"
        return f"{value:.4f}"

    slope = f"slope {line.slope:.4f}"
    intercept = f"intercept {intercept_text(line.intercept)}"
    if line.slope_interval is not None and line.intercept_interval is not None:
        slope += f" [{', '.join(f'{end:.4f}' for end in line.slope_interval)}]"
        intercept += f" [{', '.join(map(intercept_text, line.intercept_interval))}]"
    return [
        f"{line.scale} scale, {line.n} baseline models, r2 {formatting.number(line.r2, 4, '')}",
        slope,
        intercept,
    ]


def _line_note(line: Line) -> list[str]:
    fit = line.below if isinstance(line, PiecewiseFit) else line
    if fit.slope_interval is None:
        return []
    if fit.procedure == STUDENT:
        return [f"line: {formatting.level_text(fit.level)} intervals by Student's t"]
    resampled = "images" if fit.procedure == IMAGES else "the models"
    return [f"line: {formatting.level_text(fit.level)} intervals from {fit.resamples:,} resamples of {resampled}"]


def _notes_of(shifts: Mapping[str, Sequence[str]]) -> list[str]:
    """The notes on several shifts, each once; if not on all of them, with their names."""
    shifts_of: dict[str, list[str]] = {}
    for shift, notes in shifts.items():
        for note in dict.fromkeys(notes):
            shifts_of.setdefault(note, []).append(shift)
    joined = []
    for note, names in shifts_of.items():
        joined.append(note if len(names) == len(shifts) else f"{listed(names, 3)}: {note}")
    return joined


def lines_table(lines: Mapping[str, Line]) -> Table:
    """One row per line: its slope, intercept and r2 on several shifts."""
    rows = []
    for name, line in lines.items():
        fits = {name: line} if isinstance(line, Fit) else {f"{name} (below)": line.below, f"{name} (above)": line.above}
        for shift, fit in fits.items():
            rows.append({"shift": shift, "n": fit.n, **_coefficients(fit)})
    notes = _notes_of({name: [*_line_note(line), *line.notes] for name, line in lines.items()})
    return Table(
        columns_of("lines"),
        rows,
        title="lines of the baseline models",
        notes=notes,
        data={"lines": rows, "notes": notes},
    )


def wide_table(
    study: Study,
    robustness_by_shift: Mapping[str, EffectiveRobustness] | Mapping[str, RelativeRobustness],
    measure: str,
    *,
    own: Sequence[str] = (),
) -> Table:
    """rho or tau of every model on several shifts: one row per model, own models first and marked."""
    results = study.results
    by_shift = {}
    for shift, robustness in robustness_by_shift.items():
        by_shift[shift] = {row.model: row for row in robustness.rows}
    rows = []
    for model in (*own, *(name for name in results.models if name not in own)):
        row: dict[str, object] = {"model": model, "category": study.category_of(model), "own": model in own}
        evaluated = False
        for shift, by_model in by_shift.items():
            if model in by_model:
                evaluated = True
                value = by_model[model]
                row |= _with_ends(shift, getattr(value, measure), finite_or_none(value.low), finite_or_none(value.high))
        if evaluated:
            rows.append(row)
    columns = [Column("model", "model", "model"), Column("category", "category", optional=True)]
    columns += [Column(shift, shift, "points", times=100.0 / whole(results.unit)) for shift in robustness_by_shift]
    level = next(robustness.level for robustness in robustness_by_shift.values())
    meaning = "y minus the line" if measure == "rho" else "accuracy minus the base model's"
    notes = [
        f"{measure}: {meaning}, percentage points; {formatting.level_text(level)} intervals in --json and --format csv",
        *_own_note(own),
        *_notes_of({shift: robustness.notes for shift, robustness in robustness_by_shift.items()}),
        *results.notes,
    ]
    names = {"rho": "effective", "tau": "relative"}
    return Table(
        columns,
        rows,
        shown=_marked(rows, own),
        keys=list(dict.fromkeys(itertools.chain.from_iterable(rows))),
        notes=notes,
        title=f"{names[measure]} robustness ({measure})",
        data={
            "measure": measure,
            "shifts": list(robustness_by_shift),
            "level": level,
            "unit": results.unit,
            "models": ModelRecords(rows),
            "notes": notes,
        },
    )


def interventions_table(study: Study, means: Sequence[GroupMean], by: str, level: float) -> Table:
    """One row per shift and group of models: the mean rho and tau of its models."""
    by_group: dict[tuple[str, str], dict[str, object]] = {}
    for mean in means:
        row = by_group.setdefault((mean.shift, mean.group), {"shift": mean.shift, "group": mean.group})
        row[f"{mean.measure}_models"] = mean.n
        row |= _with_ends(mean.measure, mean.mean, finite_or_none(mean.low), finite_or_none(mean.high))
    ungrouped = []
    for model in study.results.models:
        if not (study.models and study.models.column(model, by)):
            ungrouped.append(model)
    notes = [
        "rho: accuracy beyond the line of the baseline models; tau: beyond the base model; percentage points",
        f"means with {formatting.level_text(level)} t intervals over the models of a {by}",
        *left_out(f"without {by}, not counted", ungrouped),
        *study.results.notes,
    ]
    rows = list(by_group.values())
    return Table(
        columns_of("interventions", group=by),
        rows,
        shown=[{**row, "group": str(row["group"]).replace("_", " ")} for row in rows],
        title="what helps against which shift",
        notes=notes,
        data={"by": by, "level": level, "means": rows, "notes": notes},
    )


def relative_table(study: Study, y: str, result: RelativeRobustness, *, own: Sequence[str] = ()) -> Table:
    by_tau = sorted(result.rows, key=lambda row: -row.tau)
    rows = _with_categories(study, map(row_data, by_tau))
    notes = [*_own_note(own), f"tau: accuracy on {y} minus the base model's, percentage points"]
    if rows and rows[0]["low"] is not None:
        notes.append(f"{formatting.level_text(result.level)} intervals from both models' images")
    notes += result.notes
    return Table(
        columns_of("relative", times=100.0 / whole(result.unit)),
        rows,
        shown=_marked(rows, own),
        title=f"relative robustness, {y}",
        notes=notes,
        data={"y": y, "unit": result.unit, "level": result.level, "models": ModelRecords(rows), "notes": notes},
    )


@dataclass(frozen=True)
class _CorrelationRow:
    """The correlation of two shifts, with the ends of its intervals in columns of their own."""

    first: str
    second: str
    n: int
    pearson: float
    pearson_low: float | None
    pearson_high: float | None
    spearman: float
    spearman_low: float | None
    spearman_high: float | None

    @classmethod
    def of(cls, first: str, second: str, correlation: Correlation) -> _CorrelationRow:
        pearson_low, pearson_high = correlation.pearson_interval or (None, None)
        spearman_low, spearman_high = correlation.spearman_interval or (None, None)
        return cls(
            first=first,
            second=second,
            n=correlation.n,
            pearson=correlation.pearson,
            pearson_low=pearson_low,
            pearson_high=pearson_high,
            spearman=correlation.spearman,
            spearman_low=spearman_low,
            spearman_high=spearman_high,
        )


def _correlation_data(first: str, second: str, correlation: Correlation) -> dict[str, object]:
    """The correlation of two shifts for JSON; level and notes are those of all pairs."""
    pearson = correlation.pearson_interval
    spearman = correlation.spearman_interval
    return {
        "first": first,
        "second": second,
        "n": correlation.n,
        "pearson": correlation.pearson,
        "pearson_interval": None if pearson is None else list(pearson),
        "pearson_p": correlation.pearson_p,
        "spearman": correlation.spearman,
        "spearman_interval": None if spearman is None else list(spearman),
        "spearman_p": correlation.spearman_p,
    }


def correlation_table(pairs: Sequence[ShiftCorrelation], level: float) -> Table:
    """Pearson's and Spearman's correlation of each pair of shifts, which come with their two names."""
    rows = [_CorrelationRow.of(first, second, correlation) for first, second, correlation in pairs]
    correlations = [_correlation_data(first, second, correlation) for first, second, correlation in pairs]
    notes = [
        "correlation of effective robustness over the models outside the baseline category; "
        f"{formatting.level_text(level)} intervals on Fisher's scale",
        *_notes_of({f"{first} and {second}": correlation.notes for first, second, correlation in pairs}),
    ]
    return Table(
        columns_of("correlation"),
        rows,
        title="is robustness to one shift robustness to another?",
        notes=notes,
        data={"level": level, "correlations": correlations, "notes": notes},
    )


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
    ]
    if result.all_fail:
        notes.append(f"all fail on: {listed(result.all_fail, 8)}")
    data = {"setting": setting, **result.as_dict(), "notes": notes}

    def rank(pair: Mapping[str, float | None]) -> float:
        """The highest kappa first; pairs without one come last."""
        kappa = pair["kappa"]
        return 2.0 if kappa is None else -kappa

    pairs = sorted(data["pairs"], key=rank)
    data["pairs"] = ModelRecords(data["pairs"], {"stronger": "stronger_", "weaker": "weaker_"})
    shown, hidden_notes = _extremes(pairs, "pairs", "--json and --format csv have them all")
    title = f"do they fail together? {setting}"
    return Table(fields, pairs, shown=shown, title=title, lead=lead, notes=hidden_notes + notes, data=data)


def colour_table(effects_of_models: Mapping[str, Sequence[ColourEffect]], level: float) -> Table:
    """What changed colours do to the mistakes of models, and to what they get right."""
    columns = [
        Column("model", "model", "model"),
        Column("variant", "colours"),
        _percent_column("disappears", "wrong class gone %"),
        _percent_column("corrected", "right instead %"),
        _percent_column("lost", "of right ones lost %"),
    ]
    rows = []
    lead = []
    for model, effects in effects_of_models.items():
        # All variants of a model are of the same images.
        lead.append(f"{model}: {effects[0].wrong} images wrong and {effects[0].right} right as they are")
        for effect in effects:
            row = {
                "model": model,
                "variant": effect.variant,
                "wrong": effect.wrong,
                "right": effect.right,
                **_share("disappears", effect.disappears, effect.wrong, level),
                **_share("corrected", effect.corrected, effect.wrong, level),
                **_share("lost", effect.lost, effect.right, level),
            }
            rows.append(row)
    notes = [
        "hue n: all hues rotated by n degrees; any: whether one of the variants does it",
        f"{formatting.level_text(level)} Clopper-Pearson intervals",
    ]
    data = {"rows": rows, "notes": notes}
    return Table(columns, rows, title="do mistakes depend on colour?", lead=lead, notes=notes, data=data)


def _percent_column(key: str, heading: str) -> Column:
    return Column(key, heading, "number", (f"{key}_low", f"{key}_high"), 1, 100.0)


def _share(key: str, count: int, n: int, level: float) -> dict[str, object]:
    """``count`` of ``n`` images as a share with its interval; None if there are no images."""
    share = count / n if n else None
    return {**_with_ends(key, share, *clopper_pearson(count, n, level)), f"{key}_images": count}


#: What the p-values of ``weigh_hypotheses`` are.
_TESTS = (
    "exact McNemar test of one pair, mean difference per image of several, spread of the bootstrap for mAP and "
    "means over settings"
)


def hypotheses_table(evidence: Sequence[Evidence], level: float, test: str = _TESTS) -> Table:
    """``test``: what the p-values are."""
    columns = columns_of("hypotheses")
    if any(entry.metric for entry in evidence):
        columns.insert(2, Column("metric", "metric"))
    has_p_values = any(entry.p is not None for entry in evidence)
    if has_p_values:
        columns.append(Column("p_holm", "p (Holm)", "p"))
        condition = f", and p (Holm) at most {1 - level:.3g}"
        p_note = f"p: {test}; Holm's correction over {count_of(len(evidence), 'test')}"
    else:
        condition = ""
        p_note = "no p-values: only scores are known, not images"
    rows = [entry.as_dict() for entry in evidence]
    notes = [
        "gain: mean over the pairs of changed model minus base, percentage points",
        f"evidence +: a gain of {MARGIN:g} or more, {GAP_MARGIN:g} or more of it beyond the reference where that is "
        f"known{condition}; -: a loss of {MARGIN:g} or more{condition}; 0: no evidence",
        p_note,
    ]
    return Table(columns, rows, title="hypotheses", notes=notes, data={"evidence": rows, "notes": notes})


def many_faces_table(findings: Sequence[Finding], evidence: Sequence[Evidence], level: float) -> Table:
    """A verdict on each of the eight hypotheses, and the evidence on the methods below."""
    columns = [Column("hypothesis", "hypothesis"), Column("verdict", "verdict"), Column("reason", "because")]
    rows = [asdict(finding) for finding in findings]
    evidence_table = hypotheses_table(evidence, level)
    notes = [
        "methods: supported if they help (+) on all datasets, mixed on some, contradicted if they only harm (-)",
        "Texture Bias: the evidence on augmentation where textures change; Only IID Accuracy Matters: contradicted by "
        "a gain beyond the reference; Synthetic does not imply Natural: contradicted by augmentation that helps on a "
        "natural shift; Multivariate: supported if methods help on some datasets and are shown to help less on others",
        *evidence_table.notes,
    ]
    # Both tables are printed together, with the notes of both at the end.
    evidence_table.notes = []
    data = {"findings": rows, "evidence": evidence_table.rows, "notes": notes}
    return Table(columns, rows, title="many faces", notes=notes, parts=[evidence_table], data=data)


def reproducibility_table(result: Reproducibility, original: str, new: str) -> Table:
    """The table of 004."""
    times = 100.0 / whole(result.unit)
    fields = columns_of("reproducibility", times=times)
    data = {"original": original, "new": new, **result.as_dict()}
    rows = data["models"]
    notes = [
        f"{formatting.level_text(result.level)} intervals: clopper-pearson; per cent",
        f"mean change: {result.mean_change * times:+.1f} points over {len(result.rows)} models",
        "change: places won on the new test set",
        *result.notes,
    ]
    data |= {"models": ModelRecords(data["models"]), "notes": notes}
    return Table(fields, rows, title=f"{original} and {new}", notes=notes, data=data)


def gap_table(result: Gaps, original: str, new: str, fresh: str | None) -> Table:
    """One row per model: its gap, what chance can do, and the rest, split in two where that is possible."""
    columns = columns_of("gap")
    if any(row.adaptivity is not None for row in result.rows):
        columns += [
            Column("adaptivity", "adaptivity", "points", ("adaptivity_low", "adaptivity_high"), 1, 100.0),
            Column("distribution", "distribution", "points", ("distribution_low", "distribution_high"), 1, 100.0),
        ]
        parts_note = (
            f"adaptivity: {original} minus {fresh}, fresh images of its distribution; distribution: {fresh} minus {new}"
        )
    else:
        parts_note = (
            "two test sets can't separate adaptivity from distribution; --fresh, a setting with fresh images of the "
            "original distribution, can"
        )
    rows = [row.as_dict() for row in result.rows]
    shown_rows = []
    for row in rows:
        chance = formatting.interval(row["generalisation_low"], row["generalisation_high"], 1, signed=True)
        systematic = formatting.interval(row["systematic_low"], row["systematic_high"], 1, signed=True)
        shown_rows.append({**row, "reach": chance, "rest": systematic})
    by_chance = sum(row["chance_alone"] for row in rows)
    lead = [
        f"gap = {original} minus {new} = adaptivity + distribution + chance, in percentage points",
        f"chance alone could explain the gap of {by_chance} of {count_of(len(rows), 'model')}",
    ]
    notes = [
        f"chance: how far sampling the images of {new} can move the accuracy ({formatting.level_text(result.level)})",
        "systematic: adaptivity and distribution together; an interval that holds 0 may be chance alone",
        parts_note,
        *result.notes,
    ]
    data = {
        "original": original,
        "new": new,
        "fresh": fresh,
        "level": result.level,
        "models": ModelRecords(rows),
        "notes": notes,
    }
    title = f"what the gap is made of: {original} and {new}"
    return Table(columns, rows, shown=shown_rows, title=title, lead=lead, notes=notes, data=data)


def bins_table(
    bins: Sequence[tuple[str, Sequence[FrequencyBin]]], setting: str, level: float, notes: Sequence[str]
) -> Table:
    """One row per bin, for each (name, bins): the mean over all models, and single ones."""
    fields = columns_of("bins")
    rows = []
    for name, model_bins in bins:
        for each in model_bins:
            rows.append({"model": name, "bin": bin_text(each, last=each is model_bins[-1]), **asdict(each)})
    notes = [
        f"{formatting.level_text(level)} intervals: clopper-pearson; of a mean over models, for that many images: "
        "they all see the same images",
        *notes,
    ]
    data = {"setting": setting, "level": level, "bins": ModelRecords(rows), "notes": notes}
    return Table(fields, rows, title=f"accuracy by selection frequency, {setting}", notes=notes, data=data)


def bin_text(each: FrequencyBin, *, last: bool) -> str:
    """The edges of a bin; only the last one holds its upper edge."""
    return f"[{each.low_edge:g}, {each.high_edge:g}{']' if last else ')'}"


def difficulty_table(result: DifficultyFit, x: str | None = None, y: str | None = None) -> Table:
    """u and v by the formula, in the simulation, and, where there are real models, in their line."""
    simulated = result.simulated
    u, v = line_of(result.first, result.second)
    rows: list[dict[str, object]] = [{"what": "formula", "u": u, "v": v}]
    rows.append({"what": "simulated models", **_coefficients(simulated, "u", "v")})
    if result.line is not None:
        rows.append({"what": "real models", **_coefficients(result.line, "u", "v")})
    fields = columns_of("difficulty")
    first = result.first
    second = result.second
    first_name = x or "first test set"
    second_name = y or "second test set"
    lead = [
        f"{first_name}: difficulties Normal({first.mean:.3g}, {first.spread:.3g}²), {result.n_first:,} images",
        f"{second_name}: difficulties Normal({second.mean:.3g}, {second.spread:.3g}²), {result.n_second:,} images",
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
            f"the difficulties of {second_name} follow from the real line and those of {first_name}, "
            "which are assumed; so u and v by the formula are the real line's own, and what the simulation tests is "
            "chance: a lower r2 of the real models means that more than skill and sampling sets them apart"
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
