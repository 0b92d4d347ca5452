"""An experiment as tables."""

from __future__ import annotations

from shiftbench.hardening.experiments.study import Direction, ExperimentStudy, SeedMean, VariantResult
from shiftbench.reports import formatting
from shiftbench.reports.study_tables import hypotheses_table, line_text
from shiftbench.reports.table import Column, Table
from shiftbench.studies.base import count_of


def experiment_table(study: ExperimentStudy) -> Table:
    """What was trained, what came out, and whether the papers' directions appear."""
    parts = [variants_table(study)]
    if any(one.groups for one in study.variants):
        parts.append(groups_table(study))
    if study.directions:
        parts.append(directions_table(study))
    if study.evidence:
        parts.append(_verdicts(study))
    return Table(
        parts[0].columns,
        parts[0].rows,
        shown=[],
        title=f"{study.experiment.name}, {study.scale}",
        lead=_lead(study),
        parts=parts,
        data=_data(study),
        heading=2,
        command=study.command,
    )


def _lead(study: ExperimentStudy) -> list[str]:
    """Data, sizes and seeds, in words."""
    scale = study.experiment.scales[study.scale]
    clean, shifted = study.images
    return [
        study.experiment.about,
        f"{len(study.experiment.variants)} variants, {count_of(study.seeds, 'seed')}; {scale.about}",
        *([f"changed in every recipe: {', '.join(study.changes)}"] if study.changes else []),
        f"trained on {_trained_on(study)}; evaluated on {clean:,} images of {study.settings[0]}, and on "
        f"{shifted:,} images in {count_of(len(study.settings) - len(study.experiment.parts), 'shifted setting')}",
    ]


def _trained_on(study: ExperimentStudy) -> str:
    return ", ".join(part.train for part in study.experiment.parts)


def _data(study: ExperimentStudy) -> dict[str, object]:
    return {
        "experiment": study.experiment.name,
        "scale": study.scale,
        "seeds": study.seeds,
        "trained_on": _trained_on(study),
        "metric": study.experiment.metric,
        "command": study.command,
        "changes": list(study.changes),
        "level": study.level,
        "images": {"reference": study.images[0], "shifted": study.images[1]},
        "settings": list(study.settings),
        "variants": [_row(one, study.experiment.metric) for one in study.variants],
        "line": study.line.as_dict() if study.line is not None else None,
        "directions": [_direction_row(one) for one in study.directions],
        "hypotheses": [one.as_dict() for one in study.evidence],
        "runs": {run.name: str(run.folder) for run in study.runs},
        "notes": study.notes,
    }


def _verdicts(study: ExperimentStudy) -> Table:
    table = hypotheses_table(study.evidence, study.level)
    table.notes.append("intervals and p-values are over images and seeds, both taken as random")
    return table


def variants_table(study: ExperimentStudy) -> Table:
    metric = study.experiment.metric
    what = (
        "accuracy" if metric == "accuracy" else f"{'clean mAP' if metric == 'mAP' else 'clean accuracy'} and {metric}"
    )
    fields = [
        Column("variant", "variant"),
        Column("clean", "clean", "number", ("clean_low", "clean_high"), places=1),
        Column("clean_spread", "± seeds", "number", places=1, optional=True),
        Column(
            "shifted",
            "shifted" if metric == "accuracy" else metric,
            "number",
            ("shifted_low", "shifted_high"),
            places=1,
        ),
        Column("shifted_spread", "± seeds", "number", places=1, optional=True),
        Column("rho", "rho", "points", ("rho_low", "rho_high"), places=1),
        Column("tau", "tau", "points", ("tau_low", "tau_high"), places=1),
        Column("tau_spread", "± seeds", "number", places=1, optional=True),
    ]
    level = formatting.level_text(study.level)
    line = [f"line: {', '.join(line_text(study.line))}"] if study.line is not None else []
    notes = [
        f"{what} in percent, the mean over {count_of(study.seeds, 'seed')}; {level} intervals over "
        f"images{' and seeds' if study.seeds > 1 else ''}; ± seeds: standard deviation over seeds",
        f"rho: effective robustness, against the line through {', '.join(study.experiment.baseline)}; "
        f"tau: relative robustness, by how much {'accuracy under shift' if metric == 'accuracy' else metric} is better "
        "than the base variant's; percentage points",
        *line,
        *study.notes,
        *(["one seed: how much the chance of training matters is not known"] if study.seeds == 1 else []),
    ]
    rows = [_row(one, metric) for one in study.variants]
    return Table(fields, rows, title="accuracy and robustness", notes=notes)


def _row(one: VariantResult, metric: str) -> dict[str, object]:
    row: dict[str, object] = {"variant": one.variant, "base": one.base}
    shifted = one.shifted.complement() if metric == "mCE" else one.shifted
    for key, number in (("clean", one.clean), ("shifted", shifted), ("rho", one.rho), ("tau", one.tau)):
        row |= _fields(key, number)
    return row | {group: 100 * (1 - number.value) for group, number in one.groups.items()}


def _fields(key: str, number: SeedMean | None) -> dict[str, object]:
    if number is None:
        return {key: None, f"{key}_low": None, f"{key}_high": None, f"{key}_spread": None}
    shown = number.times(100)
    return {key: shown.value, f"{key}_low": shown.low, f"{key}_high": shown.high, f"{key}_spread": shown.spread}


def groups_table(study: ExperimentStudy) -> Table:
    """Mean error by kind of corruption, as AugMix reports CIFAR-10-C: not divided by AlexNet's."""
    groups = list(study.variants[0].groups)
    rows = []
    for one in study.variants:
        row: dict[str, object] = {"variant": one.variant}
        for key, number in (("clean", one.clean), ("mean", one.shifted), *one.groups.items()):
            row |= _fields(key, number.complement())
        rows.append(row)
    fields = [Column("variant", "variant")] + [
        Column(key, key, "number", (f"{key}_low", f"{key}_high") if key in ("clean", "mean") else None, places=1)
        for key in ("clean", "mean", *groups)
    ]
    divided = "mCE, divided by AlexNet's errors" if study.experiment.metric == "mCE" else (
        "the mean corruption error over types and severities, not divided by AlexNet's"
    )  # fmt: skip
    notes = [f"error in percent; mean: {divided}"]
    return Table(fields, rows, title="errors by kind of corruption", notes=notes)


def directions_table(study: ExperimentStudy) -> Table:
    fields = [
        Column("order", "expected order"),
        Column("claim", "what the paper reports", optional=True),
        Column("paper", "paper"),
        Column("published", "its numbers", optional=True),
        Column("difference", "here", "points", ("low", "high"), places=1),
        Column("seeds", "seeds for it"),
        Column("verdict", "direction"),
    ]
    notes = [
        f"{'accuracy under shift' if study.experiment.metric == 'accuracy' else study.experiment.metric}, or clean "
        "accuracy where said; here: by how much the first is better, points; "
        f"{formatting.level_text(study.level)} intervals over images and seeds; clear where they and every "
        "seed say the same; no verdict with one seed, or where both are at chance level"
    ]
    rows = [_direction_row(one) for one in study.directions]
    return Table(fields, rows, title="do the papers' directions appear?", notes=notes)


def _direction_row(one: Direction) -> dict[str, object]:
    shown = one.difference.times(100)
    return {
        "order": f"{one.claim.better} > {one.claim.worse}{', clean' if one.claim.measure == 'clean' else ''}",
        "claim": one.claim.text,
        "paper": one.claim.paper,
        "published": one.claim.published,
        "better": one.claim.better,
        "worse": one.claim.worse,
        "measure": one.claim.measure,
        "difference": shown.value,
        "low": shown.low,
        "high": shown.high,
        "spread": shown.spread,
        "seeds": f"{one.seeds_for} of {one.seeds}",
        "verdict": one.verdict,
    }
