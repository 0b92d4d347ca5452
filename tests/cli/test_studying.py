"""``shiftbench study`` as a user types it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner, Result

from shiftbench.cli.app import app
from shiftbench.studies import fit
from tests.runs.helpers import colour_folder

V2 = "imagenetv2-matched-frequency-format-val"


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["study", *(str(argument) for argument in arguments)])


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("tables")
    rows = [
        ("a", 60, 47, 20),
        ("b", 70, 58, 30),
        ("c", 80, 70, 41),
        ("d", 75, 63, 36),
        ("e", 76, 69, 50),
        ("f", 74, 60, 60),
    ]
    rows += [("g", 66, 58, 33), ("h", 71, 60, 40)]
    results, models = root / "results.csv", root / "models.csv"
    results.write_text("model,val,v2,noise\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
    categories = {name: "standard" if name in "abcd" else "more_data" for name in "abcdefgh"}
    lines = [
        f"{name},{kind},{'d' if kind != 'standard' else ''},{'data' if name in 'ef' else ''}"
        for name, kind in categories.items()
    ]
    models.write_text("model,category,base_model,changes\n" + "\n".join(lines) + "\n")
    return results, models


def test_fit_prints_json_and_nothing_else(tables: tuple[Path, Path]) -> None:
    result = call("fit", "--results", tables[0], "--models", tables[1], "--x", "val", "--y", "v2", "--json")
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    line = fit([60, 70, 80, 75], [47, 58, 70, 63])
    assert (data["slope"], data["intercept"], data["r2"], data["n"]) == (line.slope, line.intercept, line.r2, 4)
    assert data["slope_interval"] == list(line.slope_interval or ()) and data["unit"] == "percent"
    rho = {row["model"]: row["rho"] for row in data["models"]}
    assert rho["e"] == pytest.approx(69 - float(line.predict(76.0))) and len(rho) == 8
    assert data["models"][0]["rho"] == max(rho.values()) and data["baseline_models"] == list("abcd")


def test_known_line_of_the_testbed(reference_data: Path) -> None:
    folder = reference_data / "imagenet-testbed"
    result = call(
        *("fit", "--results", folder / "results_204x213.csv", "--models", folder / "models_338.csv", "--x", "val"),
        *("--y", V2, "--scale", "logit", "--baseline", "standard", "--min-x", "55", "--json"),
    )
    data = json.loads(result.stdout)
    assert (round(data["slope"], 4), round(data["intercept"], 4), data["n"]) == (0.9217, -0.4947, 78)
    assert [round(end, 3) for end in data["slope_interval"]] == [0.907, 0.934] and round(data["r2"], 4) == 0.9965
    named = call(
        *("effective", "-r", folder / "results_204x213.csv", "-m", folder / "models_338.csv", "--shift", "imagenetv2"),
        "--json",
    )
    assert json.loads(named.stdout)["slope"] == data["slope"]
    knee = call("fit", "-r", folder / "results_204x213.csv", "-m", folder / "models_338.csv", "--shift", "imagenet-a")
    assert "two lines, pivot 91.86 %" in knee.stdout


@pytest.mark.parametrize("width", [30, 44, 80, 160])
def test_text_is_legible_at_any_width(tables: tuple[Path, Path], width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from shiftbench.cli import console

    monkeypatch.setattr(console.output, "_width", width)
    result = call(
        "effective", "-r", tables[0], "-m", tables[1], "--x", "val", "--y", "v2", "--n-x", 50_000, "--n-y", 10_000
    )
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= width
    assert "slope 0.9" in result.stdout and "…" not in result.stdout
    assert any(line.strip().startswith(("rho +4", "e")) for line in lines)


def test_every_format(tables: tuple[Path, Path], tmp_path: Path) -> None:
    base = ("fit", "-r", tables[0], "-m", tables[1], "--x", "val", "--y", "v2")
    rows = list(csv.DictReader(io.StringIO(call(*base, "-f", "csv").stdout)))
    assert {row["model"] for row in rows} == set("abcdefgh") and float(rows[0]["rho"]) > 4
    assert call(*base, "-f", "md").stdout.count("|") > 20
    assert r"\toprule" in call(*base, "-f", "tex").stdout
    assert call(*base, "-o", tmp_path / "fit.json").exit_code == 0
    assert json.loads((tmp_path / "fit.json").read_text())["n"] == 4


def test_relative_correlate_reproducibility_hypotheses(tables: tuple[Path, Path]) -> None:
    relative = json.loads(call("relative", "-r", tables[0], "-m", tables[1], "--y", "v2", "--json").stdout)
    assert {row["model"]: row["tau"] for row in relative["models"]} == {"e": 6.0, "f": -3.0, "g": -5.0, "h": -3.0}
    together = call(
        "correlate", "-r", tables[0], "-m", tables[1], "-s", "noise", "-n", "v2", "-n", "v2@noise", "--json"
    )
    found = json.loads(together.stdout)["correlations"]
    assert [one["n"] for one in found] == [4, 4] and -1 <= found[0]["pearson"] <= 1
    table = call("reproducibility", "-r", tables[0], "--x", "val", "--y", "v2", "--n-x", "50000", "--n-y", "10000")
    assert "mean change: -10.9 points over 8 models" in table.stdout
    weighed = call("hypotheses", "-r", tables[0], "-m", tables[1], "-s", "v2", "-s", "noise", "--x", "val", "--json")
    evidence = json.loads(weighed.stdout)["evidence"]
    assert [(one["dataset"], one["gain"], one["verdict"]) for one in evidence] == [
        ("v2", 1.5, "+"),
        ("noise", 19.0, "+"),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fit", "--x", "val", "--y", "v2"), "either --results FILE or --workspace FOLDER"),
        (("fit", "-r", "RESULTS", "--x", "val"), "give --x and --y"),
        (("fit", "-r", "RESULTS", "--x", "val", "--y", "v2", "--pivot", "there"), "neither a number nor 'auto'"),
        (("fit", "-r", "RESULTS", "--x", "val", "--y", "v2", "--bootstrap", "images"), "with --workspace"),
        (("reproducibility", "-r", "RESULTS", "--x", "val", "--y", "v2"), "--n-x and --n-y"),
    ],
)
def test_wrong_use_says_what_to_do(tables: tuple[Path, Path], arguments: tuple[str, ...], message: str) -> None:
    result = call(*(tables[0] if argument == "RESULTS" else argument for argument in arguments))
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", " ").split())


def test_bad_numbers_end_in_one_message(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("model,val,v2\na,70,0.5\nb,80,0.6\n")
    result = call("fit", "-r", tmp_path / "r.csv", "--x", "val", "--y", "v2")
    assert "percent and fractions" in str(result.exception)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five classifiers of different skill on pictures, clean and noisy."""
    import shiftbench as sb
    from tests.runs.helpers import COLOURS

    root = tmp_path_factory.mktemp("run")
    colour_folder(root / "pictures", per_class=30)

    def make(blur: float) -> object:
        def classify(images: NDArray[np.uint8]) -> NDArray[np.float64]:
            means: NDArray[np.float64] = images.mean(axis=(1, 2)) / 20
            noise = np.random.default_rng(int(blur * 1000)).normal(0, blur, means.shape)
            return np.asarray(means + noise)

        return sb.load_classifier(
            classify, name=f"net{blur:g}", labels=COLOURS, preprocessing=sb.Preprocessing(sb.Geometry(36, 32))
        )

    models = [make(blur) for blur in (0.8, 1.2, 1.6, 2.0, 2.6)]
    sb.evaluate(
        models,
        "corruptions",
        data=root / "pictures",
        workspace=root / "w",
        labels=COLOURS,
        corruptions=["contrast"],
        severities=[5],
        progress=False,
    )
    return root / "w"


def test_from_a_workspace(workspace: Path) -> None:
    from shiftbench.runs.result import Run

    settings = Run.open(workspace).settings
    clean, shifted = next(s for s in settings if "." not in s), next(s for s in settings if s.endswith(".5"))
    base = ("fit", "-w", workspace, "--x", clean, "--y", shifted, "--scale", "linear", "--json")
    data = json.loads(call(*base).stdout)
    assert data["n"] == 5 and data["unit"] == "fraction" and "images of y" in data["rho_sources"]
    images = json.loads(call(*base, "--bootstrap", "images", "--resamples", "200").stdout)
    assert images["slope"] == pytest.approx(data["slope"]) and images["procedure"] == "images"
    assert "the same for x and y" in images["rho_sources"]
    agreement = call("agreement", "-w", workspace, "-s", clean, "--json")
    found = json.loads(agreement.stdout)
    assert found["n"] == 90 and len(found["pairs"]) == 10
    assert call("agreement", "-w", workspace).exit_code == 2


def test_own_model_among_the_others(tables: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("model,val,v2\nmine,0.75,0.70\n")
    base = ("fit", "-r", tables[0], "-m", tables[1], "--x", "val", "--y", "v2")
    plain, placed = json.loads(call(*base, "--json").stdout), call(*base, "--own", tmp_path / "mine.csv", "--json")
    data = json.loads(placed.stdout)
    assert data["slope"] == plain["slope"] and data["models"][0]["model"] == "mine"
    said = " ".join(call(*base, "--own", tmp_path / "mine.csv").stdout.split())
    assert "mine lies 6." in said and "points above the line [" in said
    assert call("fit", "-r", tables[0], "--x", "val", "--y", "v2", "--own", tmp_path / "mine.csv").exit_code == 2
