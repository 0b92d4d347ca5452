#!/usr/bin/env python3
"""Write docs/images/report-*.png: screenshots of reports.

    python3 scripts/report_images.py --testbed $(shiftbench baselines get testbed)

The numbers are those of the ImageNet testbed, and of three small models of handwritten digits, the only images shown
(docs/images/CREDITS.md). Needs playwright, Chromium and scikit-learn.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

import shiftbench as sb
from shiftbench.cli.app import app

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
#: The desk ends between the scatter plot and its caption.
DESK, PHONE = (1280, 886), (390, 844)
NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
ORDER = [NAMES.index(name) for name in sorted(NAMES)]
ESTIMATORS = {
    "logistic": LogisticRegression(max_iter=300),
    "neighbours": KNeighborsClassifier(5),
    "bayes": GaussianNB(var_smoothing=0.1),
}

#: What is done on a page before its screenshot.
Act = Callable[[Page], None]
#: The report, the address in it, whether in dark colours, and what to do there.
Plan = tuple[Path, str, bool, Act | None]


def digits(folder: Path) -> tuple[Path, Path]:
    """The reports of one and of three small models of handwritten digits, clean and corrupted."""
    found = load_digits()
    small = [Image.fromarray((255 - 15.9 * one).astype("uint8")) for one in found.images]
    large = [one.resize((64, 64), Image.Resampling.BICUBIC).convert("RGB") for one in small]
    images = np.stack([np.asarray(one) for one in large])

    def features(batch: np.ndarray) -> np.ndarray:
        rows: np.ndarray = batch[:, ::4, ::4].mean(axis=-1).reshape(len(batch), -1) / 255
        return rows

    for i in range(1200, 1797):
        place = folder / "digits" / NAMES[found.target[i]]
        place.mkdir(parents=True, exist_ok=True)
        large[i].save(place / f"{i}.png")
    for name, model in ESTIMATORS.items():
        fitted = model.fit(features(images[:1200]), found.target[:1200])
        for workspace in ("one", "three") if name == "logistic" else ("three",):
            sb.evaluate(
                lambda batch, fitted=fitted: np.log(fitted.predict_proba(features(batch))[:, ORDER] + 1e-6),
                "corruptions",
                folder / "digits",
                folder / workspace,
                labels="folders",
                preprocessing={"size": 64},
                name=name,
                progress=False,
            )
    one, three = (
        report(folder / f"{name}.html", "-w", str(folder / name), "--title", "Handwritten digits")
        for name in ("one", "three")
    )
    return one, three


def report(path: Path, *words: str) -> Path:
    app(["report", *words, "-o", str(path), "--quiet"], standalone_mode=False)
    return path


def screenshot(browser: Browser, plan: Plan, size: tuple[int, int], path: Path) -> Image.Image:
    file, address, dark, act = plan
    viewport = {"width": size[0], "height": size[1]}
    context = browser.new_context(viewport=viewport, color_scheme="dark" if dark else "light")  # type: ignore[arg-type]
    tab = context.new_page()
    tab.goto(f"{file.as_uri()}#{address}")
    tab.wait_for_load_state("networkidle")
    if act is not None:
        act(tab)
    tab.screenshot(path=path)
    context.close()
    return save(Image.open(path).convert("RGB"), path)


def save(image: Image.Image, path: Path) -> Image.Image:
    image.quantize(200, dither=Image.Dither.NONE).save(path, optimize=True)
    return image


def screenshots(browser: Browser, testbed: Path, one: Path, three: Path) -> None:
    def look(tab: Page) -> None:
        tab.locator('[data-model="resnet50_swsl"]').first.hover()

    fog = "view=corruptions&corruption=fog"
    plans: dict[str, Plan] = {
        "summary": (one, "view=summary", False, None),
        "scatter": (testbed, "view=robustness", False, look),
        "dark": (testbed, "view=robustness&x=val-on-imagenet-a-classes&y=imagenet-a&q=swsl", True, None),
        "results": (testbed, "view=results", False, None),
        "corruptions": (three, fog, False, None),
        "calibration": (three, "view=calibration", False, None),
        "failures": (three, "view=failures&model=neighbours&failures=digits-c.fog.3", False, None),
    }
    for name, plan in plans.items():
        screenshot(browser, plan, DESK, IMAGES / f"report-{name}.png")
    phones: list[Plan] = [
        (testbed, "view=robustness", False, look),
        (three, fog, False, None),
        (three, "view=calibration", True, None),
    ]
    sheet = Image.new("RGB", (3 * PHONE[0] + 2 * 24, PHONE[1]), (136, 140, 144))
    for number, plan in enumerate(phones):
        sheet.paste(screenshot(browser, plan, PHONE, IMAGES / "report-phone.png"), (number * (PHONE[0] + 24), 0))
    save(sheet, IMAGES / "report-phone.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--testbed", type=Path, required=True, metavar="DIR", help="folder with the testbed's results")
    options = parser.parse_args()
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    warnings.simplefilter("ignore", sb.ResultWarning)
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        testbed = report(Path(place) / "testbed.html", "--data", str(options.testbed))
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        screenshots(browser, testbed, *digits(Path(place)))
        browser.close()


if __name__ == "__main__":
    main()
