"""The table of results: what it keeps apart, what it marks, what it emphasises, how it prints."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from shiftbench.errors import ShiftbenchError
from shiftbench.metrics.base import Score, SettingScore
from shiftbench.metrics.bootstrap import EXACT_BOUND
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.reports.scores import ScoreGrid, in_one_column, score_table
from shiftbench.reports.table import Column, Name, Number, Table
from tests.latex import compile_latex

NAN = float("nan")


def score(value: float, n: int = 200, *, metric: str = "top1", provenance: str = "p", better: bool = True) -> Score:
    k = round(value * n)
    low, high = clopper_pearson(k, n)
    return Score(metric, k / n, low, high, n, provenance=provenance, higher_is_better=better)


def grid(classifiers: int, settings: int, n: int = 114) -> Table:
    chance = random.Random(0)
    return score_table(
        SettingScore(f"efficientnet-lite{i}", f"demo-c.corruption_{j}.3", score(chance.uniform(0.2, 0.99), n))
        for i in range(classifiers)
        for j in range(settings)
    )


def bold(table: Table) -> list[str]:
    """The models that are bold in some column."""
    return [row["classifier"] for row in table.shown if any(column.cell(row).bold for column in table.columns)]


def test_one_column_a_setting_and_metric() -> None:
    table = ScoreGrid(
        SettingScore(who, where, score(0.5, metric=metric))
        for who in "ab"
        for where in ("clean", "fog")
        for metric in ("top1", "top5")
    )
    assert [(c.setting, c.metric, c.mark) for c in table.columns] == [
        ("clean", "top1", ""),
        ("clean", "top5", ""),
        ("fog", "top1", ""),
        ("fog", "top5", ""),
    ]


def test_two_provenances_never_share_a_column() -> None:
    table = score_table(
        [
            SettingScore("a", "fog", score(0.5, provenance="released files")),
            SettingScore("b", "fog", score(0.6, provenance="in memory")),
            SettingScore("a", "clean", score(0.9, provenance="val")),
            SettingScore("a", "snow", score(0.4, provenance="in memory")),
            SettingScore("b", "snow", score(0.4, provenance="released files")),
        ]
    )
    headings = [column.heading for column in table.columns]
    assert headings == ["model", "fog (a)", "fog (b)", "clean", "snow (b)", "snow (a)"]
    assert table.columns[1].cell(table.shown[1]).value == ""
    notes = table.notes
    assert "(a) released files" in notes and "(b) in memory" in notes
    assert "provenance of clean: val" in notes
    for text in (table.to_text(80), table.to_markdown(), table.to_latex()):
        assert "fog (a)" in text and "(b) in memory" in text


@pytest.mark.parametrize("change", [{"level": 0.9}, {"method": "wilson"}])
def test_level_and_method_are_kept_apart_too(change: dict[str, float | str]) -> None:
    from dataclasses import replace

    table = ScoreGrid([SettingScore("a", "fog", score(0.5)), SettingScore("b", "fog", replace(score(0.5), **change))])  # type: ignore[arg-type]
    assert [column.mark for column in table.columns] == ["a", "b"]
    assert any(note.startswith("(b)") and ("90 %" in note or "wilson" in note) for note in table.notes())


def test_another_n_is_marked_and_explained() -> None:
    table = score_table(
        [
            SettingScore("a", "fog", score(0.5)),
            SettingScore("b", "fog", score(0.5)),
            SettingScore("c", "fog", score(0.5, n=198)),
        ]
    )
    assert [table.columns[1].cell(row).mark for row in table.shown] == ["", "", "*"]
    assert "* another number of images than its column: c n = 198 in fog" in table.notes


def test_settings_of_different_size_show_their_n() -> None:
    table = score_table([SettingScore("a", "x", score(0.5, 50_000)), SettingScore("a", "y", score(0.5, 7500))])
    for text in (table.to_text(80), table.to_markdown(), table.to_latex()):
        assert "50,000" in text and "7,500" in text
    assert "n = 200" in score_table([SettingScore("a", "x", score(0.5))]).to_text(80)


def test_contradicting_scores_are_refused_and_repeated_ones_are_not() -> None:
    same = SettingScore("a", "fog", score(0.5))
    assert len(ScoreGrid([same, same]).columns) == 1
    undefined = SettingScore("a", "fog", Score("top1", NAN, 0, 1, 0))
    assert len(ScoreGrid([undefined, undefined]).columns) == 1
    with pytest.raises(ShiftbenchError) as caught:
        ScoreGrid([same, SettingScore("a", "fog", score(0.6))])
    assert caught.value.found == "top1 0.5 and 0.6"


def test_bold_is_best_or_not_clearly_worse() -> None:
    """b's interval reaches up to 88.8: into a's, from 85.0, though not up to its 90."""
    table = score_table(
        [SettingScore("a", "x", score(0.9)), SettingScore("b", "x", score(0.84)), SettingScore("c", "x", score(0.5))]
    )
    assert bold(table) == ["a", "b"] and any(note.startswith("bold: best") for note in table.notes)


def test_bold_follows_the_direction() -> None:
    entries = [SettingScore("a", "x", score(0.9, better=False)), SettingScore("b", "x", score(0.2, better=False))]
    assert bold(score_table(entries)) == ["b"]


@pytest.mark.parametrize("values", [[0.9], [0.9, 0.89], [0.5, 0.5], [0.9, NAN]])
def test_nothing_is_bold_where_nothing_stands_out(values: list[float]) -> None:
    scores = [Score("top1", NAN, 0, 1, 0) if math.isnan(value) else score(value) for value in values]
    table = score_table(SettingScore(f"m{i}", "x", one) for i, one in enumerate(scores))
    assert bold(table) == [] and not any(note.startswith("bold") for note in table.notes)


@pytest.mark.parametrize(("classifiers", "settings"), [(1, 1), (4, 2), (4, 16), (30, 3), (2, 76)])
def test_fits_and_shows_every_number(classifiers: int, settings: int) -> None:
    table = grid(classifiers, settings)
    cells = [column.cell(row) for row, column in itertools.product(table.shown, table.columns[1:])]
    for width, ascii_only in itertools.product([40, 60, 80, 200], [False, True]):
        text = table.to_text(width, ascii_only=ascii_only)
        assert max(map(len, text.splitlines())) <= width
        assert text.isascii() or not ascii_only
        assert "…" not in text and all(cell.value in text and cell.interval in text for cell in cells)


def test_a_wide_terminal_shows_one_plain_table() -> None:
    lines = grid(4, 2).to_text(80).splitlines()
    assert lines[0] == "top1, %"
    assert [line.split()[0] for line in lines if line.startswith("eff")] == [f"efficientnet-lite{i}" for i in range(4)]
    assert all(line.count("[") == 2 for line in lines if line.startswith("eff"))


@pytest.mark.parametrize("width", [120, 200])
def test_many_settings_are_turned_and_not_split_when_that_fits(width: int) -> None:
    text = grid(4, 16).to_text(width)
    assert text.count("─\n") == 1
    assert sum(line.startswith("demo-c.") for line in text.splitlines()) == 16


@pytest.mark.parametrize(("width", "pieces"), [(50, 4), (80, 2)])
def test_a_narrow_terminal_gets_pieces(width: int, pieces: int) -> None:
    lines = grid(4, 16).to_text(width).splitlines()
    assert sum(line.startswith("demo-c.") for line in lines) == 16 * pieces
    assert sum(line.count("[") for line in lines) >= 4 * 16 and max(map(len, lines)) <= width


def test_a_terminal_narrower_than_one_column_gets_a_list_by_setting() -> None:
    lines = grid(4, 16).to_text(24).splitlines()
    assert sum("efficientnet-lite0" in line for line in lines) == 16


NARROW = """\
top1, %

model    imagenet-a
───────────────────
small          30.0
       [23.7, 36.9]
large          80.0
       [73.8, 85.3]

95 % intervals:
  clopper-pearson; n =
  200
provenance: p
bold: best, or its
  interval overlaps
  the best one's
"""


def test_a_very_narrow_terminal_in_full() -> None:
    table = score_table(
        [SettingScore("small", "imagenet-a", score(0.3)), SettingScore("large", "imagenet-a", score(0.8))]
    )
    assert table.to_text(22) == NARROW


def test_colours_only_where_there_are_some() -> None:
    table = score_table([SettingScore("a", "x", score(0.9)), SettingScore("b", "x", score(0.2))])
    coloured = Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=80)
    with coloured.capture() as capture:
        coloured.print(table)
    assert "\x1b[1m90.0" in capture.get() and "\x1b[2m[85.0, 93.8]" in capture.get()
    assert "\x1b[1m20.0" not in capture.get()
    assert "\x1b" not in table.to_text(80)


def test_markup_in_names_is_text() -> None:
    """Rich would read [red] and [/] as commands."""
    text = score_table([SettingScore("[red]a[/]", "[/x]", score(0.5))], title="[b]t").to_text(80)
    assert "[red]a[/]" in text and "[/x]" in text and "[b]t" in text


def test_empty_table() -> None:
    table = score_table([])
    assert table.to_text(80) == "no results yet\n"
    assert table.to_csv().count("\n") == 1
    assert json.loads(table.to_json())["scores"] == []
    assert "no results yet" in table.to_markdown() and "no results yet" in table.to_latex()


def test_csv_is_tidy_and_exact() -> None:
    one = score(1 / 3, 300, provenance='ids "a", b')
    table = score_table(
        [SettingScore("net, v_1", "fog", one), SettingScore("=cmd", "fog", Score("top1", NAN, 0, 1, 0, provenance="p"))]
    )
    first, second = csv.DictReader(io.StringIO(table.to_csv()))
    assert (first["classifier"], first["setting"], first["provenance"]) == ("net, v_1", "fog", 'ids "a", b')
    assert (float(first["value"]), float(first["low"]), float(first["high"])) == (one.value, one.low, one.high)
    assert (first["n"], first["level"], first["method"]) == ("300", "0.95", "clopper-pearson")
    assert (second["classifier"], second["value"]) == ("'=cmd", "")


def test_json_is_strict() -> None:
    table = score_table(
        [SettingScore("a", "x", Score("top1", NAN, 0, 1, 0)), SettingScore("b", "x", score(0.5))], title="t"
    )
    data = json.loads(table.to_json(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert data["title"] == "t"
    assert {row["classifier"]: row["value"] for row in data["scores"]} == {"a": None, "b": 0.5}


MARKDOWN = """\
**top1, %**

| model | fog |
| --- | ---: |
| a\\_b | **90.0** <sub>\\[85.0, 93.8\\]</sub> |
| c\\|d | 20.0 <sub>\\[14.7, 26.2\\]</sub> |

- 95 % intervals: clopper-pearson; n = 200
- provenance: p
- bold: best, or its interval overlaps the best one's
"""


def test_markdown_in_full() -> None:
    table = score_table([SettingScore("a_b", "fog", score(0.9)), SettingScore("c|d", "fog", score(0.2))])
    assert table.to_markdown() == MARKDOWN


LATEX = r"""% needs \usepackage{booktabs}
\begin{tabular}{lr}
\toprule
model & fog\_3 \\
\midrule
a\_b \& c & \textbf{90.0} {\scriptsize [85.0, 93.8]} \\
50\% & 20.0 {\scriptsize [14.7, 26.2]} \\
\bottomrule
\end{tabular}
\par{\footnotesize top1, \%}
\par{\footnotesize 95 \% intervals: clopper-pearson; n = 200}
\par{\footnotesize provenance: p}
\par{\footnotesize bold: best, or its interval overlaps the best one's}
"""


def test_latex_in_full() -> None:
    table = score_table([SettingScore("a_b & c", "fog_3", score(0.9)), SettingScore("50%", "fog_3", score(0.2))])
    assert table.to_latex() == LATEX


def test_written_by_suffix(tmp_path: Path) -> None:
    table = grid(2, 2)
    for suffix, text in ((".md", table.to_markdown()), (".csv", table.to_csv()), (".tex", table.to_latex())):
        assert table.write(tmp_path / f"t{suffix}").read_text(encoding="utf-8") == text
    assert json.loads(table.write(tmp_path / "t.JSON").read_text())["scores"]
    with pytest.raises(ShiftbenchError) as caught:
        table.write(tmp_path / "t.xlsx")
    assert caught.value.found == "t.xlsx"


def test_of_many_provenances_the_shared_parts_are_shown() -> None:
    def lines(*texts: str) -> Table:
        return score_table(
            (SettingScore("a", f"s{i}", score(0.5, provenance=text)) for i, text in enumerate(texts)), remarks=["!"]
        )

    made = [f"val (50 images); in-memory; fog={i}" for i in range(8)]
    table = lines("val (50 images)", *made)
    assert "provenance: val (50 images); in-memory (8 of 9); in full in CSV and JSON" in table.notes
    assert table.notes[-1] == "!"
    assert "fog=7" in table.to_csv()
    assert "provenance: 9 different lines; in full in CSV and JSON" in lines(*map(str, range(9))).notes


def test_a_bound_and_a_bootstrap_share_a_column() -> None:
    bound = EXACT_BOUND
    bootstrap = "image bootstrap, 1,000 resamples"
    scores = [
        SettingScore("sure", "o", Score("auroc", 1.0, 0.9, 1.0, 50, method=bound)),
        SettingScore("other", "o", Score("auroc", 0.8, 0.7, 0.9, 50, method=bootstrap)),
        SettingScore("sure", "p", Score("auroc", 1.0, 0.9, 1.0, 50, method=bound)),
    ]
    assert len(ScoreGrid(scores).columns) == 3, "as they are, the methods keep them apart"
    columns = ScoreGrid(in_one_column(scores)).columns
    assert [column.setting for column in columns] == ["o", "p"]
    assert [column.method for column in columns] == [f"{bootstrap}, exact where nothing varies", bound]


RECORDS: list[dict[str, Any]] = [
    {"model": "a_long_name_of-a.model", "note": "x y", "acc": 0.5, "low": 0.4, "high": 0.61, "n": 1234, "rank": -2,
     "p": 0.2},
    {"model": "b", "note": "", "acc": Number(0.25, 0.2, 0.3, places=0, bold=True), "n": None, "rank": 0, "p": None},
    {"model": "c", "note": "z", "acc": None, "n": 0, "rank": 3, "p": 1e-9},
    {"model": "d", "note": "z", "acc": "2 of 7", "n": 5, "rank": 3, "p": 1.0},
]  # fmt: skip
COLUMNS = [
    Column("model", "model"),
    Column("note", "note", optional=True),
    Column("acc", "accuracy", "number", ("low", "high"), places=1, times=100),
    Column("n", "images", "count"),
    Column("rank", "change", "rank"),
    Column("p", "p", "p"),
]


@pytest.mark.parametrize("width", [32, 40, 52, 60, 100])
def test_columns_of_different_kinds(width: int) -> None:
    """All columns, then without the optional one, then with wrapped names, then a list."""
    text = Table(COLUMNS, RECORDS, title="t", lead=["l"], notes=["note"]).to_text(width)
    assert max(map(len, text.splitlines())) <= width and "…" not in text
    for shown in ("50.0 [40.0, 61.0]", "25 [20, 30]", "1,234", "-2", "+3", "1e-09", "2 of 7", "–"):
        assert shown in text
    assert ("x y" in text) == (width == 100) and text.startswith("t\n\nl\n\n") and text.endswith("\n\nnote\n")


def test_parts_follow_under_one_title() -> None:
    part = Table(COLUMNS[:1], RECORDS[:1], title="part", heading=2)
    whole = Table([], [], title="whole", parts=[part, part], notes=["end"], heading=1, command="cmd")
    assert whole.to_text(80).split() == ["whole", *(["part", "model", "─" * 22, RECORDS[0]["model"]] * 2), "end"]
    markdown = whole.to_markdown()
    assert markdown.startswith("# whole\n\n    cmd\n\n## part\n\n| model |") and markdown.endswith("\n\n- end\n")
    assert whole.to_latex().count("tabular}") == 4


def test_wide_tables_are_turned_in_latex() -> None:
    """Models of few settings are rows, models of many are columns; long tables go over several pages."""
    assert r"\begin{tabular}{lrrrr}" in grid(8, 4).to_latex()
    assert r"\begin{tabular}{lrr}" in grid(2, 30).to_latex() and r"\begin{longtable}{lrr}" in grid(2, 60).to_latex()


def test_marks_are_seen_in_latex() -> None:
    """A tilde is a space there."""
    table = Table([Column("model", "model"), Column("x", "x", "number")], [{"model": "a", "x": Number(1, mark="*~")}])
    assert r"1.00$^{*\sim}$" in table.to_latex()


@pytest.mark.parametrize("rows", [1, 30])  # the latter on several pages
def test_latex_is_compiled(rows: int, tmp_path: Path) -> None:
    """Whatever a model is called; a bracket begins no option of the line before."""
    names = ["a_b 50 % & #1", "[own] {x}", "*starred*", "c^2 $d$ \\e ~f", "–5 × 3 ≤ |g| <h>", "-1 --own ±2…"]
    columns = [Column("model", "model_%"), Column("x", "[x]", "number")]
    shown = [{"model": Name(name, "†‡★"), "x": Number(-1, -2, 0, mark="*~")} for name in names * rows]
    notes = ["★ own models", "† assumed: 50 %", "‡ trained on a_b", "◇: mean confidence"]
    table = Table(columns, shown, title="t_1", lead=["50 %"], notes=notes)
    assert ("longtable" in table.to_latex()) == (rows > 1)
    compile_latex(table.to_latex(), tmp_path)
