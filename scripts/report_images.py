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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

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
#: Width and height of a window on a desk; it ends between the scatter plot and its caption.
DESK = (1280, 886)
PHONE = (390, 844)
#: Pixels between the phones of a sheet.
GAP = 24
NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
ORDER = [NAMES.index(name) for name in sorted(NAMES)]
ESTIMATORS = {
    "logistic": LogisticRegression(max_iter=300),
    "neighbours": KNeighborsClassifier(5),
    "bayes": GaussianNB(var_smoothing=0.1),
}

#: Images that the models are trained on; the other 300 are evaluated.
TRAINING_IMAGES = 1497


@dataclass(frozen=True)
class View:
    """What a screenshot shows."""

    report: Path
    #: The part of the address behind "#".
    fragment: str
    dark: bool = False
    #: What is done on the page before the screenshot.
    prepare: Callable[[Page], None] | None = None


def digits(folder: Path) -> tuple[Path, Path]:
    """The reports of one and of three small models of handwritten digits, clean and corrupted."""
    dataset = load_digits()
    images = [enlarged(pixels) for pixels in dataset.images]
    for i in range(TRAINING_IMAGES, len(images)):
        class_folder = folder / "digits" / NAMES[dataset.target[i]]
        class_folder.mkdir(parents=True, exist_ok=True)
        images[i].save(class_folder / f"{i}.png")
    training_images = np.stack([np.asarray(image) for image in images[:TRAINING_IMAGES]])
    training_labels = dataset.target[:TRAINING_IMAGES]
    classifiers = []
    for estimator in ESTIMATORS.values():
        fitted = estimator.fit(features(training_images), training_labels)
        classifiers.append(partial(class_scores, fitted))
    # One run makes each corrupted image once, for all models.
    sb.evaluate(
        classifiers,
        "corruptions",
        folder / "digits",
        folder / "workspace",
        labels="folders",
        preprocessing={"size": 64},
        name=list(ESTIMATORS),
        progress=False,
    )
    options = ("-w", str(folder / "workspace"), "--title", "Handwritten digits")
    report_of_one = report(folder / "one.html", *options, "-c", "logistic")
    report_of_three = report(folder / "three.html", *options)
    return report_of_one, report_of_three


def enlarged(pixels: np.ndarray) -> Image.Image:
    """A digit of scikit-learn, 8 x 8 values from 0 to 16, as an image of dark ink on light paper."""
    small = Image.fromarray((255 - 15.9 * pixels).astype("uint8"))
    return small.resize((64, 64), Image.Resampling.BICUBIC).convert("RGB")


def features(batch: np.ndarray) -> np.ndarray:
    """The grey values of every fourth pixel, from 0 to 1."""
    rows: np.ndarray = batch[:, ::4, ::4].mean(axis=-1).reshape(len(batch), -1) / 255
    return rows


def class_scores(fitted: Any, batch: np.ndarray) -> np.ndarray:
    """The scores of a fitted estimator of scikit-learn, in the order of the folders."""
    scores: np.ndarray = np.log(fitted.predict_proba(features(batch))[:, ORDER] + 1e-6)
    return scores


def report(path: Path, *options: str) -> Path:
    app(["report", *options, "-o", str(path), "--quiet"], standalone_mode=False)
    return path


def screenshot(browser: Browser, view: View, size: tuple[int, int], path: Path) -> Image.Image:
    width, height = size
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if view.dark else "light"
    )
    tab = context.new_page()
    tab.goto(f"{view.report.as_uri()}#{view.fragment}")
    tab.wait_for_load_state("networkidle")
    if view.prepare is not None:
        view.prepare(tab)
    tab.screenshot(path=path)
    context.close()
    return save(Image.open(path).convert("RGB"), path)


def save(image: Image.Image, path: Path) -> Image.Image:
    """Write a small file: few colours are enough for a page."""
    image.quantize(200, dither=Image.Dither.NONE).save(path, optimize=True)
    return image


def screenshots(browser: Browser, testbed: Path, one_model: Path, three_models: Path) -> None:
    """Write all screenshots of the three reports."""

    def hover_over_model(tab: Page) -> None:
        tab.locator('[data-model="resnet50_swsl"]').first.hover()

    scatter = View(testbed, "view=robustness", prepare=hover_over_model)
    fog = View(three_models, "view=corruptions&corruption=fog")
    views = {
        "summary": View(one_model, "view=summary"),
        "scatter": scatter,
        "dark": View(testbed, "view=robustness&x=val-on-imagenet-a-classes&y=imagenet-a&q=swsl", dark=True),
        "results": View(testbed, "view=results"),
        "corruptions": fog,
        "calibration": View(three_models, "view=calibration"),
        "failures": View(three_models, "view=failures&model=neighbours&failures=digits-c.fog.3"),
    }
    for name, view in views.items():
        screenshot(browser, view, DESK, IMAGES / f"report-{name}.png")
    phone_views = [scatter, fog, View(three_models, "view=calibration", dark=True)]
    width, height = PHONE
    sheet = Image.new("RGB", (3 * width + 2 * GAP, height), (136, 140, 144))
    for number, view in enumerate(phone_views):
        image = screenshot(browser, view, PHONE, IMAGES / "report-phone.png")
        sheet.paste(image, (number * (width + GAP), 0))
    save(sheet, IMAGES / "report-phone.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--testbed", type=Path, required=True, metavar="DIR", help="folder with the testbed's results")
    options = parser.parse_args()
    warnings.simplefilter("ignore", sb.ResultWarning)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        testbed = report(Path(folder) / "testbed.html", "--data", str(options.testbed))
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"])
        one_model, three_models = digits(Path(folder))
        screenshots(browser, testbed, one_model, three_models)
        browser.close()


def chromium() -> str | None:
    """The Chromium of this machine; None if there is only the one that playwright may have installed."""
    for program in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(program)
        if path:
            return path
    return None


if __name__ == "__main__":
    main()
