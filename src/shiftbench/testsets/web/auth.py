"""Sign-in by invitation link or password, sign-out, and the account page."""

from __future__ import annotations

import hmac
import secrets

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from shiftbench.testsets.accounts import (
    SHORTEST_PASSWORD,
    Person,
    change_password,
    enter_by_link,
    enter_by_password,
    has_password,
    leave,
)
from shiftbench.testsets.errors import NotAllowedError, UnknownTaskError, WorkshopError
from shiftbench.testsets.project import note
from shiftbench.testsets.recruiting import (
    PLATFORMS,
    SIGNATURE,
    enter_as_worker,
    frame_sites,
    read_arrival,
    recruiting_token,
)
from shiftbench.testsets.web.context import Context, PostedForm, SignedIn, authenticate, see_other
from shiftbench.testsets.web.security import device_mark, is_known_device, loosen, network_of

router = APIRouter(dependencies=[Depends(authenticate)])
#: The first page of each role.
HOMES = {"annotator": "/task", "reviewer": "/review", "lead": "/lead"}


@router.get("/")
def home(request: Request) -> Response:
    person: Person | None = request.state.person
    return see_other(HOMES[person.role] if person else "/login")


@router.get("/join/{token}")
def join_page(request: Request, context: Context, token: str) -> Response:
    """Opening a link changes nothing, so that link previews of mail clients cannot use it up."""
    return context.page(request, "join.html", token=token)


@router.post("/join")
def join(request: Request, context: Context, form: PostedForm) -> Response:
    """Sign in by a link. Only invalid links count as attempts."""
    network = network_of(context.address_of(request))
    # With 0, this only checks that the network has attempts left.
    context.limits.addresses.take(network, 0)
    try:
        person, session = enter_by_link(context.project, form.text("token"))
    except NotAllowedError:
        context.limits.addresses.try_take(network)
        raise
    return _sign_in(context, request, person, session, "link")


@router.get("/recruit/{token}")
def recruit_page(request: Request, context: Context, token: str) -> Response:
    """The public link of a crowd platform. MTurk shows it in a frame, where browsers keep no cookies: a link there
    opens the same page in a tab of its own (``tab=1``), which has the form."""
    _check_recruiting(context, token)
    arrival = read_arrival(request.query_params)
    rules = context.project.configuration.recruiting
    framed = arrival.platform == "mturk" and "tab" not in request.query_params
    tab = f"?{request.url.query}&tab=1" if framed else ""
    page = context.page(request, "recruit.html", arrival=arrival, token=token, rules=rules, tab=tab)
    if framed:
        loosen(page, "frame-ancestors", *frame_sites(arrival))
    elif context.cookies.browser not in request.cookies:
        # Set before the form is sent: two clicks on it must come from the same browser.
        context.cookies.set(page, context.cookies.browser, secrets.token_urlsafe(32))
    return page


@router.post("/recruit/{token}")
def recruit(request: Request, context: Context, form: PostedForm, token: str) -> Response:
    """Sign in as the worker whom the platform sent; the form repeats the parameters of the link."""
    _check_recruiting(context, token)
    parameters = {}
    for platform in PLATFORMS.values():
        for name in platform.parameters:
            parameters[name] = form.text(name)
    parameters[SIGNATURE] = form.text(SIGNATURE)
    arrival = read_arrival(parameters)
    context.limits.recruits.take(network_of(context.address_of(request)))
    entry = enter_as_worker(context.project, arrival, request.cookies.get(context.cookies.browser, ""))
    response = _sign_in(context, request, entry.person, entry.session, arrival.platform)
    context.cookies.set(response, context.cookies.browser, entry.browser)
    return response


def _check_recruiting(context: Context, token: str) -> None:
    """Raise UnknownTaskError unless recruiting is on and this is the project's link."""
    expected = recruiting_token(context.project)
    if not context.recruiting or not hmac.compare_digest(token.encode("utf-8", "replace"), expected.encode()):
        raise UnknownTaskError("unknown link")


@router.get("/login")
def login_page(request: Request, context: Context) -> Response:
    return context.page(request, "login.html", message="")


@router.post("/login")
def login(request: Request, context: Context, form: PostedForm) -> Response:
    """Sign in by a password. An attempt is taken from the limits first, and given back if it succeeds."""
    name = form.text("name")
    device = request.cookies.get(context.cookies.device, "")
    if is_known_device(context.project, name, device):
        limits = [(context.limits.devices, device)]
    else:
        network = network_of(context.address_of(request))
        limits = [(context.limits.addresses, network), (context.limits.names, f"{network} {name}")]
    for limit, key in limits:
        limit.take(key)
    try:
        person, session = enter_by_password(context.project, name, form.secret("password"))
    except NotAllowedError as error:
        context.note_refusal(request, error)
        return context.page(request, "login.html", code=403, message="Wrong name or password.")
    for limit, key in limits:
        limit.give_back(key)
    return _sign_in(context, request, person, session, "password")


@router.post("/logout")
def logout(request: Request, context: Context) -> Response:
    token = request.cookies.get(context.cookies.session)
    if token:
        _sign_out(context, token)
    return _signed_out(context)


@router.get("/account")
def account_page(request: Request, context: Context, person: SignedIn) -> Response:
    return _account_page(request, context, person)


def _account_page(
    request: Request, context: Context, person: Person, *, code: int = 200, message: str = ""
) -> Response:
    """The page of an account, which asks for the old password if there is one."""
    return context.page(
        request,
        "account.html",
        code=code,
        message=message,
        shortest=SHORTEST_PASSWORD,
        has_password=has_password(context.project, person.id),
    )


@router.post("/account/password")
def set_password(request: Request, context: Context, form: PostedForm, person: SignedIn) -> Response:
    """Set a password, which ends all sessions of the account; attempts with a wrong old password are limited."""
    if form.secret("password") != form.secret("again"):
        raise WorkshopError("the passwords do not match", hint="go back and type them again")
    attempts = context.limits.names
    account = f"account {person.id}"
    attempts.take(account)
    try:
        change_password(context.project, person.id, form.secret("password"), old=form.secret("old"))
    except NotAllowedError as error:
        context.note_refusal(request, error)
        return _account_page(request, context, person, code=403, message="The old password is wrong.")
    attempts.give_back(account)
    return _signed_out(context)


def _signed_out(context: Context) -> Response:
    """Redirect to the sign-in page, without the cookies of the session."""
    response = see_other("/login")
    context.cookies.end(response)
    return response


def _sign_in(context: Context, request: Request, person: Person, session: str, by: str) -> Response:
    """Start a new session and end the previous one of this browser."""
    previous_session = request.cookies.get(context.cookies.session)
    if previous_session:
        _sign_out(context, previous_session)
    note(context.project, "login", by=person.id, way=by, address=context.address_of(request))
    response = see_other(HOMES[person.role])
    context.cookies.set(response, context.cookies.session, session)
    if not is_known_device(context.project, person.name, request.cookies.get(context.cookies.device, "")):
        context.cookies.set(response, context.cookies.device, device_mark(context.project, person.name))
    return response


def _sign_out(context: Context, session: str) -> None:
    leave(context.project, session)
    context.task_images.forget(session)
