"""The lead's pages: how far things are, how good annotators are, invitations, selection frequencies, the log."""

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
from shiftbench.testsets.web.dependencies import Lead, TheDesk, TheForm, look, see_other

router = APIRouter(prefix="/lead", dependencies=[Depends(look)])
#: Bars of a histogram of selection frequencies: [0, 0.1), ..., [0.9, 1].
BINS = 10
_EXPORTS = {"csv": "text/csv", "json": "application/json", "parquet": "application/vnd.apache.parquet"}
_LOG_LINES = 200


@dataclass(frozen=True)
class Bar:
    """How many candidates and references are in one bin, and which shares of all of them."""

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
def overview(request: Request, desk: TheDesk, person: Lead) -> Response:
    people = {one.id: one for one in accounts.people(desk.project)}
    return desk.page(
        request, "lead.html", classes=progress(desk.project), quality=annotator_quality(desk.project), people=people,
        invitations=accounts.invitations(desk.project), roles=accounts.ROLES, title=_titles(desk),
    )  # fmt: skip


@router.post("/invitations")
def invite(request: Request, desk: TheDesk, form: TheForm, person: Lead) -> Response:
    """The only page that shows a link: the database keeps its hash."""
    link = accounts.invite(desk.project, form.text("role"), form.text("name"), by=person.id)  # type: ignore[arg-type]
    return desk.page(request, "invited.html", link=link, address=f"{desk.origin(request)}/join/{link.token}")


@router.post("/invitations/{invitation}/revoke")
def revoke(desk: TheDesk, person: Lead, invitation: int) -> Response:
    accounts.revoke_invitation(desk.project, invitation, by=person.id)
    return see_other("/lead#invitations")


@router.post("/accounts/{account}/exclude")
def exclude(desk: TheDesk, form: TheForm, person: Lead, account: int) -> Response:
    because = form.text("because")[:500]
    if not because:
        raise WorkshopError("an exclusion needs a reason", hint="go back and write one; it is kept in the log")
    if account == person.id:
        raise WorkshopError("you can't exclude yourself")
    accounts.exclude(desk.project, account, because, by=person.id)
    desk.recent_tasks.clear()
    return see_other("/lead#annotators")


@router.post("/accounts/{account}/readmit")
def readmit(desk: TheDesk, form: TheForm, person: Lead, account: int) -> Response:
    accounts.readmit(desk.project, account, form.text("because")[:500], by=person.id)
    return see_other("/lead#annotators")


@router.get("/frequencies")
def frequencies(request: Request, desk: TheDesk, person: Lead) -> Response:
    """Each class with its histogram, and how far annotators agree."""
    rows = selection_frequencies(desk.project)
    summaries = class_summaries(desk.project, rows)
    shown = [
        (summary, histogram([row for row in rows if summary.class_key in (row.class_key, "all")]))
        for summary in [*summaries[-1:], *summaries[:-1]]  # all classes first
    ]
    return desk.page(request, "frequencies.html", classes=shown, title=_titles(desk), exports=tuple(_EXPORTS))


@router.get("/frequencies.{kind}")
def export(desk: TheDesk, person: Lead, kind: str) -> Response:
    if kind not in _EXPORTS:
        raise WorkshopError("unknown file format", found=kind[:20], expected=", ".join(_EXPORTS))
    with tempfile.TemporaryDirectory() as folder:
        data = write_frequencies(desk.project, Path(folder) / f"frequencies.{kind}").read_bytes()
    name = f"{desk.project.configuration.name}-frequencies.{kind}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(data, media_type=_EXPORTS[kind], headers=headers)


@router.get("/log")
def log_page(request: Request, desk: TheDesk, person: Lead) -> Response:
    return desk.page(request, "log.html", lines=audit_log(desk.project, last=_LOG_LINES))


def histogram(rows: Sequence[ImageFrequency]) -> list[Bar]:
    """Images with answers, by selection frequency; shares are of all candidates, and of all references."""
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


def _titles(desk: TheDesk) -> dict[str, str]:
    return {"all": "All classes", **{entry.key: entry.title for entry in desk.project.configuration.classes}}
