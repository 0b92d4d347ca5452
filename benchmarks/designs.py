"""How good the one-pass design's estimates are, on real predictions whose full grid is known: docs/designs.md.

    python -m benchmarks.designs [--cifar WORKSPACE] [--demo WORKSPACE] [--designs 2000]

The whole CIFAR-10-C of the ResNet-8 (10,000 images, 75 corruptions) and two demo classifiers on the demo photographs
(114 images, 45 corruptions), evaluated in full once. Then many seeded designs are drawn from these predictions.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import shiftbench as sb
from benchmarks.page import save, saved, table
from shiftbench.arrays import FloatArray
from shiftbench.io.hashing import seeded_rank
from shiftbench.metrics.corruption import ALEXNET
from shiftbench.metrics.corruption_scores import GridShape, corruption_scores
from shiftbench.metrics.designs import DesignOutcomes, Estimate, design_numbers
from shiftbench.published.tables import published
from shiftbench.reports.corruption import corruption_families
from shiftbench.shifts.assigned import assign

LEVEL = 0.95
PASSES = (1, 2, 3, 5, 15, 40, 75)
#: What is estimated, in the order of ``CorruptionScores.summary``.
NUMBERS = ("mCE", "relative mCE", "mean error")


@dataclass(frozen=True)
class FullGrid:
    """One model's errors under all shifts, and what the full grid says of them."""

    name: str
    ids: list[str]
    labels: np.ndarray
    places: list[tuple[str, float]]
    #: (images, shifts)
    wrong: FloatArray
    clean: FloatArray
    #: Value and width of each number.
    numbers: Mapping[str, tuple[float, float]]

    @classmethod
    def of(cls, run: sb.Run, model: str) -> FullGrid:
        [family] = corruption_families(run).values()
        grid = {place: run.predictions(model, setting) for place, setting in family.places.items()}
        clean = run.predictions(model, family.clean)
        members = [(name, float(severity)) for name, severity in grid]
        wrong = np.stack([one.top[:, 0] != one.labels for one in grid.values()], axis=1).astype(float)
        scores = corruption_scores(grid, clean, baseline=ALEXNET, level=LEVEL).summary()
        numbers = {name: (one.value, one.high - one.low) for name, one in zip(NUMBERS, scores, strict=True)}
        clean_wrong = (clean.top[:, 0] != clean.labels).astype(float)
        return cls(model, list(clean.ids), clean.labels, members, wrong, clean_wrong, numbers)

    def outcomes(self, passes: int, seed: int) -> DesignOutcomes:
        shifts = len(self.places)
        first = assign(self.ids, self.labels, shifts, seed=seed)
        # As assign() with turn=1, 2, ...: the next shifts in its seeded order.
        order = np.array(sorted(range(shifts), key=lambda shift: seeded_rank(seed, "shift", shift)))
        turns = [order[(np.argsort(order)[first] + turn) % shifts] for turn in range(passes)]
        images, places = np.tile(np.arange(len(self.ids)), passes), np.concatenate(turns)
        wrong, classes = self.wrong[images, places], np.unique(self.labels, return_inverse=True)[1]
        return DesignOutcomes(len(self.ids), images, places, wrong, shifts, self.clean, classes)


def judge(grid: FullGrid, passes: int, designs: int) -> dict[str, dict[str, float]]:
    """Over many designs: how often intervals hold the full grid's number, how wide they are, and the bias."""
    values: dict[str, list[float]] = {name: [] for name in NUMBERS}
    widths: dict[str, list[float]] = {name: [] for name in NUMBERS}
    hits = dict.fromkeys(NUMBERS, 0)
    for seed in range(designs):
        found = design_numbers(grid.outcomes(passes, seed), grid.places, GridShape.of(grid.places), ALEXNET, LEVEL)
        for name, kind in zip(NUMBERS, ("CE", "relative CE", "error"), strict=True):
            value, low, high = found[kind, ""]
            values[name].append(value)
            widths[name].append(high - low)
            hits[name] += low <= grid.numbers[name][0] <= high
    return {
        name: {
            "coverage": hits[name] / designs,
            "width": float(np.mean(widths[name])) / grid.numbers[name][1],
            "bias": float(np.mean(values[name])) - grid.numbers[name][0],
        }
        for name in NUMBERS
    }


def judge_difference(first: FullGrid, second: FullGrid, passes: int, designs: int) -> dict[str, float]:
    """The difference in mean error of two models on the same assignment, and the least width that any estimate of the
    observed differences can have (docs/designs.md): theirs varies as single differences do, the full grid's as means
    of all shifts."""
    differences = first.wrong - second.wrong
    per_image = differences.mean(axis=1)
    true, whole = float(per_image.mean()), 2 * 1.96 * float(per_image.std(ddof=1)) / len(per_image) ** 0.5
    hits, widths = 0, []
    for seed in range(designs):
        pairs = zip(first.outcomes(passes, seed).errors(), second.outcomes(passes, seed).errors(), strict=True)
        low, high = Estimate.average([a - b for a, b in pairs]).interval(LEVEL)
        hits += low <= true <= high
        widths.append(high - low)
    beside = differences - differences.mean(axis=0)  # the shifts' own means
    among, within = float(per_image.var(ddof=1)), float(beside.var(axis=1, ddof=1).mean())
    shifts = differences.shape[1]
    bound = ((among + within * (1 / passes - 1 / shifts)) / among) ** 0.5
    return {"coverage": hits / designs, "width": float(np.mean(widths)) / whole, "bound": bound}


def resnet50_calculation(images: int = 50_000) -> dict[str, float]:
    """Half-widths of mCE for a ResNet-50 on ImageNet's validation set, from its published corruption errors.

    E_c is the mean error over five severities; E (1 - E) is concave, so that its variance is at least theirs.
    """
    rows = published("002", "1", model="ResNet-50", metric="CE")
    ce = {one.setting.removeprefix("imagenet-c."): one.value for one in rows}
    shifts = 5 * len(ce)
    base = {name: ALEXNET.mean(name, (1, 2, 3, 4, 5)) for name in ce}
    errors = {name: value * base[name] for name, value in ce.items()}
    variance = sum(error * (1 - error) / base[name] ** 2 for name, error in errors.items()) / len(ce)
    return {
        "mCE": sum(ce.values()) / len(ce),
        "half-width": 1.96 * (variance / images) ** 0.5,
        "forward passes": 2 * images,
        "of": (1 + shifts) * images,
    }


def less_variance_than_a_sample(grid: FullGrid) -> float:
    """How many times the variance of the mean error is larger, if the same number of forward passes is spent on all
    shifts of a random sample of images."""
    shifts = grid.wrong.shape[1]
    # An image costs two passes in the design (one of them clean), and one more than there are shifts in the sample.
    images_per_sampled_image = (shifts + 1) / 2
    variance_ratio = grid.wrong.mean(axis=1).var(ddof=1) / grid.wrong.var(axis=0, ddof=1).mean()
    return float(images_per_sampled_image * variance_ratio)


def seconds(workspace: Path, **options: object) -> float:
    classifier = sb.load_classifier("demo:efficientnet-lite0", threads=1)
    classifier.scores(np.zeros((1, 224, 224, 3), np.uint8))
    begin = time.perf_counter()
    sb.evaluate(classifier, "demo", workspace=workspace, progress=False, **options)  # type: ignore[arg-type]
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cifar", type=Path, help="a workspace with the full CIFAR-10-C of demo:resnet8-cifar10")
    parser.add_argument("--demo", type=Path, help="a workspace with the demo suite at severities 1, 3, 5")
    parser.add_argument("--designs", type=int, default=2000, help="of the demo photographs")
    parser.add_argument("--large", type=int, default=2000, help="of CIFAR-10-C; a twentieth for more passes than one")
    parser.add_argument("--time", action="store_true", help="measure wall times anew (on an idle machine)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shiftbench-designs-") as folder:
        cifar = sb.evaluate(
            "demo:resnet8-cifar10", "cifar-10-c", workspace=given.cifar or f"{folder}/cifar", progress=True
        )
        lite = ["demo:efficientnet-lite0", "demo:efficientnet-lite2"]
        demo = sb.evaluate(lite, "demo", workspace=given.demo or f"{folder}/demo", severities=(1, 3, 5))
        whole = FullGrid.of(cifar, "resnet8-cifar10")
        first, second = (FullGrid.of(demo, name) for name in demo.classifiers)
        took = saved("designs").get("seconds", {})
        if given.time or not took:
            took["full"] = seconds(Path(folder) / "full")
            took["one-pass"] = seconds(Path(folder) / "one-pass", design="one-pass")
    data: dict[str, dict[Any, Any]] = {
        "cifar-10-c": {
            passes: judge(whole, passes, given.large if passes == 1 else given.large // 20) for passes in PASSES
        },
        "demo": judge(first, 1, given.designs),
        "difference": {k: judge_difference(first, second, k, given.designs) for k in (1, 2, 5)},
        "variance of a sample": {one.name: less_variance_than_a_sample(one) for one in (whole, first)},
        "resnet50": resnet50_calculation(),
        "seconds": took,
    }
    report(data, (given.designs, given.large), whole, first)


def report(data: dict[str, dict[Any, Any]], designs: tuple[int, int], whole: FullGrid, demo: FullGrid) -> None:
    def row(what: str, passes: object, found: dict[str, float]) -> list[str]:
        bias = f"{100 * found['bias']:+.3f}" if "bias" in found else ""
        return [what, str(passes), f"{found['width']:.2f}", f"{100 * found['coverage']:.1f} %", bias]

    rows = [
        row(f"CIFAR-10-C, {name}", passes, found)
        for passes, by_name in data["cifar-10-c"].items()
        for name, found in by_name.items()
    ]
    rows += [row(f"demo, {name}", 1, found) for name, found in data["demo"].items()]
    rows += [row("demo, difference of two models", passes, found) for passes, found in data["difference"].items()]
    bounds = ", ".join(f"{found['bound']:.2f} ({k})" for k, found in data["difference"].items())
    sample = data["variance of a sample"]
    took, resnet = data["seconds"], data["resnet50"]
    text = (
        f"Seeded designs ({designs[1]:,} of CIFAR-10-C, {designs[1] // 20} with more passes than one; "
        f"{designs[0]:,} of the demo), drawn from real predictions whose full grid is known: ResNet-8 on CIFAR-10-C "
        f"({len(whole.ids):,} images, {len(whole.places)} shifts) and EfficientNet-Lite0 on the demo photographs "
        f"({len(demo.ids)} images, {len(demo.places)} shifts). Width is relative to the full grid's interval; "
        "coverage is how often a nominal 95 % interval holds the full grid's number (it also allows for other "
        "images, so that it may exceed 95 %); bias is in points. By the formula in docs/designs.md, the "
        f"least possible width of a difference is {bounds}, by passes per image.\n\n"
        + table(["", "passes per image", "width", "coverage", "bias"], rows)
        + "\n\nSpending as many forward passes on all shifts of a random sample of images (`--sample`) has "
        + ", ".join(f"{ratio:.0f} times the variance ({name})" for name, ratio in sample.items())
        + f".\n\nA calculation, not a measurement: from the published corruption errors of a ResNet-50 (mCE "
        f"{100 * resnet['mCE']:.1f}), one pass over ImageNet's 50,000 validation images gives mCE to "
        f"±{100 * resnet['half-width']:.2f} with {resnet['forward passes']:,.0f} forward passes instead of "
        f"{resnet['of']:,.0f}.\n\n"
        f"Wall time of the demo suite, clean and 75 shifts, EfficientNet-Lite0: full {took['full']:.0f} s, "
        f"one-pass {took['one-pass']:.1f} s ({took['full'] / took['one-pass']:.0f} times less)."
    )
    save("designs", "Designs", data, text)
    print(text)


if __name__ == "__main__":
    main()
