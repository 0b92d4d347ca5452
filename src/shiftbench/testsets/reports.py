"""The workshop's numbers as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shiftbench.reports.table import Column, Table
from shiftbench.testsets.annotation import ClassProgress
from shiftbench.testsets.database import AuditEntry, Revision
from shiftbench.testsets.frequencies import AnnotatorQuality, ClassSummary, ImageFrequency, frequency_record
from shiftbench.testsets.pool.entries import ImportSummary, PoolCount
from shiftbench.testsets.revisions import Difference, SetStatus

_MOST_SHOWN = 40


def _texts(*names: str) -> list[Column]:
    return [Column(name, name) for name in names]


def _counts(*names: str, optional: bool = False) -> list[Column]:
    """Each name is a key, or "key: heading"."""
    pairs = [name.partition(": ") for name in names]
    return [Column(key, heading or key, "count", optional=optional) for key, _, heading in pairs]


def _limited(records: Sequence[object], what: str) -> dict[str, Any]:
    """The first rows of a long table, and how many more there are."""
    return {"shown": records[:_MOST_SHOWN], "notes": _more(records, what)}


def _more(records: Sequence[object], what: str) -> list[str]:
    return [f"and {len(records) - _MOST_SHOWN:,} more {what}"] if len(records) > _MOST_SHOWN else []


def pool_table(rows: Sequence[PoolCount]) -> Table:
    names = ("candidates", "references", "marked")
    records = [{"class": row.class_key, **{name: getattr(row, name) for name in names}} for row in rows]
    candidates, references = sum(row.candidates for row in rows), sum(row.references for row in rows)
    lead = [f"{candidates:,} candidates, {references:,} references of {len(rows)} classes"]
    columns = [*_texts("class"), *_counts(*names)]
    return Table(columns, records, title="pool", lead=lead, **_limited(records, "classes"))


def audit_table(rows: Sequence[AuditEntry]) -> Table:
    records, shown = [], []
    for row in rows:
        details = ", ".join(f"{key} {value}" for key, value in row.details.items())
        line = {"at": row.at.isoformat(timespec="seconds"), "who": row.who, "action": row.action, "details": details}
        records.append(line)
        shown.append({**line, "at": f"{row.at:%Y-%m-%d %H:%M}"})
    fields = [Column("at", "when (UTC)"), Column("who", "who"), Column("action", "what"), Column("details", "details")]
    return Table(fields, records, shown=shown, title="audit log")


def progress_table(rows: Sequence[ClassProgress]) -> Table:
    names = {"class": "class_key", "finished": "finished_tasks"}
    names |= {name: name for name in ("tasks", "places", "answered", "in_hand", "share")}
    records = [{key: getattr(row, name) for key, name in names.items()} for row in rows]
    places, answered = sum(row.places for row in rows), sum(row.answered for row in rows)
    lead = [f"{answered:,} of {places:,} answers are in ({100 * answered / places:.1f} %)"] if places else ["no tasks"]
    columns = [
        *_texts("class"),
        *_counts("tasks", "finished", "answered: answers", "places: required", "in_hand: in progress"),
        Column("share", "%", "number", times=100, places=1),
    ]
    unfinished = [record for record, row in zip(records, rows, strict=True) if row.share < 1] or records
    limits = {**_limited(records, "classes"), "shown": unfinished[:_MOST_SHOWN]}
    return Table(columns, records, title="annotation", lead=lead, **limits)


def quality_table(rows: Sequence[AnnotatorQuality], *, level: float = 0.95) -> Table:
    records = []
    for row in rows:
        low, high = row.interval(level) if row.controls else (None, None)
        records.append(
            {
                "annotator": row.name,
                "tasks": row.tasks,
                "controls": row.controls,
                "accuracy": row.accuracy,
                "low": low,
                "high": high,
                "selected": row.positives_selected,
                "positives": row.positives,
                "left": row.negatives_left,
                "negatives": row.negatives,
                "excluded": "excluded" if row.excluded else "",
            }
        )
    columns = [
        *_texts("annotator"),
        *_counts("tasks"),
        Column("accuracy", "controls correct %", "number", ("low", "high"), places=1, times=100),
        *_counts("controls: of"),
        *_counts("selected", "positives: of positives", "left: not selected", "negatives: of negatives", optional=True),
        Column("excluded", ""),
    ]
    notes = ["correct: a reference image of the class was selected, or one of a near class was not"]
    return Table(columns, records, title="annotators", notes=notes)


def class_table(rows: Sequence[ClassSummary]) -> Table:
    records = []
    for row in rows:
        known = row.agreement.alpha == row.agreement.alpha
        alpha = {"alpha": row.agreement.alpha, "alpha_low": row.agreement.low, "alpha_high": row.agreement.high}
        records.append(
            {
                "class": row.class_key,
                "candidates": row.candidates,
                "candidate_frequency": row.candidate_frequency,
                "references": row.references,
                "reference_frequency": row.reference_frequency,
                **(alpha if known else dict.fromkeys(alpha)),
                "answers": row.agreement.answers,
            }
        )
    columns = [
        *_texts("class"),
        *_counts("candidates"),
        Column("candidate_frequency", "selected", "number", places=3),
        *_counts("references"),
        Column("reference_frequency", "selected", "number", places=3),
        Column("alpha", "alpha", "number", ("alpha_low", "alpha_high"), places=3),
        *_counts("answers", optional=True),
    ]
    long = len(records) > _MOST_SHOWN + 1
    notes = [
        "selected: mean selection frequency of the candidates, and of the references",
        "alpha: Krippendorff's, of selected or not, over candidates and references; 1 is agreement, 0 chance; "
        "its interval is the bootstrap over images",
        *(_more(records, "classes") if long else []),
    ]
    shown = [*records[:_MOST_SHOWN], *records[-1:]] if long else records
    return Table(columns, records, shown=shown, title="selection frequency and agreement", notes=notes)


def frequency_table(rows: Sequence[ImageFrequency], *, level: float = 0.95) -> Table:
    records = [frequency_record(row, level) for row in rows]
    columns = [
        *_texts("image", "role", "class"),
        Column("keyword", "keyword", optional=True),
        *_counts("selected", "annotations: of"),
        Column("frequency", "frequency", "number", ("low", "high")),
    ]
    shown = [{**record, "image": record["image"][:12]} for record in records[:_MOST_SHOWN]]
    notes = _more(records, "images; --output FILE writes all")
    return Table(columns, records, shown=shown, title="selection frequencies", notes=notes)


def revision_table(rows: Sequence[Revision], statuses: Sequence[SetStatus]) -> Table:
    records = [
        {
            "set": row.set_name,
            "revision": row.number,
            "made": f"{row.made_at:%Y-%m-%d %H:%M}",
            "images": row.images,
            "fallbacks": row.report["fallbacks"],
            "short": sum(row.report["short"].values()),
            "frequency": row.report["mean_frequency"],
            "reference_frequency": row.report["reference_mean_frequency"],
            "strategy": row.sampling["strategy"],
            "state": "frozen" if row.frozen_at else "",
            "note": row.note,
        }
        for row in rows
    ]
    columns = [
        *_texts("set"),
        *_counts("revision", "images"),
        Column("frequency", "selected", "number", places=3),
        Column("reference_frequency", "reference", "number", places=3),
        *_counts("fallbacks", "short"),
        Column("state", ""),
        Column("strategy", "strategy", optional=True),
        Column("made", "made (UTC)", optional=True),
        Column("note", "note", optional=True),
    ]
    lead = []
    for status in statuses:
        revision, short = status.revision, sum(status.short.values())
        if revision.frozen_at is not None:
            line = f"frozen, {revision.images:,} images, fingerprint {revision.fingerprint}"
        elif status.to_remove:
            line = f"{len(status.to_remove)} images are to be replaced; sample the next revision"
        else:
            line = f"nothing removed from revision {revision.number}, {len(status.reviewed_classes)} classes reviewed"
            line += f", {short} images short" if short else ""
        lead.append(f"{revision.set_name}: {line}")
    notes = ["selected: mean selection frequency, beside that of the reference"]
    return Table(columns, records, title="sets", lead=lead, notes=notes)


def sampling_table(revision: Revision) -> Table:
    plan, report = revision.sampling, revision.report
    records = []
    for key, row in report["classes"].items():
        wished = ", ".join(f"{name}: {n}" for name, n in row["wished"].items() if n)
        records.append({"class": key, **row, "wished": wished})
    notable = [record for record in records if record["short"] or record["fallbacks"]]
    means = [
        "unknown" if report[name] is None else f"{report[name]:.3f}"
        for name in ("mean_frequency", "reference_mean_frequency")
    ]
    lead = [
        f"{report['images']:,} images by {plan['strategy']}, {plan['per_class']} per class, seed {plan['seed']}",
        f"mean selection frequency {means[0]}, of the references {means[1]}",
        f"{report['fallbacks']} images replace those of a bin or keyword that ran out; "
        f"{sum(report['short'].values())} images are missing",
        *(f"excluded candidates: {count:,} ({name})" for name, count in report["excluded"].items()),
    ]
    columns = [
        *_texts("class"),
        *_counts("target", "chosen", "fallbacks", "short"),
        Column("wished", "targets", optional=True),
    ]
    return Table(
        columns,
        records,
        title=f"{revision.set_name}, revision {revision.number}",
        lead=lead,
        data={"set": revision.set_name, "revision": revision.number, "sampling": plan, "report": report},
        **_limited(notable or records, "classes"),
    )


def difference_table(change: Difference) -> Table:
    gone = [("removed", image, why) for image, why in change.removed]
    came = [("added", image, image.drawn_for) for image in change.added]
    records = [
        {"change": what, "class": image.class_key, "image": image.digest, "why": why}
        for what, image, why in (*gone, *came)
    ]
    columns = [*_texts("change", "class", "image"), Column("why", "why, or drawn for")]
    title = f"{change.set_name}: revision {change.old} to {change.new}"
    lead = [f"{change.kept:,} kept, {len(gone)} removed, {len(came)} added"]
    return Table(columns, records, title=title, lead=lead, **_limited(records, "images"))


def imported_table(done: ImportSummary) -> Table:
    records: list[dict[str, object]] = [{"image": name, "why": why} for name, why in done.refused]
    offered = done.new + done.known + len(records)
    lead = [
        f"{offered:,} images from {done.source}: {done.new:,} new {done.role}s, {done.known:,} known already, "
        f"{len(records):,} refused"
    ]
    data = {"source": done.source, "role": done.role, "new": done.new, "known": done.known, "refused": records}
    columns = [Column("image", "refused"), Column("why", "why")]
    return Table(columns, records, lead=lead, data=data, **_limited(records, "refused images"))
