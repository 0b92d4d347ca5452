"""What the sections of a report are computed from, shared values computed once, and the page they make."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property, partial

from shiftbench._version import __version__
from shiftbench.jobs.progress import Advance, progress_bar
from shiftbench.metrics.base import SettingScore
from shiftbench.reports.corruption import corruption_families
from shiftbench.reports.models import mark_notes, software_notes
from shiftbench.reports.page.about import about_page, about_run
from shiftbench.reports.page.answer import page_answer
from shiftbench.reports.page.payload import FORMAT, Page, Progress, ResultGrid
from shiftbench.reports.page.published import Published, published_baselines
from shiftbench.reports.page.sections import all_sections, settings_with_room
from shiftbench.reports.page.sections.calibration import CalibrationEntry
from shiftbench.reports.page.sections.corruptions import FamilyScores, scored_family
from shiftbench.reports.page.sections.results import OwnNames, results_payload
from shiftbench.reports.page.sections.training import TrainingCurve
from shiftbench.reports.page.thumbnails import Album, Folders, ImageFinder
from shiftbench.reports.placement import Placements, place_models
from shiftbench.reports.summary import RunSummary, next_commands, summarise
from shiftbench.runs.results import ModelFacts, StoredResults
from shiftbench.store.workspace import Result
from shiftbench.studies.models import STANDARD, Models
from shiftbench.studies.testbed import models_of

#: Opens a progress bar for a task with a total; yields the function that advances it.
Bar = Callable[[str, int], AbstractContextManager[Advance]]
#: Calibration by (key of the result, time of its file, level): the live viewer computes each once.
CalibrationCache = dict[tuple[str, int, float], CalibrationEntry | None]
#: Images that are named in the warnings; of more, only the number is given.
_MOST_PROBLEMS = 10
#: Results that sections may show one by one, as a diagram or a list of mistakes.
_SHOWN_CLOSELY = 1000


@dataclass(frozen=True)
class ReportOptions:
    title: str = "shiftbench report"
    level: float = 0.95
    #: The category of the models that the line goes through.
    baseline: str = STANDARD
    #: Mistakes per model and setting; None: as many as keep the page small.
    failures: int | None = None
    folders: Folders = field(default_factory=dict)
    #: What is known about the workspace's models, if no published table brings its own.
    models: Models | None = None
    training: Sequence[TrainingCurve] = ()
    #: By setting: the ids of the mistakes to show. Settings that are not named show all.
    mistakes: Mapping[str, Container[str]] = field(default_factory=dict)
    #: Where the live viewer accepts tags of images, relative to the page; "" where it does not.
    tagging: str = ""


silent: Bar = partial(progress_bar, show=False)


@dataclass
class ReportData:
    """The results of a run, a published table, or both, and how to show them.

    ``progress`` is set for a run that is not complete: of its unfinished results only the scores are shown.
    """

    run: StoredResults | None
    published: Published | None
    options: ReportOptions
    album: Album
    bar: Bar = silent
    progress: Progress | None = None
    calibration_cache: CalibrationCache = field(default_factory=dict)
    #: Shown on their own tab; sections add to them.
    warnings: list[str] = field(default_factory=list)

    @property
    def level(self) -> float:
        return self.options.level

    @cached_property
    def results(self) -> Sequence[Result]:
        return self.run.results if self.run else ()

    @cached_property
    def complete(self) -> list[Result]:
        """The results whose predictions are all there."""
        if self.run is None:
            return []
        workspace = self.run.workspace
        return [result for result in self.results if workspace.predictions_path(result).is_file()]

    @cached_property
    def own(self) -> StoredResults | None:
        """The complete results of the run; None if there are none."""
        if self.run is None or not self.complete:
            return None
        return self.run.part(self.complete)

    @cached_property
    def finder(self) -> ImageFinder:
        assert self.run is not None
        return ImageFinder(self.run.workspace, self.options.folders)

    @cached_property
    def placements(self) -> Placements | None:
        """The run among the package's published models; None if a published table takes their place."""
        if self.published or self.own is None:
            return None
        return place_models(self.own, level=self.level)

    @cached_property
    def others(self) -> Published | None:
        """The models that are shown beside those of the run."""
        if self.placements:
            return published_baselines(self.placements)
        return self.published

    @cached_property
    def own_models(self) -> Models | None:
        """What is known about the workspace's models: the user's table, or the package's list, as in ``Study``."""
        if self.options.models is not None:
            return self.options.models
        titles = {result.title for result in self.results}
        settings = {result.setting for result in self.results}
        return models_of(titles, settings)

    @cached_property
    def scores(self) -> list[SettingScore]:
        if self.run is None:
            return []
        self._compute_by_model(self.run)
        return self.run.with_means(self.run.scores(level=self.level))

    def _compute_by_model(self, run: StoredResults) -> None:
        """Compute the numbers that need every result, one model after the other.

        The workspace keeps what it read last: the results of a model are read once for all of its numbers, and the
        memory does not grow with the number of models. The sections find the numbers computed.
        """
        models = run.by_model()
        closely = set(settings_with_room(self.complete, _SHOWN_CLOSELY))
        with self.bar("models", len(models)) as advance:
            for model_run in models.values():
                for result in model_run.results:
                    if result.setting in closely and result.spec.judged_by_image:
                        # Diagrams and lists of mistakes need confidences, which accuracies do without.
                        run.workspace.read(result, top_k=1, scores=False)
                model_run.scores(level=self.level)
                for family in corruption_families(model_run).values():
                    scored_family(family, self.level)
                model_run.warnings()
                advance(1)

    @cached_property
    def families(self) -> list[FamilyScores]:
        if self.run is None:
            return []
        return [scored_family(family, self.level) for family in corruption_families(self.run).values()]

    @cached_property
    def model_facts(self) -> Mapping[str, ModelFacts]:
        """What is known of each model of the run, by its title."""
        if self.run is None or not self.results:
            return {}
        return self.run.model_facts()

    @cached_property
    def summary(self) -> RunSummary | None:
        """Each model of the run in a few numbers; None without complete results."""
        if self.own is None:
            return None
        return summarise(self.own, level=self.level, placements=self.placements)

    @cached_property
    def next_commands(self) -> tuple[str, ...]:
        """Commands for somebody who reads the report already."""
        if self.own is None:
            return ()
        return next_commands(self.own, placements=self.placements, report=False)

    @cached_property
    def _results_part(self) -> tuple[ResultGrid | None, OwnNames]:
        return results_payload(self)

    @property
    def grid(self) -> ResultGrid | None:
        """Models by settings; None if there are no numbers."""
        return self._results_part[0]

    @property
    def names(self) -> OwnNames:
        """The names that models and settings of the run have on the page, where these differ."""
        return self._results_part[1]

    def model_name(self, title: str) -> str:
        """The name of a model of the run on the page."""
        return self.names.models.get(title, title)

    def setting_name(self, setting: str) -> str:
        return self.names.settings.get(setting, setting)


def empty_page(title: str, progress: Progress | None = None) -> Page:
    return {
        "format": FORMAT,
        "title": title,
        "version": __version__,
        "about": about_page(),
        "answer": None,
        "sections": {},
        "warnings": [],
        "progress": progress,
    }


def build_page(data: ReportData) -> Page:
    """The payload: every section's part, where the numbers come from, and the warnings."""
    page = empty_page(data.options.title, data.progress)
    _ = data.scores  # Computed first, because this checks the level of the intervals.
    for section in all_sections():
        payload = section.build(data)
        if payload:
            page["sections"][section.name] = payload
    page["about"] = about_page(data.published)
    page["answer"] = page_answer(data)
    if data.run is not None:
        page["about"] = about_run(data.run, data.results, data.published)
        page["warnings"] = _warnings(data.run, data)
    return page


def _warnings(run: StoredResults, data: ReportData) -> list[str]:
    signs_of_errors = run.part(data.complete).warnings()
    return [
        *mark_notes(run, data.results),
        *software_notes(run, data.results),
        *_skipped_images(run),
        *map(str, signs_of_errors),
        *data.warnings,
    ]


def _skipped_images(run: StoredResults) -> list[str]:
    """Images that were skipped, the first few by name; converted ones are counted in a warning of the run."""
    skipped = [problem for problem in run.problems() if problem["action"] == "skipped"]
    texts = []
    for problem in skipped[:_MOST_PROBLEMS]:
        texts.append(f"{problem['dataset']}: {problem['id']} was skipped: {problem['why']}")
    unnamed = len(skipped) - _MOST_PROBLEMS
    if unnamed > 0:
        texts.append(f"{unnamed} more images were skipped")
    return texts
