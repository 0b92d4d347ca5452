"""What the sections of a report are computed from, shared values computed once, and the page they make."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property, partial

from shiftbench._version import __version__
from shiftbench.jobs.progress import Advance, progress_bar
from shiftbench.metrics.base import Score
from shiftbench.reports.corruption import corruption_families
from shiftbench.reports.models import mark_notes, software_notes
from shiftbench.reports.page.payload import FORMAT, Page, Progress, ResultGrid
from shiftbench.reports.page.published import Published, published_baselines
from shiftbench.reports.page.sections import all_sections
from shiftbench.reports.page.sections.calibration import CalibrationEntry
from shiftbench.reports.page.sections.corruptions import FamilyScores, scored_family
from shiftbench.reports.page.sections.results import OwnNames, results_payload
from shiftbench.reports.page.sections.training import TrainingCurve
from shiftbench.reports.page.thumbnails import Album, Folders, ImageFinder
from shiftbench.reports.placement import Placements, place_models
from shiftbench.runs.results import StoredResults
from shiftbench.store.workspace import Result
from shiftbench.studies.models import STANDARD, Models

#: Opens a progress bar for a task with a total; yields the function that advances it.
Bar = Callable[[str, int], AbstractContextManager[Advance]]
#: Calibration by (key of the result, time of its file, level): the live viewer computes each once.
CalibrationCache = dict[tuple[str, int, float], CalibrationEntry | None]
_MOST_PROBLEMS = 10


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
    #: Setting to the mistakes that are shown of it, by id; all, where a setting is not named.
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
    #: Shown on a tab of their own; sections add to them.
    warnings: list[str] = field(default_factory=list)

    @property
    def level(self) -> float:
        return self.options.level

    @cached_property
    def results(self) -> Sequence[Result]:
        return self.run.results if self.run else ()

    @cached_property
    def complete(self) -> list[Result]:
        workspace = self.run.workspace if self.run else None
        return [result for result in self.results if workspace and workspace.predictions_path(result).is_file()]

    @cached_property
    def own(self) -> StoredResults | None:
        if self.run is None or not self.complete:
            return None
        return StoredResults(self.run.workspace, self.complete, models=self.run.models)

    @cached_property
    def finder(self) -> ImageFinder:
        assert self.run is not None
        return ImageFinder(self.run.workspace, self.options.folders)

    @cached_property
    def placements(self) -> Placements | None:
        """The run among the package's published models; None if a published table takes their place."""
        return None if self.published or self.own is None else place_models(self.own, level=self.level)

    @cached_property
    def others(self) -> Published | None:
        """The models that are shown beside those of the run."""
        return published_baselines(self.placements) if self.placements else self.published

    @cached_property
    def scores(self) -> list[tuple[str, str, Score]]:
        return self.run.with_means(self.run.scores(level=self.level)) if self.run else []

    @cached_property
    def families(self) -> list[FamilyScores]:
        return [scored_family(one, self.level) for one in corruption_families(self.run).values()] if self.run else []

    @cached_property
    def grid(self) -> tuple[ResultGrid | None, OwnNames]:
        """Models by settings, and what became of the names of the run."""
        return results_payload(self)

    def model_name(self, title: str) -> str:
        """What a model of the run is called on the page."""
        return self.grid[1].models.get(title, title)

    def setting_name(self, setting: str) -> str:
        return self.grid[1].settings.get(setting, setting)


def empty_page(title: str, progress: Progress | None = None) -> Page:
    return {"format": FORMAT, "title": title, "version": __version__, "sections": {}, "warnings": [],
            "progress": progress}  # fmt: skip


def build_page(data: ReportData) -> Page:
    """The payload: every section's part, and what stands around them."""
    page, run = empty_page(data.options.title, data.progress), data.run
    _ = data.scores  # first, for they check the level
    parts = {section.name: section.build(data) for section in all_sections()}
    page["sections"] = {name: part for name, part in parts.items() if part}
    if run is not None:
        page["warnings"] = [*mark_notes(run, data.results), *software_notes(run, data.results)]
        # Images that were skipped or converted, the first few by name.
        for action in ("skipped", "converted"):
            these = [problem for problem in run.problems() if problem["action"] == action]
            shown = [f"{one['dataset']}: {one['id']} was {action}: {one['why']}" for one in these[:_MOST_PROBLEMS]]
            left = len(these) - len(shown)
            page["warnings"] += [*shown, *([f"{left} more images were {action}"] if left else [])]
        signs = StoredResults(run.workspace, data.complete).warnings()
        page["warnings"] += [*map(str, signs), *data.warnings]
    return page
