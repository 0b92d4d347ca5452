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
    LeadRoute,
    PostedForm,
    Reviewer,
    authenticate,
    one_page,
    see_other,
)

router = APIRouter(prefix="/review", dependencies=[Depends(authenticate)], route_class=LeadRoute)
_PAIRS_ON_A_PAGE = 20
_IMAGES_ON_A_PAGE = 60
_CLASSES_ON_A_PAGE = 100


@router.get("")
def sets(request: Request, context: Context, person: Reviewer) -> Response:
    """All sets, and the form for a new one."""
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
    """Sample a new set; options that its strategy does not have are ignored."""
    strategy = form.text("strategy")
    name = form.text("name") or strategy
    if name in set_names(context.project):
        raise WorkshopError(f"the set {name!r} already exists", hint="open it, or choose another name")
    posted_options = {
        "min_annotations": _count(form.text("least")),
        "threshold": _count(form.text("percent", "70")) / 100,
        "balanced": bool(form.text("balanced")),
    }
    names = option_names(strategy)
    options = {key: value for key, value in posted_options.items() if key in names}
    sampling = make_sampling(strategy, **options)
    sample(context.project, name, sampling, per_class=_count(form.text("per_class")), by=person.id)
    return see_other(f"/review/sets/{name}")


@router.get("/sets/{name}")
def one_set(request: Request, context: Context, person: Reviewer, name: str, page: int = 1) -> Response:
    """The classes and revisions of a set."""
    status = set_status(context.project, name)
    set_revisions = revisions(context.project, name)
    definitions, pages = one_page(context.project.configuration.classes, page, _CLASSES_ON_A_PAGE)
    classes = [
        {
            "key": definition.key,
            "title": definition.title,
            "images": status.images[definition.key],
            "marked": status.removed[definition.key],
            "reviewed": definition.key in status.reviewed_classes,
        }
        for definition in definitions
    ]
    return context.page(
        request,
        "set.html",
        status=status,
        classes=classes,
        pages=pages,
        revisions=set_revisions,
        steps=list(pairwise(set_revisions)),
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
    """The images of a class in the latest revision, with links to the classes before and after it."""
    page = review.review_page(context.project, person.id, name, key)
    frozen = find_revision(context.project, name).frozen_at is not None
    keys = context.project.space.keys
    index = keys.index(key)
    before = keys[index - 1] if index > 0 else None
    after = keys[index + 1] if index + 1 < len(keys) else None
    return context.page(request, "class.html", page=page, frozen=frozen, before=before, after=after)


@router.post("/sets/{name}/classes/{key}/marks")
def mark(context: Context, form: PostedForm, person: Reviewer, name: str, key: ClassKey) -> Response:
    """Mark an image of the page; an image of another class or set is refused."""
    entry = _count(form.text("entry"))
    page = review.review_page(context.project, person.id, name, key)
    if entry not in {image.id for image in page.sampled}:
        raise WorkshopError("this image does not belong to that class of the set", found=entry)
    review.mark(context.project, entry, form.text("kind"), form.text("note"), by=person.id)  # type: ignore[arg-type]
    return see_other(f"{_class_address(name, key)}#image-{entry}")


@router.post("/sets/{name}/classes/{key}/finish")
def finish(context: Context, form: PostedForm, person: Reviewer, name: str, key: ClassKey) -> Response:
    """Record that a class is reviewed, and go on to the next one that is not."""
    undo = bool(form.text("undo"))
    review.finish_class(context.project, person.id, name, key, undo=undo)
    if undo:
        return see_other(_class_address(name, key))
    next_key = _next_unreviewed(context, set_status(context.project, name), after=key)
    if next_key is None:
        return see_other(f"/review/sets/{quote(name, safe='')}#classes")
    return see_other(_class_address(name, next_key))


@router.get("/sets/{name}/freeze")
def before_freezing(request: Request, context: Context, person: Lead, name: str) -> Response:
    status = set_status(context.project, name)
    if status.revision.frozen_at is not None:
        return see_other(f"/review/sets/{name}")
    return context.page(request, "freeze.html", status=status, gap=unsearched(context.project))


@router.post("/sets/{name}/freeze")
def freeze_set(request: Request, context: Context, form: PostedForm, person: Lead, name: str) -> Response:
    """Freeze a set, if the lead has typed its name."""
    typed_name = form.text("confirm")
    if typed_name != name:
        raise WorkshopError("the set was not frozen", found=repr(typed_name[:80]), expected=f"its name, {name!r}")
    frozen = freeze(context.project, name, allow=form.all("allow"), by=person.id)
    return context.page(request, "frozen.html", frozen=frozen)


@router.get("/pairs")
def pairs(request: Request, context: Context, person: Reviewer, page: int = 1) -> Response:
    """Suspected near-duplicates side by side, the most similar first, then those that were judged."""
    states = ("confirmed", "dismissed")
    numbers, pages = one_page(range(review.count_suspicions(context.project, *states)), page, _PAIRS_ON_A_PAGE)
    first = numbers[0] if numbers else 0
    return context.page(
        request,
        "pairs.html",
        pairs=review.suspicions(context.project, limit=_PAIRS_ON_A_PAGE),
        judged=review.suspicions(context.project, *states, first=first, limit=_PAIRS_ON_A_PAGE),
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
    all_marks = review.marked_images(context.project, limit=10_000)
    marks_on_page, pages = one_page(all_marks, page, _IMAGES_ON_A_PAGE)
    return context.page(request, "marks.html", marks=marks_on_page, pages=pages, title=context.titles)


@router.post("/marks/{mark_id}/withdraw")
def withdraw(context: Context, form: PostedForm, person: Reviewer, mark_id: Id) -> Response:
    """From the list of marks, or from the page of a class in a set."""
    review.withdraw_mark(context.project, mark_id, by=person.id)
    name = form.text("set")
    if not name:
        return see_other("/review/marks")
    return see_other(f"{_class_address(name, form.text('class'))}#image-{_count(form.text('entry'))}")


@router.get("/keywords")
def keywords(request: Request, context: Context, person: Reviewer, page: int = 1) -> Response:
    """How many images of each class have a keyword."""
    keys, pages = one_page(context.project.space.keys, page, _CLASSES_ON_A_PAGE)
    with_keyword: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for (key, keyword), roles in keyword_counts(context.project, keys).items():
        total[key] += roles.total()
        if keyword:
            with_keyword[key] += roles.total()
    rows = [{"key": key, "title": context.titles[key], "named": with_keyword[key], "total": total[key]} for key in keys]
    return context.page(request, "keywords.html", classes=rows, pages=pages)


@router.get("/keywords/{key}")
def class_keywords(
    request: Request, context: Context, person: Reviewer, key: ClassKey, word: str = "", page: int = 1
) -> Response:
    """The images of a class with one keyword, by default those without, to set or correct it."""
    counts = {keyword: roles for (_, keyword), roles in keyword_counts(context.project, [key]).items()}
    keywords_in_use = sorted(counts, key=lambda keyword: (-counts[keyword].total(), keyword))
    image_count = counts[word].total() if word in counts else 0
    numbers, pages = one_page(range(image_count), page, _IMAGES_ON_A_PAGE)
    first = numbers[0] if numbers else 0
    printed = [keyword for class_key, keyword in printed_keywords() if class_key == key]
    suggestions = {keyword for keyword in (*keywords_in_use, *printed) if keyword}
    return context.page(
        request,
        "class_keywords.html",
        key=key,
        title=context.titles[key],
        word=word,
        words=keywords_in_use,
        counts=counts,
        images=keyword_images(context.project, key, word, first=first, limit=_IMAGES_ON_A_PAGE),
        pages=pages,
        known=sorted(suggestions),
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
    keys = context.project.space.keys
    start = 0 if after is None else keys.index(after) + 1
    for key in (*keys[start:], *keys[:start]):
        if key not in status.reviewed_classes:
            return key
    return None


def _class_address(name: str, key: ClassKey) -> str:
    return f"/review/sets/{quote(name, safe='')}/classes/{quote(key, safe='')}"


def _count(text: str) -> int:
    """A number in a form; raises WorkshopError if it is none."""
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise WorkshopError("invalid number", found=repr(text[:40]))
    return int(text)
