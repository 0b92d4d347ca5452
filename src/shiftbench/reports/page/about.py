"""Where the numbers of a page come from: data, dates, versions, and images that were converted or skipped."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from shiftbench.errors import without_credentials
from shiftbench.reports.page.payload import About, DatasetFact
from shiftbench.reports.page.published import Published
from shiftbench.runs.results import StoredResults
from shiftbench.store.run_records import RunRecord, shown_date
from shiftbench.store.workspace import Result


def about_page(published: Published | None = None) -> About:
    """What is known about a page without results of a workspace: when it was made, and its published table."""
    about: About = {
        "datasets": [],
        "settings": 0,
        "published": "",
        "first_result": "",
        "last_result": "",
        "versions": [],
        "written": shown_date(datetime.now(UTC).isoformat()),
        "converted": 0,
        "skipped": 0,
    }
    if published is not None:
        about["settings"] = len(published.study.results.settings)
        about["published"] = published.name
    return about


def about_run(run: StoredResults, results: Sequence[Result], published: Published | None) -> About:
    facts = about_page(published)
    settings = {result.setting for result in results}
    if published:
        settings |= set(published.study.results.settings)
    facts["settings"] = len(settings)
    facts["datasets"] = _datasets(run, results)
    runs = _runs_behind(run, results)
    dates = sorted(shown_date(record.ended or record.started) for record in runs)
    if dates:
        facts["first_result"] = dates[0]
        facts["last_result"] = dates[-1]
    versions = {record.software.versions.get("shiftbench", "") for record in runs}
    facts["versions"] = sorted(versions - {""})
    actions = [problem["action"] for problem in run.problems()]
    facts["converted"] = actions.count("converted")
    facts["skipped"] = actions.count("skipped")
    return facts


def _datasets(run: StoredResults, results: Sequence[Result]) -> list[DatasetFact]:
    """Datasets without shift come first: they are what a reader calls the data."""
    ordered = sorted(results, key=lambda result: result.spec.reference is not None)
    datasets: list[DatasetFact] = []
    for dataset in dict.fromkeys(result.spec.dataset for result in ordered):
        record = run.workspace.dataset(dataset.name, dataset.fingerprint)
        source = run.workspace.source(dataset.name, dataset.fingerprint)
        path = "" if source is None else without_credentials(source[1])
        fact: DatasetFact = {"name": dataset.name, "images": len(record.ids), "path": path}
        # The same images with classes in another order are another dataset, and for a reader the same data.
        if not path or fact not in datasets:
            datasets.append(fact)
    return datasets


def _runs_behind(run: StoredResults, results: Sequence[Result]) -> list[RunRecord]:
    """The runs that computed these results, once each."""
    records: dict[str, RunRecord] = {}
    for result in results:
        for record in run.history.makers(result):
            records[record.id] = record
    return list(records.values())
