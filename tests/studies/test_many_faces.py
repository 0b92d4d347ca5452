"""The eight hypotheses of 000: its printed numbers, the rules, and the metric of each protocol."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import shiftbench as sb
from shiftbench.classifiers.function import load_python_file
from shiftbench.classifiers.options import Options
from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS
from shiftbench.metrics.corruption import mean_corruption_error
from shiftbench.published.reproduce.paper_000 import HYPOTHESES, printed_faces
from shiftbench.reports.summary import summarise
from shiftbench.studies import Results, StudyError
from shiftbench.studies.hypotheses import Evidence, Hypothesis, weigh_hypotheses
from shiftbench.studies.many_faces import TAGS, TEXTURES, faces_of_table, judge_faces
from tests.commands import call
from tests.datasets.factor_trees import LOOKS_AT_PLACES, deepfashion2_tree

REMIXED = "deepfashion-remixed"
LARGER, ATTENTION, AUGMENTATION, PRETRAINING = TAGS.values()


def test_verdicts_of_the_paper() -> None:
    """Section 5 of 000, from the numbers that it prints."""
    synthetic, datasets = printed_faces()
    found = {
        judge_face.hypothesis: judge_face.verdict
        for judge_face in judge_faces(weigh_hypotheses(HYPOTHESES, datasets), synthetic, TEXTURES)
    }
    assert found == {
        **dict.fromkeys(TAGS.values(), "mixed"),
        "Texture Bias": "supported",
        "Only IID Accuracy Matters": "contradicted",
        "Synthetic does not imply Natural": "contradicted",
        "Multivariate": "supported",
    }


def evidence(method: str, dataset: str, verdict: str, gain: float, excess: float | None = None) -> Evidence:
    return Evidence(method, dataset, 1, gain, None, None, None, None, excess, verdict)


def from_images(method: str, dataset: str, verdict: str, gain: float, half_width: float) -> Evidence:
    """Evidence with an interval, as a workspace gives it."""
    return Evidence(method, dataset, 1, gain, gain - half_width, gain + half_width, None, None, None, verdict)


def verdict_on(name: str, rows: list[Evidence]) -> str:
    [finding] = [finding for finding in judge_faces(rows, ["imagenet-c"], TEXTURES) if finding.hypothesis == name]
    return finding.verdict


def test_multivariate_is_not_supported_by_few_images() -> None:
    helps = [from_images(LARGER, "imagenet-r", "+", 5.1, 0.5), from_images(LARGER, "imagenet-a", "+", 5.1, 0.8)]
    few_images = from_images(LARGER, "real-blurry-images", "0", 4.1, 4.3)
    assert verdict_on("Multivariate", [*helps, few_images]) == "no evidence"
    assert verdict_on("Multivariate", helps) == "contradicted"
    # An interval that ends below what was gained elsewhere shows the difference.
    many_images = from_images(LARGER, "real-blurry-images", "0", 1.0, 0.9)
    assert verdict_on("Multivariate", [*helps, many_images]) == "supported"
    # Another method that might help everywhere leaves the question open.
    open_question = [
        from_images(PRETRAINING, "imagenet-r", "+", 4, 1),
        from_images(PRETRAINING, "imagenet-a", "0", 3, 4),
    ]
    assert verdict_on("Multivariate", [*helps, many_images, *open_question]) == "no evidence"


def test_a_gain_beyond_the_reference_needs_its_interval() -> None:
    def with_excess(excess: float, half_width: float, verdict: str = "+") -> list[Evidence]:
        gained = from_images(LARGER, "imagenet-r", verdict, 5, 1)
        low = excess - half_width
        high = excess + half_width
        return [replace(gained, excess=excess, excess_low=low, excess_high=high)]

    assert verdict_on("Only IID Accuracy Matters", with_excess(2, 1)) == "contradicted"
    assert verdict_on("Only IID Accuracy Matters", with_excess(2, 3)) == "no evidence"
    assert verdict_on("Only IID Accuracy Matters", with_excess(0.2, 1, "0")) == "supported"
    assert verdict_on("Only IID Accuracy Matters", with_excess(0.2, 2, "0")) == "no evidence"


@pytest.mark.parametrize(
    ("rows", "verdicts"),
    [
        (
            [evidence(AUGMENTATION, "imagenet-c", "+", 9, 3), evidence(AUGMENTATION, "imagenet-r", "0", 1, 0.1)],
            ("no evidence", "contradicted", "supported", "supported"),
        ),
        (
            [evidence(AUGMENTATION, "imagenet-c", "+", 9, 3), evidence(AUGMENTATION, "imagenet-r", "+", 4, 2)],
            ("supported", "contradicted", "contradicted", "contradicted"),
        ),
        (
            [evidence(AUGMENTATION, "imagenet-r", "-", -4, -0.1)],
            ("contradicted", "supported", "no evidence", "not tested"),
        ),
        (
            [evidence(LARGER, "imagenet-r", "0", 9, -3), evidence(LARGER, "imagenet-a", "0", 1)],
            ("not tested", "no evidence", "not tested", "no evidence"),
        ),
    ],
)
def test_rules(rows: list[Evidence], verdicts: tuple[str, ...]) -> None:
    found = judge_faces(rows, ["imagenet-c"], TEXTURES)
    assert tuple(one.verdict for one in found[4:]) == verdicts


def test_a_table_is_scored_by_mce() -> None:
    rng = np.random.default_rng(0)
    places = [(c, s) for c in BENCHMARK_CORRUPTIONS for s in range(1, 6)]
    names = ("val", *(f"imagenet-c.{c}.{s}" for c, s in places))
    values = rng.uniform(20, 80, (2, len(names)))
    faces, data = faces_of_table(Results(("base", "new"), names, values, "percent"))
    assert [(face.name, face.metric, face.synthetic) for face in faces] == [("imagenet-c", "mCE", True)]
    [one] = weigh_hypotheses([Hypothesis(LARGER, (("new", "base"),))], data)
    base, new = (
        mean_corruption_error({c: [1 - row[1 + places.index((c, s))] / 100 for s in range(1, 6)] for c, _ in places})
        for row in values
    )
    assert one.gain == pytest.approx(100 * (base - new)) and one.excess is None
    with pytest.raises(StudyError):
        faces_of_table(Results(("base",), ("photos",), values[:1, :1], "percent"))


@pytest.fixture(scope="module")
def fashion(tmp_path_factory: pytest.TempPathFactory) -> tuple[sb.Run, Path]:
    """Two networks on a miniature DeepFashion2, one of them disturbed, and a table that names one the other's base."""
    folder = tmp_path_factory.mktemp("faces")
    tree = deepfashion2_tree(folder / "DeepFashion2", train=30, validation=60)
    networks = []
    for name in ("base", "new"):
        file = folder / f"{name}.py"
        code = LOOKS_AT_PLACES.replace('name="places"', f'name="{name}"')
        # The base sees every place upside down.
        file.write_text(code.replace("array(place)", "array(place[:, ::-1])") if name == "base" else code)
        networks.append(load_python_file(f"{file}:make", Options()))
    run = sb.evaluate(networks, REMIXED, {REMIXED: tree}, folder / "w", progress=False)
    (folder / "models.csv").write_text("model,base_model,changes\nnew,base,larger\nbase,,\n")
    return run, folder


def test_deepfashion_is_scored_by_map(fashion: tuple[sb.Run, Path]) -> None:
    run, folder = fashion
    scores = {(model, setting): score.value for model, setting, score in run.scores()}
    shifted = [name for name in run.settings if name != f"{REMIXED}.test"]
    gains = [100 * (scores["new", name] - scores["base", name]) for name in shifted]
    usual = 100 * (scores["new", f"{REMIXED}.test"] - scores["base", f"{REMIXED}.test"])
    workspace = str(folder / "w")
    models = str(folder / "models.csv")
    result = call("study", "many-faces", "-w", workspace, "-m", models, "--json")
    [one] = json.loads(result.stdout)["evidence"]
    assert (one["dataset"], one["metric"]) == (REMIXED, "mean mean_average_precision") and len(shifted) == 8
    assert one["gain"] == pytest.approx(np.mean(gains)) and one["excess"] == pytest.approx(np.mean(gains) - usual)
    assert one["low"] < one["gain"] < one["high"] and 0 <= one["p"] <= 1
    assert one["excess_low"] < one["excess"] < one["excess_high"]
    weighed = ["study", "hypotheses", "-w", workspace, "-m", models, "-s", shifted[0], "--json"]
    [one] = json.loads(call(*weighed).stdout)["evidence"]
    assert one["gain"] == pytest.approx(gains[0]) and one["metric"] == "mean_average_precision"


def test_comparisons_are_by_map_too(fashion: tuple[sb.Run, Path]) -> None:
    run, _ = fashion
    scores = {(model, setting): score.value for model, setting, score in run.scores()}
    table = run.compare(f"{REMIXED}.test")
    [row] = table.rows
    values = [scores[str(row[side]), f"{REMIXED}.test"] for side in ("first", "second")]
    assert row["metric"] == "mean_average_precision" and row["only_first"] is None
    assert row["difference"] == pytest.approx(values[0] - values[1])
    assert "mean_average_precision" in table.to_text(200)
    [fact, *_] = summarise(run.select(["new"])).models[0].facts()
    assert fact.heading == "mean average precision"  # not accuracy
