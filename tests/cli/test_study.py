"""``shiftbench study`` as a user types it."""

from __future__ import annotations

import csv
import io
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from shiftbench.api import Run
from shiftbench.studies import StudyError, fit
from tests.commands import answer, output
from tests.commands import call as shiftbench
from tests.reports.recorded import record
from tests.runs.helpers import colour_folder

V2 = "imagenetv2-matched-frequency-format-val"


call = partial(shiftbench, "study")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("tables")
    rows = [
        ("a", 60, 47, 20), ("b", 70, 58, 30), ("c", 80, 70, 41), ("d", 75, 63, 36), ("e", 76, 69, 50),
        ("f", 74, 60, 60),
    ]  # fmt: skip
    rows += [("g", 66, 58, 33), ("h", 71, 60, 40)]
    results = root / "results.csv"
    models = root / "models.csv"
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
        *("--y", V2, "--scale", "logit", "--baseline", "standard", "--min-x", "55", "--procedure", "testbed"),
        "--json",
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


def test_text_is_legible_at_any_width(tables: tuple[Path, Path]) -> None:
    base = ("study", "effective", "-r", tables[0], "-m", tables[1], "--x", "val", "--y", "v2", "--n-x", 50_000)
    for width in (30, 44, 80, 160):
        shown = output(*base, "--n-y", 10_000, columns=width)
        assert max(map(len, shown.splitlines())) <= width
        assert "slope 0.9" in shown and "…" not in shown
        assert any(line.strip().startswith(("rho +4", "e")) for line in shown.splitlines())


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
    # The interval of tau has one pair of names, those of the CSV file.
    assert all({"low", "high"} <= row.keys() and "tau_low" not in row for row in relative["models"])
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
        (("fit", "-r", "RESULTS", "--x", "val", "--y", "v2", "--bootstrap", "all"), "not one of models, images, both"),
        (("fit", "-r", "RESULTS", "--x", "val", "--y", "v2", "--n-x", "0"), "--n-x"),
        (("correlate", "-r", "RESULTS", "-s", "all", "-n", "v2"), "name the settings"),
        (("hypotheses", "-r", "RESULTS", "-m", "RESULTS", "-s", "v2"), "no model of"),
        (("difficulty",), "give --second MEAN,SPREAD"),
        (("difficulty", "--second", "1"), "--second"),
        (("difficulty", "-r", "RESULTS", "--x", "val"), "need --x and --y"),
        (("reproducibility", "-r", "RESULTS", "--x", "val", "--y", "v2"), "--n-x and --n-y"),
    ],
)
def test_wrong_use_says_what_to_do(tables: tuple[Path, Path], arguments: tuple[str, ...], message: str) -> None:
    result = call(*(tables[0] if argument == "RESULTS" else argument for argument in arguments))
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", " ").split())


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_bytes(b"\xff\xfe\x00model")
    (tmp_path / "r.parquet").write_bytes(b"garbage")
    for name in ("r.csv", "r.parquet"):
        result = call("fit", "-r", tmp_path / name, "--x", "val", "--y", "v2")
        assert isinstance(result.exception, StudyError) and "can't be read as a table" in str(result.exception)


def test_names_can_be_excluded_without_a_table_of_models(tables: tuple[Path, Path]) -> None:
    base = ("fit", "-r", tables[0], "--x", "val", "--y", "v2", "--json")
    assert json.loads(call(*base).stdout)["n"] == 8
    data = json.loads(call(*base, "--exclude", "E", "--exclude", "f").stdout)
    assert data["baseline_models"] == ["a", "b", "c", "d", "g", "h"] and len(data["models"]) == 8


def test_gap(tables: tuple[Path, Path], tmp_path: Path) -> None:
    base = ("gap", "-r", tables[0], "--x", "val", "--y", "v2", "--n-x", 50_000, "--n-y", 10_000)
    data = json.loads(call(*base, "--json").stdout)
    by_model = {row["model"]: row for row in data["models"]}
    assert by_model["a"]["gap"] == pytest.approx(0.13) and not by_model["a"]["chance_alone"]
    assert data["models"][0]["gap"] == max(row["gap"] for row in data["models"]) and by_model["a"]["adaptivity"] is None
    split = json.loads(call(*base, "--fresh", "noise", "--n-fresh", 100, "--json").stdout)["models"][0]
    assert split["adaptivity"] + split["distribution"] == pytest.approx(split["gap"])
    said = " ".join(call(*base).stdout.split())
    assert "chance alone could explain the gap of 0 of 8 models" in said and "--fresh" in said
    with pytest.raises(StudyError, match="number of images behind 'val'"):
        raise call("gap", "-r", tables[0], "--x", "val", "--y", "v2").exception or AssertionError


def test_difficulty(tables: tuple[Path, Path]) -> None:
    simulated = json.loads(
        call("difficulty", "--second", "0.5,0.8", "--n-x", 4000, "--n-y", 2000, "--count", 20, "--json").stdout
    )
    assert (simulated["u"], simulated["v"]) == pytest.approx((2**0.5 / 1.64**0.5, -0.5 / 1.64**0.5))
    assert simulated["agrees"] and simulated["fit"] is None and simulated["models"] == 20
    real = call(
        *("difficulty", "-r", tables[0], "-m", tables[1], "--x", "val", "--y", "v2", "--n-x", 4000, "--n-y", 2000),
        "--json",
    )
    data = json.loads(real.stdout)
    line = fit([60, 70, 80, 75], [47, 58, 70, 63], scale="probit")
    assert (data["u"], data["v"]) == pytest.approx((line.slope, line.intercept)) and data["models"] == 4
    said = " ".join(call("difficulty", "--second", "0.5,0.8", "--n-x", 500, "--n-y", 500).stdout.split())
    assert "probit(y) = u probit(x) + v" in said and "Normal(0.5, 0.8²)" in said


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
    from shiftbench.api import Run

    settings = Run.open(workspace).settings
    clean = next(s for s in settings if "." not in s)
    shifted = next(s for s in settings if s.endswith(".5"))
    base = ("fit", "-w", workspace, "--x", clean, "--y", shifted, "--scale", "linear", "--json")
    data = json.loads(call(*base).stdout)
    assert data["n"] == 5 and data["unit"] == "fraction" and "images of y" in data["rho_sources"]
    images = json.loads(call(*base, "--bootstrap", "images", "--resamples", "200").stdout)
    assert images["slope"] == pytest.approx(data["slope"]) and images["procedure"] == "images"
    assert "the same for x and y" in images["rho_sources"]
    chosen = (*base, "--bootstrap", "both", "--resamples", "100", "--min-x")
    least = sorted(row["x"] for row in data["models"])[2]
    assert json.loads(call(*chosen, least).stdout)["n"] == 3
    knee = json.loads(call(*base, "--bootstrap", "images", "--resamples", "100", "--pivot", least).stdout)
    assert (knee["pivot"], knee["below"]["n"], knee["above"]["n"]) == (least, 2, 2)
    assert knee["above"]["procedure"] == "images" and knee["above"]["slope_interval"] is not None
    agreement = call("agreement", "-w", workspace, "-s", clean, "--json")
    found = json.loads(agreement.stdout)
    assert found["n"] == 90 and len(found["pairs"]) == 10
    assert call("agreement", "-w", workspace).exit_code == 2
    assert "did you mean" in str(call("agreement", "-w", workspace, "-s", clean + "x").exception)


def test_bins_from_a_workspace(workspace: Path, tmp_path: Path) -> None:
    from shiftbench.api import Run

    run = Run.open(workspace)
    setting = next(name for name in run.settings if "." not in name)
    predictions = run.predictions("net0.8", setting)
    rows = "".join(f"{name},{i % 11},10\n" for i, name in enumerate(predictions.ids) if i % 11 != 10)
    (tmp_path / "f.csv").write_text("id,selected,shown\n" + rows)
    base = ("bins", "-w", workspace, "-s", setting, "--frequencies", tmp_path / "f.csv")
    data = json.loads(call(*base, "-c", "net0.8", "--json").stdout)
    lowest = [i for i in range(90) if i % 11 in (0, 1)]
    right = predictions.top[:, 0] == predictions.labels
    assert data["bins"][0]["bin"] == "[0, 0.2)" and data["bins"][0]["images"] == len(lowest)
    assert data["bins"][0]["accuracy"] == pytest.approx(right[lowest].mean())
    assert data["notes"][-1] == "8 images have no selection frequency and are left out"
    said = call(*base, "--edges", "0,0.5,1").stdout
    assert "mean of 5 models" in said and "[0.5, 1]" in said
    with pytest.raises(StudyError, match="invalid bins"):
        raise call(*base, "--edges", "0.5,1").exception or AssertionError


def test_agreement_and_hypotheses_on_released_predictions(reference_data: Path, tmp_path: Path) -> None:
    """Thirty models on CIFAR-10.1: kappa against scikit-learn, and Holm over what is tested together."""
    from sklearn.metrics import cohen_kappa_score
    from statsmodels.stats.multitest import multipletests

    file = reference_data / "cifar-10.1" / "cifar10_and_10.1_predictions_30models.npz"
    workspace = tmp_path / "w"
    what = ("--setting", "cifar-10.1-v6", "--array", "v6", "--labels", "cifar-10", "--in-order")
    output("import", file, *what, "--workspace", workspace, "--quiet")
    data = np.load(file)
    hits = {str(name): row == data["labels_v6"] for name, row in zip(data["models"], data["v6"], strict=True)}
    found = json.loads(call("agreement", "-w", workspace, "--json").stdout)
    assert len(found["pairs"]) == 435 and len(found["all_fail"]) == int((~np.any(list(hits.values()), axis=0)).sum())
    pair = found["pairs"][7]
    assert pair["kappa"] == pytest.approx(cohen_kappa_score(hits[pair["stronger"]], hits[pair["weaker"]]))
    said = call("agreement", "-w", workspace).stdout
    assert "419 pairs in between are not shown" in said

    models = tmp_path / "models.csv"
    models.write_text(
        "model,base_model,changes\nresnet_basic_110,resnet_basic_32,deeper\nresnet_basic_56,resnet_basic_32,deeper\n"
        "random_features_256k_aug,random_features_256k_no_aug,augmentation\n"
        "cudaconvnet,alexnet_tf_ben,other code\nresnet_basic_44,resnet_basic_32,a little deeper\n"
    )
    weighed = json.loads(call("hypotheses", "-w", workspace, "-m", models, "-s", "cifar-10.1-v6", "--json").stdout)
    evidence = {one["hypothesis"]: one for one in weighed["evidence"]}
    plain = [one["p"] for one in evidence.values()]
    assert [one["p_holm"] for one in evidence.values()] == pytest.approx(multipletests(plain, method="holm")[1])
    gain = 100 * (hits["random_features_256k_aug"].mean() - hits["random_features_256k_no_aug"].mean())
    assert evidence["augmentation"]["gain"] == pytest.approx(gain) and evidence["augmentation"]["verdict"] == "+"
    assert evidence["a little deeper"]["verdict"] == "0"
    rule = " ".join(weighed["notes"])
    assert "gain of 1.5 or more" in rule and "Holm's correction over 4 tests" in rule and "McNemar" in rule


def test_own_model_among_the_others(tables: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("model,val,v2\nmine,0.75,0.70\n")
    base = ("fit", "-r", tables[0], "-m", tables[1], "--x", "val", "--y", "v2")
    plain = json.loads(call(*base, "--json").stdout)
    placed = call(*base, "--own", tmp_path / "mine.csv", "--json")
    data = json.loads(placed.stdout)
    assert data["slope"] == plain["slope"] and data["models"][0]["model"] == "mine"
    said = " ".join(call(*base, "--own", tmp_path / "mine.csv").stdout.split())
    assert "mine lies 6." in said and "points above the line [" in said
    assert call("fit", "-r", tables[0], "--x", "val", "--y", "v2", "--own", tmp_path / "mine.csv").exit_code == 2
    (tmp_path / "weak.csv").write_text("model,val,v2,a\nweak,75,70,0.5\n")  # one column of percents below 1
    weak = call(*base, "--own", tmp_path / "weak.csv")
    assert isinstance(weak.exception, StudyError) and "--unit percent" in str(weak.exception.hint)
    known = json.loads(call(*base, "--own", tmp_path / "weak.csv", "--unit", "percent", "--json").stdout)
    assert known["models"][0]["rho"] == pytest.approx(data["models"][0]["rho"])


def test_the_public_testbed_needs_no_table_of_models(reference_data: Path, tmp_path: Path) -> None:
    table = reference_data / "imagenet-testbed" / "results_204x213.csv"
    line = json.loads(call("fit", "-r", table, "--shift", "imagenetv2", "--json").stdout)
    assert json.loads(call("fit", "-r", table, "--y", "imagenetv2", "--json").stdout) == line
    taus = [call("relative", "-r", table, option, "imagenetv2", "--json").stdout for option in ("--y", "--shift")]
    assert taus[0] == taus[1]
    assert (line["n"], round(line["r2"], 4), len(line["models"])) == (78, 0.9965, 201)
    lines = json.loads(call("fit", "-r", table, "--shift", "imagenetv2", "--shift", "imagenet-a", "--json").stdout)
    assert [one["shift"] for one in lines["lines"]] == ["imagenetv2", "imagenet-a (below)", "imagenet-a (above)"]
    wide = json.loads(call("effective", "-r", table, "--shift", "all", "--resamples", "0", "--json").stdout)
    assert len(wide["shifts"]) == 11
    rho = {row["model"]: row["rho"] for row in line["models"]}
    assert {row["model"]: row["imagenetv2"] for row in wide["models"] if "imagenetv2" in row} == pytest.approx(rho)
    more = json.loads(
        call("effective", "-r", table, "--shift", "all", "--shift", "greyscale", "--resamples", "0", "--json").stdout
    )
    assert more["shifts"] == [*wide["shifts"], "greyscale"]
    both = json.loads(
        call("correlate", "-r", table, "-s", "corruptions", "-n", "all", "-n", "imagenet-r", "--json").stdout
    )
    assert [correlation["second"] for correlation in both["correlations"]][-2:] == ["imagenet-a", "imagenet-r"]
    tau = json.loads(call("relative", "-r", table, "--shift", "imagenetv2", "--shift", "pgd", "--json").stdout)
    swsl = next(row for row in tau["models"] if row["model"] == "resnet50_swsl")
    assert swsl["imagenetv2"] == pytest.approx(70.9 - 63.2, abs=0.7)
    long = call("effective", "-r", table, "--shift", "all", "--resamples", "0", "-f", "tex").stdout
    assert r"\begin{longtable}" in long and r"\endhead" in long


def test_own_models_of_a_workspace_among_the_testbed(reference_data: Path, tmp_path: Path) -> None:
    table = reference_data / "imagenet-testbed" / "results_204x213.csv"
    record(tmp_path / "w", "val", 50_000, 38_500)
    record(tmp_path / "w", "imagenetv2-matched-frequency", 10_000, 6_600, reference="val")
    base = ("fit", "-r", table, "--shift", "imagenetv2", "--own", tmp_path / "w")
    lacking = call(*base)
    assert isinstance(lacking.exception, StudyError) and lacking.exit_code == 1
    assert "the nearest that mine has: imagenetv2-matched-frequency" in str(lacking.exception)
    assert call(*base, "--skip-unplaced").exit_code == 0
    record(tmp_path / "w", V2, 10_000, 6_600, reference="val")
    said = " ".join(call(*base).stdout.split())
    assert "mine lies" in said and "own models" in said


def test_own_models_are_never_dropped_from_tau_and_means(reference_data: Path, tmp_path: Path) -> None:
    """Only --models knows the base and the category of an own model; the testbed's own need no row there."""
    table = reference_data / "imagenet-testbed" / "results_204x213.csv"
    mine = tmp_path / "mine.csv"
    models = tmp_path / "models.csv"
    mine.write_text(f"model,val,{V2}\nmine,77.0,66.2\n")
    relative = ("relative", "-r", table, "--own", mine, "--shift", "imagenetv2")
    lacking = call(*relative)
    assert isinstance(lacking.exception, StudyError) and "base_model" in str(lacking.exception.expected)
    assert call(*relative, "--skip-unplaced").exit_code == 0
    grouped = ("interventions", *relative[1:])
    lacking = call(*grouped)
    assert isinstance(lacking.exception, StudyError) and "category" in str(lacking.exception.expected)
    notes = answer("study", *grouped, "--skip-unplaced")["notes"]
    assert notes[-1] == "without category, not counted: 1 model (mine)"
    models.write_text("model,category,base_model\nmine,more_data,resnet50\n")
    tau = json.loads(call(*relative, "-m", models, "--json").stdout)["models"]
    assert {row["model"]: row["tau"] for row in tau}["mine"] == pytest.approx(66.2 - 63.2, abs=0.5) and len(tau) > 90
    assert "mine★" in output("study", *relative, "-m", models)
    means = ("interventions", "-r", table, "--own", mine, "-m", models, "--shift", "imagenetv2")
    counts = [
        {row["group"]: row["rho_models"] for row in json.loads(call(*words, "--json").stdout)["means"]}
        for words in (means, ("interventions", "-r", table, "--shift", "imagenetv2"))
    ]
    assert counts[0]["more_data"] == counts[1]["more_data"] + 1
    assert "can't be placed" in str(call(*means, "--shift", "objectnet").exception)
    models.write_text("model,category\nmine,standard\n")
    lines = [
        json.loads(call("fit", "-r", table, "--shift", "imagenetv2", *more, "--json").stdout)
        for more in ((), ("--own", mine, "-m", models))
    ]
    assert lines[1]["slope"] == lines[0]["slope"] and lines[1]["n"] == 78


def test_one_model_against_the_published_ones(tmp_path: Path) -> None:
    record(tmp_path / "w", "val", 50_000, 38_500)
    record(tmp_path / "w", V2, 10_000, 6_600, reference="val")
    result = call("effective", "-w", tmp_path / "w", "--y", V2, "--published", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    mine = next(row for row in found["models"] if row["model"] == "mine")
    [placed] = Run.open(tmp_path / "w").baselines()
    assert placed.effective is not None and found["n"] == 67 and found["scale"] == "probit"
    assert mine["rho"] == pytest.approx(placed.effective.rho) and not mine["baseline"]
    assert mine["rho_low"] == pytest.approx(placed.effective.low, abs=1e-4)
    record(tmp_path / "w", "imagenet-r", 100, 50, space="imagenet-r-200")
    with pytest.raises(StudyError, match="compared"):
        output("study", "fit", "-w", tmp_path / "w", "--y", "imagenet-r", "--published")
