"""Load: no answer lost, none doubled, nobody turned away, and annotators do not wait for leads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import httpx
import pytest
from anyio import to_thread
from benchmarks.annotation_load import markdown, measure

from shiftbench.testsets import frequencies
from shiftbench.testsets.accounts import Role, enter_by_link, invite
from shiftbench.testsets.frequencies import AnnotatorQuality
from shiftbench.testsets.project import Project
from shiftbench.testsets.web.app import workshop_app
from tests.testsets.conftest import PostgresServer

_ROLES: tuple[Role, ...] = ("lead", "annotator")


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_thirty_annotators(kind: str, request: pytest.FixtureRequest) -> None:
    url = "sqlite"
    if kind == "postgresql":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        url = postgres.new_database()
    measured = measure(url, annotators=30, minutes=0.2, think=3, pictures=100)
    assert (measured["lost"], measured["doubled"], measured["unacknowledged"], measured["errors"]) == (0, 0, 0, {})
    assert measured["answers"] >= 30 and measured["latency"]["images"][0] >= 40 * measured["answers"]
    assert f"| {kind} | answers |" in markdown([measured])


def test_annotators_do_not_wait_for_the_pages_of_leads(
    copied: Callable[[bool], Project], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More pages of leads than the server has threads, none of which ends: annotators still get theirs."""
    project = copied(True)
    may_end = threading.Event()
    begun = threading.Semaphore(0)

    def slow(_: Project) -> list[AnnotatorQuality]:
        begun.release()
        assert may_end.wait(120)
        return []

    monkeypatch.setattr(frequencies, "annotator_quality", slow)

    async def visit() -> None:
        app = workshop_app(project)
        clients = {}
        for role in _ROLES:
            _, token = enter_by_link(project, invite(project, role).token)
            clients[role] = httpx.AsyncClient(
                transport=httpx.ASGITransport(app),
                base_url="http://localhost",
                cookies={"shiftbench-session": token},
            )
        pages = [asyncio.ensure_future(clients["lead"].get("/lead")) for _ in range(60)]
        await to_thread.run_sync(begun.acquire)
        for path in ("/account", "/task", "/account"):
            page = await asyncio.wait_for(clients["annotator"].get(path), 60)
            assert page.status_code in (200, 303)
        assert not any(page.done() for page in pages)
        may_end.set()
        assert {page.status_code for page in await asyncio.gather(*pages)} == {200}

    asyncio.run(visit())
