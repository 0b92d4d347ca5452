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
from typing import Any

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
DESK, PHONE = (1280, 900), (390, 844)
#: Corners, and the radius of the inner ones as a share of the outer.
SHAPES = {"star": (5, 0.42), "triangle": (3, 0.5), "hexagon": (6, 0.87)}
DEFINITIONS = {
    "star": "A figure with five points and five notches.",
    "triangle": "A figure with three sides and three corners.",
    "hexagon": "A figure with six sides of about the same length.",
}
NAMES = ("Anna", "Bo", "Cem", "Dana", "Eli", "Fatou", "Goran", "Hui", "Ines", "Jan")
SET = "matched-frequency"
#: Of the documentation: who, page, window, and what is clicked before.
SHOWN = {
    "grid": ("annotator", "/task", DESK, 0), "check": ("annotator", "/task", DESK, 14),
    "phone": ("annotator", "/task", PHONE, 0), "lead": ("lead", "/lead", DESK, 0),
    "frequencies": ("lead", "/lead/frequencies", DESK, 0),
    "review": ("reviewer", f"/review/sets/{SET}/classes/star", DESK, 0),
}  # fmt: skip
ALL = {
    "visitor": ("/login", "/join/x", "/recruit/{recruit}?PROLIFIC_PID=5f8e1c", "/nothing"),
    "annotator": ("/task", "/account"),
    "reviewer": ("/review", f"/review/sets/{SET}", f"/review/sets/{SET}/classes/star",
                 f"/review/sets/{SET}/differences/1/2", "/review/pairs", "/review/marks"),
    "lead": ("/lead", "/lead/frequencies", "/lead/log", "/lead/annotators/1", "/review", f"/review/sets/{SET}/freeze"),
}  # fmt: skip


def draw(shape: str, rng: np.random.Generator, clutter: int) -> Image.Image:
    """The figure in any place, size, colour and rotation, on a soft ground with other things."""
    size = 256
    tones = rng.integers(90, 210, 3) + rng.integers(-45, 45, (3, 3, 1))  # light and shade of one colour
    ground = Image.fromarray(np.clip(tones, 0, 255).astype(np.uint8)).resize((size, size), Image.Resampling.BICUBIC)
    pen = ImageDraw.Draw(ground)
    for _ in range(clutter):
        x, y, width, height = rng.integers(-20, size, 2).tolist() + rng.integers(15, 70, 2).tolist()
        pen.ellipse((x, y, x + width, y + height), fill=tuple(rng.integers(40, 240, 3).tolist()))
    corners, inner = SHAPES[shape]
    turn, radius = rng.uniform(0, 2 * math.pi), rng.uniform(45, 105)
    centre = rng.uniform(radius * 0.8, size - radius * 0.8, 2)
    points = [
        (
            centre[0] + far * math.cos(turn + i * math.pi / corners),
            centre[1] + far * math.sin(turn + i * math.pi / corners),
        )
        for i in range(2 * corners)
        for far in [radius * (inner if i % 2 else 1.0)]
    ]
    pen.polygon(points, fill=tuple(rng.integers(0, 256, 3).tolist()))
    return ground.filter(ImageFilter.GaussianBlur(1.2))


def write_images(folder: Path, each: int, seed: int, wrong: float) -> Path:
    """A manifest of drawn images; some candidates show another class than the one they are offered for."""
    rng = np.random.default_rng(seed)
    lines = ["path,label,keyword,date,licence,author"]
    for key in SHAPES:
        for i in range(each):
            shown = key if rng.random() >= wrong else str(rng.choice([other for other in SHAPES if other != key]))
            name = f"{key}/{i:03d}.png"
            (folder / key).mkdir(parents=True, exist_ok=True)
            draw(shown, rng, int(rng.integers(0, 9))).save(folder / name)
            lines.append(f"{name},{key},{shown},2026-0{1 + i % 9}-1{i % 10},CC0,drawn")
    (folder / "manifest.csv").write_text("\n".join(lines) + "\n")
    return folder / "manifest.csv"


def answer(project: Project, person: int, share: float, most: int) -> None:
    """Select images that show the class with a probability of ``share``, and others rarely."""
    rng = np.random.default_rng(person)
    for _ in range(most):
        taken = project.now()
        grid = annotation.next_task(project, person)
        if grid is None:
            return
        with project.reading() as session:
            found = select(Slot.id, PoolEntry).join(PoolEntry).join(Assignment, Assignment.task_id == Slot.task_id)
            rows = session.execute(found.where(Assignment.token == grid.task)).all()
        shown = {annotation.image_id(project, grid.task, slot): entry.keyword == grid.class_key for slot, entry in rows}
        chosen = [image for image in grid.images if rng.random() < (share if shown[image] else 0.05)]
        seconds = float(rng.normal(75, 12))
        project.now = lambda later=taken + timedelta(seconds=seconds): later  # type: ignore[misc]
        annotation.submit(project, person, grid.task, chosen)


def make_project(folder: Path) -> Project:
    classes = tuple(ClassDefinition(key, key, DEFINITIONS[key], "https://example.org") for key in SHAPES)
    texts = Instructions(contact="Anna Example, anna@lab.example")
    configuration = Configuration("shapes", classes, instructions=texts).with_rules(annotators=10)
    configuration = replace(configuration, recruiting=replace(configuration.recruiting, pay_per_task=0.5))
    project = Project.create(folder / "shapes", configuration, database="sqlite")
    import_images(project, str(write_images(folder / "candidates", 110, 1, 0.25)))
    import_images(project, str(write_images(folder / "references", 30, 2, 0.0)), "reference")
    make_tasks(project)
    for number, name in enumerate(NAMES):
        project.now = lambda day=1 + number: datetime(2026, 3, day, 9, tzinfo=UTC)  # type: ignore[misc]
        answer(project, create_account(project, name, "annotator").id, 0.93 - 0.03 * number, 8 if number < 8 else 5)
    project.now = utc_now
    sample(project, SET, make_sampling(SET, min_annotations=7, min_references=10), per_class=10)
    first = revision_images(project, SET)
    for image, note in zip([one for one in first if one.class_key == "star"][:2], ("a drawing", ""), strict=True):
        mark(project, image.entry, "blacklist", note)
    sample(project, SET)
    mark(project, next(one.entry for one in revision_images(project, SET) if one.class_key == "star"), "near-duplicate")
    suspicions = [Suspicion(first[i].entry, first[i + 1].entry, {"pixels": 9.5 + i, "ssim": 0.91}) for i in (3, 6)]
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
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, has_touch=size == PHONE)
    if role != "visitor":
        _, session = enter_by_link(project, invite(project, role, "Maria" if role == "lead" else "").token)  # type: ignore[arg-type]
        context.add_cookies([{"name": "shiftbench-session", "value": session, "url": address}])
    return context.new_page()


def screenshots(browser: Browser, address: str, project: Project) -> None:
    for name, (role, page, size, clicks) in SHOWN.items():
        tab = open_tab(browser, address, project, role, size)
        tab.goto(address + page, wait_until="networkidle")
        if role == "annotator":
            for place in range(clicks or 6):
                tab.locator(".tile").nth(3 * place % 47).click()
        if clicks:
            tab.locator("#review").click()
            tab.wait_for_load_state("networkidle")
        tab.evaluate("scrollTo(0, 0)")
        path = IMAGES / f"testset-{name}.png"
        # A page that is shorter than the window ends below its last line.
        end = tab.evaluate(
            "16 + Math.ceil(Math.max(...[...document.body.children].map((one) => one.getBoundingClientRect().bottom)))"
        )
        tab.screenshot(path=path, clip={"x": 0, "y": 0, "width": size[0], "height": min(size[1], end)})
        Image.open(path).convert("RGB").quantize(200, dither=Image.Dither.NONE).save(path, optimize=True)
        tab.context.close()


def every_page(browser: Browser, address: str, project: Project, folder: Path) -> None:
    """Whole pages, and a report of those that are wider than the window."""
    folder.mkdir(parents=True, exist_ok=True)
    for width, size in (("desk", DESK), ("phone", PHONE)):
        for role, paths in ALL.items():
            tab = open_tab(browser, address, project, role, size)
            for path in paths:
                answered: Any = tab.goto(
                    address + path.format(recruit=recruiting_token(project)), wait_until="networkidle"
                )
                wide = tab.evaluate("document.scrollingElement.scrollWidth - innerWidth")
                name = path.partition("?")[0].strip("/").replace("/", "_").replace("{recruit}", "link")
                tab.screenshot(path=folder / f"{width}-{role}-{name}.png", full_page=True)
                print(width, role, path, answered.status, f"{wide} px too wide" if wide > 0 else "")
            tab.context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", type=Path, metavar="DIR", help="folder for screenshots of every page")
    options = parser.parse_args()
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        project = make_project(Path(folder))
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        with served(project) as address:
            if options.all:
                every_page(browser, address, project, options.all)
            else:
                screenshots(browser, address, project)
        browser.close()
        project.close()


if __name__ == "__main__":
    main()
