"""A run to look at: the cells of a workspace that belong together, their predictions, scores and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shiftbench.errors import StoreError
from shiftbench.labels.outcomes import outcome_warnings
from shiftbench.metrics.base import Score, metrics
from shiftbench.store.predictions import Predictions
from shiftbench.store.titles import classifier_titles
from shiftbench.store.workspace import Cell, Workspace

if TYPE_CHECKING:
    from shiftbench.reports.base import Report
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
        """(classifier, setting, score) of every cell, by the named metric or each setting's own."""

        def score(cell: Cell) -> tuple[str, str, Score]:
            chosen = metrics.get(metric or cell.spec["metric"])
            needs = chosen.needs
            predictions = self.workspace.read(cell, top_k=needs.top_k, confidence=needs.confidence, scores=needs.scores)
            return self._titles[cell.key], cell.setting, chosen(predictions, level=level)

        with ThreadPoolExecutor() as pool:
            return list(pool.map(score, self.cells))

    def table(self, metric: str | None = None, *, level: float = 0.95) -> ResultTable:
        """Classifiers by settings, with intervals."""
        from shiftbench.reports.tables import ResultTable

        return ResultTable(self.scores(metric, level=level))

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
        plain = [entry for entry in self.scores(level=level) if not entry[1].startswith(families)]
        reports: list[Report] = [ResultTable(plain)] if plain else []
        reports += [self.corruption_table(prefix, level=level) for prefix in corrupted]
        reports += [flip_table(self.workspace, self.cells, prefix=prefix, level=level) for prefix in perturbed]
        return reports

    def compare(self, setting: str | None = None, *, level: float = 0.95) -> ComparisonTable:
        """Every pair of classifiers on the same images of one setting."""
        from shiftbench.reports.comparisons import compare_all

        chosen = setting or self.settings[0]
        return compare_all([self.workspace.read(cell) for cell in self.cells if cell.setting == chosen], level=level)

    def problems(self) -> list[dict[str, str]]:
        """Pictures that were skipped or converted, once each, with the data set's name."""
        datasets = {(cell.spec["dataset"]["name"], cell.spec["dataset"]["fingerprint"]) for cell in self.cells}
        return [
            {"dataset": name, **problem}
            for name, fingerprint in sorted(datasets)
            for problem in self.workspace.problems(name, fingerprint)
        ]

    def warnings(self) -> list[str]:
        """Signs of wrong labels or preprocessing on images that a classifier should do well on."""
        found = []
        for cell in self.cells:
            if cell.spec["shift"].get("shift") != "none" or cell.spec["reference"] is not None:
                continue
            p = self.workspace.read(cell, top_k=1, confidence=False, scores=False)
            signs = outcome_warnings(p.labels, p.top[:, 0], p.space)
            found += [f"{cell.classifier} on {cell.setting}: {sign}" for sign in signs]
        return found

    def summary(self, *, level: float = 0.95) -> dict[str, Any]:
        """The run as JSON-able data."""
        return {
            "workspace": str(self.workspace.root),
            "scores": [
                {"classifier": classifier, "setting": setting, **score.as_dict()}
                for classifier, setting, score in self.scores(level=level)
            ],
            "problems": self.problems(),
            "left_out": self.left_out,
        }
