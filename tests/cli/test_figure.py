"""``shiftbench figure`` as a user types it, on real classifiers and photographs and on public results."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import shiftbench as sb
from shiftbench.api import Run
from shiftbench.errors import ShiftbenchError
from shiftbench.settings.roles import Selection
from tests.commands import call as shiftbench

call = partial(shiftbench, "figure")


def drawn(path: Path, *arguments: object) -> str:
    """The texts of the SVG that a command writes."""
    result = call(*arguments, "-o", path)
    assert result.exit_code == 0, (result.output, result.exception)
    assert f"written: {path}" in result.stderr.replace("\n", "")
    return "\n".join(re.findall(r"<text[^>]*>([^<]+)</text>", path.read_text()))


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two real classifiers on a dozen real photographs, clean and corrupted."""
    root = tmp_path_factory.mktemp("run") / "w"
    sb.evaluate(
        ["demo:squeezenet1_1", "demo:efficientnet-lite0"],
        "demo",
        None,
        root,
        severities=[1, 3],
        corruptions=["fog"],
        select=Selection(sample=12),
        progress=False,
    )
    return root


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("tables")
    rows = [
        ("a", 60, 47, 20), ("b", 70, 58, 30), ("c", 80, 70, 41), ("d", 75, 63, 0), ("e", 76, 69, 50),
        ("f", 74, 60, 9),
    ]  # fmt: skip
    rows += [("g", 66, 58, 33), ("h", 71, 60, 40)]
    (root / "results.csv").write_text("model,val,v2,noise\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
    lines = [f"{row[0]},{'standard' if row[0] in 'abcd' else 'more_data'}" for row in rows]
    (root / "models.csv").write_text("model,category\n" + "\n".join(lines) + "\n")
    return root / "results.csv", root / "models.csv"


def test_scatter_from_a_workspace_names_its_classifiers(workspace: Path, tmp_path: Path) -> None:
    shown = drawn(
        tmp_path / "f.svg", "scatter", "-w", workspace, "--x", "demo", "--y", "demo-c.fog.3", "--scale", "linear"
    )
    assert "squeezenet1_1" in shown and "efficientnet-lite0" in shown and "demo-c.fog.3 accuracy (%)" in shown


def test_scatter_from_a_table(tables: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("model,val,v2,noise\nmine,0.75,0.70,0.30\n")
    base = ("scatter", "-r", tables[0], "-m", tables[1], "--own", tmp_path / "mine.csv", "--resamples", "50")
    shown = drawn(tmp_path / "f.svg", *base, "--shift", "v2", "--shift", "noise@v2", "--name", "e", "--n-x", "1000")
    assert {"own", "mine", "e", "(a)", "(b)", "standard", "more data"} <= set(shown.split("\n"))
    assert "no place on the logit scale (d)" in " ".join(shown.split())
    quiet = call(*base, "--x", "val", "--y", "noise", "--no-notes", "-o", tmp_path / "q.svg")
    assert "note: hollow, on the edge" in quiet.stderr and "hollow" not in (tmp_path / "q.svg").read_text()
    knee = drawn(
        tmp_path / "k.svg", *base, "--x", "val", "--y", "v2", "--pivot", "72", "--min-x", "55", "--width", "12"
    )
    assert (
        "knee at 72 %" in knee
        and "12.0 x" in call(*base, "--shift", "v2", "--width", 12, "-o", tmp_path / "w.svg").stderr
    )


def test_corruptions_and_heat_map(workspace: Path, tmp_path: Path) -> None:
    shown = drawn(tmp_path / "c.svg", "corruptions", "-w", workspace)
    assert {"fog", "squeezenet1_1", "efficientnet-lite0", "severity 0: demo"} <= set(shown.split("\n"))
    one = drawn(tmp_path / "c1.svg", "corruptions", "-w", workspace, "-c", "squeezenet1_1", "--family", "demo-c")
    assert "efficientnet-lite0" not in one
    cells = drawn(tmp_path / "h.svg", "heatmap", "-w", workspace).split("\n")
    for row in Run.open(workspace).corruption_table().rows:
        if row["setting"] == "fog":
            assert f"{100 * row['value']:.1f}" in cells
    relative = drawn(tmp_path / "b.svg", "heatmap", "-w", workspace, "--baseline", "squeezenet1_1").split("\n")
    assert relative.count("100") == 2


def test_confidence(workspace: Path, tmp_path: Path) -> None:
    shown = drawn(tmp_path / "r.svg", "reliability", "-w", workspace, "-s", "demo", "-s", "demo-c.fog.3", "--bins", 5)
    assert "squeezenet1_1, demo-c." in shown.replace("\n", " ") and shown.count("ECE ") == 5  # and the note
    shown = drawn(tmp_path / "p.svg", "response", "-w", workspace, "-s", "demo")
    assert shown.count("AURRA") == 3  # two curves and the note
    missing = call("response", "-w", workspace, "-o", tmp_path / "n.svg")
    assert missing.exit_code == 2 and "name a setting (there are: demo" in missing.output


def test_bins(workspace: Path, tmp_path: Path) -> None:
    ids = Run.open(workspace).predictions("squeezenet1_1", "demo").ids
    rows = "".join(f"{name},{(i % 5) / 4}\n" for i, name in enumerate(ids))
    (tmp_path / "f.csv").write_text("id,selection_frequency\n" + rows)
    base = ("bins", "-w", workspace, "-s", "demo-c.fog.3", "--frequencies", tmp_path / "f.csv")
    assert {"squeezenet1_1", "mean", "[0.8, 1]"} <= set(drawn(tmp_path / "b.svg", *base).split("\n"))
    assert "[0.8, 1], n = " in drawn(tmp_path / "x.svg", *base, "--x", "demo")


def test_ranks_and_correlations_of_the_public_testbed(reference_data: Path, tmp_path: Path) -> None:
    folder = reference_data / "imagenet-testbed"
    base = ("-r", folder / "results_204x213.csv")
    new = "imagenetv2-matched-frequency-format-val"
    shown = drawn(tmp_path / "r.svg", "rank", *base, "--x", "val", "--y", new, "--name", "alexnet")
    assert shown.split("\n").count("alexnet") == 2 and "mean change -11.8 points" in shown.replace("\n", " ")
    some = ("-s", "corruptions", "-s", "pgd", "-n", "imagenetv2", "-n", "vid-pm10")
    pearson = drawn(tmp_path / "c.svg", "correlations", *base, "-m", folder / "models_338.csv", *some)
    assert {"+0.25", "+0.65", "imagenetv2", "pgd"} <= set(pearson.split("\n"))
    assert "rank correlation" in drawn(
        tmp_path / "k.svg", "correlations", *base, "-m", folder / "models_338.csv", *some, "--rank"
    )


def test_pdf_and_png(tables: tuple[Path, Path], tmp_path: Path) -> None:
    base = ("scatter", "-r", tables[0], "-m", tables[1], "--shift", "v2", "--resamples", "50")
    for name, start in (("f.pdf", b"%PDF"), ("f.png", b"\x89PNG")):
        assert call(*base, "-o", tmp_path / name, "--dpi", 100).exit_code == 0
        assert (tmp_path / name).read_bytes().startswith(start)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-o", "f.jpg"), "unsupported figure format"),
        (("-o", "f.svg", "--width", "narrow"), "invalid width"),
        (("-o", "f.svg", "--name", "resnet"), "unknown model 'resnet'"),
        (("-o", "f.svg", "--shift", "v3"), "did you mean 'v2'"),
    ],
)
def test_bad_use_of_a_figure(tables: tuple[Path, Path], tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    result = call("scatter", "-r", tables[0], "-m", tables[1], "--shift", "v2", *options)
    assert isinstance(result.exception, ShiftbenchError) and message in str(result.exception)
    assert not Path("f.svg").exists()


def test_all_means_the_testbeds_measures(tables: tuple[Path, Path], tmp_path: Path) -> None:
    result = call("correlations", "-r", tables[0], "-m", tables[1], "-o", tmp_path / "f.svg")
    assert result.exit_code == 2 and "name the settings" in result.output.replace("\n", " ")


def test_help_does_not_need_matplotlib(tmp_path: Path) -> None:
    """And a figure without it names the extra, in one message."""
    (tmp_path / "matplotlib.py").write_text("raise ModuleNotFoundError('matplotlib')\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from shiftbench.cli import main; main()"
    shown = subprocess.run([sys.executable, "-c", code, "figure", "--help"], capture_output=True, text=True, check=True)
    assert "scatter" in shown.stdout
    failed = subprocess.run(
        [sys.executable, "-c", code, "figure", "response", "-w", "w", "-o", "f.svg"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert failed.returncode == 1 and "pip install 'shiftbench[figures]'" in failed.stderr
    assert "Traceback" not in failed.stderr
