"""002: mCE and relative mCE from their columns, AlexNet's means; mCE from the testbed's evaluation."""

from __future__ import annotations

from statistics import fmean

from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS
from shiftbench.metrics.corruption import (
    ALEXNET_ERRORS,
    Baseline,
    mean_corruption_error,
    relative_mean_corruption_error,
)
from shiftbench.published.reproduce.base import Recomputed, claim, mean_of, out_of_reach, stated
from shiftbench.published.reproduce.sources import Data
from shiftbench.published.tables import PublishedValue, published

_Row = PublishedValue

#: Paper's name to the testbed's; the paper's SqueezeNet is version 1.1 (its figure 8).
TESTBED_NAMES = {
    "AlexNet": "alexnet", "SqueezeNet": "squeezenet1_1", "VGG-11": "vgg11", "VGG-19": "vgg19",
    "VGG-19+BN": "vgg19_bn", "ResNet-18": "resnet18", "ResNet-50": "resnet50",
}  # fmt: skip

#: Appendix C: AlexNet's errors, mean over severities, per cent.
_ALEXNET_MEANS = {
    "gaussian_noise": 88.6, "shot_noise": 89.4, "impulse_noise": 92.3, "defocus_blur": 82.0, "glass_blur": 82.6,
    "motion_blur": 78.6, "zoom_blur": 79.8, "snow": 86.7, "frost": 82.7, "fog": 81.9, "brightness": 56.5,
    "contrast": 85.3, "elastic_transform": 64.6, "pixelate": 71.8, "jpeg_compression": 60.7,
    "speckle_noise": 84.5, "gaussian_blur": 78.7, "spatter": 71.8, "saturate": 65.8,
}  # fmt: skip


@claim(
    "002", "table 1", "mCE is the mean of fifteen corruption errors",
    of=lambda: published("002", "1", metric="mCE"), source="the CE columns, printed without decimals",
)  # fmt: skip
def mean_ce(row: _Row, data: Data) -> Recomputed:
    return mean_of(published("002", "1", model=row.model, metric="CE"))


@claim(
    "002", "table 2", "Relative mCE is the mean of fifteen relative corruption errors",
    of=lambda: published("002", "2", metric="relative mCE"), source="its columns, printed without decimals",
)  # fmt: skip
def mean_relative_ce(row: _Row, data: Data) -> Recomputed:
    return mean_of(published("002", "2", model=row.model, metric="relative CE"))


@claim(
    "002", "appendix C", "AlexNet's error on each corruption, the mean over severities",
    of=lambda: [stated("002", "appendix C", "AlexNet", name, "error", value) for name, value in _ALEXNET_MEANS.items()],
    source="AlexNet's errors by severity, as its authors give them",
)  # fmt: skip
def alexnet_means(row: _Row, data: Data) -> float:
    return fmean(ALEXNET_ERRORS[row.setting])


@claim(
    "002", "table 1", "Clean errors",
    of=lambda: published("002", "1", metric="error"), source="the testbed's accuracies on the validation set",
)  # fmt: skip
def clean_errors(row: _Row, data: Data) -> Recomputed:
    return data.testbed_score(TESTBED_NAMES[row.model], "val", error=True)


@claim(
    "002", "tables 1 and 2", "mCE and relative mCE, from the testbed's evaluation of ImageNet-C",
    of=lambda: [*published("002", "1", metric="mCE"), *published("002", "2", metric="relative mCE")],
    source="the testbed's 75 columns of ImageNet-C from disk, divided by its own AlexNet",
    remark="the testbed resizes the released 224-pixel files to 256 and crops: the same networks, other images",
)  # fmt: skip
def testbed_mce(row: _Row, data: Data) -> float:
    errors, clean = _testbed_errors(TESTBED_NAMES[row.model], data)
    alexnet = Baseline.from_errors("AlexNet", *_testbed_errors("alexnet", data))
    if row.metric == "mCE":
        return mean_corruption_error(errors, baseline=alexnet)
    return relative_mean_corruption_error(errors, clean, baseline=alexnet)


def _testbed_errors(model: str, data: Data) -> tuple[dict[str, list[float]], float]:
    """Errors by corruption and severity, and the clean one."""

    def error(setting: str) -> float:
        return 1.0 - data.testbed_accuracy(model, setting)

    errors = {c: [error(f"imagenet-c.{c}.{s}_on-disk") for s in range(1, 6)] for c in BENCHMARK_CORRUPTIONS}
    return errors, error("val")


def _corruption_errors() -> list[_Row]:
    table_2 = [*published("002", "2", metric="relative CE"), *published("002", "2", metric="error")]
    return [*published("002", "1", metric="CE"), *table_2]


def _text() -> list[_Row]:
    mce = {"ResNet-50 + CLAHE": 74.5, "MSDNet": 73.6, "Multigrid": 73.3, "ResNet-50 + non-local means": 82.1,
           "CondenseNet C = G = 4": 80.8, "CondenseNet C = G = 8": 84.6}  # fmt: skip
    return [stated("002", "section 3", model, "imagenet-c", "mCE", value) for model, value in mce.items()]


def _icons() -> list[_Row]:
    style = {"ResNet": 58.3, "DenseNet": 48.5, "ResNeXt": 51.8, "MSDNet": 65.1, "ResNeXt + Shake-Shake": 76.0}
    subtype = {"ResNet": 57.5, "DenseNet": 58.7, "ResNeXt": 60.0, "ResNeXt + Shake-Shake": 63.6}
    return [
        stated("002", "section 4.2", model, f"icons-50.{kind}", "top1", value)
        for kind, values in (("style", style), ("subtype", subtype))
        for model, value in values.items()
    ]


out_of_reach(
    "columns", "002", "tables 1 and 2", "The corruption errors themselves, type by type",
    of=_corruption_errors,
    needed="the seven networks run on the released ImageNet-C (shiftbench eval --suite imagenet-c)",
)  # fmt: skip
out_of_reach(
    "enhancements", "002", "sections 3.4 and 3.5", "mCE of denoising, small, multiscale and equalised networks",
    of=_text, needed="these networks and the released ImageNet-C",
)  # fmt: skip
out_of_reach(
    "icons", "002", "section 4.2", "Accuracy on held-out styles and subtypes of Icons-50",
    of=_icons, needed="the images of Icons-50 and the networks trained on them",
)  # fmt: skip
