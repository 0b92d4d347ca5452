"""The figures of a run: what ``run.plot`` offers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import ParamSpec

import numpy as np

from shiftbench.errors import StoreError, argument, check_names, listed
from shiftbench.reports.accuracy_grids import error_map_of_run, severity_grid_of_run
from shiftbench.reports.corruption import FamilyResults, corruption_families
from shiftbench.reports.figures.confidence import reliability, response
from shiftbench.reports.figures.heatmaps import confusion, corruptions, heatmap
from shiftbench.reports.figures.scatters import scatter
from shiftbench.reports.figures.style import PaperFigure, marking
from shiftbench.reports.models import figure_marks
from shiftbench.reports.placement import published_study
from shiftbench.runs.results import StoredResults
from shiftbench.store.predictions import Predictions
from shiftbench.studies.base import StudyError
from shiftbench.studies.results import results_from_scores
from shiftbench.studies.study import ShiftAxes, Study

P = ParamSpec("P")
#: By default a scatter plot has at most this many panels.
_MAX_PANELS = 6


class RunFigures:
    """Figures of a run, each a Matplotlib figure that a notebook shows and ``figure.write("name.pdf")`` writes.

    Widths are ``"single"`` (8.5 cm, one column of a paper), ``"double"`` (17.5 cm), or centimetres.

    Args:
        run: The results to draw.

    Example:
        >>> run = sb.Run.open("workspace")  # doctest: +SKIP
        >>> run.plot.corruptions().write("corruptions.svg")  # doctest: +SKIP
    """

    def __init__(self, run: StoredResults) -> None:
        self._run = run

    def corruptions(
        self, family: str | None = None, *, level: float = 0.95, width: str | float = "double"
    ) -> PaperFigure:
        """Accuracy over severity, one small panel per corruption, one line per model.

        Args:
            family: Family of corrupted settings, such as ``imagenet-c``, if the run has several.
            level: Confidence level.
            width: Width of the figure.

        Returns:
            A Matplotlib figure.

        Raises:
            StudyError: The run has no corrupted settings, or several families.
        """
        grid = severity_grid_of_run(self._run, family, level=level)
        return self._draw(corruptions, grid, width=width)

    def heatmap(
        self, family: str | None = None, *, baseline: str | None = None, width: str | float = "double"
    ) -> PaperFigure:
        """Corruption errors by model and corruption, with numbers: those of ``Run.corruption_table``.

        Args:
            family: Family of corrupted settings, if the run has several.
            baseline: A model of the run to divide by; default: the published AlexNet for ImageNet's classes.
            width: Width of the figure.

        Returns:
            A Matplotlib figure.
        """
        return self._draw(heatmap, error_map_of_run(self._run, family, baseline=baseline), width=width)

    def reliability(
        self, setting: str | None = None, *, bins: int = 15, level: float = 0.95, width: str | float | None = None
    ) -> PaperFigure:
        """Reliability diagrams: accuracy at every confidence, one panel per model.

        Args:
            setting: The setting; default: the first of the run, which is the one without shift in all suites.
            bins: Number of bins of equal width.
            level: Confidence level.
            width: Width of the figure; default: single for one model, else double.

        Returns:
            A Matplotlib figure.
        """
        predictions = self._predictions(setting)
        width = width or _width_of(len(predictions))
        return self._draw(reliability, predictions, bins=bins, level=level, width=width)

    def confusion(
        self,
        setting: str | None = None,
        model: str | None = None,
        *,
        most: int = 20,
        width: str | float = "double",
    ) -> PaperFigure:
        """The confusion matrix of one model: labels by predictions, in percent of a label's images.

        Args:
            setting: The setting; default: the first of the run.
            model: The model, if the run has several.
            most: Largest number of classes to draw: those with the most mistakes.
            width: Width of the figure.

        Returns:
            A Matplotlib figure.

        Raises:
            StoreError: The run has several models, and none is named.
        """
        predictions = self._predictions(setting)
        if model is not None:
            check_names("model", [model], [result.classifier for result in predictions])
            predictions = [result for result in predictions if result.classifier == model]
        if len(predictions) != 1:
            names = [result.classifier for result in predictions]
            raise StoreError(
                f"a confusion matrix is of one model, and {predictions[0].setting!r} has {len(names)}",
                found=listed(names),
                hint=argument("model", names[0], flag="--classifier"),
            )
        return self._draw(confusion, predictions[0], most=most, width=width)

    def response(
        self, setting: str | None = None, *, level: float = 0.95, width: str | float = "single"
    ) -> PaperFigure:
        """Accuracy on the most confident share of the images, one curve per model.

        Args:
            setting: The setting; default: the first of the run.
            level: Confidence level.
            width: Width of the figure.

        Returns:
            A Matplotlib figure.
        """
        return self._draw(response, self._predictions(setting), level=level, width=width)

    def scatter(
        self,
        y: str | Sequence[str] | None = None,
        x: str | None = None,
        *,
        scale: str | None = None,
        level: float = 0.95,
        width: str | float | None = None,
    ) -> PaperFigure:
        """Accuracy under shift against accuracy without, one point per model.

        A single setting for which the package has published models is drawn among them, with their line. Otherwise
        the line is that of the run's own models, if there are three or more.

        Args:
            y: Settings under shift, or families of corruptions, whose mean is drawn; default: all families and all
                settings that have a reference, at most six.
            x: The setting without shift; default: the reference of each ``y``.
            scale: ``"logit"``, ``"probit"`` or ``"linear"``; default: that of the published line, else logit.
            level: Confidence level of the intervals and of the line's band.
            width: Width of the figure; default: single for one panel, else double.

        Returns:
            A Matplotlib figure.

        Raises:
            StoreError: No setting of the run has a reference that was evaluated.
        """
        families = corruption_families(self._run).values()
        references = self._references(families)
        if isinstance(y, str):
            names = [y]
        elif y:
            names = list(y)
        else:
            names = self._outside_families(references, families)[:_MAX_PANELS]
        if len(names) == 1 and x is None:
            try:
                study, axes, published_scale, own_models = published_study(self._run, names[0])
            except StudyError:  # No models are published for it, or none that can be compared.
                pass
            else:
                return self._draw(
                    scatter,
                    study,
                    axes,
                    scale=scale or published_scale,
                    own=own_models,
                    level=level,
                    width=width or "single",
                )
        if not names:
            raise StoreError(
                "no setting of this run has a reference to be compared with",
                found=listed(self._run.settings),
                expected=f"two settings: {argument('x')} and {argument('y')}",
            )
        shifts = []
        for name in names:
            reference = x or references.get(name)
            if reference is None:
                raise StoreError(
                    f"{name!r} has no reference that was evaluated",
                    found=listed(self._run.settings),
                    hint=f"name the setting without shift: {argument('x')}",
                )
            shifts.append(ShiftAxes(reference, name))
        # The mean of each family is one more setting.
        results = results_from_scores(self._run.scores("top1"))
        means = {}
        for family in families:
            columns = [results.column(setting) for setting in family.places.values()]
            means[family.name] = np.mean(columns, axis=0)
        study = Study(results.with_columns(means))
        return self._draw(
            scatter,
            study,
            shifts,
            scale=scale or "logit",
            level=level,
            width=width or _width_of(len(shifts)),
        )

    def _references(self, families: Iterable[FamilyResults]) -> dict[str, str | None]:
        """Each family and each setting with the setting it is compared with, if that was evaluated."""
        settings = self._run.settings
        references: dict[str, str | None] = {}
        for family in families:
            if family.clean in settings:
                references[family.name] = family.clean
        for result in self._run.results:
            if result.spec.reference in settings and result.spec.shift.frame is None:
                references[result.setting] = result.spec.reference
        return references

    def _outside_families(self, names: Iterable[str], families: Iterable[FamilyResults]) -> list[str]:
        """Those of the names that are not settings of a family: the family stands for them."""
        members: set[str] = set()
        for family in families:
            members.update(family.places.values())
        return [name for name in names if name not in members]

    def _draw(self, draw: Callable[P, PaperFigure], *arguments: P.args, **options: P.kwargs) -> PaperFigure:
        """With marks behind the models that have a mark."""
        with marked_figures(self._run):
            return draw(*arguments, **options)

    def _predictions(self, setting: str | None) -> list[Predictions]:
        results = self._run.of_setting(setting or self._run.settings[0])
        return [self._run.workspace.read(result) for result in results]


@contextmanager
def marked_figures(run: StoredResults) -> Iterator[None]:
    """Figures drawn inside mark the models of a workspace as tables do, with the notes that explain the marks."""
    with marking(*figure_marks(run)):
        yield


def _width_of(panels: int) -> str:
    return "single" if panels == 1 else "double"
