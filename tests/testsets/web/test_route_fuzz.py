"""Every route of the application, asked with anything by anybody: it answers those who may, and nobody else.

The roles of the routes are stated here once more, independently of the application.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shiftbench.testsets.accounts import enter_by_link, invite
from shiftbench.testsets.database import Base
from shiftbench.testsets.project import Project
from shiftbench.testsets.revisions import sample
from shiftbench.testsets.sampling import make_sampling, samplings
from shiftbench.testsets.web.app import shielded, workshop_app
from shiftbench.testsets.web.security import Limit, Limits

pytestmark = pytest.mark.reliability("page attacks")
ROLES = ("nobody", "annotator", "reviewer", "lead")
FIELDS = (
    "token",
    "name",
    "password",
    "again",
    "image",
    "none",
    "unsure",
    "problem",
    "comment",
    "entry",
    "kind",
    "note",
    "confirm",
    "allow",
    "verdict",
    "because",
    "role",
    "strategy",
    "per_class",
    "least",
    "PROLIFIC_PID",
    "workerId",
    "worker",
    "assignmentId",
    "turkSubmitTo",
)
#: These would end the sessions of the fuzz.
ENDING = ("/logout", "/account/password", "/lead/accounts/{account}/exclude")
#: Values that mean something somewhere, numbers at the edges, and any text.
VALUES = st.one_of(
    st.sampled_from(
        [
            "set",
            "cat",
            "frog",
            "csv",
            "parquet",
            "1",
            "2",
            "blacklist",
            "near-duplicate",
            "duplicate",
            "lead",
            "annotator",
            "short",
            "unsearched",
            "unreviewed",
            *samplings.names(),
        ]
    ),
    st.integers(-(2**70), 2**70).map(str),
    st.sampled_from(["0", str(2**31), str(2**63), str(2**64), "-1", "1e9", "NaN", "١٢", "../..", "a\x00b", "\x00"]),
    st.text(max_size=40).filter(lambda text: text.encode("utf-8", "ignore").decode() == text),
)
#: Who may ask for addresses that begin so; the first line that fits a method and an address counts.
ACCESS = (
    ("GET /login", ROLES),
    ("POST /login", ROLES),
    ("GET /join/", ROLES),
    ("POST /join", ROLES),
    ("GET /recruit/", ROLES),
    ("POST /recruit/", ROLES),
    ("GET /static/", ROLES),
    ("GET /favicon.ico", ROLES),
    ("GET /account", ("annotator", "reviewer", "lead")),
    ("GET /tasks/", ("annotator", "lead")),
    ("GET /task", ("annotator", "lead")),
    ("POST /tasks/", ("annotator", "lead")),
    ("POST /finish", ("annotator", "lead")),
    ("GET /lead", ("lead",)),
    ("POST /lead", ("lead",)),
    ("GET /review/sets/{name}/freeze", ("lead",)),
    ("POST /review/sets/{name}/freeze", ("lead",)),
    ("POST /review/sets/{name}/", ("reviewer", "lead")),
    ("POST /review/sets", ("lead",)),
    ("GET /review", ("reviewer", "lead")),
    ("POST /review/", ("reviewer", "lead")),
    ("GET /", ROLES),
)


def roles_of(method: str, path: str) -> tuple[str, ...]:
    return next(roles for begin, roles in ACCESS if f"{method} {path}".startswith(begin))


def check_access(method: str, path: str, role: str, answer: Any, *, may_be_unknown: bool = False) -> None:
    """An answer to somebody without the role shows nothing, and one to somebody with it is no refusal.

    ``may_be_unknown`` is for addresses that may fit no route, or lead to nothing that exists.
    """
    asks_to_sign_in = answer.status_code == 303 and answer.headers["location"].endswith("/login")
    is_refused = answer.status_code == 403 and "permission denied" in answer.text.casefold()
    if role in roles_of(method, path):
        assert not is_refused, (method, path, role)
        assert role == "nobody" or not asks_to_sign_in, (method, path, role)
    elif may_be_unknown and answer.status_code == 404:
        return
    elif role == "nobody":
        assert asks_to_sign_in if method == "GET" else answer.status_code == 403, (method, path, answer.status_code)
    else:
        assert is_refused, (method, path, role, answer.status_code)


def routes(app: Any) -> list[tuple[str, str]]:
    paths = app.openapi()["paths"]
    return [(method.upper(), path) for path, methods in paths.items() for method in methods if path not in ENDING]


def signed_in(project: Project, app: Any, role: str) -> tuple[TestClient, str]:
    """A browser, and the token of its forms."""
    browser = TestClient(app, "http://localhost", raise_server_exceptions=False, follow_redirects=False)
    if role != "nobody":
        _, session = enter_by_link(project, invite(project, role).token)  # type: ignore[arg-type]
        browser.cookies.set("shiftbench-session", session)
    link = re.search(r'name="form" value="([0-9a-f]+)"', browser.get("/account" if role != "nobody" else "/login").text)
    assert link is not None
    return browser, link[1]


def fuzzed_app(project: Project) -> tuple[Any, Any]:
    """The application without limits of requests, and the same with its outer layers."""
    sample(project, "set", make_sampling("top-images", min_annotations=1), per_class=3)
    plain = workshop_app(project, recruiting=True)
    plain.state.context.limits = Limits(*(Limit(10**9, 1) for _ in range(6)))
    return plain, shielded(plain)


def test_every_route_in_every_role(annotated: Project, record_property: Callable[[str, object], None]) -> None:
    plain, app = fuzzed_app(annotated)
    requests = 0
    for role in ROLES:
        browser, form = signed_in(annotated, app, role)
        for method, path in routes(plain):
            address = re.sub(r"{\w+}", "1", path)
            answer = browser.request(method, address, data={"form": form} if method == "POST" else None)
            check_access(method, path, role, answer)
            requests += 1
    record_property("tries", requests)


@pytest.mark.parametrize("examples", [60, pytest.param(3000, marks=pytest.mark.soak)])
def test_every_route_answers_those_who_may(
    annotated: Project, examples: int, record_property: Callable[[str, object], None]
) -> None:
    record_property("tries", examples)
    plain, app = fuzzed_app(annotated)
    people = {role: signed_in(annotated, app, role) for role in ROLES}

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(
        route=st.sampled_from(routes(plain)),
        role=st.sampled_from(ROLES),
        places=st.lists(VALUES, min_size=4),
        fields=st.dictionaries(st.sampled_from(FIELDS), st.lists(VALUES, max_size=3), max_size=6),
        page=VALUES,
    )
    def ask(route: tuple[str, str], role: str, places: list[str], fields: dict[str, list[str]], page: str) -> None:
        (method, path) = route
        (browser, form) = people[role]
        values = iter(places)
        address = re.sub(r"{\w+}", lambda _: quote(next(values), safe=""), path) + f"?page={quote(page, safe='')}"
        body = {**fields, "form": form} if method == "POST" else None
        answer = browser.request(method, address, data=body)
        assert answer.status_code in (200, 303, 400, 403, 404, 405, 409, 410), (method, address, fields, answer.text)
        check_access(method, path, role, answer, may_be_unknown=True)
        assert "Traceback" not in answer.text and answer.headers["x-content-type-options"] == "nosniff"

    ask()
    with annotated.reading() as session:  # what was stored can be read back
        for table in Base.metadata.sorted_tables:
            session.execute(table.select()).all()
