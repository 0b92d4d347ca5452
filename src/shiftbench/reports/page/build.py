"""All that the page says, put together from a workspace, a published table, or both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from shiftbench._version import __version__
from shiftbench.jobs.progress import Advance
from shiftbench.reports.page.albums import Album
from shiftbench.reports.page.calibration import calibrated_results, calibration_entry
from shiftbench.reports.page.corruptions import Family, family_payload, read_families
from shiftbench.reports.page.failures import default_length, draft_failures, illustrate
from shiftbench.reports.page.methods import methods_payload
from shiftbench.reports.page.own import Entries, own_columns
from shiftbench.reports.page.payload import FORMAT, CalibrationEntry, FailureList, Page, Progress, TrainingCurve
from shiftbench.reports.page.pictures import Folders, PictureFinder
from shiftbench.reports.page.published import Published
from shiftbench.reports.page.results import OwnNames, OwnResults, results_payload
from shiftbench.runs.results import StoredResults
from shiftbench.store.display_names import classifier_titles
from shiftbench.store.workspace import Result
from shiftbench.studies.models import STANDARD, Models

#: Called with what is done and how often; gives a function that is told how many more are done.
Bar = Callable[[str, int], AbstractContextManager[Advance]]
#: Calibration by (key of the result, time of its file, level): a live viewer computes each once.
Remembered = dict[tuple[str, int, float], CalibrationEntry | None]
_MOST_PROBLEMS = 10
_SO_FAR = "the run is not complete: its numbers are over the images done so far, and n says how many"


@dataclass(frozen=True)
class Choices:
    """What may be chosen about a page."""

    title: str = "shiftbench report"
    level: float = 0.95
    #: The category of the models that the line goes through.
    baseline: str = STANDARD
    #: How many mistakes of each classifier in each setting; None: as many as keep the page small.
    failures: int | None = None
    folders: Folders = field(default_factory=dict)
    #: What is known about the workspace's classifiers, where no published table brings its own.
    models: Models | None = None
    #: The logs of training runs, drawn as curves.
    training: Sequence[TrainingCurve] = ()


def silent(what: str, total: int) -> AbstractContextManager[Advance]:
    return nullcontext(lambda count: None)


def empty_page(title: str, progress: Progress | None = None) -> Page:
    """A page with nothing on it yet."""
    return {
        "format": FORMAT,
        "title": title,
        "version": __version__,
        "results": None,
        "corruptions": [],
        "calibration": [],
        "failures": [],
        "pictures": [],
        "training": [],
        "methods": [],
        "warnings": [],
        "progress": progress,
    }


def build_page(
    run: StoredResults | None,
    published: Published | None,
    choices: Choices,
    album: Album,
    *,
    bar: Bar = silent,
    progress: Progress | None = None,
    remembered: Remembered | None = None,
) -> Page:
    """The page on the results of a run. Of results that are not complete yet it shows the scores alone."""
    page = empty_page(choices.title, progress)
    page["training"] = list(choices.training)
    level = choices.level
    entries = run.scores(level=level) if run is not None else []
    families = read_families(run, level) if run is not None else []
    own = _own(run, entries, families, choices, [_SO_FAR] if progress else [])
    page["results"], names = results_payload(own, published, baseline=choices.baseline, level=level)
    by_place = {(title, setting): score for title, setting, score in entries}
    page["corruptions"] = [family_payload(family, by_place) for family in families]
    if run is not None:
        complete = [result for result in run.results if run.workspace.predictions_path(result).is_file()]
        titles = classifier_titles(run.results)
        page["calibration"] = _calibration(run, complete, titles, families, level, bar, remembered)
        page["failures"], notes = _failures(run, complete, titles, choices, album, bar)
        page["pictures"] = album.urls
        page["warnings"] = [*_problems(run), *StoredResults(run.workspace, complete).warnings(), *notes]
    _rename(page, names)
    baseline = page["results"]["baseline"] if page["results"] else ""
    scores = [score for _, _, score in entries]
    page["methods"] = methods_payload(run, scores, families, published, baseline=baseline, level=level)
    return page


def _rename(page: Page, names: OwnNames) -> None:
    """One name for one thing on all of the page."""
    for family in page["corruptions"]:
        for row in family["rows"]:
            row["model"] = names.models.get(row["model"], row["model"])
    for diagram in page["calibration"]:
        diagram["model"] = names.models.get(diagram["model"], diagram["model"])
        diagram["setting"] = names.settings.get(diagram["setting"], diagram["setting"])
    for mistakes in page["failures"]:
        mistakes["model"] = names.models.get(mistakes["model"], mistakes["model"])
        mistakes["setting"] = names.settings.get(mistakes["setting"], mistakes["setting"])


def _own(
    run: StoredResults | None, entries: Entries, families: Sequence[Family], choices: Choices, notes: Sequence[str]
) -> OwnResults:
    if run is None or not run.results:
        return OwnResults(models=choices.models)
    titles = classifier_titles(run.results)
    return OwnResults(
        own_columns(run, entries, families, choices.level),
        list(dict.fromkeys(titles[result.key] for result in run.results)),
        frozenset(name for family in families if family.scores for name in family.settings),
        choices.models,
        notes,
    )


def _calibration(
    run: StoredResults,
    results: Sequence[Result],
    titles: Mapping[str, str],
    families: Sequence[Family],
    level: float,
    bar: Bar,
    remembered: Remembered | None,
) -> list[CalibrationEntry]:
    known = {} if remembered is None else remembered
    chosen = calibrated_results(results, families)

    def entry(result: Result) -> CalibrationEntry | None:
        key = (result.key, run.workspace.predictions_path(result).stat().st_mtime_ns, level)
        if key not in known:
            known[key] = calibration_entry(titles[result.key], run.workspace.read(result, top_k=1, scores=False), level)
        return known[key]

    found = []
    with bar("calibration", len(chosen)) as advance, ThreadPoolExecutor() as pool:
        for one in pool.map(entry, chosen):
            found.append(one)
            advance(1)
    return [one.copy() for one in found if one is not None]


def _failures(
    run: StoredResults, results: Sequence[Result], titles: Mapping[str, str], choices: Choices, album: Album, bar: Bar
) -> tuple[list[FailureList], list[str]]:
    if choices.failures == 0:
        return [], []
    finder = PictureFinder(run.workspace, choices.folders)
    with bar("mistakes", len(results)) as advance:
        most = default_length(len(results)) if choices.failures is None else choices.failures
        drafts, notes = draft_failures(run.workspace, results, titles, finder, most=most, advance=advance)
    with bar("pictures", sum(len(draft.failures) for draft in drafts)) as advance:
        notes += illustrate(drafts, album, advance)
    return [draft.payload() for draft in drafts if draft.failures], notes


def _problems(run: StoredResults) -> list[str]:
    """Pictures that were skipped or converted, the first few by name."""
    found = []
    problems = run.problems()
    for action in ("skipped", "converted"):
        these = [problem for problem in problems if problem["action"] == action]
        found += [f"{one['dataset']}: {one['id']} was {action}: {one['why']}" for one in these[:_MOST_PROBLEMS]]
        if len(these) > _MOST_PROBLEMS:
            found.append(f"{len(these) - _MOST_PROBLEMS} more pictures were {action}")
    return found
