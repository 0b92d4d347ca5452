"""A worker of MTurk in a real browser: the page in the platform's frame, the tasks in a tab, the form back."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from shiftbench.testsets.configuration import Recruiting
from shiftbench.testsets.project import Project
from shiftbench.testsets.recruiting import pay_table, recruiting_token
from tests.testsets.helpers import fill, small_configuration
from tests.testsets.web.conftest import served

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SITE = "https://www.mturk.com"


def test_a_worker_of_mturk(browser: Browser, tmp_path: Path) -> None:
    configuration = dataclasses.replace(small_configuration(), recruiting=Recruiting(tasks_per_worker=1))
    project = Project.create(tmp_path / "pets", configuration, database="sqlite")
    fill(project)
    received: list[str] = []
    with served(project, "--recruit") as site:
        link = f"{site.server.address}/recruit/{recruiting_token(project)}"
        given = {"workerId": "A1", "assignmentId": "as-1", "hitId": "h", "turkSubmitTo": SITE}

        def platform(route: Any) -> None:
            """MTurk's page with our link in a frame, and where its form is submitted."""
            if route.request.method == "POST":
                received.append(f"{route.request.url}?{route.request.post_data}")
            route.fulfill(body=f'<iframe src="{link}?{urlencode(given)}"></iframe>', content_type="text/html")

        # Chromium asks before a public site frames a page of this machine, which only the test does.
        context = browser.new_context(permissions=["local-network-access"])
        context.set_default_timeout(20_000)
        context.route(f"{SITE}/**", platform)
        frame = context.new_page()
        frame.goto(SITE)
        with context.expect_page() as opened:
            frame.frame_locator("iframe").locator("#open").click()
        tab = opened.value
        tab.click("#begin")
        tab.locator(".tile label").first.click()
        tab.locator("button.main").click()
        tab.locator("h1").wait_for()
        tab.locator("button.main").click()
        tab.click("#hand-in")
        tab.wait_for_url(f"{SITE}/**")
        context.close()
    (row,) = pay_table(project).rows
    project.close()
    assert received == [f"{SITE}/mturk/externalSubmit?assignmentId=as-1&code={row['code']}&tasks=1"]
    assert (row["worker"], row["tasks"]) == ("A1", 1)
