"""Shared by all tests: reference data, and a summary of what was skipped and why."""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Generator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, TextIO

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import settings

from shiftbench._version import __version__

# Arrays and networks are small: threads would wait for each other, and quarrel with other tests over the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Nothing that collection imports and makes goes away. To look through it again and again takes half a second each time.
gc.disable()

# A slow example says nothing about the code when other work shares the cores.
settings.register_profile("no_deadline", deadline=None)
settings.load_profile("no_deadline")

REFERENCE = Path(
    os.environ.get("SHIFTBENCH_REFERENCE_DATA") or Path(__file__).resolve().parents[2] / "shared" / "reference" / "data"
)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Examples are in docstrings of the source; tests have none, and to look for some would take seconds."""
    found = yield
    return [one for one in found if not isinstance(one, DoctestModule)]


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """The report of a test carries the group of docs/reliability.md that it counts in."""
    for mark in item.iter_markers("reliability"):
        item.user_properties.append(("reliability", mark.args[0]))


def _crash_file(run: str, worker: str) -> Path:
    """Where a worker of pytest-xdist writes the stacks of its threads if native code ends it."""
    return Path(tempfile.gettempdir(), f"shiftbench-crash-{run}-{worker}.txt")


@lru_cache(maxsize=1)
def _crash_stream(run: str, worker: str) -> TextIO:
    """The opened file of this process."""
    return _crash_file(run, worker).open("w")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """In a worker, stacks go to a file: what libraries enable instead would write them where a test captures them."""
    worker: Mapping[str, str] | None = getattr(item.config, "workerinput", None)
    if worker is not None:
        faulthandler.enable(_crash_stream(worker["testrunuid"], worker["workerid"]))


def pytest_unconfigure(config: pytest.Config) -> None:
    worker: Mapping[str, str] | None = getattr(config, "workerinput", None)
    if worker is not None and _crash_stream.cache_info().currsize:
        faulthandler.disable()
        _crash_stream(worker["testrunuid"], worker["workerid"]).close()


#: What is known of each worker that crashed: the stacks that it has written, or that it has written none.
_crashes: list[str] = []
#: Whether the last one was ended without a word, and the tests that were run again because of that.
_ended_silently = False
_run_again: set[str] = set()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object, error: object | None) -> None:
    global _ended_silently
    worker: Mapping[str, str] = vars(node).get("workerinput", {})
    if worker:
        file = _crash_file(worker["testrunuid"], worker["workerid"])
        if error and file.exists():
            stacks = file.read_text()
            _ended_silently = not stacks
            _crashes.append(stacks or f"{worker['workerid']} was ended from outside, or by an exit: {error}")
        file.unlink(missing_ok=True)


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: pytest.TestReport, sched: Any) -> None:
    """Run a test once more whose worker was ended from outside, which says nothing about the test.

    A worker that native code ends writes its stacks; then the test has failed.
    """
    if _ended_silently and crashitem not in _run_again:
        _run_again.add(crashitem)
        report.outcome = "skipped"
        report.longrepr = (crashitem, 0, "Skipped: its worker was ended from outside; it is run again")
        sched.mark_test_pending(crashitem)


#: Warnings that no test expected: what was said, and by which test.
_unexpected_warnings: list[str] = []


def pytest_warning_recorded(warning_message: warnings.WarningMessage, nodeid: str) -> None:
    _unexpected_warnings.append(f"{nodeid or 'outside of tests'}: {warning_message.message}")


#: Whether the checkout has had a default workspace before any test: that of a user, which stays.
_HAD_WORKSPACE = pytest.StashKey[bool]()


def _default_workspace(config: pytest.Config) -> Path:
    """Where commands without a workspace write, if tests are started in the checkout."""
    return config.rootpath / "shiftbench-workspace"


def _wrote_default_workspace(config: pytest.Config) -> bool:
    return _default_workspace(config).exists() and not config.stash[_HAD_WORKSPACE]


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[_HAD_WORKSPACE] = _default_workspace(session.config).exists()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A run fails if a test has written to the default workspace, which the commands of other tests would read.

    A run with a warning that no test expects fails too, because readers stop reading warnings that are always there.

    A test that is about a warning expects it by ``pytest.warns``; a warning of a library is filtered in pyproject.toml,
    with the reason. Turning warnings into errors would change the code under test where it catches exceptions.
    """
    failed = bool(_unexpected_warnings) or _wrote_default_workspace(session.config)
    if failed and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _write_counts(stats: Mapping[str, Sequence[pytest.TestReport]], interrupted: bool) -> None:
    """For scripts/reliability.py: every test with its outcome; if it has a group, with that and how much it tried.

    An error in a fixture, before or after the test, is a failure. A test counts as one try, unless it says.
    """
    tests: dict[str, dict[str, object]] = {}
    for category, outcome in (("passed", "passed"), ("skipped", "skipped"), ("failed", "failed"), ("error", "failed")):
        for report in stats.get(category, ()):
            known = dict(report.user_properties)
            counted = {"group": known["reliability"], "tries": known.get("tries", 1)} if "reliability" in known else {}
            tests[report.nodeid] = {"outcome": outcome, **counted}
    run = {"date": datetime.now(UTC).date().isoformat(), "version": __version__, "interrupted": interrupted}
    text = json.dumps({**run, "tests": tests}, indent=1, sort_keys=True)
    Path(os.environ["SHIFTBENCH_COUNTS"]).write_text(text + "\n")


@pytest.fixture(scope="session")
def reference_data() -> Path:
    """Public result tables and metadata that are too large, or not ours, to keep in the repository."""
    if not REFERENCE.is_dir():
        pytest.skip(f"reference data not found at {REFERENCE} (see CONTRIBUTING.md)")
    return REFERENCE


@pytest.fixture(scope="session", autouse=True)
def told_of_shared_noise() -> None:
    """``sb.corrupt`` warns once per process that images without an id share their noise.

    Which test that would meet depends on the order of the tests. Those about the warning take this back.
    """
    from shiftbench.shifts.corruptions import api

    api._warned = True


@pytest.fixture(scope="session", autouse=True)
def decoded_once() -> None:
    """CIFAR-10 in its large PNG files is decoded once, not for half a second by each of the tests that open it."""
    from shiftbench.datasets import cifar

    original = cifar._png_images
    kept = lru_cache(maxsize=2)(original)

    @wraps(original)  # pickled by its name: worker processes decode for themselves
    def decode(files: Sequence[Path]) -> object:
        return kept(tuple(files))

    cifar._png_images = decode  # type: ignore[assignment]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: pytest.ExitCode) -> None:
    """Count and name skipped tests by reason: a green run states what it did not test.

    Also after Ctrl-C, and in the main process only where tests run in several.
    """
    if "SHIFTBENCH_COUNTS" in os.environ:
        _write_counts(terminalreporter.stats, exitstatus == pytest.ExitCode.INTERRUPTED)
    for crash in _crashes:
        terminalreporter.section("a crashed worker")
        terminalreporter.write_line(crash)
    if _wrote_default_workspace(terminalreporter.config):
        terminalreporter.section("the default workspace: the run fails")
        terminalreporter.write_line(f"a test has written to {_default_workspace(terminalreporter.config)}")
    if _unexpected_warnings:
        terminalreporter.section("warnings that no test expects: the run fails")
        for line in _unexpected_warnings:
            terminalreporter.write_line(line)
    by_reason: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for report in terminalreporter.stats.get("skipped", ()):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        by_reason[reason.removeprefix("Skipped: ")][report.nodeid.partition("::")[0]] += 1
    if not by_reason:
        return
    terminalreporter.section("skipped tests, by reason")
    for reason, files in sorted(by_reason.items(), key=lambda pair: -pair[1].total()):
        terminalreporter.write_line(f"{files.total()} tests skipped: {reason}")
        for file, count in sorted(files.items()):
            terminalreporter.write_line(f"    {count:4d}  {file}")
