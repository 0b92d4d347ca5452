"""The workshop's pages for browser tests: a project of real pictures with its server, and people in tabs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from shiftbench.testsets.accounts import Role, invite
from shiftbench.testsets.configuration import ClassDefinition, Configuration
from shiftbench.testsets.project import Project
from tests.browser.conftest import DESK, Watch
from tests.testsets.helpers import fill
from tests.testsets.web.conftest import Site, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog
    from playwright.sync_api import Page as Tab

WICKED = "dog <img src=x onerror=alert(1)><script>alert(2)</script>"
CLASSES = (
    ClassDefinition("cat", "cat", "A small domesticated animal with soft fur and whiskers.", "https://example.org/cat"),
    ClassDefinition("dog", WICKED, "Man's best friend & <b>more</b>."),
    ClassDefinition("frog", "frog", "A tailless amphibian with long hind legs."),
)


@contextmanager
def workshop(folder: Path, candidates: int = 39, references: int = 30, **rules: float) -> Iterator[Site]:
    """Grids of 48 with places for everybody, unless ``rules`` say otherwise."""
    configuration = Configuration("pets", CLASSES).with_rules(**{"annotators": 30, "references_per_class": 6, **rules})
    project = Project.create(folder, configuration, database="sqlite")
    fill(project, candidates, references)
    with served(project) as site:
        yield site
    project.close()


@contextmanager
def sitting(
    browser: Browser, site: Site, role: Role, *, size: tuple[int, int] = DESK, touch: bool = False, script: bool = True
) -> Iterator[Tab]:
    """Somebody who opens their link; afterwards no page may have logged an error or asked for anything elsewhere."""
    from playwright.sync_api import expect

    expect.set_options(timeout=60_000)
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, has_touch=touch, java_script_enabled=script
    )
    watch = Watch(context, allowed=lambda url: url.startswith(site.server.address))
    tab = context.new_page()
    tab.set_default_timeout(60_000)
    dialogs: list[str] = []

    def dismiss(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    tab.on("dialog", dismiss)
    tab.goto(f"{site.server.address}/join/{invite(site.project, role, f'{role} in a browser').token}")
    tab.locator("#begin").click()
    tab.wait_for_url("**/task" if role == "annotator" else "**/review" if role == "reviewer" else "**/lead")
    yield tab
    context.close()
    assert watch.wrongs == [] and dialogs == []
