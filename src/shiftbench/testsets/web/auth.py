"""The door: invitation links, names with passwords, leaving."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from shiftbench.testsets.accounts import (
    SHORTEST_PASSWORD,
    Person,
    change_password,
    enter_by_link,
    enter_by_password,
    leave,
)
from shiftbench.testsets.audit import note
from shiftbench.testsets.errors import NotAllowedError, WorkshopError
from shiftbench.testsets.web.dependencies import Anyone, Desk, TheDesk, TheForm, address_of, look, see_other

router = APIRouter(dependencies=[Depends(look)])
HOMES = {"annotator": "/task", "reviewer": "/review", "lead": "/lead"}


@router.get("/")
def home(request: Request) -> Response:
    person: Person | None = request.state.person
    return see_other(HOMES[person.role] if person else "/login")


@router.get("/join/{token}")
def join_page(request: Request, desk: TheDesk, token: str) -> Response:
    """Opening a link changes nothing, so that previews of mail programs can't use it up."""
    return desk.page(request, "join.html", token=token)


@router.post("/join")
def join(request: Request, desk: TheDesk, form: TheForm) -> Response:
    address = address_of(request)
    desk.limits.addresses.check(address)
    try:
        person, session = enter_by_link(desk.project, form.text("token"))
    except NotAllowedError:
        desk.limits.addresses.try_take(address)
        raise
    return _let_in(desk, request, person, session, "link")


@router.get("/login")
def login_page(request: Request, desk: TheDesk) -> Response:
    return desk.page(request, "login.html", message="")


@router.post("/login")
def login(request: Request, desk: TheDesk, form: TheForm) -> Response:
    name, address = form.text("name"), address_of(request)
    desk.limits.addresses.take(address)
    desk.limits.names.take(name)
    try:
        person, session = enter_by_password(desk.project, name, form.secret("password"))
    except NotAllowedError as error:
        desk.note_refusal(request, error)
        return desk.page(request, "login.html", code=403, message="The name or the password is wrong.")
    desk.limits.addresses.give_back(address)
    desk.limits.names.give_back(name)
    return _let_in(desk, request, person, session, "password")


@router.post("/logout")
def logout(request: Request, desk: TheDesk) -> Response:
    token = request.cookies.get(desk.cookies.session)
    if token:
        _sign_out(desk, token)
    response = see_other("/login")
    desk.cookies.end(response)
    return response


@router.get("/account")
def account_page(request: Request, desk: TheDesk, person: Anyone) -> Response:
    return desk.page(request, "account.html", shortest=SHORTEST_PASSWORD)


@router.post("/account/password")
def set_password(desk: TheDesk, form: TheForm, person: Anyone) -> Response:
    if form.secret("password") != form.secret("again"):
        raise WorkshopError("the two passwords differ", hint="go back and type them again")
    change_password(desk.project, person.id, form.secret("password"))
    response = see_other("/login")
    desk.cookies.end(response)
    return response


def _let_in(desk: Desk, request: Request, person: Person, session: str, by: str) -> Response:
    """A new session each time; the one that was in the browser before ends."""
    before = request.cookies.get(desk.cookies.session)
    if before:
        _sign_out(desk, before)
    note(desk.project, "login", by=person.id, way=by, address=address_of(request))
    response = see_other(HOMES[person.role])
    desk.cookies.set_session(response, session)
    return response


def _sign_out(desk: Desk, session: str) -> None:
    leave(desk.project, session)
    desk.recent_tasks.forget(session)
