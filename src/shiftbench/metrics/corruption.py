"""Corruption error, mCE and their relatives (paper 002, Hendrycks and Dietterich, section 3.2).

With E the top-1 error of a classifier at severity s of corruption c, and A that of a baseline (AlexNet):

    CE_c          = sum_s E_{s,c} / sum_s A_{s,c}                           mCE = mean of CE over the 15 types
    relative CE_c = sum_s (E_{s,c} - E_clean) / sum_s (A_{s,c} - A_clean)   relative mCE likewise

Values are fractions: ResNet-50's published mCE of 76.7 is 0.767. An AlexNet error is published for every
severity, so that a subset of severities can be divided by the same subset; the name of such a number says so
and is never plain "mCE". A ratio whose denominator is not positive (a baseline that corruption does not
hurt) is nan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS
from shiftbench.errors import SettingError
from shiftbench.metrics.testbed_alexnet import TESTBED_IN_MEMORY_ERRORS, TESTBED_ON_DISK_ERRORS

# AlexNet's published top-1 errors on ImageNet-C, which corruption errors are divided by: torchvision's AlexNet on the
# released files, centre crop of 224 pixels and no resizing, 50,000 images per setting. Paper 002 (Hendrycks and
# Dietterich) prints the means over severities in its appendix C; the values by severity are the authors' own, given on
# the page of their code (hendrycks/robustness, issue 10). Errors measured through a further resize to 256 pixels are
# higher (they make AlexNet's own mCE 102.3) and must not be mixed with these.
#: The fifteen corruptions that count, in benchmark order, then the four extra ones; severities 1 to 5.
ALEXNET_ERRORS: dict[str, tuple[float, float, float, float, float]] = {
    "gaussian_noise": (0.69528, 0.82542, 0.93554, 0.98138, 0.99452),
    "shot_noise": (0.71224, 0.85108, 0.93574, 0.98182, 0.99146),
    "impulse_noise": (0.78374, 0.89808, 0.94870, 0.98720, 0.99548),
    "defocus_blur": (0.65624, 0.73202, 0.85036, 0.91364, 0.94714),
    "glass_blur": (0.64308, 0.75054, 0.88806, 0.91622, 0.93344),
    "motion_blur": (0.58430, 0.70048, 0.82108, 0.89750, 0.92638),
    "zoom_blur": (0.70008, 0.76992, 0.80784, 0.84198, 0.87198),
    "snow": (0.71726, 0.88392, 0.86468, 0.91870, 0.94952),
    "frost": (0.61390, 0.79734, 0.88790, 0.89942, 0.93430),
    "fog": (0.67474, 0.76050, 0.84378, 0.87260, 0.94500),
    "brightness": (0.45140, 0.48502, 0.54048, 0.62166, 0.72440),
    "contrast": (0.64548, 0.76150, 0.88874, 0.97760, 0.99270),
    "elastic_transform": (0.52596, 0.70116, 0.55686, 0.64076, 0.80554),
    "pixelate": (0.52218, 0.54620, 0.73728, 0.87092, 0.91262),
    "jpeg_compression": (0.51002, 0.54718, 0.57294, 0.65458, 0.74778),
    "speckle_noise": (0.66192, 0.74440, 0.90246, 0.94548, 0.97268),
    "gaussian_blur": (0.54732, 0.70444, 0.82574, 0.89864, 0.95940),
    "spatter": (0.47196, 0.62194, 0.75052, 0.84132, 0.90182),
    "saturate": (0.59342, 0.65514, 0.51174, 0.70834, 0.82260),
}

#: Top-1 error of torchvision's weights on the clean validation set, as the paper's code has it;
#: the paper prints 43.5 %.
ALEXNET_CLEAN_ERROR = 0.43478

ALEXNET_SOURCE = "AlexNet as published: released ImageNet-C files, 224 px, 50,000 images"

SEVERITIES: tuple[float, ...] = (1, 2, 3, 4, 5)

#: The benchmark's corruptions by kind, as paper 002 groups them.
GROUPS: dict[str, tuple[str, ...]] = {
    "noise": BENCHMARK_CORRUPTIONS[:3],
    "blur": BENCHMARK_CORRUPTIONS[3:7],
    "weather": BENCHMARK_CORRUPTIONS[7:11],
    "digital": BENCHMARK_CORRUPTIONS[11:],
}


def _check_lengths(errors: Mapping[str, Sequence[float]], severities: Sequence[float]) -> None:
    for corruption, values in errors.items():
        if len(values) != len(severities):
            raise SettingError(
                f"{corruption!r} needs one error per severity",
                found=f"{len(values)} errors",
                expected=f"{len(severities)}, for {_listed(severities)}",
                hint="pass severities=... when fewer were evaluated",
            )
        if any(not 0.0 <= value <= 1.0 for value in values):
            raise SettingError(
                f"the errors of {corruption!r} are not fractions",
                found=", ".join(f"{value:g}" for value in values),
                expected="between 0 and 1: 23.9 % is 0.239",
            )


def _listed(severities: Sequence[float]) -> str:
    numbers = ", ".join(f"{severity:g}" for severity in severities)
    if len(severities) == 1:
        return f"severity {numbers}"
    return f"severities {numbers}"


@dataclass(frozen=True)
class Baseline:
    """The errors that others are divided by: corruption to severity to top-1 error, as fractions."""

    name: str
    errors: Mapping[str, Mapping[float, float]]
    clean: float | None = None
    source: str = ""

    @classmethod
    def from_errors(
        cls,
        name: str,
        errors: Mapping[str, Sequence[float]],
        clean: float | None = None,
        *,
        severities: Sequence[float] = SEVERITIES,
        source: str = "",
    ) -> Baseline:
        """From one list of errors a corruption, in the order of ``severities``."""
        _check_lengths(errors, severities)
        table = {c: dict(zip(severities, values, strict=True)) for c, values in errors.items()}
        return cls(name, table, clean, source)

    def mean(self, corruption: str, severities: Sequence[float]) -> float:
        """The mean error over the severities."""
        hint = "leave the corruption out, or normalise by a model that was evaluated on it"
        message = f"the baseline {self.name!r} has no error for {corruption!r} at {_listed(severities)}"
        if corruption not in self.errors:
            raise SettingError(message, found=", ".join(self.errors), hint=hint)
        by_severity = self.errors[corruption]
        if any(severity not in by_severity for severity in severities):
            raise SettingError(message, found=_listed(list(by_severity)), hint=hint)
        return fmean(by_severity[severity] for severity in severities)

    def clean_error(self) -> float:
        if self.clean is None:
            raise SettingError(f"the baseline {self.name!r} has no clean error, which relative corruption error needs")
        return self.clean


ALEXNET = Baseline.from_errors("AlexNet", ALEXNET_ERRORS, ALEXNET_CLEAN_ERROR, source=ALEXNET_SOURCE)

#: Families that are other measurements than the released files as they are: each has AlexNet errors of its own.
_FAMILY_BASELINES = {
    "imagenet-c_on-disk": Baseline.from_errors(
        "the testbed's AlexNet",
        TESTBED_ON_DISK_ERRORS,
        ALEXNET_CLEAN_ERROR,
        source="AlexNet in the ImageNet testbed: released ImageNet-C files, resized once more",
    ),
    "imagenet-c_in-memory": Baseline.from_errors(
        "the testbed's AlexNet",
        TESTBED_IN_MEMORY_ERRORS,
        ALEXNET_CLEAN_ERROR,
        source="AlexNet in the ImageNet testbed: images corrupted in memory",
    ),
}


def published_baseline(family: str) -> Baseline:
    """The AlexNet errors that divide the errors of a family of corrupted settings, whichever command shows them.

    Args:
        family: Name of the family, such as ``imagenet-c`` or ``imagenet-c_on-disk``.

    Example:
        >>> published_baseline("imagenet-c").name, published_baseline("imagenet-c_on-disk").name
        ('AlexNet', "the testbed's AlexNet")
    """
    return _FAMILY_BASELINES.get(family, ALEXNET)


def corruption_errors(
    errors: Mapping[str, Sequence[float]],
    clean: float | None = None,
    *,
    baseline: Baseline = ALEXNET,
    severities: Sequence[float] = SEVERITIES,
) -> dict[str, float]:
    """CE of every corruption from its errors by severity; relative CE if the clean error is given."""
    _check_lengths(errors, severities)
    clean_error = 0.0
    clean_baseline = 0.0
    if clean is not None:
        clean_error = clean
        clean_baseline = baseline.clean_error()
    ratios = {}
    for corruption, values in errors.items():
        numerator = fmean(values) - clean_error
        denominator = baseline.mean(corruption, severities) - clean_baseline
        ratios[corruption] = numerator / denominator if denominator > 0 else float("nan")
    return ratios


def mean_corruption_error(
    errors: Mapping[str, Sequence[float]],
    clean: float | None = None,
    *,
    baseline: Baseline = ALEXNET,
    severities: Sequence[float] = SEVERITIES,
    corruptions: Sequence[str] = BENCHMARK_CORRUPTIONS,
) -> float:
    """mCE, relative if the clean error is given, over exactly these corruptions, by default the benchmark's fifteen;
    none may be missing."""
    missing = [c for c in corruptions if c not in errors]
    if missing:
        raise SettingError(
            f"a mean over {len(corruptions)} corruptions needs all of them",
            found=f"no {', '.join(missing)}",
            hint="name the corruptions to average over with corruptions=...",
        )
    picked = {c: errors[c] for c in corruptions}
    return fmean(corruption_errors(picked, clean, baseline=baseline, severities=severities).values())
