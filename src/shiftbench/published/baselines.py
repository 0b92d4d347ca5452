"""Published models as the line for a model of one's own: the papers' printed accuracies, setting by setting.

A ``PublishedLine`` belongs to one pair of settings and holds what has to be the same for a comparison: the names of
the settings, label spaces and numbers of images. Its models were evaluated by the papers' authors, with their own
preprocessing, and are printed to a tenth of a point; an own result was evaluated here. The difference in provenance
is part of every placement (``PROVENANCE``).

| settings | models | source | scale |
|---|---|---|---|
| the three ImageNetV2 sets against val | 67 | 004, tables 15, 17 and 19 | probit, as 004 for all 67 (figure 13) |
| CIFAR-10.1 v4 and v6 against CIFAR-10 | 34 | 004, tables 11 and 12 | linear, as 004 (section 3.3) |
| ImageNet-R against val on its 200 classes | 18 | 000, table 7 | logit, as 001 |
| ImageNet-A against val | 13 | 000, tables 8 and 9 | logit, as 001 |
| ImageNet-C, mean accuracy, against val | 20 | 002, table 1; 000, table 8 | logit, as 001 |
| ImageNet-O, AUPR | 6 | 003, section 5.2 | none: no accuracy is stated to draw a line over |

The line goes through the models of standard training; interventions and models of more data are shown beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np

from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS
from shiftbench.metrics.corruption import ALEXNET_ERRORS
from shiftbench.published.tables import published
from shiftbench.studies.base import FRACTION
from shiftbench.studies.fits import Fit
from shiftbench.studies.models import STANDARD, ModelInfo, Models
from shiftbench.studies.results import Results
from shiftbench.studies.study import Study

PROVENANCE = (
    "the published models were evaluated by the papers' authors, whose preprocessing may differ; their accuracies are "
    "rounded to 0.1 points"
)
_REENCODED = (
    "the published accuracies are those of the first release of ImageNetV2; these files are encoded anew, which moves "
    "accuracies by 0.1 points in the median and 0.55 at most"
)
_MORE_DATA, _INTERVENTION = "more_data", "robustness_intervention"
#: What the rows of 000 change about training; the others change the architecture only.
_TRAINED_OTHERWISE = {
    "ResNet-50 + ImageNet-21K Pretraining": _MORE_DATA,
    "ResNeXt-101 32x8d + WSL Pretraining": _MORE_DATA,
    "ResNet-50 + Linf Adversarial Training": _INTERVENTION,
    "ResNet-50 + Speckle Noise": _INTERVENTION,
    "ResNet-50 + Style Transfer": _INTERVENTION,
    "ResNet-50 + AugMix": _INTERVENTION,
    "ResNet-50 + DeepAugment": _INTERVENTION,
    "ResNet-50 + DeepAugment + AugMix": _INTERVENTION,
    "ResNeXt-101 32x8d + DeepAugment + AugMix": _INTERVENTION,
}


@dataclass(frozen=True)
class Side:
    """A setting, and what a result must be to stand on the same axis as the published numbers."""

    setting: str
    #: The label space by name.
    space: str
    images: int


@dataclass(frozen=True)
class PublishedLine:
    """Published models in a setting ``y`` and, where a line can be drawn, in its reference ``x``."""

    y: Side
    #: None where the papers state no accuracy without shift: models can be counted, but no line drawn.
    x: Side | None
    #: For readers: "Recht et al. 2019, table 15".
    source: str
    #: (x, y) of every model, as fractions.
    values: Mapping[str, tuple[float, float]] = field(repr=False)
    scale: str = "logit"
    metric: str = "top1"
    #: For AUPR: the images of known classes.
    inside: Side | None = None
    #: Another setting of the same images, and what a reader must know to compare with it.
    alike: Mapping[str, str] = field(default_factory=dict)
    #: The mean over this family's fifteen corruptions at five severities, from the released files.
    family: bool = False

    @property
    def settings(self) -> tuple[str, ...]:
        """The settings whose results it can place."""
        return (self.y.setting, *self.alike)

    @cached_property
    def models(self) -> Models:
        """Which of its models the line goes through: those of the category "standard"."""
        return Models({name: ModelInfo(name, _TRAINED_OTHERWISE.get(name, STANDARD)) for name in self.values})

    @property
    def n(self) -> int:
        return len(self.models)

    def results(self, y: str | None = None) -> Results:
        """Its accuracies as a table with the columns x and y; ``y`` renames the second, to one of ``settings``."""
        assert self.x is not None
        sizes = {side.setting: np.asarray(float(side.images)) for side in (self.x, self.y)}
        if y is not None:
            sizes[y] = sizes.pop(self.y.setting)
        if self.family:  # a mean over 75 settings is not a share of that number of images
            del sizes[y or self.y.setting]
        values = np.array(list(self.values.values()))
        return Results(tuple(self.values), (self.x.setting, y or self.y.setting), values, FRACTION, sizes)

    def line(self, level: float = 0.95) -> Fit:
        """The line through the models of standard training, with its resamples."""
        assert self.x is not None
        line = Study(self.results(), self.models).fit(self.x.setting, self.y.setting, scale=self.scale, level=level)
        assert isinstance(line, Fit)
        return line


@lru_cache(maxsize=1)
def baselines() -> tuple[PublishedLine, ...]:
    """All baselines of the package, one for each setting under shift."""
    val, cifar = Side("val", "imagenet-1k", 50_000), Side("cifar-10", "cifar-10", 10_000)
    recht, faces = "Recht et al. 2019, table {}", "Hendrycks et al. 2021 (The Many Faces of Robustness)"
    v2 = [
        PublishedLine(
            Side(setting, "imagenet-1k", 10_000), val, recht.format(table),
            _joined(_column("004", table, "imagenet", "top1"), _column("004", table, printed, "top1")),
            scale="probit", alike={encoded_anew: _REENCODED},
        )
        for table, printed, setting, encoded_anew in _IMAGENETV2
    ]  # fmt: skip
    cifar_new = [
        PublishedLine(
            Side(name, "cifar-10", n), cifar, recht.format(table),
            _joined(_column("004", table, "cifar-10", "top1"), _column("004", table, name, "top1")), scale="linear",
        )
        for table, name, n in (("11", "cifar-10.1-v4", 2_021), ("12", "cifar-10.1-v6", 2_000))
    ]  # fmt: skip
    r200, o200 = "imagenet-r-200", "imagenet-o-200"
    return (
        *v2,
        *cifar_new,
        PublishedLine(
            Side("imagenet-r", r200, 30_000), Side("val-on-imagenet-r-classes", r200, 10_000), f"{faces}, table 7",
            _joined(_column("000", "7", "imagenet-200", "error"), _column("000", "7", "imagenet-r", "error")),
        ),
        PublishedLine(
            Side("imagenet-a", "imagenet-a-200", 7_500), val, f"{faces}, tables 8 and 9",
            _joined(_column("000", "8", "imagenet", "error"), _column("000", "9", "imagenet-a", "top1")),
        ),
        PublishedLine(
            Side("imagenet-c", "imagenet-1k", 50_000), val,
            f"Hendrycks and Dietterich 2019, table 1; {faces}, table 8; from corruption errors times AlexNet's",
            _corrupted(), family=True,
        ),
        PublishedLine(
            Side("imagenet-o", o200, 2_000), None,
            "Hendrycks et al. 2021 (Natural Adversarial Examples), section 5.2",
            {model: (float("nan"), aupr) for model, aupr in _column("003", None, "imagenet-o", "AUPR").items()},
            metric="aupr", inside=Side("val-on-imagenet-o-classes", o200, 10_000),
        ),
    )  # fmt: skip


def baseline_of(setting: str) -> PublishedLine | None:
    """The baseline that can place results of a setting."""
    return next((one for one in baselines() if setting in one.settings), None)


#: Table of 004, its name for the set, and ours in the first packing and in the released one.
_IMAGENETV2 = (
    ("15", "imagenetv2-matched-frequency", "imagenetv2-matched-frequency", "imagenetv2-matched-frequency-format-val"),
    ("17", "imagenetv2-threshold-0.7", "imagenetv2-threshold0.7", "imagenetv2-threshold-0.7-format-val"),
    ("19", "imagenetv2-top-images", "imagenetv2-topimages", "imagenetv2-top-images-format-val"),
)


def _column(paper: str, table: str | None, setting: str, metric: str) -> dict[str, float]:
    """Printed values by model, errors as accuracies (without the noise of 1 - 0.639 in the seventeenth digit)."""
    rows = published(paper, table, setting=setting, metric=metric)
    return {row.model: round(1.0 - row.value, 6) if metric == "error" else row.value for row in rows}


def _joined(x: Mapping[str, float], y: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    return {model: (x[model], y[model]) for model in y if model in x}


def _corrupted() -> dict[str, tuple[float, float]]:
    """Clean accuracy, and mean accuracy over the fifteen corruptions.

    CE is the error over AlexNet's, so that their product is the error itself. CEs are printed as whole percents and
    their mean, mCE, to a tenth: the errors are scaled to agree with it.
    """
    found, alexnet = {}, np.array([np.mean(ALEXNET_ERRORS[name]) for name in BENCHMARK_CORRUPTIONS])
    for paper, table in (("002", "1"), ("000", "8")):
        clean, mce = (_column(paper, table, *what) for what in (("imagenet", "error"), ("imagenet-c", "mCE")))
        by_type = [_column(paper, table, f"imagenet-c.{name}", "CE") for name in BENCHMARK_CORRUPTIONS]
        for model, accuracy in clean.items():
            ce = np.array([column[model] for column in by_type])
            found[model] = accuracy, 1.0 - float((ce * alexnet).mean() * mce[model] / ce.mean())
    return found
