"""Runs a flow once for every call that can fail: FLOW FOLDER POINTS (some or 1/4). Prints what went wrong as JSON.

With ``shim.c`` preloaded. Every run is a fork, so that the libraries are imported once.
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

KINDS = ("open", "write", "sync", "replace", "remove")
#: 0 ends the process, as kill -9 does.
FAILURES = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "kill": 0}
DONE, EXPLAINED, UNEXPLAINED, KILLED = 0, 3, 4, 99


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
        self.flow, self.begin, self.root = flow, folder / "begin", folder / "root"
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
        self.shim.fault_arm(str(self.root).encode(), KINDS.index(kind), ctypes.c_long(nth), failure)
        try:
            self.flow.step(self.root)
        finally:
            calls = int(self.shim.fault_disarm())
        return calls

    def count(self, kind: str) -> int:
        self._restart()
        return int(self._expect(forked(lambda: self._armed(kind, 0, 0)), "counting"))

    def attempt(self, kind: str, nth: int, failure: str) -> str | None:
        """What is wrong: an unexplained exception, a half file, or another outcome in the end."""
        self._restart()
        code, text = forked(lambda: self._armed(kind, nth, FAILURES[failure]))
        if code not in (DONE, EXPLAINED, KILLED):
            return f"exit code {code}: {text}"
        left = [str(path) for path in self.root.rglob(".*.tmp")]
        if code != KILLED and kind != "remove" and left:
            return f"left {left}"
        again, found = forked(self._finish)
        if again != DONE:
            return f"can't be continued: {found} (first: {text})"
        return None if found == self.expected else f"ends with {found}, expected {self.expected}"


def points(total: int, how: str) -> Iterable[int]:
    """The first, the middle and the last call; or all, or of "2/5" every fifth from the second on."""
    if how == "some":
        return sorted({1, (total + 1) // 2, total} - {0})
    first, step = map(int, how.split("/"))
    return range(first, total + 1, step)


def main(name: str, folder: str, how: str) -> None:
    driver = Driver(FLOWS[name], Path(folder))
    tried, wrong = 0, []
    for kind in KINDS:
        for nth in points(driver.count(kind), how):
            for failure in ("EIO", "kill")[nth % 2 :][:1] if how == "some" else FAILURES:
                tried += 1
                why = driver.attempt(kind, nth, failure)
                wrong += [f"{failure} at {kind} {nth}: {why}"] * (why is not None)
    print(json.dumps({"tried": tried, "wrong": wrong}))


if __name__ == "__main__":
    main(*sys.argv[1:])
