#!/usr/bin/env python3
"""Write docs/images/testset-*.png: screenshots of the pages of `shiftbench testset serve`.

    python3 scripts/testset_images.py             # the images of the documentation
    python3 scripts/testset_images.py --all DIR   # every page, at desktop and phone width

The images in them are drawn here (CC0), the annotators are simulated. Needs playwright and Chromium.
"""

from __future__ import annotations

import argparse
import math
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import uvicorn
from PIL import Image, ImageDraw, ImageFilter
from playwright.sync_api import Browser, Page, sync_playwright
from sqlalchemy import select

from shiftbench.testsets import annotation
from shiftbench.testsets.accounts import create_account, enter_by_link, invite
from shiftbench.testsets.configuration import ClassDefinition, Configuration, Instructions
from shiftbench.testsets.database import Assignment, PoolEntry, Slot
from shiftbench.testsets.pool.entries import import_images
from shiftbench.testsets.pool.suspects import Suspicion, add_suspicions
from shiftbench.testsets.project import Project, utc_now
from shiftbench.testsets.recruiting import recruiting_token
from shiftbench.testsets.review import mark
from shiftbench.testsets.revisions import revision_images, sample
from shiftbench.testsets.sampling import make_sampling
from shiftbench.testsets.tasks import make_tasks
from shiftbench.testsets.web.app import bind, shielded, workshop_app

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
# Width and height of windows.
DESK = (1280, 900)
PHONE = (390, 844)
#: Corners, and the radius of the inner ones as a share of the outer.
SHAPES = {"star": (5, 0.42), "triangle": (3, 0.5), "hexagon": (6, 0.87)}
DEFINITIONS = {
    "star": "A figure with five points and five notches.",
    "triangle": "A figure with three sides and three corners.",
    "hexagon": "A figure with six sides of about the same length.",
}
NAMES = ("Anna", "Bo", "Cem", "Dana", "Eli", "Fatou", "Goran", "Hui", "Ines", "Jan")
SET = "matched-frequency"


class View(NamedTuple):
    """What a screenshot of the documentation shows."""

    role: str
    page: str
    size: tuple[int, int] = DESK
    #: Images that are selected before the answer is sent for review; without any, six are selected and nothing is sent.
    clicks: int = 0


VIEWS = {
    "grid": View("annotator", "/task"),
    "check": View("annotator", "/task", clicks=14),
    "phone": View("annotator", "/task", PHONE),
    "lead": View("lead", "/lead"),
    "frequencies": View("lead", "/lead/frequencies"),
    "review": View("reviewer", f"/review/sets/{SET}/classes/star"),
}
#: Every page, by the role of who may see it.
PAGES = {
    "visitor": (
        "/login",
        "/join/x",
        "/recruit/{recruit}?PROLIFIC_PID=5f8e1c",
        "/nothing",
    ),
    "annotator": (
        "/task",
        "/account",
    ),
    "reviewer": (
        "/review",
        f"/review/sets/{SET}",
        f"/review/sets/{SET}/classes/star",
        f"/review/sets/{SET}/differences/1/2",
        "/review/pairs",
        "/review/marks",
    ),
    "lead": (
        "/lead",
        "/lead/frequencies",
        "/lead/log",
        "/lead/annotators/1",
        "/review",
        f"/review/sets/{SET}/freeze",
    ),
}


def draw(shape: str, rng: np.random.Generator, clutter: int) -> Image.Image:
    """An image of the figure in any position, size, colour and rotation, on a soft ground with other things."""
    size = 256
    # The ground is light and shade of one colour.
    tones = rng.integers(90, 210, 3) + rng.integers(-45, 45, (3, 3, 1))
    ground = Image.fromarray(np.clip(tones, 0, 255).astype(np.uint8)).resize((size, size), Image.Resampling.BICUBIC)
    pen = ImageDraw.Draw(ground)
    for _ in range(clutter):
        x, y, width, height = rng.integers(-20, size, 2).tolist() + rng.integers(15, 70, 2).tolist()
        pen.ellipse((x, y, x + width, y + height), fill=tuple(rng.integers(40, 240, 3).tolist()))
    corners, inner_share = SHAPES[shape]
    rotation = rng.uniform(0, 2 * math.pi)
    outer_radius = rng.uniform(45, 105)
    centre_x, centre_y = rng.uniform(outer_radius * 0.8, size - outer_radius * 0.8, 2)
    points = []
    for i in range(2 * corners):
        # Outer and inner corners take turns.
        radius = outer_radius * inner_share if i % 2 else outer_radius
        angle = rotation + i * math.pi / corners
        points.append((centre_x + radius * math.cos(angle), centre_y + radius * math.sin(angle)))
    pen.polygon(points, fill=tuple(rng.integers(0, 256, 3).tolist()))
    return ground.filter(ImageFilter.GaussianBlur(1.2))


def write_images(folder: Path, each: int, seed: int, wrong: float) -> Path:
    """A manifest of drawn images; some candidates show another class than the one they are offered for."""
    rng = np.random.default_rng(seed)
    lines = ["path,label,keyword,date,licence,author"]
    for key in SHAPES:
        wrong_shapes = [shape for shape in SHAPES if shape != key]
        for i in range(each):
            shape = key
            if rng.random() < wrong:
                shape = str(rng.choice(wrong_shapes))
            name = f"{key}/{i:03d}.png"
            (folder / key).mkdir(parents=True, exist_ok=True)
            draw(shape, rng, int(rng.integers(0, 9))).save(folder / name)
            lines.append(f"{name},{key},{shape},2026-0{1 + i % 9}-1{i % 10},CC0,drawn")
    (folder / "manifest.csv").write_text("\n".join(lines) + "\n")
    return folder / "manifest.csv"


def answer(project: Project, person: int, share: float, most: int) -> None:
    """Answer up to ``most`` tasks: select images of the class with a probability of ``share``, and others rarely."""
    rng = np.random.default_rng(person)
    for _ in range(most):
        start = project.now()
        grid = annotation.next_task(project, person)
        if grid is None:
            return
        with project.reading() as session:
            query = select(Slot.id, PoolEntry).join(PoolEntry).join(Assignment, Assignment.task_id == Slot.task_id)
            rows = session.execute(query.where(Assignment.token == grid.task)).all()
        probabilities = {}
        for slot, entry in rows:
            # The keyword of an entry is the shape that was drawn.
            image = annotation.image_id(project, grid.task, slot)
            probabilities[image] = share if entry.keyword == grid.class_key else 0.05
        selected = [image for image in grid.images if rng.random() < probabilities[image]]
        seconds = float(rng.normal(75, 12))
        project.now = lambda later=start + timedelta(seconds=seconds): later  # type: ignore[misc]
        annotation.submit(project, person, grid.task, selected)


def make_project(folder: Path) -> Project:
    """A project with answers of ten annotators, two revisions of a set, marked images and suspected pairs."""
    classes = tuple(ClassDefinition(key, key, DEFINITIONS[key], "https://example.org") for key in SHAPES)
    texts = Instructions(contact="Anna Example, anna@lab.example")
    configuration = Configuration("shapes", classes, instructions=texts).with_rules(annotators=10, examples=4)
    configuration = replace(configuration, recruiting=replace(configuration.recruiting, pay_per_task=0.5))
    project = Project.create(folder / "shapes", configuration, database="sqlite")
    import_images(project, str(write_images(folder / "candidates", 110, 1, 0.25)))
    import_images(project, str(write_images(folder / "references", 30, 2, 0.0)), "reference")
    make_tasks(project)
    for number, name in enumerate(NAMES):
        project.now = lambda day=1 + number: datetime(2026, 3, day, 9, tzinfo=UTC)  # type: ignore[misc]
        tasks = 8 if number < 8 else 5
        answer(project, create_account(project, name, "annotator").id, 0.93 - 0.03 * number, tasks)
    project.now = utc_now
    sample(project, SET, make_sampling(SET, min_annotations=7, min_references=10), per_class=10)
    first_revision = revision_images(project, SET)
    first_stars = [image for image in first_revision if image.class_key == "star"]
    mark(project, first_stars[0].entry, "blacklist", "a drawing")
    mark(project, first_stars[1].entry, "blacklist", "")
    sample(project, SET)
    second_stars = [image for image in revision_images(project, SET) if image.class_key == "star"]
    mark(project, second_stars[0].entry, "near-duplicate")
    suspicions = []
    for i in (3, 6):
        similarities = {"pixels": 9.5 + i, "ssim": 0.91}
        suspicions.append(Suspicion(first_revision[i].entry, first_revision[i + 1].entry, similarities))
    add_suspicions(project, suspicions)
    return project


@contextmanager
def served(project: Project) -> Iterator[str]:
    listener = bind("127.0.0.1", 0)
    app = shielded(workshop_app(project, recruiting=True))
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="warning"))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield f"http://localhost:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def open_tab(browser: Browser, address: str, project: Project, role: str, size: tuple[int, int]) -> Page:
    """A tab of a window of this size, in which somebody of this role has logged in."""
    width, height = size
    context = browser.new_context(viewport={"width": width, "height": height}, has_touch=size == PHONE)
    if role != "visitor":
        name = "Maria" if role == "lead" else ""
        invitation = invite(project, role, name)  # type: ignore[arg-type]
        _, session = enter_by_link(project, invitation.token)
        context.add_cookies([{"name": "shiftbench-session", "value": session, "url": address}])
    return context.new_page()


def screenshots(browser: Browser, address: str, project: Project) -> None:
    """Write the screenshots of the documentation."""
    for name, view in VIEWS.items():
        tab = open_tab(browser, address, project, view.role, view.size)
        tab.goto(address + view.page, wait_until="networkidle")
        if view.role == "annotator":
            for click in range(view.clicks or 6):
                tab.locator(".tile").nth(3 * click % 47).click()
        if view.clicks:
            tab.locator("#review").click()
            tab.wait_for_load_state("networkidle")
        tab.evaluate("scrollTo(0, 0)")
        path = IMAGES / f"testset-{name}.png"
        # A page that is shorter than the window ends below its last line.
        end = tab.evaluate(
            "16 + Math.ceil(Math.max(...[...document.body.children].map((one) => one.getBoundingClientRect().bottom)))"
        )
        width, height = view.size
        tab.screenshot(path=path, clip={"x": 0, "y": 0, "width": width, "height": min(height, end)})
        Image.open(path).convert("RGB").quantize(200, dither=Image.Dither.NONE).save(path, optimize=True)
        tab.context.close()


def every_page(browser: Browser, address: str, project: Project, folder: Path) -> None:
    """Write screenshots of whole pages, and print which pages are wider than the window."""
    folder.mkdir(parents=True, exist_ok=True)
    for window, size in (("desk", DESK), ("phone", PHONE)):
        for role, paths in PAGES.items():
            tab = open_tab(browser, address, project, role, size)
            for path in paths:
                url = address + path.format(recruit=recruiting_token(project))
                response: Any = tab.goto(url, wait_until="networkidle")
                excess = tab.evaluate("document.scrollingElement.scrollWidth - innerWidth")
                name = path.partition("?")[0].strip("/").replace("/", "_").replace("{recruit}", "link")
                tab.screenshot(path=folder / f"{window}-{role}-{name}.png", full_page=True)
                print(window, role, path, response.status, f"{excess} px too wide" if excess > 0 else "")
            tab.context.close()


def chromium() -> str | None:
    """The Chromium of this machine; None if there is only the one that playwright may have installed."""
    for program in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(program)
        if path:
            return path
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", type=Path, metavar="DIR", help="folder for screenshots of every page")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        project = make_project(Path(folder))
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"])
        with served(project) as address:
            if options.all:
                every_page(browser, address, project, options.all)
            else:
                screenshots(browser, address, project)
        browser.close()
        project.close()


if __name__ == "__main__":
    main()
