"""Pages for leads: progress, annotator quality, invitations, selection frequencies, the audit log."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, Depends, Request
from starlette.background import BackgroundTask
from starlette.responses import FileResponse, Response

from shiftbench.testsets import accounts
from shiftbench.testsets import frequencies as counts
from shiftbench.testsets.annotation import progress
from shiftbench.testsets.database import CANDIDATE, REFERENCE
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.frequencies import CountKind
from shiftbench.testsets.project import Project, audit_log
from shiftbench.testsets.recruiting import pay_table
from shiftbench.testsets.revisions import unsearched
from shiftbench.testsets.web.context import Context, Id, Lead, PostedForm, authenticate, one_page, see_other

router = APIRouter(prefix="/lead", dependencies=[Depends(authenticate)])
#: Bins of the histogram of selection frequencies: [0, 0.1), ..., [0.9, 1].
BINS = 10
_EXPORTS = {"csv": "text/csv", "json": "application/json", "parquet": "application/vnd.apache.parquet"}
_LOG_LINES = 200
_CLASSES_ON_A_PAGE, _ANSWERS_ON_A_PAGE = 50, 200


@dataclass(frozen=True)
class Bar:
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
def overview(request: Request, context: Context, person: Lead, page: int = 1) -> Response:
    people = {one.id: one for one in accounts.people(context.project)}
    quality, found = counts.annotator_quality(context.project), progress(context.project)
    classes, pages = one_page(found, page, _CLASSES_ON_A_PAGE)
    places, answered = sum(row.places for row in found), sum(row.answered for row in found)
    return context.page(
        request,
        "lead.html",
        people=people,
        classes=classes,
        pages=pages,
        roles=accounts.ROLES,
        quality=quality,
        flags=counts.quality_flags(quality),
        invitations=accounts.invitations(context.project),
        title=context.titles,
        places=places,
        answered=answered,
        gap=unsearched(context.project),
        now=context.project.now(),
    )


@router.post("/invitations")
def invite(request: Request, context: Context, form: PostedForm, person: Lead) -> Response:
    """The only page that shows a link: the database stores its hash."""
    role, name = form.text("role"), form.text("name")
    link = accounts.invite(context.project, role, name, by=person.id)  # type: ignore[arg-type]
    return context.page(request, "invited.html", link=link, address=f"{context.origin(request)}/join/{link.token}")


@router.post("/invitations/{invitation}/revoke")
def revoke(context: Context, person: Lead, invitation: Id) -> Response:
    accounts.revoke_invitation(context.project, invitation, by=person.id)
    return see_other("/lead#invitations")


@router.post("/accounts/{account}/exclude")
def exclude(context: Context, form: PostedForm, person: Lead, account: Id) -> Response:
    because = form.text("because")[:500]
    if not because:
        hint = "go back and enter one; it is recorded in the audit log"
        raise WorkshopError("an exclusion needs a reason", hint=hint)
    if account == person.id:
        raise WorkshopError("you cannot exclude yourself")
    accounts.exclude(context.project, account, because, by=person.id)
    context.task_images.forget()
    return see_other("/lead#annotators")


@router.post("/accounts/{account}/readmit")
def readmit(context: Context, form: PostedForm, person: Lead, account: Id) -> Response:
    accounts.exclude(context.project, account, form.text("because")[:500], by=person.id, back=True)
    return see_other("/lead#annotators")


@router.get("/annotators/{account}")
def annotator(request: Request, context: Context, person: Lead, account: Id, page: int = 1) -> Response:
    """All answers of one annotator in time, with their seconds and controls, and the agreement with others."""
    names = {one.id: one.name for one in accounts.people(context.project)}
    if account not in names:
        raise WorkshopError(f"unknown account {account}")
    found = counts.answers_of(context.project, account)
    shown, pages = one_page(found, page, _ANSWERS_ON_A_PAGE)
    flags = counts.quality_flags(counts.annotator_quality(context.project)).get(account, ())
    trend = []  # the older half of the answers, then the newer
    for half in (found[len(found) // 2 :], found[: len(found) // 2]):
        controls = sum(row.controls for row in half)
        right = sum(row.right for row in half) / controls if controls else None
        trend.append((sum(row.seconds for row in half) / max(1, len(half)), right))
    return context.page(
        request,
        "annotator.html",
        name=names[account],
        answers=shown,
        total=len(found),
        pages=pages,
        flags=flags,
        trend=trend,
        agreement=counts.agreement_with_others(context.project, account),
        title=context.titles,
    )


@router.get("/answers.{kind}")
def raw_answers(context: Context, person: Lead, kind: str) -> Response:
    return _download(context, "answers", kind, counts.write_answers)


@router.get("/workers.{kind}")
def workers(context: Context, person: Lead, kind: str) -> Response:
    return _download(context, "workers", kind, lambda project, path: pay_table(project).write(path))


@router.get("/frequencies")
def frequencies(request: Request, context: Context, person: Lead, page: int = 1) -> Response:
    """The histogram and annotator agreement of all classes together, and of each class."""
    keys, pages = one_page(context.project.space.keys, page, _CLASSES_ON_A_PAGE)
    kinds = counts.count_kinds(context.project, keys)
    every = kinds if pages.last == 1 else counts.count_kinds(context.project, together=True)
    groups: dict[str, list[CountKind]] = {"all": every, **{key: [] for key in keys}}
    for kind in kinds:
        groups[kind.class_key].append(kind)
    shown = [(counts.summarise(key, found), histogram(found)) for key, found in groups.items() if found]
    return context.page(
        request, "frequencies.html", classes=shown, title=context.titles, exports=tuple(_EXPORTS), pages=pages
    )


@router.get("/frequencies.{kind}")
def export(context: Context, person: Lead, kind: str) -> Response:
    return _download(context, "frequencies", kind, counts.write_frequencies)


def _download(context: Context, what: str, kind: str, write: Callable[[Project, Path], Path]) -> Response:
    if kind not in _EXPORTS:
        raise WorkshopError("unknown file format", found=kind[:20], expected=", ".join(_EXPORTS))
    folder = tempfile.TemporaryDirectory()  # a large project has millions of answers: sent from the disk
    file = write(context.project, Path(folder.name) / f"{context.project.configuration.name}-{what}.{kind}")
    done = BackgroundTask(folder.cleanup)
    return FileResponse(file, media_type=_EXPORTS[kind], filename=file.name, background=done)


@router.get("/log")
def log_page(request: Request, context: Context, person: Lead) -> Response:
    return context.page(request, "log.html", lines=audit_log(context.project, last=_LOG_LINES))


def histogram(kinds: Sequence[CountKind]) -> list[Bar]:
    """Images with answers by selection frequency; shares of all candidates, and of all references."""
    found = {role: [0] * BINS for role in (CANDIDATE, REFERENCE)}
    for kind in kinds:
        found[kind.role][min(BINS - 1, kind.selected * BINS // kind.annotations)] += kind.images
    new, old = max(1, sum(found[CANDIDATE])), max(1, sum(found[REFERENCE]))
    bars = enumerate(zip(found[CANDIDATE], found[REFERENCE], strict=True))
    return [Bar(i / BINS, (i + 1) / BINS, a, b, a / new, b / old) for i, (a, b) in bars]
