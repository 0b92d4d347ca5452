"""Numbers, names and escaping."""

from __future__ import annotations

import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftbench.reports import formatting


@pytest.mark.parametrize(
    ("value", "places", "signed", "shown"),
    [
        (0.76134, 2, False, "76.13"),
        (1.0, 1, False, "100.0"),
        (0.0, 1, True, "0.0"),
        (-0.0001, 1, True, "0.0"),
        (-0.00004, 2, False, "0.00"),
        (0.031, 1, True, "+3.1"),
        (float("nan"), 1, False, "–"),
        (float("inf"), 1, False, "inf"),
    ],
)
def test_percentages(value: float, places: int, signed: bool, shown: str) -> None:
    assert formatting.number(value, places, signed=signed) == shown


def test_other_units_are_not_multiplied() -> None:
    assert formatting.number(2.5, formatting.digits(50_000, ""), "") == "2.500"


def test_digits_grow_with_n() -> None:
    assert [formatting.digits(n) for n in (0, 1, 999, 1000, 50_000)] == [1, 1, 1, 2, 2]


def test_no_interval_no_brackets() -> None:
    assert formatting.interval(float("nan"), 1.0, 1) == ""
    assert formatting.interval(0.5, 0.75, 1) == "[50.0, 75.0]"


@given(st.text(max_size=60), st.integers(1, 30))
def test_wrapping_loses_nothing_and_keeps_the_width(name: str, width: int) -> None:
    lines = formatting.wrap_name(name, width)
    assert all(len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(name.split())


@given(st.text())
def test_latex_leaves_no_character_that_means_something(text: str) -> None:
    escaped = re.sub(r"\\ifdefined\\Umathcode (.+?)\\else\[(U\+[0-9A-F]{4,6} ?)+\]\\fi\{\}", "", formatting.latex(text))
    for command in formatting._LATEX.values():
        escaped = escaped.replace(command, "")
    assert not set(escaped) & set("\\{}&%$#_~^")


def test_latex_of_other_scripts_names_their_code_points() -> None:
    assert formatting.latex("ε≥é→e\u0301") == r"$\epsilon$$\geq$é→é"
    assert formatting.latex("模型x") == r"\ifdefined\Umathcode 模型\else[U+6A21 U+578B]\fi{}x"


@pytest.mark.parametrize("name", ["=1+1", "+x", "-x", "@SUM(A1)", "\t=1", "\r=1"])
def test_a_spreadsheet_runs_no_name(name: str) -> None:
    text = formatting.csv_lines(["a"], [[formatting.csv_text(name)]])
    assert list(csv.reader(io.StringIO(text, newline="")))[1] == ["'" + name.strip()]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"])), min_size=2, max_size=4))
def test_csv_comes_back_as_it_was(fields: list[str]) -> None:
    text = formatting.csv_lines(fields, [])
    assert next(csv.reader(io.StringIO(text, newline=""))) == fields


def test_markdown_names_stay_names() -> None:
    assert formatting.markdown("a_b|c*d\ne") == r"a\_b\|c\*d e"


@given(st.text())
def test_ascii_is_ascii(text: str) -> None:
    assert formatting.ascii_text(text).isascii()
