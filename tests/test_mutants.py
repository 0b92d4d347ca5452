"""scripts/mutants.py: which places it finds, and that what it counts as noticed was noticed by a test."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from scripts import mutants

SOURCE = b'''"""A module."""

LIMIT = 3

def f(x: int = 1, *, y: bool = True) -> int:
    """A docstring with 1 < 2."""
    if x < LIMIT and not y:
        raise ValueError(f"{x + 1} is too small", 7)
    values = [value for value in range(x) if value]
    values.sort()
    return x * 2 if y else len(values)
'''


def lines_after(source: bytes) -> set[str]:
    return {mutant.after for mutant in mutants.mutants_of("store", "m.py", source)}


def test_places_of_a_function() -> None:
    assert lines_after(SOURCE) == {
        "def f(x: int = 2, *, y: bool = True) -> int:",
        "def f(x: int = 1, *, y: bool = False) -> int:",
        "if x <= LIMIT and not y:",
        "if x < LIMIT or not y:",
        "if (not (x < LIMIT and not y)):",
        "pass",
        "values = [value for value in range(x) if (not (value))]",
        "return None",
        "return x / 2 if y else len(values)",
        "return x * 3 if y else len(values)",
        "return x * 2 if (not (y)) else len(values)",
    }


@pytest.mark.parametrize("area", mutants.AREAS)
def test_all_mutants_of_the_product_are_python_and_the_choice_is_fixed(area: str) -> None:
    chosen = mutants.sampled(area, seed=0)
    assert len({mutant.key for mutant in chosen}) == mutants.PER_AREA
    if area == "labels":
        assert mutants.sampled(area, seed=0) == chosen != mutants.sampled(area, seed=1)
    for mutant in [*chosen, *(other for other in mutants.chosen_by_hand() if other.area == area)]:
        source = (mutants.ROOT / mutant.file).read_bytes()
        changed = mutant.changed(source)
        assert changed != source
        ast.parse(changed)


def test_the_page_says_whether_anything_was_run() -> None:
    (first, second, *_) = mutants.mutants_of("store", "m.py", SOURCE)
    not_run = mutants.Result(first, mutants.NOT_RUN)
    assert mutants.page([not_run], 0).startswith("Not run")
    assert "| store | 1 | 1 | 0 | 0 |" in mutants.page([not_run, mutants.Result(second, mutants.NOTICED)], 0)


def test_explanations_are_of_lines_that_are_there() -> None:
    """An explanation of code that has changed explains nothing."""
    for (file, before, after), reason in mutants.equivalents().items():
        lines = [line.strip() for line in (mutants.ROOT / file).read_text(encoding="utf-8").splitlines()]
        assert before.splitlines()[0] in lines and before != after and reason


@pytest.mark.parametrize(("code", "timeout", "expected"), [(1, 30.0, 1), (0, 30.0, 0), (3, 30.0, 3)])
def test_the_exit_code_of_a_run(tmp_path: Path, code: int, timeout: float, expected: int) -> None:
    assert mutants.run_forked(lambda: code, tmp_path / "log", timeout) == expected


def test_a_run_that_does_not_end_or_crashes_is_not_noticed(tmp_path: Path) -> None:
    import time

    def forever() -> int:
        time.sleep(60)
        return 1

    def crash() -> int:
        raise RuntimeError("no test failed")

    assert mutants.run_forked(forever, tmp_path / "log", 0.2) is None
    assert mutants.run_forked(crash, tmp_path / "log", 30) == 70


def test_only_failing_tests_count_as_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = mutants.Copy(tmp_path)
    copy.checkout.mkdir()
    (copy.checkout / "m.py").write_bytes(SOURCE)
    mutant = next(mutants.mutants_of("store", "m.py", SOURCE))
    lines = mutants.Lines()
    assert copy.verdict(mutant, lines) == "no test runs this line"
    lines.add({"seconds": {"t.py::t": 0.1}, "tests": {"m.py": {str(mutant.line): ["t.py::t"]}}})
    for code, verdict in [(0, "survived 1 of 1 tests"), (1, mutants.NOTICED), (4, "pytest ended with exit code 4")]:
        monkeypatch.setattr(mutants, "_run_tests", lambda tests, code=code: code)
        assert copy.verdict(mutant, lines) == verdict
        assert (copy.checkout / "m.py").read_bytes() == SOURCE
