"""The workshop's numbers as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shiftbench.reports.table import Column, Table
from shiftbench.testsets.annotation import ClassProgress
from shiftbench.testsets.audit import AuditLine
from shiftbench.testsets.frequencies import AnnotatorQuality, ClassSummary, ImageFrequency, frequency_record
from shiftbench.testsets.pool.entries import PoolCount
from shiftbench.testsets.pool.import_images import ImportSummary
from shiftbench.testsets.revisions import Difference, RevisionInfo, SetStatus

_MOST_SHOWN = 40
_CLASS = Column("class", "class")


def _count(key: str, heading: str | None = None, *, optional: bool = False) -> Column:
    return Column(key, heading or key, "count", optional=optional)


def pool_table(rows: Sequence[PoolCount]) -> Table:
    """Candidates and references of each class."""
    names = ("candidates", "references", "marked")
    records = [{"class": row.class_key, **{name: getattr(row, name) for name in names}} for row in rows]
    candidates, references = sum(row.candidates for row in rows), sum(row.references for row in rows)
    lead = [f"{candidates:,} candidates, {references:,} references of {len(rows)} classes"]
    columns = [_CLASS, *map(_count, names)]
    return Table(columns, records, title="pool", lead=lead, **_limited(records, "classes"))


def audit_table(rows: Sequence[AuditLine]) -> Table:
    """The audit log."""
    records = [
        {
            "at": row.at.isoformat(timespec="seconds"), "who": row.who, "action": row.action,
            "details": ", ".join(f"{key} {value}" for key, value in row.details.items()),
        }
        for row in rows
    ]  # fmt: skip
    fields = [Column("at", "when (UTC)"), Column("who", "who"), Column("action", "what"), Column("details", "details")]
    shown = [{**record, "at": f"{row.at:%Y-%m-%d %H:%M}"} for record, row in zip(records, rows, strict=True)]
    return Table(fields, records, shown=shown, title="audit log")


def progress_table(rows: Sequence[ClassProgress]) -> Table:
    """How far the annotation is, class by class."""
    records = [
        {
            "class": row.class_key, "tasks": row.tasks, "finished": row.finished_tasks, "places": row.places,
            "answered": row.answered, "in_hand": row.in_hand, "share": row.share,
        }
        for row in rows
    ]  # fmt: skip
    places, answered = sum(row.places for row in rows), sum(row.answered for row in rows)
    lead = [f"{answered:,} of {places:,} answers are in ({100 * answered / places:.1f} %)"] if places else ["no tasks"]
    columns = [
        _CLASS, _count("tasks"), _count("finished"), _count("answered", "answers"), _count("places", "wished"),
        _count("in_hand", "in hand"), Column("share", "%", "number", times=100, places=1),
    ]  # fmt: skip
    unfinished = [record for record, row in zip(records, rows, strict=True) if row.share < 1] or records
    limits = {**_limited(records, "classes"), "shown": unfinished[:_MOST_SHOWN]}
    return Table(columns, records, title="annotation", lead=lead, **limits)


def quality_table(rows: Sequence[AnnotatorQuality], *, level: float = 0.95) -> Table:
    """Annotators by their accuracy on control images, the worst first."""
    records = []
    for row in rows:
        low, high = row.interval(level) if row.controls else (None, None)
        records.append(
            {
                "annotator": row.name, "tasks": row.tasks, "controls": row.controls, "accuracy": row.accuracy,
                "low": low, "high": high, "selected": row.positives_selected, "positives": row.positives,
                "left": row.negatives_left, "negatives": row.negatives, "excluded": "excluded" if row.excluded else "",
            }
        )  # fmt: skip
    columns = [
        Column("annotator", "annotator"), _count("tasks"),
        Column("accuracy", "controls right %", "number", ("low", "high"), places=1, times=100),
        _count("controls", "of"), _count("selected", optional=True),
        _count("positives", "of those that belong", optional=True), _count("left", optional=True),
        _count("negatives", "of the others", optional=True), Column("excluded", ""),
    ]  # fmt: skip
    notes = ["right: a reference image of the class selected, one of a near class left"]
    return Table(columns, records, title="annotators", notes=notes)


def class_table(rows: Sequence[ClassSummary]) -> Table:
    """Selection frequencies and agreement, class by class and over all."""
    records = [
        {
            "class": row.class_key, "candidates": row.candidates, "candidate_frequency": row.candidate_frequency,
            "references": row.references, "reference_frequency": row.reference_frequency,
            "alpha": _number(row.agreement.alpha), "alpha_low": _number(row.agreement.low),
            "alpha_high": _number(row.agreement.high), "answers": row.agreement.answers,
        }
        for row in rows
    ]  # fmt: skip
    columns = [
        _CLASS, _count("candidates"), Column("candidate_frequency", "selected", "number", places=3),
        _count("references"), Column("reference_frequency", "selected", "number", places=3),
        Column("alpha", "alpha", "number", ("alpha_low", "alpha_high"), places=3), _count("answers", optional=True),
    ]  # fmt: skip
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
    """Selection frequencies image by image."""
    records = [frequency_record(row, level) for row in rows]
    columns = [
        Column("image", "image"), Column("role", "role"), _CLASS, Column("keyword", "keyword", optional=True),
        _count("selected"), _count("annotations", "of"), Column("frequency", "frequency", "number", ("low", "high")),
    ]  # fmt: skip
    shown = [{**record, "image": record["image"][:12]} for record in records[:_MOST_SHOWN]]
    notes = _more(records, "images; --output FILE writes all")
    return Table(columns, records, shown=shown, title="selection frequencies", notes=notes)


def revision_table(rows: Sequence[RevisionInfo], statuses: Sequence[SetStatus]) -> Table:
    """The sets of a project and their revisions."""
    records = [
        {
            "set": row.set_name, "revision": row.number, "made": f"{row.made_at:%Y-%m-%d %H:%M}", "images": row.images,
            "fallbacks": row.report["fallbacks"], "short": sum(row.report["short"].values()),
            "frequency": row.report["mean_frequency"], "reference_frequency": row.report["reference_mean_frequency"],
            "strategy": row.sampling["strategy"], "state": "frozen" if row.frozen_at else "", "note": row.note,
        }
        for row in rows
    ]  # fmt: skip
    columns = [
        Column("set", "set"), _count("revision"), _count("images"), Column("frequency", "selected", "number", places=3),
        Column("reference_frequency", "reference", "number", places=3), _count("fallbacks", "stand-ins"),
        _count("short"), Column("state", ""), Column("strategy", "strategy", optional=True),
        Column("made", "made (UTC)", optional=True), Column("note", "note", optional=True),
    ]  # fmt: skip
    notes = ["selected: mean selection frequency, beside that of the reference"]
    return Table(columns, records, title="sets", lead=[_status_line(status) for status in statuses], notes=notes)


def _status_line(status: SetStatus) -> str:
    revision = status.revision
    if revision.frozen_at is not None:
        return f"{revision.set_name}: frozen, {revision.images:,} images, fingerprint {revision.fingerprint}"
    if status.to_remove:
        return f"{revision.set_name}: {len(status.to_remove)} images are to be replaced; sample the next revision"
    short = f", {sum(status.short.values())} images short" if status.short else ""
    reviewed = len(status.reviewed_classes)
    return f"{revision.set_name}: nothing removed from revision {revision.number}, {reviewed} classes reviewed{short}"


def sampling_table(revision: RevisionInfo) -> Table:
    """What a revision was sampled for, class by class."""
    names = ("target", "chosen", "fallbacks", "short")
    records = [
        {
            "class": key, **{name: row[name] for name in names},
            "wished": ", ".join(f"{name}: {n}" for name, n in row["wished"].items() if n),
        }
        for key, row in revision.report["classes"].items()
    ]  # fmt: skip
    notable = [record for record in records if record["short"] or record["fallbacks"]]
    plan, report = revision.sampling, revision.report
    lead = [
        f"{report['images']:,} images by {plan['strategy']}, {plan['per_class']} a class, seed {plan['seed']}",
        f"mean selection frequency {_three(report['mean_frequency'])}, of the references "
        f"{_three(report['reference_mean_frequency'])}",
        f"{report['fallbacks']} stand in for a bin or keyword that had run out; "
        f"{sum(report['short'].values())} could not be found",
    ]
    lead += [f"left out of the pool: {name} {count:,}" for name, count in report["excluded"].items()]
    columns = [
        _CLASS, _count("target"), _count("chosen"), _count("fallbacks", "stand-ins"), _count("short"),
        Column("wished", "wished", optional=True),
    ]  # fmt: skip
    return Table(
        columns, records, title=f"{revision.set_name}, revision {revision.number}", lead=lead,
        data={"set": revision.set_name, "revision": revision.number, "sampling": plan, "report": report},
        **_limited(notable or records, "classes"),
    )  # fmt: skip


def difference_table(change: Difference) -> Table:
    """What came and went between two revisions."""
    gone = [("removed", image, why) for image, why in change.removed]
    came = [("added", image, image.drawn_for) for image in change.added]
    records = [
        {"change": what, "class": image.class_key, "image": image.digest, "why": why}
        for what, image, why in (*gone, *came)
    ]
    columns = [Column("change", "change"), _CLASS, Column("image", "image"), Column("why", "why, or drawn for")]
    return Table(
        columns, records, title=f"{change.set_name}: revision {change.old} to {change.new}",
        lead=[f"{change.kept:,} kept, {len(gone)} removed, {len(came)} added"], **_limited(records, "images"),
    )  # fmt: skip


def imported_table(done: ImportSummary) -> Table:
    """What became of the images of a source."""
    records: list[dict[str, object]] = [{"image": name, "why": why} for name, why in done.refused]
    lead = [
        f"{done.offered:,} images from {done.source}: {done.new:,} new {done.role}s, {done.known:,} known already, "
        f"{len(done.refused):,} refused"
    ]
    data = {"source": done.source, "role": done.role, "new": done.new, "known": done.known, "refused": records}
    columns = [Column("image", "refused"), Column("why", "why")]
    return Table(columns, records, lead=lead, data=data, **_limited(records, "refused images"))


def _limited(records: Sequence[Any], what: str) -> dict[str, Any]:
    """The first rows of a long table, and how many more there are."""
    return {"shown": records[:_MOST_SHOWN], "notes": _more(records, what)}


def _more(records: Sequence[object], what: str) -> list[str]:
    return [f"and {len(records) - _MOST_SHOWN:,} more {what}"] if len(records) > _MOST_SHOWN else []


def _number(value: float) -> float | None:
    return None if value != value else value


def _three(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"
