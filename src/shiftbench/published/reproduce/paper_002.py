"""002: mCE and relative mCE from their columns, AlexNet's means; mCE from the testbed's evaluation."""

from __future__ import annotations

from statistics import fmean

from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS
from shiftbench.metrics.corruption import ALEXNET_CLEAN_ERROR, ALEXNET_ERRORS, Baseline, mean_corruption_error
from shiftbench.published.reproduce.base import PUBLIC, Recomputed, by_table, claim, mean_of, out_of_reach, stated
from shiftbench.published.reproduce.predictions import from_predictions
from shiftbench.published.reproduce.sources import Data
from shiftbench.published.tables import PublishedValue, published

_Row = PublishedValue

#: Paper's name to the testbed's; the paper's SqueezeNet is version 1.1 (its figure 8).
TESTBED_NAMES = {
    "AlexNet": "alexnet", "SqueezeNet": "squeezenet1_1", "VGG-11": "vgg11", "VGG-19": "vgg19",
    "VGG-19+BN": "vgg19_bn", "ResNet-18": "resnet18", "ResNet-50": "resnet50", "DenseNet-121": "densenet121",
    "DenseNet-161": "densenet161", "ResNeXt-50": "resnext50_32x4d", "ResNeXt-101": "resnext101_64x4d",
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
    of=lambda: _but_alexnet("1", "mCE"), source="the CE columns, printed without decimals",
)  # fmt: skip
def mean_ce(row: _Row, data: Data) -> Recomputed:
    return mean_of(published("002", "1", model=row.model, metric="CE"))


@claim(
    "002", "table 2", "Relative mCE is the mean of fifteen relative corruption errors",
    of=lambda: _but_alexnet("2", "relative mCE"), source="its columns, printed without decimals",
)  # fmt: skip
def mean_relative_ce(row: _Row, data: Data) -> Recomputed:
    return mean_of(published("002", "2", model=row.model, metric="relative CE"))


@claim(
    "002", "table 2", "Relative CE follows from CE, the clean error and AlexNet's errors",
    of=lambda: _but_alexnet("2", "relative CE"), source="table 1 and AlexNet's errors by severity", group=by_table,
)  # fmt: skip
def relative_from_ce(row: _Row, data: Data) -> Recomputed:
    [ce] = published("002", "1", model=row.model, setting=row.setting, metric="CE")
    [clean] = published("002", "1", model=row.model, metric="error")
    alexnet = fmean(ALEXNET_ERRORS[row.setting.removeprefix("imagenet-c.")])
    rise = alexnet - ALEXNET_CLEAN_ERROR
    slack = (ce.rounding * alexnet + clean.rounding) / rise
    return Recomputed((ce.value * alexnet - clean.value) / rise, slack)


@claim(
    "002", "table 2", "Clean errors are those of table 1", of=lambda: published("002", "2", metric="error"),
    source="table 1",
)  # fmt: skip
def clean_twice(row: _Row, data: Data) -> Recomputed:
    [other] = published("002", "1", model=row.model, metric="error")
    return Recomputed(other.value, other.rounding)


@claim(
    "002", "appendix C", "AlexNet's error on each corruption, the mean over severities",
    kind=PUBLIC,
    of=lambda: [stated("002", "appendix C", "AlexNet", name, "error", value) for name, value in _ALEXNET_MEANS.items()],
    source="AlexNet's errors by severity, as its authors give them",
)  # fmt: skip
def alexnet_means(row: _Row, data: Data) -> float:
    return fmean(ALEXNET_ERRORS[row.setting])


@claim(
    "002", "table 1", "Clean errors",
    kind=PUBLIC,
    of=lambda: published("002", "1", metric="error"), source="the testbed's accuracies on the validation set",
)  # fmt: skip
def clean_errors(row: _Row, data: Data) -> Recomputed:
    return data.testbed_score(TESTBED_NAMES[row.model], "val", error=True)


@claim(
    "002", "tables 1 and 2", "mCE and relative mCE, from the testbed's evaluation of ImageNet-C",
    kind=PUBLIC, of=lambda: [*_but_alexnet("1", "mCE"), *_but_alexnet("2", "relative mCE"), *_larger()],
    source="the testbed's 75 columns of ImageNet-C from disk, divided by its own AlexNet",
    remark="the testbed resizes the released 224-pixel files to 256 and crops: the same networks, other images",
)  # fmt: skip
def testbed_mce(row: _Row, data: Data) -> float:
    errors, clean = _testbed_errors(TESTBED_NAMES[row.model], data)
    alexnet = Baseline.from_errors("AlexNet", *_testbed_errors("alexnet", data))
    return mean_corruption_error(errors, None if row.metric == "mCE" else clean, baseline=alexnet)


def _testbed_errors(model: str, data: Data) -> tuple[dict[str, list[float]], float]:
    """Errors by corruption and severity, and the clean one."""

    def error(setting: str) -> float:
        return 1.0 - data.testbed_accuracy(model, setting)

    errors = {c: [error(f"imagenet-c.{c}.{s}_on-disk") for s in range(1, 6)] for c in BENCHMARK_CORRUPTIONS}
    return errors, error("val")


def _but_alexnet(table: str, metric: str) -> list[_Row]:
    """Without AlexNet, whose numbers are 100 by definition."""
    return [row for row in published("002", table, metric=metric) if row.model != "AlexNet"]


def _larger() -> list[_Row]:
    """Larger networks, in the text of section 3.6."""
    mce = {"DenseNet-121": 73.4, "DenseNet-161": 66.4, "ResNeXt-50": 68.2, "ResNeXt-101": 62.2}
    return [stated("002", "section 3.6", model, "imagenet-c", "mCE", value) for model, value in mce.items()]


def _text() -> list[_Row]:
    mce = {"ResNet-50 + CLAHE": 74.5, "MSDNet": 73.6, "Multigrid": 73.3, "ResNet-50 + non-local means": 82.1,
           "CondenseNet C = G = 4": 80.8, "CondenseNet C = G = 8": 84.6}  # fmt: skip
    errors = {"ResNet-50 + CLAHE": 23.55, "ResNet-50 (their own)": 23.87}
    return [
        *(stated("002", "section 3", model, "imagenet-c", "mCE", value) for model, value in mce.items()),
        *(stated("002", "section 3", model, "imagenet", "error", value, 2) for model, value in errors.items()),
        stated("002", "section 3", "CondenseNet C = G = 4", "imagenet", "error", 26.3),
    ]


def _icons() -> list[_Row]:
    style = {"ResNet": 58.3, "DenseNet": 48.5, "ResNeXt": 51.8, "MSDNet": 65.1, "ResNeXt + Shake-Shake": 76.0}
    version = {"ResNeXt": 98.0, "DenseNet": 97.3, "ResNet": 97.2}
    subtype = {"ResNet": 57.5, "DenseNet": 58.7, "ResNeXt": 60.0, "ResNeXt + Shake-Shake": 63.6}
    return [
        stated("002", "section 4.2", model, f"icons-50.{kind}", "top1", value)
        for kind, values in (("style", style), ("subtype", subtype), ("version", version))
        for model, value in values.items()
    ]


from_predictions(
    "002", "tables 1 and 2, section 3", "Clean errors, corruption errors, mCE and relative mCE, network by network",
    [*published("002"), *_larger(), *_text()],
)  # fmt: skip
out_of_reach(
    "icons", "002", "section 4.2", "Accuracy on held-out styles, subtypes and versions of Icons-50",
    of=_icons, needed="the networks trained on Icons-50 (shiftbench experiment icons-style, icons-subtype)",
)  # fmt: skip
