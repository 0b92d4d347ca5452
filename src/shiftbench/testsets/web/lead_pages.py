"""Pages for leads: progress, annotator quality, invitations, selection frequencies, the audit log."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from shiftbench.testsets import accounts
from shiftbench.testsets.annotation import progress
from shiftbench.testsets.audit import audit_log
from shiftbench.testsets.database.tables import CANDIDATE, REFERENCE
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.frequencies import (
    ImageFrequency,
    annotator_quality,
    class_summaries,
    selection_frequencies,
    write_frequencies,
)
from shiftbench.testsets.web.dependencies import Context, Lead, PostedForm, authenticate, see_other

router = APIRouter(prefix="/lead", dependencies=[Depends(authenticate)])
#: Bins of the histogram of selection frequencies: [0, 0.1), ..., [0.9, 1].
BINS = 10
_EXPORTS = {"csv": "text/csv", "json": "application/json", "parquet": "application/vnd.apache.parquet"}
_LOG_LINES = 200


@dataclass(frozen=True)
class Bar:
    """Number and share of candidates and references in one bin."""

    low: float
    high: float
    candidates: int
    references: int
    candidate_share: float
    reference_share: float

    @property
    def tallest(self) -> float:
        return max(self.candidate_share, self.reference_share)


@router.get("")
def overview(request: Request, context: Context, person: Lead) -> Response:
    people = {one.id: one for one in accounts.people(context.project)}
    return context.page(
        request, "lead.html", people=people, classes=progress(context.project), roles=accounts.ROLES,
        quality=annotator_quality(context.project), invitations=accounts.invitations(context.project),
        title=_titles(context),
    )  # fmt: skip


@router.post("/invitations")
def invite(request: Request, context: Context, form: PostedForm, person: Lead) -> Response:
    """The only page that shows a link: the database stores its hash."""
    role, name = form.text("role"), form.text("name")
    link = accounts.invite(context.project, role, name, by=person.id)  # type: ignore[arg-type]
    return context.page(request, "invited.html", link=link, address=f"{context.origin(request)}/join/{link.token}")


@router.post("/invitations/{invitation}/revoke")
def revoke(context: Context, person: Lead, invitation: int) -> Response:
    accounts.revoke_invitation(context.project, invitation, by=person.id)
    return see_other("/lead#invitations")


@router.post("/accounts/{account}/exclude")
def exclude(context: Context, form: PostedForm, person: Lead, account: int) -> Response:
    because = form.text("because")[:500]
    if not because:
        raise WorkshopError(
            "an exclusion needs a reason", hint="go back and enter one; it is recorded in the audit log"
        )
    if account == person.id:
        raise WorkshopError("you cannot exclude yourself")
    accounts.exclude(context.project, account, because, by=person.id)
    context.task_images.clear()
    return see_other("/lead#annotators")


@router.post("/accounts/{account}/readmit")
def readmit(context: Context, form: PostedForm, person: Lead, account: int) -> Response:
    accounts.readmit(context.project, account, form.text("because")[:500], by=person.id)
    return see_other("/lead#annotators")


@router.get("/frequencies")
def frequencies(request: Request, context: Context, person: Lead) -> Response:
    """The histogram and annotator agreement of each class."""
    rows = selection_frequencies(context.project)
    summaries = class_summaries(context.project, rows)
    shown = [
        (summary, histogram([row for row in rows if summary.class_key in (row.class_key, "all")]))
        for summary in [*summaries[-1:], *summaries[:-1]]  # all classes first
    ]
    return context.page(request, "frequencies.html", classes=shown, title=_titles(context), exports=tuple(_EXPORTS))


@router.get("/frequencies.{kind}")
def export(context: Context, person: Lead, kind: str) -> Response:
    if kind not in _EXPORTS:
        raise WorkshopError("unknown file format", found=kind[:20], expected=", ".join(_EXPORTS))
    with tempfile.TemporaryDirectory() as folder:
        data = write_frequencies(context.project, Path(folder) / f"frequencies.{kind}").read_bytes()
    name = f"{context.project.configuration.name}-frequencies.{kind}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(data, media_type=_EXPORTS[kind], headers=headers)


@router.get("/log")
def log_page(request: Request, context: Context, person: Lead) -> Response:
    return context.page(request, "log.html", lines=audit_log(context.project, last=_LOG_LINES))


def histogram(rows: Sequence[ImageFrequency]) -> list[Bar]:
    """Images with answers by selection frequency; shares of all candidates, and of all references."""
    counts = {role: [0] * BINS for role in (CANDIDATE, REFERENCE)}
    for row in rows:
        if row.annotations:
            counts[row.role][min(BINS - 1, row.selected * BINS // row.annotations)] += 1
    shares = {role: [count / max(1, sum(found)) for count in found] for role, found in counts.items()}
    return [
        Bar(
            i / BINS, (i + 1) / BINS, counts[CANDIDATE][i], counts[REFERENCE][i], shares[CANDIDATE][i],
            shares[REFERENCE][i],
        )
        for i in range(BINS)
    ]  # fmt: skip


def _titles(context: Context) -> dict[str, str]:
    return {"all": "All classes", **{entry.key: entry.title for entry in context.project.configuration.classes}}
