"""A real browser that opens report pages, and holds every page to what all pages must keep.

No page may log an error, ask anything of the network, or show a number that is none.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shiftbench.reports.page.payload import Page
from shiftbench.reports.page.published import Published
from shiftbench.reports.page.report_data import ReportData, ReportOptions, build_page
from shiftbench.reports.page.thumbnails import FileAlbum
from shiftbench.reports.page.write import page_html
from shiftbench.studies.study import Study
from tests.reports.page.making import read_published

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext
    from playwright.sync_api import Page as Tab

MAC = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", MAC)
CHROMIUM = next((found for found in map(shutil.which, PROGRAMS) if found), None)
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DESK = (1280, 900)
PHONE = (390, 844)

#: Opens a page: Open(payload, "view=results", size=PHONE, dark=True).
Open = Callable[..., "Tab"]


# Not for the whole session: a running playwright holds an event loop, which other tests may want to start.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed (Debian package: chromium)")
    with api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield launched
        launched.close()


class Watch:
    """What a context's pages did that no page may do."""

    def __init__(self, context: BrowserContext, allowed: Callable[[str], bool]) -> None:
        self.wrongs: list[str] = []
        self.allowed = allowed
        context.on("page", self._follow)
        context.route("**/*", self._gate)

    def _follow(self, tab: Tab) -> None:
        tab.on("console", lambda message: self._note(f"console: {message.text}", message.type in ("error", "warning")))
        tab.on("pageerror", lambda error: self._note(f"error: {error}", True))

    def _gate(self, route: Any) -> None:
        if self.allowed(route.request.url):
            route.continue_()
        else:
            self._note(f"request: {route.request.url[:200]}", True)
            route.abort()

    def _note(self, what: str, wrong: bool) -> None:
        if wrong:
            self.wrongs.append(what)


#: Attributes and texts of the page that hold what JavaScript makes of a missing number.
NON_NUMBERS = """() => [...document.querySelectorAll('body *:not(script)')].flatMap((node) => [
    ...[...node.attributes].filter((a) => a.name !== 'data-model').map((a) => `${a.name}=${a.value}`),
    ...[...node.childNodes].filter((c) => c.nodeType === 3).map((c) => c.data),
]).filter((text) => /\\b(NaN|undefined|Infinity|\\[object)/.test(text))"""


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Writes a payload as a page, opens the file, and afterwards checks that all went well."""
    opened: list[tuple[Watch, Tab]] = []

    def open_(
        page: Page | bytes, address: str = "", *, size: tuple[int, int] = DESK, dark: bool = False, touch: bool = False
    ) -> Tab:
        path = tmp_path / f"report-{len(opened)}.html"
        path.write_bytes(page if isinstance(page, bytes) else page_html(page))
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if dark else "light", has_touch=touch
        )
        watch = Watch(context, allowed=lambda url: url.startswith((path.as_uri(), "data:", "blob:")))
        tab = context.new_page()
        tab.set_default_timeout(60_000)
        tab.goto(f"{path.as_uri()}#{address}")
        opened.append((watch, tab))
        return tab

    yield open_
    for watch, tab in opened:
        assert tab.evaluate(NON_NUMBERS) == []
        tab.context.close()
        assert watch.wrongs == []


@pytest.fixture(scope="session")
def published(reference_data: Path) -> Published:
    return read_published(reference_data / "imagenet-testbed")


@pytest.fixture(scope="session")
def study(published: Published) -> Study:
    return published.study


@pytest.fixture(scope="session")
def testbed_page(published: Published) -> bytes:
    """The page of the public testbed's 204 models, ready to be opened."""
    return page_html(build_page(ReportData(None, published, ReportOptions(title="the testbed"), FileAlbum())))
