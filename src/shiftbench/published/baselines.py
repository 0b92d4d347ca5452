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
_MORE_DATA = "more_data"
_INTERVENTION = "robustness_intervention"
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
    val = Side("val", "imagenet-1k", 50_000)
    many_faces = "Hendrycks et al. 2021 (The Many Faces of Robustness)"
    r_space = "imagenet-r-200"
    imagenet_r = PublishedLine(
        y=Side("imagenet-r", r_space, 30_000),
        x=Side("val-on-imagenet-r-classes", r_space, 10_000),
        source=f"{many_faces}, table 7",
        values=_joined(_column("000", "7", "imagenet-200", "error"), _column("000", "7", "imagenet-r", "error")),
    )
    imagenet_a = PublishedLine(
        y=Side("imagenet-a", "imagenet-a-200", 7_500),
        x=val,
        source=f"{many_faces}, tables 8 and 9",
        values=_joined(_column("000", "8", "imagenet", "error"), _column("000", "9", "imagenet-a", "top1")),
    )
    imagenet_c = PublishedLine(
        y=Side("imagenet-c", "imagenet-1k", 50_000),
        x=val,
        source=f"Hendrycks and Dietterich 2019, table 1; {many_faces}, table 8; from corruption errors times AlexNet's",
        values=_corrupted(),
        family=True,
    )
    o_space = "imagenet-o-200"
    imagenet_o = PublishedLine(
        y=Side("imagenet-o", o_space, 2_000),
        x=None,
        source="Hendrycks et al. 2021 (Natural Adversarial Examples), section 5.2",
        values={model: (float("nan"), aupr) for model, aupr in _column("003", None, "imagenet-o", "AUPR").items()},
        metric="aupr",
        inside=Side("val-on-imagenet-o-classes", o_space, 10_000),
    )
    return (*_imagenetv2(val), *_cifar_new(), imagenet_r, imagenet_a, imagenet_c, imagenet_o)


def _imagenetv2(val: Side) -> list[PublishedLine]:
    lines = []
    for table, printed, setting, encoded_anew in _IMAGENETV2:
        line = PublishedLine(
            y=Side(setting, "imagenet-1k", 10_000),
            x=val,
            source=f"Recht et al. 2019, table {table}",
            values=_joined(_column("004", table, "imagenet", "top1"), _column("004", table, printed, "top1")),
            scale="probit",
            alike={encoded_anew: _REENCODED},
        )
        lines.append(line)
    return lines


def _cifar_new() -> list[PublishedLine]:
    lines = []
    for table, setting, images in (("11", "cifar-10.1-v4", 2_021), ("12", "cifar-10.1-v6", 2_000)):
        line = PublishedLine(
            y=Side(setting, "cifar-10", images),
            x=Side("cifar-10", "cifar-10", 10_000),
            source=f"Recht et al. 2019, table {table}",
            values=_joined(_column("004", table, "cifar-10", "top1"), _column("004", table, setting, "top1")),
            scale="linear",
        )
        lines.append(line)
    return lines


def baseline_of(setting: str) -> PublishedLine | None:
    """The baseline that can place results of a setting."""
    return next((line for line in baselines() if setting in line.settings), None)


#: Table of 004, its name for the set, and ours in the first packing and in the released one.
_IMAGENETV2 = (
    ("15", "imagenetv2-matched-frequency", "imagenetv2-matched-frequency", "imagenetv2-matched-frequency-format-val"),
    ("17", "imagenetv2-threshold-0.7", "imagenetv2-threshold0.7", "imagenetv2-threshold-0.7-format-val"),
    ("19", "imagenetv2-top-images", "imagenetv2-topimages", "imagenetv2-top-images-format-val"),
)


def _column(paper: str, table: str | None, setting: str, metric: str) -> dict[str, float]:
    """Printed values by model, errors as accuracies (without the noise of 1 - 0.639 in the seventeenth digit)."""
    rows = published(paper, table, setting=setting, metric=metric)
    if metric == "error":
        return {row.model: round(1.0 - row.value, 6) for row in rows}
    return {row.model: row.value for row in rows}


def _joined(x: Mapping[str, float], y: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """(x, y) of the models that have both."""
    return {model: (x[model], y[model]) for model in y if model in x}


def _corrupted() -> dict[str, tuple[float, float]]:
    """Clean accuracy, and mean accuracy over the fifteen corruptions.

    CE is the error over AlexNet's, so that their product is the error itself. CEs are printed as whole percents and
    their mean, mCE, to a tenth: the errors are scaled to agree with it.
    """
    alexnet = np.array([np.mean(ALEXNET_ERRORS[name]) for name in BENCHMARK_CORRUPTIONS])
    values = {}
    for paper, table in (("002", "1"), ("000", "8")):
        clean = _column(paper, table, "imagenet", "error")
        mce = _column(paper, table, "imagenet-c", "mCE")
        by_type = [_column(paper, table, f"imagenet-c.{name}", "CE") for name in BENCHMARK_CORRUPTIONS]
        for model, accuracy in clean.items():
            ce = np.array([column[model] for column in by_type])
            error = float((ce * alexnet).mean() * mce[model] / ce.mean())
            values[model] = (accuracy, 1.0 - error)
    return values
