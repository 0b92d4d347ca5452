"""An experiment as tables."""

from __future__ import annotations

from dataclasses import asdict

from msgspec import structs

from shiftbench.hardening.experiments.study import ExperimentStudy, SeedMean
from shiftbench.reports.formatting import level_text
from shiftbench.reports.study_tables import hypotheses_table, line_text
from shiftbench.reports.table import Column, Table
from shiftbench.studies.base import count_of


def experiment_table(study: ExperimentStudy) -> Table:
    """What was trained, what came out, and whether the papers' directions appear."""
    experiment, scale = study.experiment, study.experiment.scales[study.scale]
    trained_on, (clean, shifted) = ", ".join(part.train for part in experiment.parts), study.images
    variants, directions = _variants_table(study), _directions_table(study)
    parts = [variants]
    if any(one.groups for one in study.variants):
        parts.append(_groups_table(study))
    if study.directions:
        parts.append(directions)
    if study.evidence:
        test = (
            "Student's t test of the mean gain; intervals and p-values are over images and seeds, both taken as random"
        )
        parts.append(hypotheses_table(study.evidence, study.level, test))
    lead = [
        experiment.about,
        f"{len(experiment.variants)} variants, {count_of(study.seeds, 'seed')}; {scale.about}",
        *([f"changed in every recipe: {', '.join(study.changes)}"] if study.changes else []),
        f"trained on {trained_on}; evaluated on {clean:,} images of {study.settings[0]}, and on "
        f"{shifted:,} images in {count_of(len(study.settings) - len(experiment.parts), 'shifted setting')}",
    ]
    data = {
        "experiment": experiment.name,
        "scale": study.scale,
        "seeds": study.seeds,
        "trained_on": trained_on,
        "metric": experiment.metric,
        "command": study.command,
        "changes": list(study.changes),
        "level": study.level,
        "images": {"reference": clean, "shifted": shifted},
        "settings": list(study.settings),
        "variants": variants.rows,
        "line": study.line.as_dict() if study.line is not None else None,
        "directions": directions.rows,
        "hypotheses": [one.as_dict() for one in study.evidence],
        "runs": {run.name: str(run.folder) for run in study.runs},
        "notes": study.notes,
    }
    title = f"{experiment.name}, {study.scale}"
    return Table(
        variants.columns, variants.rows, shown=[], title=title, lead=lead, parts=parts, data=data, heading=2,
        command=study.command,
    )  # fmt: skip


def _fields(key: str, number: SeedMean | None) -> dict[str, object]:
    """A number in percent, with its interval and its spread over seeds."""
    shown = None if number is None else number.times(100)
    names = {key: "value", f"{key}_low": "low", f"{key}_high": "high", f"{key}_spread": "spread"}
    return {name: getattr(shown, part, None) for name, part in names.items()}


def _intervals(study: ExperimentStudy) -> str:
    return f"{level_text(study.level)} intervals over images{' and seeds' if study.seeds > 1 else ''}"


def _variants_table(study: ExperimentStudy) -> Table:
    metric, accuracy, rows = study.experiment.metric, study.experiment.metric == "accuracy", []
    for one in study.variants:
        row: dict[str, object] = {"variant": one.variant, "base": one.base}
        shifted = one.shifted.complement() if metric == "mCE" else one.shifted
        for key, number in (("clean", one.clean), ("shifted", shifted), ("rho", one.rho), ("tau", one.tau)):
            row |= _fields(key, number)
        rows.append(row | {group: 100 * (1 - number.value) for group, number in one.groups.items()})

    def spread(key: str) -> Column:
        return Column(f"{key}_spread", "± seeds", "number", places=1, optional=True)

    columns = [
        Column("variant", "variant"),
        Column("clean", "clean", "number", ("clean_low", "clean_high"), places=1),
        spread("clean"),
        Column("shifted", "shifted" if accuracy else metric, "number", ("shifted_low", "shifted_high"), places=1),
        spread("shifted"),
        Column("rho", "rho", "points", ("rho_low", "rho_high"), places=1),
        spread("rho"),
        Column("tau", "tau", "points", ("tau_low", "tau_high"), places=1),
        spread("tau"),
    ]
    what = "accuracy" if accuracy else f"{'clean mAP' if metric == 'mAP' else 'clean accuracy'} and {metric}"
    notes = [
        f"{what} in percent, the mean over {count_of(study.seeds, 'seed')}; {_intervals(study)}; ± seeds: standard "
        "deviation over seeds",
        f"rho: effective robustness, against the line through {', '.join(study.experiment.baseline)}; tau: relative "
        f"robustness, by how much {'accuracy under shift' if accuracy else metric} is better than the base variant's; "
        "percentage points",
        *([f"line: {', '.join(line_text(study.line))}"] if study.line is not None else []),
        *study.notes,
        *(["one seed: how much the chance of training matters is not known"] if study.seeds == 1 else []),
    ]
    return Table(columns, rows, title="accuracy and robustness", notes=notes)


def _groups_table(study: ExperimentStudy) -> Table:
    """Mean error by kind of corruption, as AugMix reports CIFAR-10-C: not divided by AlexNet's."""
    groups, rows = list(study.variants[0].groups), []
    for one in study.variants:
        row: dict[str, object] = {"variant": one.variant}
        for key, number in (("clean", one.clean), ("mean", one.shifted), *one.groups.items()):
            row |= _fields(key, number.complement())
        rows.append(row)
    columns = [Column("variant", "variant")]
    for key in ("clean", "mean", *groups):
        interval = (f"{key}_low", f"{key}_high") if key in ("clean", "mean") else None
        columns.append(Column(key, key, "number", interval, places=1))
    divided = "the mean corruption error over types and severities, not divided by AlexNet's"
    if study.experiment.metric == "mCE":
        divided = "mCE, divided by AlexNet's errors"
    notes = [f"error in percent; mean: {divided}"]
    return Table(columns, rows, title="errors by kind of corruption", notes=notes)


def _directions_table(study: ExperimentStudy) -> Table:
    rows = []
    for one in study.directions:
        claim, shown = structs.asdict(one.claim), asdict(one.difference.times(100))
        order = f"{claim['better']} > {claim['worse']}{', clean' if claim['measure'] == 'clean' else ''}"
        row: dict[str, object] = {"order": order, "claim": claim.pop("text"), **claim, "difference": shown.pop("value")}
        rows.append(row | shown | {"seeds": f"{one.seeds_for} of {one.seeds}", "verdict": one.verdict})
    columns = [
        Column("order", "expected order"),
        Column("claim", "what the paper reports", optional=True),
        Column("paper", "paper"),
        Column("published", "its numbers", optional=True),
        Column("difference", "here", "points", ("low", "high"), places=1),
        Column("seeds", "seeds for it"),
        Column("verdict", "direction"),
    ]
    metric = study.experiment.metric
    notes = [
        f"{'accuracy under shift' if metric == 'accuracy' else metric}, or clean "
        "accuracy where the order names it; here: by how much the first is better, points; "
        f"{_intervals(study)}; clear where they and every seed agree; no verdict with one seed, or where both "
        "are at chance level"
    ]
    return Table(columns, rows, title="do the papers' directions appear?", notes=notes)
