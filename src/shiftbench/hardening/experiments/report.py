"""An experiment as tables."""

from __future__ import annotations

import math
from dataclasses import asdict

from msgspec import structs

from shiftbench.extend.studies import count_of
from shiftbench.extend.tables import Column, Table, hypotheses_table, line_text
from shiftbench.hardening.experiments.study import ExperimentStudy, SeedMean


def experiment_table(study: ExperimentStudy) -> Table:
    """What was trained, what came out, and whether the papers' directions appear."""
    experiment = study.experiment
    trained_on = ", ".join(part.train for part in experiment.parts)
    clean, shifted = study.images
    variants = _variants_table(study)
    directions = _directions_table(study)
    parts = [variants]
    if any(variant.groups for variant in study.variants):
        parts.append(_groups_table(study))
    if study.directions:
        parts.append(directions)
    if study.evidence:
        test = (
            "Student's t test of the mean gain, with the degrees of freedom of the seeds; intervals and p-values are "
            "over images and seeds, both taken as random"
        )
        parts.append(hypotheses_table(study.evidence, study.level, test))
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
        "line": None if study.line is None else study.line.as_dict(),
        "directions": directions.rows,
        "hypotheses": [evidence.as_dict() for evidence in study.evidence],
        "runs": {run.name: str(run.folder) for run in study.runs},
        "notes": study.notes,
    }
    return Table(
        variants.columns,
        variants.rows,
        shown=[],
        title=f"{experiment.name}, {study.scale}",
        lead=_lead(study, trained_on),
        parts=parts,
        data=data,
        heading=2,
        command=study.command,
    )


def _lead(study: ExperimentStudy, trained_on: str) -> list[str]:
    """The lines above the tables: what was trained, at which size, and on which images it was evaluated."""
    experiment = study.experiment
    clean, shifted = study.images
    lead = [
        experiment.about,
        f"{len(experiment.variants)} variants, {count_of(study.seeds, 'seed')}; {experiment.scales[study.scale].about}",
    ]
    if study.changes:
        lead.append(f"changed in every recipe: {', '.join(study.changes)}")
    # Each part has one setting that is not shifted.
    shifted_settings = len(study.settings) - len(experiment.parts)
    lead.append(
        f"trained on {trained_on}; evaluated on {clean:,} images of {study.settings[0]}, and on "
        f"{shifted:,} images in {count_of(shifted_settings, 'shifted setting')}"
    )
    return lead


def _fields(key: str, number: SeedMean | None) -> dict[str, object]:
    """A number in percent, with its interval and its spread over seeds; all four are None if there is no number."""
    percent = None if number is None else number.times(100)
    attributes = {key: "value", f"{key}_low": "low", f"{key}_high": "high", f"{key}_spread": "spread"}
    return {name: getattr(percent, attribute, None) for name, attribute in attributes.items()}


def _intervals(study: ExperimentStudy) -> str:
    units = "images and seeds" if study.seeds > 1 else "images"
    return f"{study.level * 100:.10g} % intervals over {units}"


def _shifted_name(study: ExperimentStudy) -> str:
    """The name of the experiment's metric in a sentence."""
    metric = study.experiment.metric
    return "accuracy under shift" if metric == "accuracy" else metric


def _variants_table(study: ExperimentStudy) -> Table:
    metric = study.experiment.metric
    rows = []
    for result in study.variants:
        row: dict[str, object] = {"variant": result.variant, "base": result.base}
        row |= _fields("clean", result.clean)
        # The study keeps 1 - mCE, so that more is better; the table shows mCE.
        row |= _fields("shifted", result.shifted.complement() if metric == "mCE" else result.shifted)
        row |= _fields("rho", result.rho)
        row |= _fields("tau", result.tau)
        row |= {group: 100 * (1 - number.value) for group, number in result.groups.items()}
        rows.append(row)

    def spread(key: str) -> Column:
        return Column(f"{key}_spread", "± seeds", "number", places=1, optional=True)

    shifted_title = "shifted" if metric == "accuracy" else metric
    columns = [
        Column("variant", "variant"),
        Column("clean", "clean", "number", ("clean_low", "clean_high"), places=1),
        spread("clean"),
        Column("shifted", shifted_title, "number", ("shifted_low", "shifted_high"), places=1),
        spread("shifted"),
        Column("rho", "rho", "points", ("rho_low", "rho_high"), places=1),
        spread("rho"),
        Column("tau", "tau", "points", ("tau_low", "tau_high"), places=1),
        spread("tau"),
    ]
    return Table(columns, rows, title="accuracy and robustness", notes=_variants_notes(study))


def _variants_notes(study: ExperimentStudy) -> list[str]:
    metric = study.experiment.metric
    if metric == "accuracy":
        measures = "accuracy"
    elif metric == "mAP":
        measures = "clean mAP and mAP"
    else:
        measures = f"clean accuracy and {metric}"
    notes = [
        f"{measures} in percent, the mean over {count_of(study.seeds, 'seed')}; {_intervals(study)}; ± seeds: standard "
        "deviation over seeds",
        f"rho: effective robustness, against the line through {', '.join(study.experiment.baseline)}; tau: relative "
        f"robustness, by how much {_shifted_name(study)} is better than the base variant's; percentage points",
    ]
    if study.line is not None:
        notes.append(f"line: {', '.join(line_text(study.line))}")
    notes += study.notes
    if study.seeds == 1:
        notes.append("one seed: how much the chance of training matters is not known")
    return notes


def _groups_table(study: ExperimentStudy) -> Table:
    """Mean error by kind of corruption, as AugMix reports CIFAR-10-C: not divided by AlexNet's."""
    rows = []
    for result in study.variants:
        row: dict[str, object] = {"variant": result.variant}
        for key, number in (("clean", result.clean), ("mean", result.shifted), *result.groups.items()):
            row |= _fields(key, number.complement())
        rows.append(row)
    columns = [
        Column("variant", "variant"),
        Column("clean", "clean", "number", ("clean_low", "clean_high"), places=1),
        Column("mean", "mean", "number", ("mean_low", "mean_high"), places=1),
    ]
    for group in study.variants[0].groups:
        columns.append(Column(group, group, "number", places=1))
    divided = "the mean corruption error over types and severities, not divided by AlexNet's"
    if study.experiment.metric == "mCE":
        divided = "mCE, divided by AlexNet's errors"
    notes = [f"error in percent; mean: {divided}"]
    return Table(columns, rows, title="errors by kind of corruption", notes=notes)


def _directions_table(study: ExperimentStudy) -> Table:
    rows = []
    corrected = sum(not math.isnan(direction.p_holm) for direction in study.directions)
    for direction in study.directions:
        claim = structs.asdict(direction.claim)
        difference = asdict(direction.difference.times(100))
        order = f"{claim['better']} > {claim['worse']}"
        if claim["measure"] == "clean":
            order += ", clean"
        row: dict[str, object] = {"order": order, "claim": claim.pop("text")}
        row |= claim
        row["difference"] = difference.pop("value")
        row |= difference
        row["seeds"] = f"{direction.seeds_for} of {direction.seeds}"
        row["p"] = None if math.isnan(direction.p) else direction.p
        row["p_holm"] = None if math.isnan(direction.p_holm) else direction.p_holm
        row["verdict"] = direction.verdict
        rows.append(row)
    columns = [
        Column("order", "expected order"),
        Column("claim", "what the paper reports", optional=True),
        Column("paper", "paper"),
        Column("published", "its numbers", optional=True),
        Column("difference", "here", "points", ("low", "high"), places=1),
        Column("seeds", "seeds for it"),
        Column("p_holm", "p (Holm)", "p", optional=True),
        Column("verdict", "direction"),
    ]
    notes = [
        f"{_shifted_name(study)}, or clean "
        "accuracy where the order names it; here: by how much the first is better, points; "
        f"{_intervals(study)}; no verdict with one seed, or where both are at chance level",
        "clear where the interval, every seed and p (Holm) agree: Student's t test with the degrees of freedom of the "
        f"seeds of all variants, Holm's correction over {count_of(corrected, 'direction')}",
    ]
    return Table(columns, rows, title="do the papers' directions appear?", notes=notes)
