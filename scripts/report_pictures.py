#!/usr/bin/env python3
"""Write docs/pictures/report-*.png: screenshots of reports.

    shiftbench demo
    python3 scripts/report_pictures.py --testbed $(shiftbench baselines get testbed)

The numbers are those of the ImageNet testbed and of the demo's workspace. The only images shown are free: handwritten
digits of scikit-learn, and two photographs of scikit-image (docs/pictures/CREDITS.md). Needs playwright, Chromium,
scikit-learn and the extra demo.
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

import shiftbench as sb
from shiftbench.cli.app import app

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
DESK, PHONE = (1280, 900), (390, 844)
CORRUPTIONS = ("gaussian_noise", "shot_noise", "defocus_blur", "motion_blur", "fog", "contrast", "pixelate")


def digits(folder: Path) -> Path:
    """The report of one small model on handwritten digits, clean and corrupted."""
    found = load_digits()
    images = np.stack(
        [
            np.asarray(
                Image.fromarray((255 - 15.9 * one).astype("uint8"))
                .resize((64, 64), Image.Resampling.BICUBIC)
                .convert("RGB")
            )
            for one in found.images
        ]
    )

    def features(batch: np.ndarray) -> np.ndarray:
        return batch[:, ::4, ::4].mean(axis=-1).reshape(len(batch), -1) / 255

    model = LogisticRegression(max_iter=300).fit(features(images[:1200]), found.target[:1200])
    names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    for i in range(1200, 1797):
        place = folder / "digits" / names[found.target[i]]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(images[i]).save(place / f"{i}.png")
    order = [names.index(name) for name in sorted(names)]
    sb.evaluate(
        lambda batch: model.decision_function(features(batch))[:, order],
        "corruptions",
        folder / "digits",
        folder / "digits-workspace",
        labels="folders",
        preprocessing={"size": 64},
        name="digits-model",
        corruptions=CORRUPTIONS,
        progress=False,
    )
    return report(folder / "digits.html", "-w", str(folder / "digits-workspace"), "--title", "Handwritten digits")


def photographs(folder: Path) -> Path:
    """The report of two of the demo's models on two free photographs."""
    demo = sb.open_dataset("demo")
    for i, name in enumerate(demo.ids):
        if name.startswith("scikit-image/"):
            place = folder / "photographs" / demo.space.keys[demo.labels[i]]
            place.mkdir(parents=True)
            Image.fromarray(demo.read(i).pixels).save(place / Path(name).name)
    sb.evaluate(
        ["demo:squeezenet1_1", "demo:efficientnet-lite0"],
        "corruptions",
        folder / "photographs",
        folder / "photographs-workspace",
        labels="imagenet-1k",
        corruptions=("fog", "frost", "gaussian_noise", "glass_blur"),
        severities=(3, 5),
        progress=False,
    )
    return report(folder / "photos.html", "-w", str(folder / "photographs-workspace"), "--title", "Free photographs")


def report(path: Path, *words: str) -> Path:
    app(["report", *words, "-o", str(path)], standalone_mode=False)
    return path


def open_tab(browser: Browser, file: Path, address: str, size: tuple[int, int], *, dark: bool = False) -> Page:
    scheme = "dark" if dark else "light"
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)  # type: ignore[arg-type]
    tab = context.new_page()
    tab.goto(f"{file.as_uri()}#{address}")
    tab.wait_for_load_state("networkidle")
    return tab


def save(tab: Page, name: str) -> Image.Image:
    path = PICTURES / f"report-{name}.png"
    tab.screenshot(path=path)
    tab.context.close()
    found = Image.open(path).convert("RGB")
    found.quantize(200, dither=Image.Dither.NONE).save(path, optimize=True)
    return found


def screenshots(browser: Browser, testbed: Path, demo: Path, own: Path, photos: Path) -> None:
    def look(tab: Page) -> None:
        tab.locator('[data-model="resnet50_swsl"]').first.hover()

    plans: dict[str, tuple[Path, str, bool, Callable[[Page], None] | None]] = {
        "summary": (own, "view=summary", False, None),
        "scatter": (testbed, "view=robustness", False, look),
        "dark": (testbed, "view=robustness&x=val-on-imagenet-a-classes&y=imagenet-a&q=swsl", True, None),
        "results": (testbed, "view=results", False, None),
        "corruptions": (demo, "view=corruptions", False, None),
        "calibration": (demo, "view=calibration", False, None),
        "failures": (photos, "view=failures", False, None),
    }
    for name, (file, address, dark, act) in plans.items():
        tab = open_tab(browser, file, address, DESK, dark=dark)
        if act is not None:
            act(tab)
        save(tab, name)
    phones = [
        (testbed, "view=robustness", False, look),
        (demo, "view=corruptions", False, None),
        (demo, "view=calibration", True, None),
    ]
    sheet = Image.new("RGB", (3 * PHONE[0] + 2 * 24, PHONE[1]), (136, 140, 144))
    for number, (file, address, dark, act) in enumerate(phones):
        tab = open_tab(browser, file, address, PHONE, dark=dark)
        if act is not None:
            act(tab)
        sheet.paste(save(tab, "phone"), (number * (PHONE[0] + 24), 0))
    sheet.quantize(200, dither=Image.Dither.NONE).save(PICTURES / "report-phone.png", optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--testbed", type=Path, required=True, metavar="DIR", help="folder with the testbed's results")
    parser.add_argument("--demo", type=Path, default=Path("demo-workspace"), help="workspace of `shiftbench demo`")
    options = parser.parse_args()
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    warnings.simplefilter("ignore", sb.ResultWarning)
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        folder = Path(place)
        own, photos = digits(folder), photographs(folder)
        testbed = report(folder / "testbed.html", "--data", str(options.testbed))
        demo = report(folder / "demo.html", "-w", str(options.demo), "--failures", "0")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        screenshots(browser, testbed, demo, own, photos)
        browser.close()


if __name__ == "__main__":
    main()
