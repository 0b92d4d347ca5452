"""Printed numbers looked up in a workspace: what the predictions of a model in a setting give for each of them.

A table of models with the columns ``printed`` and ``model`` (and ``paper``, if a name means two networks) says which
model of the workspace is the network that a paper prints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean

from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS
from shiftbench.errors import listed
from shiftbench.io.paths import Location
from shiftbench.metrics.base import metrics
from shiftbench.metrics.corruption import SEVERITIES, corruption_errors, mean_corruption_error
from shiftbench.metrics.detection import detect
from shiftbench.published.reproduce.base import PREDICTIONS, NotAtHandError, Recomputed, claim
from shiftbench.published.tables import PublishedValue
from shiftbench.runs.results import StoredResults
from shiftbench.store.workspace import Result
from shiftbench.studies.base import StudyError
from shiftbench.studies.results import read_rows

_DFR, _STORES = "deepfashion-remixed", "streetview-storefronts"
#: Settings as the tables in the package call them, and as suites do; others have one name.
SETTINGS = {
    "imagenet": "val", "imagenet-200": "val-on-imagenet-r-classes", "real-blurry": "real-blurry-images",
    "dfr": f"{_DFR}.test", "dfr.size.small": f"{_DFR}.scale-small", "dfr.size.large": f"{_DFR}.scale-large",
    "dfr.occlusion.slight-none": f"{_DFR}.occlusion-slight", "dfr.occlusion.heavy": f"{_DFR}.occlusion-heavy",
    "dfr.viewpoint.no-wear": f"{_DFR}.viewpoint-not-worn", "dfr.viewpoint.side-back": f"{_DFR}.viewpoint-side-or-back",
    "dfr.zoom.medium": f"{_DFR}.zoom-medium", "dfr.zoom.large": f"{_DFR}.zoom-large",
    "svsf": f"{_STORES}.test", "svsf.hardware.old": f"{_STORES}.old-camera", "svsf.year.2017": f"{_STORES}.year-2017",
    "svsf.year.2018": f"{_STORES}.year-2018", "svsf.location.france": f"{_STORES}.france",
}  # fmt: skip
_BLURS = tuple(name for name in BENCHMARK_CORRUPTIONS if name.endswith("_blur"))
_CORRUPTED = "imagenet-c"
_NEEDED = "results of these networks on {} (shiftbench eval; then --workspace W --models map.csv)"


def from_predictions(paper: str, place: str, what: str, rows: Sequence[PublishedValue]) -> None:
    """Register the numbers of a paper that a workspace can give."""

    def predictions(row: PublishedValue, data: Data) -> Recomputed:
        if data.lookup is None:
            raise NotAtHandError(_NEEDED.format(SETTINGS.get(row.setting, row.setting.partition(".")[0])))
        return data.lookup.value(row)

    from shiftbench.published.reproduce.sources import Data

    source = "predictions in the workspace, scored again"
    claim(paper, place, what, of=lambda: rows, source=source, kind=PREDICTIONS, group=lambda row: f"{row.table}")(
        predictions
    )


@dataclass(frozen=True, eq=False)
class Lookup:
    """A workspace, and which of its models the papers' networks are."""

    run: StoredResults
    #: (paper, printed name) to model; a paper of "" is any.
    names: Mapping[tuple[str, str], str]

    @classmethod
    def open(cls, workspace: str | Location, models: Path | None = None) -> Lookup:
        run = StoredResults.open(workspace)
        names = {} if models is None else _read_names(models)
        for model in names.values():
            run.find_model(model)  # a name that the workspace does not have is an error now
        return cls(run, names)

    def value(self, row: PublishedValue) -> Recomputed:
        """The printed number from predictions."""
        own = self._results(row)
        if row.metric == "gap":
            return Recomputed(self._top1(own, "imagenet-200").value - self._top1(own, row.setting).value)
        if row.metric == "AUPR":
            inside = self._only(own, f"val-on-{row.setting}-classes")
            read = [self.run.workspace.read(one) for one in (inside, self._only(own, row.setting))]
            return _from_score(detect(read[0], read[1], "max_softmax", published=True).aupr)
        if row.metric == "mAP":
            parts = (
                [name for name in SETTINGS if name.startswith("dfr.")] if row.setting == "dfr.ood" else [row.setting]
            )
            return _mean([self._score(own, name, "mean_average_precision") for name in parts])
        if row.setting.startswith(_CORRUPTED):
            return Recomputed(self._corruption(own, row))
        found = self._top1(own, row.setting)
        if row.metric == "top1":
            return found
        assert found.low is not None and found.high is not None
        return Recomputed(1.0 - found.value, 0.0, 1.0 - found.high, 1.0 - found.low)

    def _corruption(self, own: Sequence[Result], row: PublishedValue) -> float:
        name = row.setting.removeprefix(f"{_CORRUPTED}.")
        types = {"imagenet-c": BENCHMARK_CORRUPTIONS, "blur-mean": _BLURS}.get(name, (name,))
        errors = {one: [self._corrupted(own, one, severity) for severity in SEVERITIES] for one in types}
        if row.metric == "error":
            return fmean(error for by_severity in errors.values() for error in by_severity)
        clean = 1.0 - self._top1(own, "imagenet").value if row.metric in ("relative CE", "relative mCE") else None
        return mean_corruption_error(errors, clean) if name == _CORRUPTED else corruption_errors(errors, clean)[name]

    @cached_property
    def _members(self) -> dict[tuple[str, str, float], Result]:
        """Results on the released files, by model, corruption and severity."""
        found = {}
        for one in self.run.results:
            member = self.run.workspace.setting_record(one).member
            if member is not None and member.family == _CORRUPTED and one.spec.source == "on-disk":
                found[one.title, member.name, member.level] = one
        return found

    def _corrupted(self, own: Sequence[Result], corruption: str, severity: float) -> float:
        result = self._members.get((own[0].title, corruption, severity))
        if result is None:
            raise NotAtHandError(f"results on the released files of imagenet-c.{corruption}.{severity:g}")
        return 1.0 - self._scored(result, "top1").value

    def _results(self, row: PublishedValue) -> list[Result]:
        name = self.names.get((row.paper, row.model)) or self.names.get(("", row.model)) or row.model
        own = [one for one in self.run.results if name in (one.title, one.classifier)]
        if not own:
            raise NotAtHandError("a model of the workspace for each network (a row of --models)")
        if len({one.title for one in own}) > 1:
            raise StudyError(f"{name!r} is several models of the workspace", hint="give an id (name@hash) in --models")
        return own

    def _only(self, own: Sequence[Result], setting: str) -> Result:
        found = [one for one in own if one.setting == setting]
        if len(found) != 1:
            raise NotAtHandError(f"{'one result' if found else 'a result'} on {setting}")
        return found[0]

    def _top1(self, own: Sequence[Result], setting: str) -> Recomputed:
        return self._score(own, setting, "top1")

    def _score(self, own: Sequence[Result], setting: str, metric: str) -> Recomputed:
        return self._scored(self._only(own, SETTINGS.get(setting, setting)), metric)

    def _scored(self, result: Result, metric: str) -> Recomputed:
        return _from_score(metrics.get(metric)(self.run.workspace.read(result)))


def _from_score(score: object) -> Recomputed:
    value, low, high = (float(getattr(score, name)) for name in ("value", "low", "high"))
    return Recomputed(value, 0.0, low, high)


def _mean(parts: Sequence[Recomputed]) -> Recomputed:
    return parts[0] if len(parts) == 1 else Recomputed(fmean(one.value for one in parts))


def _read_names(path: Path) -> dict[tuple[str, str], str]:
    header, rows = read_rows(path)
    if not {"printed", "model"} <= set(header):
        raise StudyError(
            f"{path.name} is not a table of models", found=listed(header), expected="the columns printed and model"
        )
    at = {name: header.index(name) for name in ("paper", "printed", "model") if name in header}
    return {
        (str(row[at["paper"]]) if "paper" in at else "", str(row[at["printed"]])): str(row[at["model"]]) for row in rows
    }
