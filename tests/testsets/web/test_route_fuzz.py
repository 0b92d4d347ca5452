"""Every route of the application, asked with anything by anybody: it answers, and never with a server error."""

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


@pytest.mark.parametrize("examples", [60, pytest.param(3000, marks=pytest.mark.soak)])
def test_no_route_fails(annotated: Project, examples: int, record_property: Callable[[str, object], None]) -> None:
    record_property("tries", examples)
    sample(annotated, "set", make_sampling("top-images", min_annotations=1), per_class=3)
    plain = workshop_app(annotated, recruiting=True)
    plain.state.context.limits = Limits(*(Limit(10**9, 1) for _ in range(6)))
    app = shielded(plain)
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
        assert "Traceback" not in answer.text and answer.headers["x-content-type-options"] == "nosniff"

    ask()
    with annotated.reading() as session:  # what was stored can be read back
        for table in Base.metadata.sorted_tables:
            session.execute(table.select()).all()
