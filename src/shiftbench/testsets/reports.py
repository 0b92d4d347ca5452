"""The workshop's numbers as tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from shiftbench.extend.tables import Column, Table
from shiftbench.testsets.annotation import ClassProgress
from shiftbench.testsets.database import AuditEntry, Revision
from shiftbench.testsets.frequencies import (
    AnnotatorQuality,
    ClassSummary,
    ImageFrequency,
    frequency_record,
    quality_flags,
)
from shiftbench.testsets.pool.entries import ImportSummary, PoolCount
from shiftbench.testsets.revisions import Difference, SetStatus
from shiftbench.testsets.verify import DamagedRecord

#: Rows of a long table shown in a terminal.
_MOST_SHOWN = 40
#: Images to replace that are named below each set.
_MOST_NAMED = 10


def _texts(*names: str) -> list[Column]:
    return [Column(name, name) for name in names]


def _counts(*names: str, optional: bool = False) -> list[Column]:
    """Each name is a key, or "key: heading"."""
    columns = []
    for name in names:
        key, _, heading = name.partition(": ")
        columns.append(Column(key, heading or key, "count", optional=optional))
    return columns


def _limited(records: Sequence[object], what: str) -> dict[str, Any]:
    """The options of a long table: its first rows are shown, with a note that counts the others."""
    return {"shown": records[:_MOST_SHOWN], "notes": _more(records, what)}


def _more(records: Sequence[object], what: str) -> list[str]:
    """A note that counts the rows that are not shown, if there are any."""
    hidden = len(records) - _MOST_SHOWN
    return [f"and {hidden:,} more {what}"] if hidden > 0 else []


def pool_table(rows: Sequence[PoolCount]) -> Table:
    records = [
        {
            "class": row.class_key,
            "candidates": row.candidates,
            "references": row.references,
            "marked": row.marked,
        }
        for row in rows
    ]
    candidates = sum(row.candidates for row in rows)
    references = sum(row.references for row in rows)
    lead = [f"{candidates:,} candidates, {references:,} references of {len(rows)} classes"]
    columns = [*_texts("class"), *_counts("candidates", "references", "marked")]
    return Table(columns, records, title="pool", lead=lead, **_limited(records, "classes"))


def audit_table(rows: Sequence[AuditEntry]) -> Table:
    """Files have the moment to the second, the terminal to the minute."""
    records = []
    shown_records = []
    for row in rows:
        details = ", ".join(f"{key} {value}" for key, value in row.details.items())
        record = {"at": row.at.isoformat(timespec="seconds"), "who": row.who, "action": row.action, "details": details}
        records.append(record)
        shown_records.append({**record, "at": f"{row.at:%Y-%m-%d %H:%M}"})
    columns = [Column("at", "when (UTC)"), Column("who", "who"), Column("action", "what"), Column("details", "details")]
    return Table(columns, records, shown=shown_records, title="audit log")


def progress_table(rows: Sequence[ClassProgress]) -> Table:
    """The terminal shows the unfinished classes, or all if none is."""
    records = [
        {
            "class": row.class_key,
            "finished": row.finished_tasks,
            "tasks": row.tasks,
            "places": row.places,
            "answered": row.answered,
            "in_hand": row.in_hand,
            "closed": row.closed,
            "share": row.share,
        }
        for row in rows
    ]
    places = sum(row.places for row in rows)
    answered = sum(row.answered for row in rows)
    if places:
        lead = f"{answered:,} of {places:,} answers are in ({100 * answered / places:.1f} %)"
    else:
        lead = "no tasks"
    columns = [
        *_texts("class"),
        *_counts("tasks", "finished", "answered: answers", "places: required", "in_hand: in progress"),
        *_counts("closed: closed tasks", optional=True),
        Column("share", "%", "number", times=100, places=1),
    ]
    unfinished = [record for record, row in zip(records, rows, strict=True) if row.share < 1]
    shown_records = unfinished or records
    return Table(
        columns,
        records,
        title="annotation",
        lead=[lead],
        shown=shown_records[:_MOST_SHOWN],
        notes=_more(records, "classes"),
    )


def quality_table(rows: Sequence[AnnotatorQuality], *, level: float = 0.95) -> Table:
    """The accuracy of each annotator on controls, and the reasons to look at their answers."""
    flags = quality_flags(rows)
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
                "flags": "; ".join(flags[row.account]),
                "excluded": "excluded" if row.excluded else "",
            }
        )
    columns = [
        *_texts("annotator"),
        *_counts("tasks"),
        Column("accuracy", "controls correct %", "number", ("low", "high"), places=1, times=100),
        *_counts("controls: of"),
        *_counts("selected", "positives: of positives", "left: not selected", "negatives: of negatives", optional=True),
        Column("flags", "flags"),
        Column("excluded", ""),
    ]
    notes = ["correct: a reference image of the class was selected, or one of a near class was not"]
    return Table(columns, records, title="annotators", notes=notes)


def class_table(rows: Sequence[ClassSummary]) -> Table:
    """The last row sums up all classes; the terminal shows it even if it leaves out classes before it."""
    records = []
    for row in rows:
        agreement = row.agreement
        alpha_known = not math.isnan(agreement.alpha)
        records.append(
            {
                "class": row.class_key,
                "candidates": row.candidates,
                "candidate_frequency": row.candidate_frequency,
                "references": row.references,
                "reference_frequency": row.reference_frequency,
                "alpha": agreement.alpha if alpha_known else None,
                "alpha_low": agreement.low if alpha_known else None,
                "alpha_high": agreement.high if alpha_known else None,
                "answers": agreement.answers,
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
    notes = [
        "selected: mean selection frequency of the candidates, and of the references",
        "alpha: Krippendorff's, of selected or not, over candidates and references; 1 is agreement, 0 chance; "
        "its interval is the bootstrap over images",
    ]
    shown_records = records
    if len(records) > _MOST_SHOWN + 1:
        shown_records = [*records[:_MOST_SHOWN], records[-1]]
        notes += _more(records, "classes")
    return Table(columns, records, shown=shown_records, title="selection frequency and agreement", notes=notes)


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
    """The means of the latest revision of each set are those of the present counts; others are as sampled."""
    present_reports = {status.revision.id: status.report for status in statuses}
    records = []
    for row in rows:
        report: Mapping[str, Any] = present_reports.get(row.id, row.report)
        record = {
            "set": row.set_name,
            "revision": row.number,
            "made": f"{row.made_at:%Y-%m-%d %H:%M}",
            "images": row.images,
            "fallbacks": report["fallbacks"],
            "short": sum(report["short"].values()),
            "frequency": report["mean_frequency"],
            "reference_frequency": report["reference_mean_frequency"],
            "strategy": row.sampling["strategy"],
            "state": "frozen" if row.frozen_at else "",
            "note": row.note,
        }
        records.append(record)
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
        lead.append(f"{status.revision.set_name}: {_state_of_set(status)}")
        reasons = [f"  {digest[:12]}: {reason}" for digest, reason in status.to_remove.items()]
        lead += reasons[:_MOST_NAMED]
    notes = ["selected: mean selection frequency, beside that of the reference"]
    return Table(columns, records, title="sets", lead=lead, notes=notes)


def _state_of_set(status: SetStatus) -> str:
    """What a set waits for, or that it is frozen."""
    revision = status.revision
    if revision.frozen_at is not None:
        return f"frozen, {revision.images:,} images, fingerprint {revision.fingerprint}"
    if status.problem is not None:
        return f"the next revision cannot be sampled: {status.problem.message} ({status.problem.found})"
    if status.to_remove:
        return f"{len(status.to_remove)} images are to be replaced; sample the next revision"
    if status.moved:
        return f"{status.moved} images are now in another bin; sample the next revision"
    state = f"nothing removed from revision {revision.number}, {len(status.reviewed_classes)} classes reviewed"
    short = sum(status.short.values())
    if short:
        state += f", {short} images short"
    return state


def sampling_table(revision: Revision) -> Table:
    """The report of a revision; the terminal shows the classes with problems, or all if there are none."""
    plan = revision.sampling
    report = revision.report
    records = []
    for key, row in report["classes"].items():
        targets = ", ".join(f"{name}: {n}" for name, n in row["wished"].items() if n)
        records.append({"class": key, **row, "wished": targets})
    notable = [record for record in records if record["short"] or record["fallbacks"]]
    mean = _frequency_text(report["mean_frequency"])
    reference_mean = _frequency_text(report["reference_mean_frequency"])
    lead = [
        f"{report['images']:,} images by {plan['strategy']}, {plan['per_class']} per class, seed {plan['seed']}",
        f"mean selection frequency {mean}, of the references {reference_mean}",
        f"{report['fallbacks']} images replace those of a bin or keyword that ran out; "
        f"{sum(report['short'].values())} images are missing",
    ]
    lead += [f"excluded candidates: {count:,} ({reason})" for reason, count in report["excluded"].items()]
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


def _frequency_text(frequency: float | None) -> str:
    return "unknown" if frequency is None else f"{frequency:.3f}"


def difference_table(change: Difference) -> Table:
    """The images that a later revision lacks, with the reasons, then those that it adds, with what they stand for."""
    records = []
    for image, reason in change.removed:
        records.append({"change": "removed", "class": image.class_key, "image": image.digest, "why": reason})
    for image in change.added:
        records.append({"change": "added", "class": image.class_key, "image": image.digest, "why": image.drawn_for})
    columns = [*_texts("change", "class", "image"), Column("why", "why, or drawn for")]
    title = f"{change.set_name}: revision {change.old} to {change.new}"
    lead = [f"{change.kept:,} kept, {len(change.removed)} removed, {len(change.added)} added"]
    return Table(columns, records, title=title, lead=lead, **_limited(records, "images"))


def imported_table(done: ImportSummary) -> Table:
    records: list[dict[str, object]] = [{"image": image, "why": reason} for image, reason in done.refused]
    offered = done.new + done.known + len(records)
    lead = [
        f"{offered:,} images from {done.source}: {done.new:,} new {done.role}s, {done.known:,} known already, "
        f"{len(records):,} refused"
    ]
    data = {"source": done.source, "role": done.role, "new": done.new, "known": done.known, "refused": records}
    columns = [Column("image", "refused"), Column("why", "why")]
    return Table(columns, records, lead=lead, data=data, **_limited(records, "refused images"))


def damage_table(damages: Sequence[DamagedRecord]) -> Table:
    records = [{"kind": damage.kind, "which": damage.which, "what": damage.what} for damage in damages]
    lead = [f"{len(records):,} damaged" if records else "everything is as it was written"]
    return Table(_texts("kind", "which", "what"), records, title="damage", lead=lead, **_limited(records, "damages"))
