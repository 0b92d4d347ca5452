"""The payload of the page: every section's part, and what stands around them."""

from __future__ import annotations

from shiftbench._version import __version__
from shiftbench.reports.models import assumed_notes, software_notes
from shiftbench.reports.page.payload import FORMAT, Page, Progress
from shiftbench.reports.page.report_data import ReportData
from shiftbench.reports.page.sections import all_sections
from shiftbench.runs.results import StoredResults

_MOST_PROBLEMS = 10


def empty_page(title: str, progress: Progress | None = None) -> Page:
    """A page without results."""
    return {
        "format": FORMAT,
        "title": title,
        "version": __version__,
        "sections": {},
        "warnings": [],
        "progress": progress,
    }


def build_page(data: ReportData) -> Page:
    page = empty_page(data.options.title, data.progress)
    _ = data.scores  # first, for they check the level
    parts = {section.name: section.build(data) for section in all_sections()}
    page["sections"] = {name: part for name, part in parts.items() if part}
    if data.run is not None:
        signs = StoredResults(data.run.workspace, data.complete).warnings()
        made = [*assumed_notes(data.run, data.results), *software_notes(data.run, data.results)]
        page["warnings"] = [*made, *_problems(data.run), *map(str, signs), *data.warnings]
    return page


def _problems(run: StoredResults) -> list[str]:
    """Images that were skipped or converted, the first few by name."""
    found = []
    problems = run.problems()
    for action in ("skipped", "converted"):
        these = [problem for problem in problems if problem["action"] == action]
        found += [f"{one['dataset']}: {one['id']} was {action}: {one['why']}" for one in these[:_MOST_PROBLEMS]]
        if len(these) > _MOST_PROBLEMS:
            found.append(f"{len(these) - _MOST_PROBLEMS} more images were {action}")
    return found
