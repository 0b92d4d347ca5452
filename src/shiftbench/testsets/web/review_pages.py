"""Review pages: sampled images of a class above, references below; marks, revisions, freezing.

No page contains model predictions.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from shiftbench.testsets import review
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.freeze import freeze
from shiftbench.testsets.keywords import keyword_counts, keyword_images, printed_keywords, set_keyword
from shiftbench.testsets.revisions import (
    PER_CLASS,
    SetStatus,
    difference,
    find_revision,
    revisions,
    sample,
    set_names,
    set_status,
    unsearched,
)
from shiftbench.testsets.sampling import make_sampling, option_names, samplings
from shiftbench.testsets.web.context import (
    ClassKey,
    Context,
    Id,
    Lead,
    PostedForm,
    Reviewer,
    authenticate,
    one_page,
    see_other,
)

router = APIRouter(prefix="/review", dependencies=[Depends(authenticate)])
_PAIRS_ON_A_PAGE, _MARKS_ON_A_PAGE, _CLASSES_ON_A_PAGE = 20, 60, 100


@router.get("")
def sets(request: Request, context: Context, person: Reviewer) -> Response:
    statuses = [set_status(context.project, name) for name in set_names(context.project)]
    return context.page(
        request,
        "review.html",
        statuses=statuses,
        pairs=review.count_suspicions(context.project),
        strategies=samplings.names(),
        per_class=PER_CLASS,
        gap=unsearched(context.project),
    )


@router.post("/sets")
def first_revision(context: Context, form: PostedForm, person: Lead) -> Response:
    name = form.text("name") or form.text("strategy")
    if name in set_names(context.project):
        raise WorkshopError(f"the set {name!r} already exists", hint="open it, or choose another name")
    given = {
        "min_annotations": _count(form.text("least")),
        "threshold": _count(form.text("percent", "70")) / 100,
        "balanced": bool(form.text("balanced")),
    }
    known = option_names(form.text("strategy"))
    strategy = make_sampling(form.text("strategy"), **{key: value for key, value in given.items() if key in known})
    sample(context.project, name, strategy, per_class=_count(form.text("per_class")), by=person.id)
    return see_other(f"/review/sets/{name}")


@router.get("/sets/{name}")
def one_set(request: Request, context: Context, person: Reviewer, name: str, page: int = 1) -> Response:
    status = set_status(context.project, name)
    found = revisions(context.project, name)
    shown, pages = one_page(context.project.configuration.classes, page, _CLASSES_ON_A_PAGE)
    classes = [
        {
            "key": one.key,
            "title": one.title,
            "images": status.images[one.key],
            "marked": status.removed[one.key],
            "reviewed": one.key in status.reviewed_classes,
        }
        for one in shown
    ]
    return context.page(
        request,
        "set.html",
        status=status,
        classes=classes,
        pages=pages,
        revisions=found,
        steps=list(pairwise(found)),
        gap=unsearched(context.project),
        next_class=_next_unreviewed(context, status),
    )


@router.post("/sets/{name}/revisions")
def next_revision(context: Context, form: PostedForm, person: Reviewer, name: str) -> Response:
    find_revision(context.project, name)
    sample(context.project, name, note=form.text("note")[:500], by=person.id)
    return see_other(f"/review/sets/{name}")


@router.get("/sets/{name}/differences/{old}/{new}")
def changes(request: Request, context: Context, person: Reviewer, name: str, old: Id, new: Id) -> Response:
    return context.page(request, "difference.html", change=difference(context.project, name, old, new))


@router.get("/sets/{name}/classes/{key}")
def one_class(request: Request, context: Context, person: Reviewer, name: str, key: ClassKey) -> Response:
    page = review.review_page(context.project, person.id, name, key)
    frozen = find_revision(context.project, name).frozen_at is not None
    keys = context.project.space.keys
    place = keys.index(key)
    neighbours = (keys[place - 1] if place else None, keys[place + 1] if place + 1 < len(keys) else None)
    return context.page(request, "class.html", page=page, frozen=frozen, before=neighbours[0], after=neighbours[1])


@router.post("/sets/{name}/classes/{key}/marks")
def mark(context: Context, form: PostedForm, person: Reviewer, name: str, key: ClassKey) -> Response:
    entry = _count(form.text("entry"))
    if entry not in {image.id for image in review.review_page(context.project, person.id, name, key).sampled}:
        raise WorkshopError("this image does not belong to that class of the set", found=entry)
    review.mark(context.project, entry, form.text("kind"), form.text("note"), by=person.id)  # type: ignore[arg-type]
    return see_other(f"{_class_address(name, key)}#image-{entry}")


@router.post("/sets/{name}/classes/{key}/finish")
def finish(context: Context, form: PostedForm, person: Reviewer, name: str, key: ClassKey) -> Response:
    undo = bool(form.text("undo"))
    review.finish_class(context.project, person.id, name, key, undo=undo)
    if undo:
        return see_other(_class_address(name, key))
    following = _next_unreviewed(context, set_status(context.project, name), after=key)
    return see_other(
        f"/review/sets/{quote(name, safe='')}#classes" if following is None else _class_address(name, following)
    )


@router.get("/sets/{name}/freeze")
def before_freezing(request: Request, context: Context, person: Lead, name: str) -> Response:
    status = set_status(context.project, name)
    if status.revision.frozen_at is not None:
        return see_other(f"/review/sets/{name}")
    return context.page(request, "freeze.html", status=status, gap=unsearched(context.project))


@router.post("/sets/{name}/freeze")
def freeze_set(request: Request, context: Context, form: PostedForm, person: Lead, name: str) -> Response:
    if form.text("confirm") != name:
        raise WorkshopError(
            "the set was not frozen", found=repr(form.text("confirm")[:80]), expected=f"its name, {name!r}"
        )
    frozen = freeze(context.project, name, allow=form.all("allow"), by=person.id)
    return context.page(request, "frozen.html", frozen=frozen)


@router.get("/pairs")
def pairs(request: Request, context: Context, person: Reviewer, page: int = 1) -> Response:
    """Suspected near-duplicates side by side, the most similar first, then those that were judged."""
    states = ("confirmed", "dismissed")
    numbers, pages = one_page(range(review.count_suspicions(context.project, *states)), page, _PAIRS_ON_A_PAGE)
    judged = review.suspicions(context.project, *states, first=numbers[0] if numbers else 0, limit=_PAIRS_ON_A_PAGE)
    return context.page(
        request,
        "pairs.html",
        pairs=review.suspicions(context.project, limit=_PAIRS_ON_A_PAGE),
        judged=judged,
        left=review.count_suspicions(context.project),
        title=context.titles,
        pages=pages,
    )


@router.post("/pairs/{pair}")
def judge(context: Context, form: PostedForm, person: Reviewer, pair: Id) -> Response:
    verdict = form.text("verdict")
    if verdict not in ("duplicate", "different"):
        raise WorkshopError("missing verdict", expected="duplicate or different")
    review.judge(context.project, pair, duplicate=verdict == "duplicate", by=person.id, note=form.text("note"))
    return see_other("/review/pairs")


@router.post("/pairs/{pair}/undo")
def undo_judgement(context: Context, person: Reviewer, pair: Id) -> Response:
    review.undo_judgement(context.project, pair, by=person.id)
    return see_other("/review/pairs")


@router.get("/marks")
def marks(request: Request, context: Context, person: Reviewer, page: int = 1) -> Response:
    """All marked images of the project, also those that have left the set."""
    shown, pages = one_page(review.marked_images(context.project, limit=10_000), page, _MARKS_ON_A_PAGE)
    return context.page(request, "marks.html", marks=shown, pages=pages, title=context.titles)


@router.post("/marks/{mark_id}/withdraw")
def withdraw(context: Context, form: PostedForm, person: Reviewer, mark_id: Id) -> Response:
    """From the list of marks, or from the page of a class in a set."""
    review.withdraw_mark(context.project, mark_id, by=person.id)
    name, key = form.text("set"), form.text("class")
    return see_other(f"{_class_address(name, key)}#image-{_count(form.text('entry'))}" if name else "/review/marks")


@router.get("/keywords")
def keywords(request: Request, context: Context, person: Reviewer, page: int = 1) -> Response:
    """How many images of each class have a keyword."""
    keys, pages = one_page(context.project.space.keys, page, _CLASSES_ON_A_PAGE)
    named, total = Counter[str](), Counter[str]()
    for (key, word), roles in keyword_counts(context.project, keys).items():
        total[key] += roles.total()
        named[key] += roles.total() if word else 0
    rows = [{"key": key, "title": context.titles[key], "named": named[key], "total": total[key]} for key in keys]
    return context.page(request, "keywords.html", classes=rows, pages=pages)


@router.get("/keywords/{key}")
def class_keywords(
    request: Request, context: Context, person: Reviewer, key: ClassKey, word: str = "", page: int = 1
) -> Response:
    """The images of a class with one keyword, by default those without, to set or correct it."""
    counts = {found: roles for (_, found), roles in keyword_counts(context.project, [key]).items()}
    words = sorted(counts, key=lambda one: (-counts[one].total(), one))
    number, pages = one_page(range(counts[word].total() if word in counts else 0), page, _MARKS_ON_A_PAGE)
    images = keyword_images(context.project, key, word, first=number[0] if number else 0, limit=_MARKS_ON_A_PAGE)
    known = sorted({*filter(None, words), *(printed for own, printed in printed_keywords() if own == key)})
    return context.page(
        request,
        "class_keywords.html",
        key=key,
        title=context.titles[key],
        word=word,
        words=words,
        counts=counts,
        images=images,
        pages=pages,
        known=known,
    )


@router.post("/keywords/{key}")
def label_images(context: Context, form: PostedForm, person: Reviewer, key: ClassKey) -> Response:
    entries = [_count(entry) for entry in form.all("entry")]
    if not entries:
        raise WorkshopError("no image was selected", hint="go back and select the images that show the keyword")
    set_keyword(context.project, entries, form.text("keyword"), by=person.id)
    return see_other(f"/review/keywords/{quote(key, safe='')}?word={quote(form.text('word'), safe='')}")


def _next_unreviewed(context: Context, status: SetStatus, after: str | None = None) -> str | None:
    """The next class that nobody has reviewed in this revision, in class order after ``after``, then from the start."""
    keys, done = context.project.space.keys, set(status.reviewed_classes)
    start = 0 if after is None else keys.index(after) + 1
    return next((key for key in (*keys[start:], *keys[:start]) if key not in done), None)


def _class_address(name: str, key: ClassKey) -> str:
    return f"/review/sets/{quote(name, safe='')}/classes/{quote(key, safe='')}"


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise WorkshopError("invalid number", found=repr(text[:40]))
    return int(text)
