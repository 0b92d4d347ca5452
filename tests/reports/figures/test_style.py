"""Sizes, formats, bytes that do not change, and names that Matplotlib would take for formulas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shiftbench.errors import ShiftbenchError
from shiftbench.reports.figures import PaperFigure, scatter
from shiftbench.reports.figures.style import (
    add_legend,
    in_style,
    labelled,
    new_figure,
    shortened,
    text_width,
    width_in_cm,
    wrapped,
    wrapped_name,
)
from shiftbench.studies.study import Study
from tests.reports.figures.looking import check, texts, written


@pytest.mark.parametrize("width", ["wide", "4.9", "61", "nan", "inf", ""])
def test_invalid_widths(width: str) -> None:
    with pytest.raises(ShiftbenchError) as caught:
        width_in_cm(width)
    assert caught.value.found == width


@pytest.mark.parametrize(("width", "cm"), [("single", 8.5), ("double", 17.5), ("6", 6.0)])
def test_figures_have_the_width_that_was_asked_for(study: Study, width: str | float, cm: float) -> None:
    figure = scatter(study, "shifted", resamples=50, width=width)
    assert figure.get_figwidth() * 2.54 == pytest.approx(cm)
    check(figure)


def test_a_title_of_one_s_own_lies_over_no_legend(study: Study) -> None:
    with labelled("Accuracy under shift, all models", "usual", "shifted"):
        figure = scatter(study, "shifted", resamples=50)
    check(figure)
    assert {"Accuracy under shift, all models", "usual", "shifted"} <= set(texts(figure))


def test_text_stays_text_and_bytes_stay_the_same(study: Study, tmp_path: Path) -> None:
    figures = [scatter(study, "shifted", resamples=50) for _ in range(2)]
    for kind in ("svg", "pdf", "png"):
        first, second = (written(figure, kind) for figure in figures)
        assert first == second, kind
    svg = written(figures[0], "svg").decode()
    assert ">val accuracy (%)<" in svg and "Date" not in svg and "atplotlib v" not in svg
    pdf = written(figures[0], "pdf")
    assert b"/Type0" in pdf and b"CreationDate" not in pdf and b"/Type3" not in pdf.replace(b"/Type 3", b"")


def test_bytes_are_the_same_in_another_process(study: Study, tmp_path: Path) -> None:
    """And under other settings of the user's."""
    code = (
        "import sys, matplotlib; matplotlib.rcParams.update({'font.size': 20, 'axes.grid': True})\n"
        "from shiftbench.reports.figures.style import new_figure, in_style, finish\n"
        "@in_style\n"
        "def draw():\n"
        "    figure = new_figure('single', 5, ['a note'])\n"
        "    figure.add_subplot().plot([1, 2], [3, 4])\n"
        "    return finish(figure)\n"
        "draw().write(sys.argv[1])\n"
    )
    paths = [tmp_path / "one.svg", tmp_path / "two.svg"]
    for path in paths:
        subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert "font-size: 20" not in paths[0].read_text()


def test_only_known_formats_and_no_half_files(study: Study, tmp_path: Path) -> None:
    figure = scatter(study, "shifted", resamples=50)
    for name in ("figure.jpg", "figure", "figure.svg.gz"):
        with pytest.raises(ShiftbenchError, match="format"):
            figure.write(tmp_path / name)
    assert figure.write(tmp_path / "deeper" / "figure.PDF").read_bytes().startswith(b"%PDF")
    assert not [path for path in tmp_path.rglob("*") if path.suffix == ".tmp"]


def test_names_are_not_formulas_and_long_ones_fit() -> None:
    names = ["$x_{1}$", "a_b^c", "<script>", "x" * 300, "ünï"]

    @in_style
    def draw() -> PaperFigure:
        figure = new_figure("single", 6, [f"about {name}" for name in names])
        axes = figure.add_subplot()
        handles = [axes.plot([0, 1], [i, i])[0] for i in range(len(names))]
        add_legend(figure, handles, names)
        return figure

    figure = draw()
    check(figure)
    assert "$x_{1}$" in texts(figure)


def test_wrapping_keeps_to_the_width() -> None:
    text = "a sentence of several words and one_word_that_is_far_too_long_for_any_line " * 2
    for points in (40.0, 120.0):
        lines = wrapped(text, points, 6)
        assert max(text_width(line, 6) for line in lines) <= points
        assert "".join("".join(lines).split()) == "".join(text.split())
    name = wrapped_name("imagenetv2-matched-frequency-format-val", 60.0, 7)
    assert name.replace("\n", "") == "imagenetv2-matched-frequency-format-val"
    assert max(text_width(line, 7) for line in name.split("\n")) <= 60.0
    short = shortened("resnet50_imagenet_subsample_125_classes", 80.0, 6)
    assert "…" in short and text_width(short, 6) <= 80.0
    assert shortened("resnet50", 80.0, 6) == "resnet50"


def test_without_matplotlib_the_extra_is_named() -> None:
    code = "import sys; sys.modules['matplotlib'] = None; import shiftbench.reports.figures"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "pip install 'shiftbench[figures]'" in done.stderr
