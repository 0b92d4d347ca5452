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
from shiftbench.testsets.database import CANDIDATE, Assignment
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.frequencies import CountKind
from shiftbench.testsets.project import Project, audit_log
from shiftbench.testsets.recruiting import is_bound, pay_table, release_browser
from shiftbench.testsets.revisions import unsearched
from shiftbench.testsets.web.context import (
    Context,
    Id,
    Lead,
    LeadRoute,
    PostedForm,
    authenticate,
    one_page,
    see_other,
)

router = APIRouter(prefix="/lead", dependencies=[Depends(authenticate)], route_class=LeadRoute)
#: Bins of the histogram of selection frequencies: [0, 0.1), ..., [0.9, 1].
BINS = 10
#: File formats of downloads, with their media types.
_EXPORTS = {"csv": "text/csv", "json": "application/json", "parquet": "application/vnd.apache.parquet"}
#: Entries of the audit log on its page.
_LOG_LINES = 200
_CLASSES_ON_A_PAGE = 50
_ANSWERS_ON_A_PAGE = 200
_ANNOTATORS_ON_A_PAGE = 100


@dataclass(frozen=True)
class Bar:
    """A bin of the histogram: how many images of each role are in it, and which share of all."""

    #: The ends of the bin.
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
def overview(
    request: Request, context: Context, person: Lead, page: int = 1, annotators: int = 1, links: int = 1
) -> Response:
    """People, invitations, and the progress of every class, each in pages."""
    quality = counts.annotator_quality(context.project)
    flags = counts.quality_flags(quality)
    quality_on_page, quality_pages = one_page(quality, annotators, _ANNOTATORS_ON_A_PAGE)
    reasons = accounts.exclusion_reasons(context.project)
    invitations = accounts.invitations(context.project)[::-1]
    invitations_on_page, invitation_pages = one_page(invitations, links, _ANNOTATORS_ON_A_PAGE)
    all_classes = progress(context.project)
    classes, pages = one_page(all_classes, page, _CLASSES_ON_A_PAGE)
    return context.page(
        request,
        "lead.html",
        reasons=reasons,
        classes=classes,
        pages=pages,
        roles=accounts.ROLES,
        quality=quality_on_page,
        quality_pages=quality_pages,
        flagged=sum(bool(flags[row.account]) for row in quality),
        flags=flags,
        invitations=invitations_on_page,
        invitation_pages=invitation_pages,
        title=context.titles,
        places=sum(row.places for row in all_classes),
        answered=sum(row.answered for row in all_classes),
        gap=unsearched(context.project),
        now=context.project.now(),
    )


@router.post("/invitations")
def invite(request: Request, context: Context, form: PostedForm, person: Lead) -> Response:
    """The only page that shows a link: the database stores its hash."""
    role = form.text("role")
    link = accounts.invite(context.project, role, form.text("name"), by=person.id)  # type: ignore[arg-type]
    return context.page(request, "invited.html", link=link, address=f"{context.origin(request)}/join/{link.token}")


@router.post("/invitations/{invitation}/revoke")
def revoke(context: Context, person: Lead, invitation: Id) -> Response:
    accounts.revoke_invitation(context.project, invitation, by=person.id)
    return see_other("/lead#invitations")


@router.post("/accounts/{account}/exclude")
def exclude(context: Context, form: PostedForm, person: Lead, account: Id) -> Response:
    """Stop counting the answers of an annotator, for a reason."""
    because = form.text("because")[:500]
    if not because:
        raise WorkshopError(
            "an exclusion needs a reason", hint="go back and enter one; it is recorded in the audit log"
        )
    if account == person.id:
        raise WorkshopError("you cannot exclude yourself")
    accounts.exclude(context.project, account, because, by=person.id)
    # The images of a task that they hold must not be served from the cache.
    context.task_images.forget()
    return see_other("/lead#annotators")


@router.post("/accounts/{account}/readmit")
def readmit(context: Context, form: PostedForm, person: Lead, account: Id) -> Response:
    accounts.exclude(context.project, account, form.text("because")[:500], by=person.id, back=True)
    return see_other("/lead#annotators")


@router.post("/accounts/{account}/release")
def release(context: Context, person: Lead, account: Id) -> Response:
    """Let a recruited worker continue in another browser."""
    release_browser(context.project, account, by=person.id)
    return see_other(f"/lead/annotators/{account}")


@router.get("/annotators/{account}")
def annotator(request: Request, context: Context, person: Lead, account: Id, page: int = 1) -> Response:
    """All answers of one annotator in time, with their seconds and controls, and the agreement with others."""
    name = accounts.account_name(context.project, account)
    answers = counts.answers_of(context.project, account)
    answers_on_page, pages = one_page(answers, page, _ANSWERS_ON_A_PAGE)
    flags = counts.quality_flags(counts.annotator_quality(context.project)).get(account, ())
    # The answers are sorted from the newest to the oldest.
    middle = len(answers) // 2
    older_half = answers[middle:]
    newer_half = answers[:middle]
    return context.page(
        request,
        "annotator.html",
        name=name,
        account=account,
        bound=is_bound(context.project, account),
        answers=answers_on_page,
        total=len(answers),
        pages=pages,
        flags=flags,
        trend=[_seconds_and_accuracy(older_half), _seconds_and_accuracy(newer_half)],
        agreement=counts.agreement_with_others(context.project, account),
        title=context.titles,
    )


def _seconds_and_accuracy(answers: Sequence[Assignment]) -> tuple[float, float | None]:
    """The mean time of answers, and the share of their controls that are right; None without controls."""
    seconds = sum(answer.seconds for answer in answers) / max(1, len(answers))
    controls = sum(answer.controls for answer in answers)
    accuracy = sum(answer.right for answer in answers) / controls if controls else None
    return seconds, accuracy


@router.get("/answers.{kind}")
def raw_answers(context: Context, person: Lead, kind: str, names: bool = False) -> Response:
    """All answers under pseudonyms, or on request under the names of accounts."""

    def write(project: Project, path: Path) -> Path:
        return counts.write_answers(project, path, names=names)

    return _download(context, "answers-with-names" if names else "answers", kind, write)


@router.get("/workers.{kind}")
def workers(context: Context, person: Lead, kind: str) -> Response:
    return _download(context, "workers", kind, lambda project, path: pay_table(project).write(path))


@router.get("/frequencies")
def frequencies(request: Request, context: Context, person: Lead, page: int = 1) -> Response:
    """The histogram and annotator agreement of all classes together, and of each class."""
    keys, pages = one_page(context.project.space.keys, page, _CLASSES_ON_A_PAGE)
    kinds = counts.count_kinds(context.project, keys)
    # If all classes are on this page, their counts need not be read again.
    all_kinds = kinds if pages.last == 1 else counts.count_kinds(context.project, together=True)
    kinds_by_class: dict[str, list[CountKind]] = {key: [] for key in keys}
    for kind in kinds:
        kinds_by_class[kind.class_key].append(kind)
    classes = []
    for key, class_kinds in (("all", all_kinds), *kinds_by_class.items()):
        if class_kinds:
            classes.append((counts.summarise(key, class_kinds), histogram(class_kinds)))
    return context.page(
        request, "frequencies.html", classes=classes, title=context.titles, exports=tuple(_EXPORTS), pages=pages
    )


@router.get("/frequencies.{kind}")
def export(context: Context, person: Lead, kind: str) -> Response:
    return _download(context, "frequencies", kind, counts.write_frequencies)


def _download(context: Context, what: str, kind: str, write: Callable[[Project, Path], Path]) -> Response:
    """A file that ``write`` makes for the download, in a folder that is deleted after it."""
    if kind not in _EXPORTS:
        raise WorkshopError("unknown file format", found=kind[:20], expected=", ".join(_EXPORTS))
    # A large project has millions of answers, so the file is sent from the disk.
    folder = tempfile.TemporaryDirectory()
    file = write(context.project, Path(folder.name) / f"{context.project.configuration.name}-{what}.{kind}")
    cleanup = BackgroundTask(folder.cleanup)
    return FileResponse(file, media_type=_EXPORTS[kind], filename=file.name, background=cleanup)


@router.get("/log")
def log_page(request: Request, context: Context, person: Lead) -> Response:
    return context.page(request, "log.html", lines=audit_log(context.project, last=_LOG_LINES))


def histogram(kinds: Sequence[CountKind]) -> list[Bar]:
    """Images with answers by selection frequency; shares of all candidates, and of all references."""
    candidates = [0] * BINS
    references = [0] * BINS
    for kind in kinds:
        bins = candidates if kind.role == CANDIDATE else references
        bins[min(BINS - 1, kind.selected * BINS // kind.annotations)] += kind.images
    candidate_count = max(1, sum(candidates))
    reference_count = max(1, sum(references))
    return [
        Bar(
            low=i / BINS,
            high=(i + 1) / BINS,
            candidates=candidates[i],
            references=references[i],
            candidate_share=candidates[i] / candidate_count,
            reference_share=references[i] / reference_count,
        )
        for i in range(BINS)
    ]
