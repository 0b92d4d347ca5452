"""A run to look at: the cells of a workspace that belong together, their predictions, scores and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shiftbench.errors import StoreError, UnknownNameError
from shiftbench.labels.outcomes import outcome_warnings
from shiftbench.metrics.base import Score, metrics
from shiftbench.settings.natural_suites import CHOSEN_TO_FOOL
from shiftbench.store.places import is_object
from shiftbench.store.predictions import Predictions
from shiftbench.store.titles import classifier_titles
from shiftbench.store.workspace import Cell, Workspace
from shiftbench.working import worker_count

if TYPE_CHECKING:
    from shiftbench.metrics.anomaly import AnomalyScore
    from shiftbench.reports.base import Report
    from shiftbench.reports.calibration import CalibrationTable
    from shiftbench.reports.comparisons import ComparisonTable
    from shiftbench.reports.tables import ResultTable


class Run:
    """Complete cells of a workspace. Every number is computed anew from their stored predictions."""

    def __init__(
        self, workspace: Workspace, cells: Sequence[Cell], *, left_out: Mapping[str, str] | None = None
    ) -> None:
        self.workspace, self.cells = workspace, list(cells)
        #: Optional settings that were not evaluated, and why.
        self.left_out = dict(left_out or {})
        self._titles = classifier_titles(self.cells)

    @classmethod
    def open(
        cls, workspace: str | Path | Workspace, classifiers: Iterable[str] = (), settings: Iterable[str] = ()
    ) -> Run:
        """What earlier runs left in a workspace; empty arguments mean all."""
        store = workspace if isinstance(workspace, Workspace) else Workspace(workspace, create=False)
        return cls(store, list(store.cells(classifiers, settings)))

    @property
    def classifiers(self) -> list[str]:
        return list(dict.fromkeys(cell.classifier for cell in self.cells))

    @property
    def settings(self) -> list[str]:
        return list(dict.fromkeys(cell.setting for cell in self.cells))

    def predictions(self, classifier: str | None = None, setting: str | None = None) -> Predictions:
        """The predictions of one cell; the names may be left out where there is only one."""
        found = [
            cell for cell in self.cells if classifier in (None, cell.classifier) and setting in (None, cell.setting)
        ]
        if len(found) != 1:
            raise StoreError(
                "these names do not say which predictions are meant",
                found=f"{len(found)} of {len(self.cells)} cells",
                expected=f"a classifier of {self.classifiers} and a setting of {self.settings[:8]}",
            )
        return self.workspace.read(found[0])

    def scores(self, metric: str | None = None, *, level: float = 0.95) -> list[tuple[str, str, Score]]:
        """(classifier, setting, score) of every cell: by each setting's own metric, or those named, with commas."""
        named = tuple(name.strip() for name in metric.split(",")) if metric else ()
        return self._scores(lambda cell: named or (cell.spec["metric"],), level)

    def shown_scores(self, *, level: float = 0.95) -> list[tuple[str, str, Score]]:
        """As ``scores()``, with what each setting's metric is shown beside: mAP weighted by frequency and plain."""
        return self._scores(lambda cell: (cell.spec["metric"], *metrics.get(cell.spec["metric"]).beside), level)

    def _scores(self, names: Callable[[Cell], Sequence[str]], level: float) -> list[tuple[str, str, Score]]:
        def score(cell: Cell) -> list[tuple[str, str, Score]]:
            chosen = [metrics.get(name) for name in names(cell)]
            needs = reduce(or_, (one.needs for one in chosen))
            predictions = self.workspace.read(cell, top_k=needs.top_k, confidence=needs.confidence, scores=needs.scores)
            return [(self._titles[cell.key], cell.setting, one(predictions, level=level)) for one in chosen]

        # On a disk more threads than cores only wait for the interpreter; in an object store they wait for answers.
        threads = None if is_object(self.workspace.root) else worker_count(None)
        with ThreadPoolExecutor(threads) as pool:
            return [entry for entries in pool.map(score, self.cells) for entry in entries]

    def table(self, metric: str | None = None, *, level: float = 0.95) -> ResultTable:
        """Classifiers by settings, with intervals."""
        from shiftbench.reports.tables import ResultTable

        return ResultTable(self.scores(metric, level=level) if metric else self.shown_scores(level=level))

    def corruption_table(
        self, prefix: str | None = None, *, baseline: str | None = None, level: float = 0.95
    ) -> ResultTable:
        """mCE, relative mCE and the corruption error of every type, with intervals.

        ``prefix`` (``imagenet-c``) may be left out where there is only one. ``baseline`` is a classifier of this
        run to divide by; without it, the published AlexNet errors, or nothing where the classes are not ImageNet's.
        """
        from shiftbench.metrics.corruption import ALEXNET
        from shiftbench.reports.corruption import corruption_prefixes, corruption_table

        prefixes = [prefix] if prefix else corruption_prefixes(self.settings)
        if len(prefixes) != 1:
            raise StoreError(
                "corruption errors need one family of settings named PREFIX.corruption.severity",
                found=", ".join(prefixes) or "none",
                hint="evaluate a suite such as imagenet-c, or name the prefix",
            )
        family = [cell for cell in self.cells if cell.setting.startswith(f"{prefixes[0]}.")]
        # AlexNet's errors are over ImageNet's classes: dividing by them says nothing about another label space.
        comparable = all(cell.spec["space"].startswith("imagenet-") for cell in family)
        return corruption_table(
            self.workspace,
            self.cells,
            prefix=prefixes[0],
            clean=next(iter({cell.spec["reference"] for cell in family})),
            baseline=baseline or (ALEXNET if comparable else None),
            level=level,
        )

    def overview(self, *, level: float = 0.95) -> list[Report]:
        """The tables a person wants first: corruption errors and flips for their families, accuracy for the rest."""
        from shiftbench.reports.corruption import corruption_prefixes
        from shiftbench.reports.perturbation import flip_table, perturbation_prefixes
        from shiftbench.reports.tables import ResultTable

        corrupted, perturbed = corruption_prefixes(self.settings), perturbation_prefixes(self.cells)
        families = tuple(f"{prefix}." for prefix in corrupted + perturbed)
        plain = [entry for entry in self.shown_scores(level=level) if not entry[1].startswith(families)]
        reports: list[Report] = [ResultTable(plain)] if plain else []
        reports += [self.corruption_table(prefix, level=level) for prefix in corrupted]
        reports += [flip_table(self.workspace, self.cells, prefix=prefix, level=level) for prefix in perturbed]
        return reports

    def compare(self, setting: str | None = None, *, level: float = 0.95) -> ComparisonTable:
        """Every pair of classifiers on the same images of one setting."""
        from shiftbench.reports.comparisons import compare_all

        chosen = setting or self.settings[0]
        return compare_all([self.workspace.read(cell) for cell in self.cells if cell.setting == chosen], level=level)

    def groups(
        self, by: str, setting: str | None = None, *, table: str | Path | None = None, level: float = 0.95
    ) -> ResultTable:
        """Accuracy by the groups of a column, and of the worst group, in one setting or in all."""
        from shiftbench.reports.groups import group_table

        return group_table(self.workspace, self._of(setting), by, table=table, level=level)

    def detection(
        self,
        inside: str | None = None,
        outside: str | None = None,
        scores: Sequence[AnomalyScore] | None = ("max_softmax",),
        *,
        published: bool = False,
        level: float = 0.95,
    ) -> ResultTable:
        """How well anomaly scores tell the images of ``outside`` from those of ``inside``."""
        from shiftbench.reports.detection import detection_table

        return detection_table(self.workspace, self.cells, inside, outside, scores, published=published, level=level)

    def calibration(
        self,
        setting: str | None = None,
        *,
        fit: str | None = None,
        split: float | None = None,
        seed: int = 0,
        diagrams: bool = False,
        level: float = 0.95,
    ) -> CalibrationTable:
        """Calibration in one setting, before and after a temperature that is fitted on other images."""
        from shiftbench.reports.calibration import calibration_table

        chosen = self._of(setting)
        if len({cell.setting for cell in chosen}) > 1:
            raise StoreError(
                "which setting is to be scored?",
                found=f"{len(self.settings)} settings",
                expected=f"one of {', '.join(self.settings[:12])}",
                hint="--setting NAME",
            )
        return calibration_table(
            self.workspace,
            self.cells,
            chosen[0].setting,
            fit=fit,
            split=split,
            seed=seed,
            diagrams=diagrams,
            level=level,
        )

    def _of(self, setting: str | None) -> list[Cell]:
        found = [cell for cell in self.cells if setting in (None, cell.setting)]
        if not found:
            raise UnknownNameError("setting", setting or "", self.settings)
        return found

    def report(self, path: str | Path) -> Path:
        """Everything about this run in one HTML file."""
        from shiftbench.reports.page.report import write_report

        return Path(write_report(path, self).path)

    def problems(self) -> list[dict[str, str]]:
        """Pictures that were skipped or converted, once each, with the data set's name."""
        datasets = {(cell.spec["dataset"]["name"], cell.spec["dataset"]["fingerprint"]) for cell in self.cells}
        return [
            {"dataset": name, **problem}
            for name, fingerprint in sorted(datasets)
            for problem in self.workspace.problems(name, fingerprint)
        ]

    def warnings(self) -> list[str]:
        """Signs of wrong labels or preprocessing on images as they are (corrupted ones may be beyond a classifier)."""
        found = []
        for cell in self.cells:
            if cell.spec["shift"].get("shift") != "none" or cell.spec["source"] is not None:
                continue
            p = self.workspace.read(cell, top_k=1, confidence=False, scores=False)
            signs = outcome_warnings(p.labels, p.top[:, 0], p.space, chosen_to_fool=cell.setting in CHOSEN_TO_FOOL)
            found += [f"{cell.classifier} on {cell.setting}: {sign}" for sign in signs]
        return found

    def summary(self, *, level: float = 0.95) -> dict[str, Any]:
        """The run as JSON-able data."""
        return {
            "workspace": str(self.workspace.root),
            "scores": [
                {"classifier": classifier, "setting": setting, **score.as_dict()}
                for classifier, setting, score in self.shown_scores(level=level)
            ],
            "problems": self.problems(),
            "left_out": self.left_out,
        }
