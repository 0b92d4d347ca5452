"""Break the product in many small places and count how often the tests notice: ``make mutants`` runs it.

Each mutant is one change of a few characters in a copy of the checkout: another comparison, a condition turned around,
a call left out. The tests that run the changed line are run again, quickest first. A mutant counts as noticed only if
pytest ends with exit code 1, that is, if a test failed; a hanging or crashing pytest does not count.

The places are chosen by a seed among all places of the packages in ``AREAS``. The choice depends on the text of each
place alone, so that it stays the same when other code changes. ``scripts/mutants.toml`` adds places that were chosen by
hand, and explains mutants that no test can notice because they change nothing.

mutmut and cosmic-ray were considered. mutmut replaces functions by trampolines, which changes the sources and names
that our fingerprints of code contain; both count a broken pytest as noticed, and neither samples over a package.

    python scripts/mutants.py                  # all areas; what has a verdict already is not run again
    python scripts/mutants.py --area labels    # one of them
    python scripts/mutants.py --again          # survivors only, with the tests that are there now
    python scripts/mutants.py --page           # write the table of docs/reliability.md
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import hashlib
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reliability.md"
BY_HAND = ROOT / "scripts" / "mutants.toml"
_BEGIN = "<!-- mutants -->"
_END = "<!-- end of mutants -->"
#: Mutants of each area, besides those that were chosen by hand.
PER_AREA = 20
#: The tests of a mutant may together take this many seconds by the clock of the coverage run, and this many in fact.
BUDGET = 40.0
TIMEOUT = 300.0
#: The verdict on a mutant for which a test failed.
NOTICED = "noticed"
NOT_RUN = "not run"
#: Libraries that the tests import, loaded once for all runs. None of them starts threads, which do not survive a fork,
#: or is a plugin of pytest, which would warn that it could not rewrite its asserts.
PRELOADED = ("pytest", "numpy", "pandas", "pyarrow.parquet", "scipy.stats", "PIL.Image", "typer.testing")


@dataclass(frozen=True)
class Area:
    """Source files, and the tests that are about them."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]


AREAS = {
    "store": Area(("store/*.py",), ("tests/store/test_*.py", "tests/cli/test_store.py", "tests/cli/test_history.py")),
    "runs": Area(("runs/*.py",), ("tests/runs/test_*.py",)),
    "labels": Area(("labels/*.py",), ("tests/labels/test_*.py", "tests/runs/test_natural_guard.py")),
    "metrics": Area(("metrics/*.py",), ("tests/metrics/test_*.py",)),
    "datasets": Area(("datasets/*.py",), ("tests/datasets/test_*.py",)),
    "classifiers": Area(("classifiers/*.py",), ("tests/classifiers/test_*.py",)),
    "gate": Area(
        ("studies/gate.py", "studies/gate_power.py", "metrics/betting.py", "store/baseline.py"),
        (
            "tests/studies/test_gate.py",
            "tests/cli/test_gate.py",
            "tests/metrics/test_*.py",
            "tests/store/test_baseline.py",
        ),
    ),
    "testset counting": Area(
        ("testsets/frequencies.py", "testsets/sampling.py", "testsets/digests.py", "testsets/verify.py"),
        (
            "tests/testsets/test_frequencies.py",
            "tests/testsets/test_kept_counts.py",
            "tests/testsets/test_damage.py",
            "tests/testsets/test_revisions.py",
            "tests/testsets/sampling/test_*.py",
        ),
    ),
}


@dataclass(frozen=True)
class Mutant:
    """One change of a source file."""

    area: str
    file: str
    #: The line of the change, and its bytes in the file.
    line: int
    #: Where the statement begins: Python counts some of its lines as run and not others.
    statement: int
    begin: int
    end: int
    replacement: str
    #: The changed line before and after, by which equivalent mutants are named.
    before: str
    after: str

    @property
    def key(self) -> str:
        return hashlib.blake2b(f"{self.file}/{self.line}/{self.begin}/{self.after}".encode(), digest_size=8).hexdigest()

    def changed(self, source: bytes) -> bytes:
        return source[: self.begin] + self.replacement.encode() + source[self.end :]


# -- where a file can be broken ----------------------------------------------------------------------------------------

_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: (r"is", "is not"),
    ast.IsNot: (r"is\s+not", "is"),
    ast.In: (r"in", "not in"),
    ast.NotIn: (r"not\s+in", "in"),
}
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: (r"\+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: (r"\*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
}


class Places(ast.NodeVisitor):
    """All places inside functions of one source file that can be changed, each with its replacement."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in lines:
            self._starts.append(self._starts[-1] + len(line))
        self._depth = 0
        self._statement = 0
        #: The first line of the statement, the first and last byte of the place, and what takes the place.
        self.changes: list[tuple[int, int, int, str]] = []

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.stmt):
            self._statement = node.lineno
        super().visit(node)

    def _begin(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.end_lineno - 1] + node.end_col_offset

    def _replace(self, node: ast.expr | ast.stmt, text: str) -> None:
        if self._depth:
            self.changes.append((self._statement, self._begin(node), self._end(node), text))

    def _replace_between(self, left: ast.expr, right: ast.expr, pattern: str, text: str) -> None:
        """Replace the operator between two operands."""
        begin = self._end(left)
        operator = re.search(pattern.encode(), self.source[begin : self._begin(right)])
        if self._depth and operator is not None:
            self.changes.append((self._statement, begin + operator.start(), begin + operator.end(), text))

    def _turn_around(self, condition: ast.expr) -> None:
        text = self.source[self._begin(condition) : self._end(condition)].decode()
        self._replace(condition, f"(not ({text}))")

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        # Decorators and annotations are not visited, and neither is a docstring.
        self._depth += 1
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self._depth -= 1

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        # Numbers and conditions of a message are not visited.
        self._replace(node, "pass")

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self._replace(node, "pass")
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not isinstance(node.value, ast.Constant):
            self._replace(node, "return None")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        self._turn_around(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._turn_around(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self._turn_around(condition)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            self._replace_between(left, right, *_COMPARISONS[type(operator)])
            left = right
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        pattern, text = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        self._replace_between(node.values[0], node.values[1], pattern, text)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in _ARITHMETIC:
            self._replace_between(node.left, node.right, *_ARITHMETIC[type(node.op)])
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace(node, str(not node.value))
        elif isinstance(node.value, int | float):
            self._replace(node, repr(node.value + 1))


def mutants_of(area: str, file: str, source: bytes) -> Iterator[Mutant]:
    """All changes of a file that leave it a Python file."""
    places = Places(source)
    places.visit(ast.parse(source))
    for statement, begin, end, replacement in places.changes:
        yield _mutant(area, file, source, statement, begin, end, replacement)


def _mutant(area: str, file: str, source: bytes, statement: int, begin: int, end: int, replacement: str) -> Mutant:
    line_begin = source.rfind(b"\n", 0, begin) + 1
    line_end = source.find(b"\n", end)
    before = source[line_begin:line_end].decode()
    after = source[line_begin:begin].decode() + replacement + source[end:line_end].decode()
    line = source.count(b"\n", 0, begin) + 1
    return Mutant(area, file, line, statement or line, begin, end, replacement, before.strip(), after.strip())


def sampled(area: str, seed: int, count: int = PER_AREA) -> list[Mutant]:
    """The mutants of an area that the seed chooses."""
    ranked: dict[bytes, Mutant] = {}
    for pattern in AREAS[area].sources:
        for path in sorted((ROOT / "src" / "shiftbench").glob(pattern)):
            file = str(path.relative_to(ROOT))
            occurrences: defaultdict[str, int] = defaultdict(int)
            for mutant in mutants_of(area, file, path.read_bytes()):
                text = f"{seed}/{file}/{mutant.before}/{mutant.after}"
                occurrences[text] += 1
                ranked[hashlib.blake2b(f"{text}/{occurrences[text]}".encode()).digest()] = mutant
    return [ranked[rank] for rank in sorted(ranked)[:count]]


def chosen_by_hand() -> Iterator[Mutant]:
    """The mutants of scripts/mutants.toml; an error if a file has changed so that the place is not there once."""
    for entry in tomllib.loads(BY_HAND.read_text(encoding="utf-8")).get("mutant", []):
        source = (ROOT / entry["file"]).read_bytes()
        text = entry["before"].encode()
        if source.count(text) != 1:
            found = f"{entry['file']} has {source.count(text)} places {entry['before']!r}"
            sys.exit(f"{found}; scripts/mutants.toml needs one")
        begin = source.index(text)
        yield _mutant(entry["area"], entry["file"], source, 0, begin, begin + len(text), entry["after"])


def equivalents() -> dict[tuple[str, str, str], str]:
    """Why no test can notice a mutant, by its file and its line before and after."""
    entries = tomllib.loads(BY_HAND.read_text(encoding="utf-8")).get("equivalent", [])
    return {(entry["file"], entry["before"], entry["after"]): entry["because"] for entry in entries}


# -- running tests in a copy -------------------------------------------------------------------------------------------


def copy_checkout(folder: Path) -> None:
    """Copy what git knows, and the compiled kernels, which are part of a checkout that works."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    kernels = [str(path.relative_to(ROOT)) for path in (ROOT / "src" / "shiftbench" / "native").glob("*.so")]
    for name in [*names.split("\0"), *kernels]:
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def run_forked(function: Callable[[], int], log: Path, timeout: float) -> int | None:
    """The exit code of a function that runs in a process of its own; None if it did not end in time."""
    process = os.fork()
    if process == 0:
        os.setsid()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        try:
            code = int(function())
        except BaseException as error:
            report(repr(error))
            code = 70
        sys.stdout.flush()
        os._exit(code)
    end = time.monotonic() + timeout
    try:
        while time.monotonic() < end:
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.05)
    finally:
        # Ctrl-C reaches this process alone, because the tests have a session of their own.
        _end_group(process)
    os.waitpid(process, 0)
    return None


def _end_group(process: int) -> None:
    """End what the tests have started, too."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)


class LinesOfTests:
    """A pytest plugin that notes which test runs which lines, and how long each test takes."""

    def __init__(self, folder: Path, sources: Sequence[Path]) -> None:
        import coverage

        self.coverage = coverage.Coverage(data_file=None, include=[str(path) for path in sources], config_file=False)
        self.seconds: dict[str, float] = defaultdict(float)
        self.skipped: set[str] = set()
        self.folder = folder

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.outcome == "skipped":
            self.skipped.add(report.nodeid)

    def tests_by_line(self) -> dict[str, dict[str, list[str]]]:
        data = self.coverage.get_data()
        lines: dict[str, dict[str, list[str]]] = {}
        for path in data.measured_files():
            by_line = data.contexts_by_lineno(path)
            file = str(Path(path).relative_to(self.folder))
            lines[file] = {
                str(line): sorted(test for test in tests if test and test not in self.skipped)
                for line, tests in by_line.items()
            }
        return lines


class Lines:
    """Which tests run which line of which file, and how long each test takes."""

    def __init__(self) -> None:
        self.tests: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
        self.seconds: dict[str, float] = {}

    def add(self, noted: dict[str, Any]) -> None:
        """Add what was noted for one file of tests."""
        self.seconds.update(noted["seconds"])
        for file, by_line in noted["tests"].items():
            for line, tests in by_line.items():
                self.tests[file, int(line)] += tests


def write_json(path: Path, value: object) -> None:
    """Write a file that is complete or not there, however the command ends."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(value, indent=1))
    temporary.replace(path)


class Copy:
    """A copy of the checkout in which places are broken."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkout = folder / "checkout"

    def prepare(self) -> None:
        shutil.rmtree(self.checkout, ignore_errors=True)
        copy_checkout(self.checkout)
        os.chdir(self.checkout)
        sys.path.insert(0, str(self.checkout / "src"))
        # Processes that tests start find the copy as well, and take no compiled file of a source that was changed.
        os.environ["PYTHONPATH"] = str(self.checkout / "src")
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        os.environ.setdefault("SHIFTBENCH_REFERENCE_DATA", str(ROOT.parent / "shared" / "reference" / "data"))
        sys.dont_write_bytecode = True
        for name in PRELOADED:
            importlib.import_module(name)

    def lines_of_tests(self, area: str) -> Lines:
        """Which tests run which lines of an area. Each file of tests is run once, and again when it has changed."""
        lines = Lines()
        sources = b"".join(path.read_bytes() for path in self._sources(area))
        for pattern in AREAS[area].tests:
            for file in sorted(self.checkout.glob(pattern)):
                content = hashlib.blake2b(sources + file.read_bytes(), digest_size=8).hexdigest()
                kept = self.folder / f"lines-{content}.json"
                if not kept.exists():
                    code = run_forked(partial(self._note_lines, area, file, kept), kept.with_suffix(".log"), 1200)
                    if code != 0:
                        report(f"{file.name} is left out, because it fails although nothing is broken (code {code})")
                if kept.exists():
                    lines.add(json.loads(kept.read_text()))
        return lines

    def _sources(self, area: str) -> list[Path]:
        folder = self.checkout / "src" / "shiftbench"
        return [path for pattern in AREAS[area].sources for path in sorted(folder.glob(pattern))]

    def _note_lines(self, area: str, file: Path, kept: Path) -> int:
        import pytest

        plugin = LinesOfTests(self.checkout, self._sources(area))
        plugin.coverage.start()
        code = pytest.main(["-q", "-p", "no:xdist", "-m", "not soak and not slow", str(file)], plugins=[plugin])
        plugin.coverage.stop()
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return int(code)
        write_json(kept, {"seconds": plugin.seconds, "tests": plugin.tests_by_line()})
        return 0

    def verdict(self, mutant: Mutant, lines: Lines) -> str:
        """The word NOTICED, or why the mutant was not."""
        tests = sorted({*lines.tests[mutant.file, mutant.line], *lines.tests[mutant.file, mutant.statement]})
        within_budget: list[str] = []
        total = 0.0
        for test in sorted(tests, key=lambda test: lines.seconds[test]):
            total += lines.seconds[test]
            if within_budget and total > BUDGET:
                break
            within_budget.append(test)
        if not within_budget:
            return "no test runs this line"
        path = self.checkout / mutant.file
        source = path.read_bytes()
        path.write_bytes(mutant.changed(source))
        try:
            code = run_forked(lambda: _run_tests(within_budget), self.folder / f"{mutant.key}.log", TIMEOUT)
        finally:
            path.write_bytes(source)
        if code == 1:
            return NOTICED
        if code is None:
            return "the tests do not end"
        if code == 0:
            return f"survived {len(within_budget)} of {len(tests)} tests"
        return f"pytest ended with exit code {code}"


def _run_tests(tests: Sequence[str]) -> int:
    import pytest

    return int(pytest.main(["-q", "-x", "-p", "no:xdist", *tests]))


def report(line: str) -> None:
    """Show a line at once, also where the output is a file."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


# -- the command -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    mutant: Mutant
    verdict: str

    @property
    def reason(self) -> str | None:
        """Why the mutant changes nothing that a test can see."""
        return equivalents().get((self.mutant.file, self.mutant.before, self.mutant.after))

    def __str__(self) -> str:
        diff = difflib.ndiff([self.mutant.before], [self.mutant.after])
        changes = "\n    ".join(line.rstrip() for line in diff if not line.startswith("?"))
        return f"{self.mutant.file}:{self.mutant.line}: {self.verdict}\n    {changes}"


def page(results: Sequence[Result], seed: int) -> str:
    """The table of docs/reliability.md: of mutants that were run."""
    results = [result for result in results if result.verdict != NOT_RUN]
    if not results:
        return "Not run on this version: `make mutants` writes its table here."
    lines = ["| area | broken places | noticed | equivalent | survived |", "|---|---|---|---|---|"]
    totals = [0, 0, 0, 0]
    for area in AREAS:
        of_area = [result for result in results if result.mutant.area == area]
        noticed = sum(result.verdict == NOTICED for result in of_area)
        explained = sum(result.verdict != NOTICED and result.reason is not None for result in of_area)
        counts = [len(of_area), noticed, explained, len(of_area) - noticed - explained]
        totals = [total + count for total, count in zip(totals, counts, strict=True)]
        lines.append(f"| {area} | {' | '.join(map(str, counts))} |")
    lines.append(f"| **all** | {' | '.join(map(str, totals))} |")
    lines += ["", f"{PER_AREA} places of each area by seed {seed}, the others by hand (`scripts/mutants.toml`)."]
    return "\n".join(lines)


def write_page(results: Sequence[Result], seed: int) -> None:
    before, table_and_after = PAGE.read_text(encoding="utf-8").split(_BEGIN)
    _, after = table_and_after.split(_END)
    PAGE.write_text(f"{before}{_BEGIN}\n\n{page(results, seed)}\n\n{_END}{after}", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--area", action="append", choices=list(AREAS), help="an area; all unless given")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=ROOT / ".mutants", help="copy, logs and verdicts")
    parser.add_argument("--again", action="store_true", help="run the survivors again")
    parser.add_argument("--page", action="store_true", help="write docs/reliability.md from all verdicts")
    options = parser.parse_args()
    options.folder.mkdir(exist_ok=True)
    areas = options.area or list(AREAS)
    mutants = [mutant for area in areas for mutant in sampled(area, options.seed)]
    mutants += [mutant for mutant in chosen_by_hand() if mutant.area in areas]
    kept = options.folder / "verdicts.json"
    verdicts: dict[str, str] = json.loads(kept.read_text()) if kept.exists() else {}
    if options.again:
        verdicts = {key: verdict for key, verdict in verdicts.items() if verdict == NOTICED}
    missing = [mutant for mutant in mutants if mutant.key not in verdicts]
    if missing and not options.page:
        copy = Copy(options.folder)
        copy.prepare()
        lines_of_tests = cache(copy.lines_of_tests)
        for number, mutant in enumerate(missing, 1):
            started = time.monotonic()
            verdict = copy.verdict(mutant, lines_of_tests(mutant.area))
            seconds = time.monotonic() - started
            report(f"{number}/{len(missing)} {mutant.file}:{mutant.line}: {verdict} ({seconds:.0f} s)")
            verdicts[mutant.key] = verdict
            write_json(kept, verdicts)
    results = [Result(mutant, verdicts.get(mutant.key, NOT_RUN)) for mutant in mutants]
    survivors = [result for result in results if result.verdict != NOTICED and result.reason is None]
    for result in survivors:
        report(str(result))
    report(f"{len(results) - len(survivors)} of {len(results)} are noticed or explained")
    if options.page:
        write_page(results, options.seed)
    return int(bool(survivors))


if __name__ == "__main__":
    sys.exit(main())
