"""Runs a flow once for every call that can fail: FLOW FOLDER POINTS (some or 1/4). Prints what went wrong as JSON.

With ``shim.c`` preloaded. Every run is a fork, so that the libraries are imported once. A fault counts only if the shim
reports that it happened. FLOW FOLDER power-cuts ends the process at renames, and then takes away what was written and
not forced to the disk.
"""

from __future__ import annotations

import ast
import ctypes
import errno
import importlib
import json
import os
import shutil
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from tests.faults.flows import FLOWS, Flow

#: In the order of shim.c.
KINDS = ("open", "read", "write", "sync", "replace", "remove", "make folder", "link", "list")
#: What a power failure leaves of a file that was not forced to the disk.
LOSSES: dict[str, Callable[[Path], object]] = {
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "empty": lambda path: path.write_bytes(b""),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "gone": Path.unlink,
}
#: 0 ends the process, as kill -9 does.
FAILURES = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "kill": 0}
DONE = 0
EXPLAINED = 3
UNEXPLAINED = 4
KILLED = 99


def forked(work: Callable[[], object]) -> tuple[int, str]:
    """Exit code and answer of a child process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        code, text = _run(work)
        with os.fdopen(writing, "wb") as pipe:
            pipe.write((text if code == DONE else text[-30_000:]).encode())
        os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


def _run(work: Callable[[], object]) -> tuple[int, str]:
    from sqlalchemy.exc import DBAPIError

    from shiftbench.errors import ShiftbenchError

    warnings.simplefilter("ignore")
    try:
        return DONE, repr(work())
    except (ShiftbenchError, OSError, DBAPIError) as error:
        return EXPLAINED, f"{type(error).__name__}: {error}"
    except BaseException:
        return UNEXPLAINED, traceback.format_exc()


class Driver:
    def __init__(self, flow: Flow, folder: Path) -> None:
        self.flow = flow
        self.begin = folder / "begin"
        self.root = folder / "root"
        self.fired = folder / "fired"
        self.journal = folder / "journal"
        for module in flow.modules:
            importlib.import_module(module)
        self.shim = ctypes.CDLL(None)
        self.shim.fault_disarm.restype = ctypes.c_long
        self._expect(forked(lambda: flow.prepare(self._made(self.begin))), "preparing")
        self._restart()
        # What a run imports on its way is imported once for all.
        found = self._expect(forked(self._finish_and_list_modules), "the first run")
        for module in ast.literal_eval(found):
            with suppress(Exception):
                importlib.import_module(module)
        self._restart()
        self.expected = self._expect(forked(self._finish), "the undisturbed run")

    @staticmethod
    def _made(folder: Path) -> Path:
        folder.mkdir(parents=True)
        return folder

    @staticmethod
    def _expect(found: tuple[int, str], what: str) -> str:
        if found[0] != DONE:
            raise SystemExit(f"{what} failed: {found[1]}")
        return found[1]

    def _restart(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.begin, self.root)

    def _finish_and_list_modules(self) -> list[str]:
        """Those that it imports, in order: some libraries must be imported before others."""
        known = set(sys.modules)
        self._finish()
        return [module for module in sys.modules if module not in known]

    def _finish(self) -> object:
        self.flow.step(self.root)
        return self.flow.outcome(self.root)

    def _armed(self, kind: str, nth: int, failure: int) -> int:
        root = str(self.root).encode()
        fired = str(self.fired).encode()
        self.shim.fault_arm(root, fired, KINDS.index(kind), ctypes.c_long(nth), failure)
        try:
            self.flow.step(self.root)
        finally:
            calls = int(self.shim.fault_disarm())
        return calls

    def count(self, kind: str) -> int:
        self._restart()
        return int(self._expect(forked(lambda: self._armed(kind, 0, 0)), "counting"))

    def attempt(self, kind: str, nth: int, failure: str) -> tuple[bool, str | None]:
        """Whether the fault happened, and what is wrong: an unexplained exception, a half file, another outcome."""
        self._restart()
        self.fired.unlink(missing_ok=True)
        code, text = forked(lambda: self._armed(kind, nth, FAILURES[failure]))
        happened = self.fired.exists()
        if code not in (DONE, EXPLAINED, KILLED):
            return happened, f"exit code {code}: {text}"
        left = [str(path) for path in self.root.rglob(".*.tmp")]
        if code != KILLED and kind != "remove" and left:
            return happened, f"left {left}"
        return happened, self._wrong_in_the_end(text)

    def _wrong_in_the_end(self, text: str) -> str | None:
        """What is wrong after the step is repeated."""
        code, outcome = forked(self._finish)
        if code != DONE:
            return f"can't be continued: {outcome} (first: {text})"
        return None if outcome == self.expected else f"ends with {outcome}, expected {self.expected}"

    def cut_power(self, nth: int, loss: str) -> tuple[int, str | None]:
        """How many files were lost when power failed at a rename, and what is wrong after the step is repeated."""
        self._restart()
        self.journal.unlink(missing_ok=True)
        self.fired.unlink(missing_ok=True)

        def step() -> None:
            self.shim.fault_journal(str(self.root).encode(), str(self.journal).encode())
            self._armed("replace", nth, FAILURES["kill"])

        code, text = forked(step)
        if code not in (DONE, KILLED):
            return 0, f"exit code {code}: {text}"
        lost = 0
        for path in self._not_on_disk():
            LOSSES[loss](path)
            lost += 1
        return lost, self._wrong_in_the_end(text)

    def _not_on_disk(self) -> list[Path]:
        """The files whose last write was not followed by a sync; a file keeps this state when it is renamed."""
        unsynced: dict[str, bool] = {}
        for line in self.journal.read_text().splitlines():
            what, path, target = line.split("\t")
            if what == "rename":
                unsynced[target] = unsynced.pop(path, False)
            else:
                unsynced[path] = what == "write"
        return [Path(path) for path, is_lost in unsynced.items() if is_lost and Path(path).is_file()]


def points(total: int, how: str) -> Iterable[int]:
    """The first, the middle and the last call; or all, or of "2/5" every fifth from the second on."""
    if how == "some":
        return sorted({1, (total + 1) // 2, total} - {0}) if total else []
    first, step = map(int, how.split("/"))
    return range(first, total + 1, step)


def failures_of(nth: int, how: str) -> Iterable[str]:
    """All failures, or one of two in turn."""
    if how != "some":
        return FAILURES
    return ["kill"] if nth % 2 else ["EIO"]


def inject(driver: Driver, how: str) -> dict[str, object]:
    """Every fault that happened counts; one that does not happen says that the same run makes other calls."""
    tried = dict.fromkeys(KINDS, 0)
    missed: list[str] = []
    wrong: list[str] = []
    for kind in KINDS:
        for nth in points(driver.count(kind), how):
            for failure in failures_of(nth, how):
                happened, problem = driver.attempt(kind, nth, failure)
                if happened:
                    tried[kind] += 1
                else:
                    missed.append(f"{failure} at {kind} {nth}")
                if problem is not None:
                    wrong.append(f"{failure} at {kind} {nth}: {problem}")
    return {"tried": tried, "missed": missed, "wrong": wrong}


def cut_power(driver: Driver) -> dict[str, object]:
    """At some renames and at the end, with each kind of loss in turn."""
    total = driver.count("replace")
    lost = 0
    wrong: list[str] = []
    moments = [*range(1, total + 1, max(total // 8, 1)), total + 1]
    for place, nth in enumerate(moments):
        loss = list(LOSSES)[place % len(LOSSES)]
        files, problem = driver.cut_power(nth, loss)
        lost += files
        if problem is not None:
            wrong.append(f"power cut at rename {nth}, {files} files {loss}: {problem}")
    return {"tried": len(moments), "lost": lost, "wrong": wrong}


def main(name: str, folder: str, how: str) -> None:
    driver = Driver(FLOWS[name], Path(folder))
    result = cut_power(driver) if how == "power-cuts" else inject(driver, how)
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
