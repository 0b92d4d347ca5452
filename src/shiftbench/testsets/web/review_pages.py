"""Review: the sampled images of a class above, reference images below; marks, revisions, freezing.

Nobody sees here what a model says about an image: no page, and nothing that a page is made of, holds predictions.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from shiftbench.testsets import review
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.freeze import freeze
from shiftbench.testsets.revisions import (
    PER_CLASS,
    difference,
    find_revision,
    revision_images,
    revisions,
    sample,
    set_names,
    set_status,
)
from shiftbench.testsets.sampling.base import make_sampling, samplings
from shiftbench.testsets.web.dependencies import Desk, Lead, Reviewer, TheDesk, TheForm, look, see_other

router = APIRouter(prefix="/review", dependencies=[Depends(look)])
_PAIRS_ON_A_PAGE = 20


@dataclass(frozen=True)
class ClassState:
    key: str
    title: str
    images: int
    marked: int
    reviewed: bool


@router.get("")
def sets(request: Request, desk: TheDesk, person: Reviewer) -> Response:
    statuses = [set_status(desk.project, name) for name in set_names(desk.project)]
    pairs = len(review.suspicions(desk.project))
    return desk.page(
        request, "review.html", statuses=statuses, pairs=pairs, strategies=samplings.names(), per_class=PER_CLASS
    )


@router.post("/sets")
def first_revision(desk: TheDesk, form: TheForm, person: Lead) -> Response:
    name = form.text("name") or form.text("strategy")
    if name in set_names(desk.project):
        raise WorkshopError(f"there is a set {name!r} already", hint="open it, or choose another name")
    per_class, least = _count(form.text("per_class")), _count(form.text("least"))
    strategy = make_sampling(form.text("strategy"), min_annotations=least)
    sample(desk.project, name, strategy, per_class=per_class, by=person.id)
    return see_other(f"/review/sets/{name}")


@router.get("/sets/{name}")
def one_set(request: Request, desk: TheDesk, person: Reviewer, name: str) -> Response:
    status = set_status(desk.project, name)
    found = revisions(desk.project, name)
    return desk.page(
        request, "set.html", status=status, classes=_class_states(desk, name), revisions=found,
        steps=list(pairwise(found)),
    )  # fmt: skip


@router.post("/sets/{name}/revisions")
def next_revision(desk: TheDesk, form: TheForm, person: Reviewer, name: str) -> Response:
    """Marked images are replaced, the others stay."""
    find_revision(desk.project, name)
    sample(desk.project, name, note=form.text("note")[:500], by=person.id)
    return see_other(f"/review/sets/{name}")


@router.get("/sets/{name}/differences/{old}/{new}")
def changes(request: Request, desk: TheDesk, person: Reviewer, name: str, old: int, new: int) -> Response:
    return desk.page(request, "difference.html", change=difference(desk.project, name, old, new))


@router.get("/sets/{name}/classes/{key}")
def one_class(request: Request, desk: TheDesk, person: Reviewer, name: str, key: str) -> Response:
    _check_class(desk, key)
    page = review.review_page(desk.project, person.id, name, key)
    frozen = find_revision(desk.project, name).frozen_at is not None
    keys = desk.project.space.keys
    place = keys.index(key)
    neighbours = (keys[place - 1] if place else None, keys[place + 1] if place + 1 < len(keys) else None)
    return desk.page(request, "class.html", page=page, frozen=frozen, before=neighbours[0], after=neighbours[1])


@router.post("/sets/{name}/classes/{key}/marks")
def mark(desk: TheDesk, form: TheForm, person: Reviewer, name: str, key: str) -> Response:
    _check_class(desk, key)
    entry = _count(form.text("entry"))
    if entry not in {image.entry for image in review.review_page(desk.project, person.id, name, key).sampled}:
        raise WorkshopError("this picture is not in that class of the set", found=entry)
    review.mark(desk.project, entry, form.text("kind"), form.text("note"), by=person.id)  # type: ignore[arg-type]
    return see_other(f"{_class_address(name, key)}#picture-{entry}")


@router.post("/sets/{name}/classes/{key}/marks/{mark_id}/withdraw")
def withdraw(desk: TheDesk, form: TheForm, person: Reviewer, name: str, key: str, mark_id: int) -> Response:
    _check_class(desk, key)
    review.withdraw_mark(desk.project, mark_id, by=person.id)
    return see_other(f"{_class_address(name, key)}#picture-{_count(form.text('entry'))}")


@router.post("/sets/{name}/classes/{key}/finish")
def finish(desk: TheDesk, person: Reviewer, name: str, key: str) -> Response:
    _check_class(desk, key)
    review.finish_class(desk.project, person.id, name, key)
    return see_other(f"/review/sets/{name}#classes")


@router.get("/sets/{name}/freeze")
def before_freezing(request: Request, desk: TheDesk, person: Lead, name: str) -> Response:
    return desk.page(request, "freeze.html", status=set_status(desk.project, name), classes=desk.project.space.keys)


@router.post("/sets/{name}/freeze")
def freeze_set(request: Request, desk: TheDesk, form: TheForm, person: Lead, name: str) -> Response:
    if form.text("confirm") != name:
        raise WorkshopError(
            "the set was not frozen", found=repr(form.text("confirm")[:80]), expected=f"its name, {name!r}"
        )
    frozen = freeze(desk.project, name, allow_short=bool(form.text("allow_short")), by=person.id)
    return desk.page(request, "frozen.html", frozen=frozen)


@router.get("/pairs")
def pairs(request: Request, desk: TheDesk, person: Reviewer) -> Response:
    """Suspected near-duplicates side by side, the most suspicious first."""
    found = review.suspicions(desk.project)
    return desk.page(request, "pairs.html", pairs=found[:_PAIRS_ON_A_PAGE], left=len(found))


@router.post("/pairs/{pair}")
def judge(desk: TheDesk, form: TheForm, person: Reviewer, pair: int) -> Response:
    verdict = form.text("verdict")
    if verdict not in ("duplicate", "different"):
        raise WorkshopError("a verdict is missing", expected="duplicate or different")
    review.judge(desk.project, pair, duplicate=verdict == "duplicate", by=person.id, note=form.text("note"))
    return see_other("/review/pairs")


def _class_states(desk: Desk, name: str) -> list[ClassState]:
    status = set_status(desk.project, name)
    images = revision_images(desk.project, name)
    counts = Counter(image.class_key for image in images)
    marked = Counter(image.class_key for image in images if image.digest in status.to_remove)
    return [
        ClassState(entry.key, entry.title, counts[entry.key], marked[entry.key], entry.key in status.reviewed_classes)
        for entry in desk.project.configuration.classes
    ]


def _check_class(desk: Desk, key: str) -> None:
    if key not in desk.project.space.keys:
        raise WorkshopError("there is no such class", found=repr(key[:80]))


def _class_address(name: str, key: str) -> str:
    return f"/review/sets/{quote(name, safe='')}/classes/{quote(key, safe='')}"


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise WorkshopError("a number is missing", found=repr(text[:40]))
    return int(text)
