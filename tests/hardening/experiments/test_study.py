"""The study of an experiment against brute force on hits that are known."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs
from numpy.typing import NDArray
from scipy.stats import linregress, t

from shiftbench.api import Run, evaluate
from shiftbench.datasets import from_arrays
from shiftbench.hardening.experiments.base import (
    Experiment,
    ExperimentPart,
    ExperimentScale,
    PaperClaim,
    PlannedRun,
    Variant,
    load_experiment,
    plan_runs,
)
from shiftbench.hardening.experiments.report import experiment_table
from shiftbench.hardening.experiments.study import (
    ExperimentStudy,
    _direction,
    _directions,
    _evidence,
    _jackknifed,
    _joined,
    _Measured,
    _number,
    _p_value,
    _pooled_p_value,
    study_runs,
)
from shiftbench.hardening.recipe import Part, Recipe, builtin_names, load_recipe
from shiftbench.labels import label_space
from shiftbench.metrics.corruption import mean_corruption_error
from shiftbench.metrics.detection import detect
from shiftbench.metrics.multilabel import weighted
from shiftbench.settings.base import Setting, build_suite
from shiftbench.shifts.corruptions.api import Corruption
from shiftbench.shifts.seeds import Draws

IMAGES = 300
SEEDS = 4
#: Chances of being right: clean, and under fog and noise.
SKILLS = {"standard": (0.8, 0.5), "short": (0.6, 0.35), "sturdy": (0.78, 0.7), "weak": (0.5, 0.45)}
MADE_UP = Experiment(
    "made-up",
    "Numbers that are known",
    (
        Variant("standard", "cifar-standard"),
        Variant("short", "cifar-standard"),
        Variant("sturdy", "cifar-augmix", "standard", "Sturdiness"),
        Variant("weak", "cifar-pgd", "standard", "Weakness"),
    ),
    {"small": ExperimentScale("made up")},
    (ExperimentPart("cifar-10-train", "cifar-10-c"),),
    (
        PaperClaim("sturdier", "000", "sturdy", "standard"),
        PaperClaim("weaker", "000", "weak", "standard"),
        PaperClaim("costs", "003", "standard", "weak", "clean"),
    ),
    ("standard", "short"),
)


@pytest.fixture(scope="module")
def hits() -> dict[str, NDArray[np.bool_]]:
    """(3 settings, images) of every run."""
    rng = np.random.default_rng(0)
    found = {}
    for variant, (clean, shifted) in SKILLS.items():
        for seed in range(SEEDS):
            chances = np.array([clean, shifted, shifted])[:, None]
            found[f"{variant}-s{seed}"] = rng.random((3, IMAGES)) < chances
    return found


@pytest.fixture(scope="module")
def evaluated(
    hits: dict[str, NDArray[np.bool_]], tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[PlannedRun], Run]:
    """Classifiers that answer as the hits say go through the real evaluation."""
    root = tmp_path_factory.mktemp("study")
    labels = np.arange(IMAGES) % 10
    images = np.zeros((IMAGES, 32, 32, 3), np.uint8)
    # Each image carries its number; the shifts below leave the first row alone.
    images[:, 0, 0, 0], images[:, 0, 1, 0] = np.arange(IMAGES) % 256, np.arange(IMAGES) // 256
    data = from_arrays(images, labels, space="cifar-10", name="numbered")
    settings = [
        Setting("cifar-10", "data"),
        Setting("cifar-10-c.fog.1", "data", _Marked("fog"), reference="cifar-10"),
        Setting("cifar-10-c.gaussian_noise.1", "data", _Marked("gaussian_noise"), reference="cifar-10"),
    ]
    runs = [
        PlannedRun(variant, seed, Recipe(Part("wrn-40-2")), root / f"{variant}-s{seed}")
        for seed in range(SEEDS)
        for variant in SKILLS
    ]
    answers = [_answering(run.name, hits[run.name], labels) for run in runs]
    return runs, evaluate(answers, settings, {"data": data}, root / "ws", progress=False, workers=1, keep_scores=True)


@pytest.fixture(scope="module")
def study(evaluated: tuple[list[PlannedRun], Run]) -> ExperimentStudy:
    return study_runs(
        MADE_UP,
        "small",
        evaluated[0],
        [evaluated[1]],
        command="shiftbench experiment made-up",
        changes=["train.epochs=2"],
    )


def test_variants_that_a_scale_trains_alike_are_named(
    evaluated: tuple[list[PlannedRun], Run], study: ExperimentStudy
) -> None:
    """A change of a variant that the scale overrides leaves two names for one network."""
    assert study.notes[0] == "trained alike at this scale: standard, short, sturdy, weak"
    runs = [replace(run, recipe=Recipe(Part(run.variant), about="x")) for run in evaluated[0]]
    assert not any("alike" in note for note in study_runs(MADE_UP, "small", runs, [evaluated[1]]).notes)


class _Marked(Corruption):
    """Writes which shift it is into the image, and changes nothing else."""

    def __init__(self, name: str) -> None:
        super().__init__(name, 1)

    def apply(self, image: NDArray[np.uint8], draws: Draws) -> NDArray[np.uint8]:
        marked = image.copy()
        marked[0, 2, 0] = 1 if self.corruption == "fog" else 2
        return marked


def _answering(
    name: str, hits: NDArray[np.bool_], labels: NDArray[np.int64], classes: list[str] | None = None
) -> object:
    from shiftbench.classifiers import load_classifier

    count = 10 if classes is None else len(classes)

    def answer(images: NDArray[np.uint8]) -> NDArray[np.float32]:
        numbers = images[:, 0, 0, 0].astype(int) + 256 * images[:, 0, 1, 0].astype(int)
        right = hits[images[:, 0, 2, 0], numbers]
        sure = 5 + numbers % 7 - 3.0 * (images[:, 0, 2, 0] == 1)
        scores: NDArray[np.float32] = np.eye(count, dtype=np.float32)[(labels[numbers] + ~right) % count]
        made: NDArray[np.float32] = (scores * sure[:, None]).astype(np.float32)
        return made

    whole = {"geometry": {"resize": None, "crop": 32}}
    return load_classifier(answer, labels=classes or label_space("cifar-10"), name=name, preprocessing=whole)


def accuracy(hits: dict[str, NDArray[np.bool_]], variant: str, settings: Sequence[int]) -> float:
    return float(np.mean([hits[f"{variant}-s{seed}"][list(settings)].mean() for seed in range(SEEDS)]))


def test_accuracies_are_means_over_seeds_and_settings(
    study: ExperimentStudy, hits: dict[str, NDArray[np.bool_]]
) -> None:
    for variant in study.variants:
        assert variant.clean.value == pytest.approx(accuracy(hits, variant.variant, [0]))
        assert variant.shifted.value == pytest.approx(accuracy(hits, variant.variant, [1, 2]))
        assert variant.groups["weather"].value == pytest.approx(accuracy(hits, variant.variant, [1]))
        assert variant.groups["noise"].value == pytest.approx(accuracy(hits, variant.variant, [2]))
        by_seed = [hits[f"{variant.variant}-s{seed}"][0].mean() for seed in range(SEEDS)]
        assert variant.clean.spread == pytest.approx(np.std(by_seed, ddof=1))
        assert variant.clean.low < variant.clean.value < variant.clean.high


def test_intervals_cover_images_and_seeds() -> None:
    """By simulation: seeds and images drawn anew from a known law, the truth is covered about as often as said."""
    rng = np.random.default_rng(0)
    covered = over_images_only = 0
    for _ in range(300):
        skill = 0.6 + 0.04 * rng.standard_normal((3, 1))
        found = _number((rng.random((3, 400)) < skill).astype(float), 0.95)
        covered += found.low <= 0.6 <= found.high
        over_images_only += abs(found.value - 0.6) <= 1.96 * np.sqrt(0.6 * 0.4 / 1200)
    assert 0.9 <= covered / 300 <= 1.0
    assert over_images_only / 300 < 0.8


def test_differences_with_two_seeds_cover_the_truth() -> None:
    """Two seeds that agree by chance say little; the variance over seeds is that of all variants together."""
    rng = np.random.default_rng(1)
    variants = [f"v{number}" for number in range(6)]
    names = [f"{variant}-s{seed}" for variant in variants for seed in range(2)]
    alone = []
    pooled = []
    covered = 0
    for _ in range(200):
        skill = 0.6 + 0.04 * rng.standard_normal((len(names), 1))
        hits = (rng.random((len(names), 300)) < skill).astype(float)
        measured = _Measured(names, hits, hits, {}, True, 0.2, 0.2, hits)
        gain = measured.of(hits, "v0", 2) - measured.of(hits, "v1", 2)
        difference = _number(gain, 0.95, measured.seed_variance(hits, variants, 2), variants=2)
        covered += difference.low <= 0 <= difference.high
        pooled.append(difference.high - difference.low)
        without = _number(gain, 0.95)
        alone.append(without.high - without.low)
    assert 0.91 <= covered / 200 <= 1.0
    assert np.mean(pooled) < 0.6 * np.mean(alone)
    assert measured.seed_variance(hits, ["v0"], 2) is None and measured.seed_variance(hits, variants, 1) is None


def test_one_seed_and_chance_level_give_no_verdict(study: ExperimentStudy) -> None:
    clear = study.directions[0]
    assert clear.verdict == "appears"
    assert replace(clear, seeds=1, seeds_for=1).verdict == "no verdict: one seed"
    assert replace(clear, at_chance=True).verdict == "no verdict: at chance level"


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_a_clear_difference_has_a_verdict_with_any_number_of_classes(classes: int, tmp_path: Path) -> None:
    """99 % against 80 %, in three seeds, through the real evaluation."""
    count = 400
    seeds = 3
    rng = np.random.default_rng(0)
    labels = np.arange(count) % classes
    images = np.zeros((count, 32, 32, 3), np.uint8)
    images[:, 0, 0, 0] = np.arange(count) % 256
    images[:, 0, 1, 0] = np.arange(count) // 256
    names = [f"class {number}" for number in range(classes)]
    data = from_arrays(images, labels, space=names, name="numbered")
    settings = [
        Setting("clean", "data"),
        Setting("fog.1", "data", _Marked("fog"), reference="clean"),
    ]
    runs = []
    models = []
    for seed in range(seeds):
        for variant, accuracy in (("standard", 0.8), ("sturdy", 0.99)):
            run = PlannedRun(variant, seed, Recipe(Part("wrn-40-2")), tmp_path / f"{variant}-s{seed}")
            hits = np.stack([rng.random(count) < accuracy] * 2)
            runs.append(run)
            models.append(_answering(run.name, hits, labels, names))
    evaluation = evaluate(models, settings, {"data": data}, tmp_path / "ws", progress=False, workers=1)
    variants = (Variant("standard", "cifar-standard"), Variant("sturdy", "cifar-augmix", "standard", "Sturdiness"))
    experiment = structs.replace(MADE_UP, variants=variants, claims=MADE_UP.claims[:1], baseline=())
    study = study_runs(experiment, "small", runs, [evaluation])
    assert [direction.verdict for direction in study.directions] == ["appears"]


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_p_values_without_an_effect_are_not_too_small_in_the_tail(seeds: int) -> None:
    """Images and seeds are random, and there is no effect: p is below a threshold at most as often as it says."""
    rng = np.random.default_rng(seeds)
    draws = 2000
    count = 200
    p = []
    for _ in range(draws):
        by_image = rng.normal(0, 0.06, count)
        by_seed = rng.normal(0, 0.02, (seeds, 1))
        p.append(_p_value(by_seed + by_image + rng.normal(0, 0.03, (seeds, count))))
    for threshold in (0.05, 0.01, 0.002):
        expected = threshold * draws
        assert np.sum(np.array(p) < threshold) <= expected + 4 * expected**0.5


def test_p_values_of_directions_without_an_effect_are_not_too_small_in_the_tail() -> None:
    """Three seeds of five variants; the variance over seeds comes from all of them."""
    rng = np.random.default_rng(7)
    draws = 2000
    variants = [f"v{number}" for number in range(5)]
    names = [f"{variant}-s{seed}" for variant in variants for seed in range(3)]
    p = []
    for _ in range(draws):
        hits = 0.5 + rng.normal(0, 0.02, (len(names), 1)) + rng.normal(0, 0.3, (len(names), 100))
        measured = _Measured(names, hits, hits, {}, True, 0.2, 0.2, hits)
        difference = measured.of(hits, "v0", 3) - measured.of(hits, "v1", 3)
        p.append(_pooled_p_value(difference, measured.seed_variance(hits, variants, 3)))
    for threshold in (0.05, 0.01, 0.002):
        expected = threshold * draws
        assert np.sum(np.array(p) < threshold) <= expected + 4 * expected**0.5


def test_directions_are_corrected_for_their_number() -> None:
    """A difference that is clear as a single claim is not clear among many claims of differences that do not exist."""
    rng = np.random.default_rng(3)
    names = [f"{variant}-s{seed}" for variant in SKILLS for seed in range(SEEDS)]
    skills = np.repeat([0.5, 0.5, 0.56, 0.5], SEEDS)[:, None]
    hits = (rng.random((len(names), 2000)) < skills).astype(float)
    measured = _Measured(names, hits, hits, {}, True, 0.2, 0.2, hits)
    claim = MADE_UP.claims[0]
    single = _directions(structs.replace(MADE_UP, claims=(claim,)), measured, SEEDS, 0.95)[0]
    assert (single.verdict, single.p_holm) == ("appears", single.p)
    others = [PaperClaim("nothing", "000", "weak", "standard")] * 1000
    among = _directions(structs.replace(MADE_UP, claims=(claim, *others)), measured, SEEDS, 0.95)[0]
    assert among.p == single.p and among.p_holm == pytest.approx(min(1.0, 1001 * among.p))
    assert among.difference == single.difference and among.verdict == "not clear"


def test_networks_that_guess_are_at_chance_level() -> None:
    rng = np.random.default_rng(1)
    names = [f"{variant}-s{seed}" for seed in range(SEEDS) for variant in SKILLS]
    guessed = (rng.random((len(names), IMAGES)) < 0.1).astype(float)
    measured = _Measured(names, guessed, guessed, {}, True, 0.2, 0.2, guessed)
    notes: list[str] = []
    assert _evidence(MADE_UP, measured, SEEDS, 0.95, notes) == [] and "chance" in notes[0]
    assert _direction(MADE_UP.claims[0], MADE_UP, measured, SEEDS, 0.95).verdict == "no verdict: at chance level"


def test_mce_map_and_aupr_are_those_of_the_metrics(evaluated: tuple[list[PlannedRun], Run]) -> None:
    runs, run = evaluated
    results = {(result.classifier, result.setting): result for result in run.results}
    by_hand: dict[str, list[float]] = {"mCE": [], "mAP": [], "AUPR": []}
    for seed in range(SEEDS):
        clean, fog, noise = (
            run.workspace.read(results[f"sturdy-s{seed}", name])
            for name in ("cifar-10", "cifar-10-c.fog.1", "cifar-10-c.gaussian_noise.1")
        )
        errors = {"fog": [1 - fog.correct.mean()], "gaussian_noise": [1 - noise.correct.mean()]}
        by_hand["mCE"].append(mean_corruption_error(errors, severities=[1], corruptions=list(errors)))
        by_hand["mAP"].append(float(np.mean([weighted(one).value for one in (fog, noise)])))
        by_hand["AUPR"].append(detect(clean, fog, resamples=2).aupr.value)
    for metric, expected in by_hand.items():
        used = run
        if metric == "AUPR":  # one out-of-distribution set
            used = copy(run)
            used.results = [result for result in run.results if result.setting != "cifar-10-c.gaussian_noise.1"]
        study = study_runs(structs.replace(MADE_UP, metric=metric), "small", runs, [used])
        sturdy = study.variants[2]
        shown = sturdy.shifted.complement() if metric == "mCE" else sturdy.shifted
        assert shown.value == pytest.approx(np.mean(expected))
        assert shown.low < shown.value < shown.high
        assert (study.evidence == []) == (metric != "mCE")
        text = experiment_table(study).to_text(160)
        assert metric in text and f"{100 * shown.value:.1f}" in text
        # All of these classifiers are less confident in fog, and equally so.
        assert study.directions[0].verdict == ("not clear" if metric == "AUPR" else "appears")


def test_pseudo_values_have_the_mean_and_the_error_of_the_statistic() -> None:
    """Of a plain mean they must give the textbook's standard error."""
    values = np.random.default_rng(2).normal(size=2000)
    found = _jackknifed(lambda kept: float(values[kept].mean()), len(values))
    assert found.mean() == pytest.approx(values.mean())
    assert found.std(ddof=1) / np.sqrt(len(found)) == pytest.approx(values.std(ddof=1) / np.sqrt(2000), rel=0.2)


def test_parts_of_different_size_count_alike() -> None:
    one = np.full((2, 100), 0.5)
    other = np.full((2, 900), 0.9)
    parts = [_Measured(["a-s0", "a-s1"], part, part, {}, True, 0.1, 0.1, part) for part in (one, other)]
    joined = _joined(parts)
    assert joined.clean.shape == (2, 1000) and joined.clean.mean(axis=1) == pytest.approx([0.7, 0.7])


def test_rho_is_the_distance_from_the_line_of_the_baseline(
    study: ExperimentStudy, hits: dict[str, NDArray[np.bool_]]
) -> None:
    def logit(p: float) -> float:
        return float(np.log(p / (1 - p)))

    runs = [f"{variant}-s{seed}" for variant in ("standard", "short") for seed in range(SEEDS)]
    x, y = ([logit(hits[run][rows].mean()) for run in runs] for rows in ([0], [1, 2]))
    line = linregress(x, y)
    for one in study.variants:
        expected = 1 / (1 + np.exp(-(line.slope * logit(one.clean.value) + line.intercept)))
        assert one.rho is not None
        assert one.rho.value == pytest.approx(one.shifted.value - expected, abs=1e-6)
    sturdy = study.variants[2]
    assert sturdy.rho is not None and sturdy.rho.value > 0


def test_rho_varies_over_images_and_seeds(study: ExperimentStudy, hits: dict[str, NDArray[np.bool_]]) -> None:
    """By brute force: images drawn anew for all runs, and each seed left out of all variants, the baseline's too."""

    def rhos(images: NDArray[np.int64], seeds: Sequence[int]) -> NDArray[np.float64]:
        means = [
            {
                name: np.array([hits[f"{name}-s{seed}"][rows][:, images].mean() for seed in seeds])
                for name in study_names
            }
            for rows in ([0], [1, 2])
        ]
        x, y = (np.concatenate([side["standard"], side["short"]]) for side in means)
        line = linregress(np.log(x / (1 - x)), np.log(y / (1 - y)))
        at = np.array([means[0][name].mean() for name in study_names])
        expected = 1 / (1 + np.exp(-(line.slope * np.log(at / (1 - at)) + line.intercept)))
        made: NDArray[np.float64] = np.array([means[1][name].mean() for name in study_names]) - expected
        return made

    study_names = list(SKILLS)
    rng = np.random.default_rng(0)
    everything = np.arange(IMAGES)
    over_images = np.var([rhos(rng.integers(0, IMAGES, IMAGES), range(SEEDS)) for _ in range(400)], axis=0, ddof=1)
    left_out = [rhos(everything, [kept for kept in range(SEEDS) if kept != seed]) for seed in range(SEEDS)]
    over_seeds = (SEEDS - 1) / SEEDS * ((left_out - np.mean(left_out, axis=0)) ** 2).sum(axis=0)
    for one, images, seeds in zip(study.variants, over_images, over_seeds, strict=True):
        total = images + seeds
        half = t.ppf(0.975, total**2 / (images**2 / (IMAGES - 1) + seeds**2 / (SEEDS - 1))) * total**0.5
        assert one.rho is not None and (one.rho.high - one.rho.low) / 2 == pytest.approx(half, rel=0.25)
        assert one.rho.high - one.rho.value == pytest.approx(one.rho.value - one.rho.low)


def test_tau_is_the_gain_over_the_base_variant(study: ExperimentStudy) -> None:
    standard, _, sturdy, weak = study.variants
    assert standard.tau is None and sturdy.tau is not None and weak.tau is not None
    assert sturdy.tau.value == pytest.approx(sturdy.shifted.value - standard.shifted.value)
    assert sturdy.tau.low > 0 > weak.tau.value


def test_verdicts(study: ExperimentStudy) -> None:
    assert [direction.verdict for direction in study.directions[:1]] == ["appears"]
    assert study.directions[0].seeds_for == SEEDS
    assert study.directions[2].difference.value == pytest.approx(
        study.variants[0].clean.value - study.variants[3].clean.value
    )
    verdicts = {(one.hypothesis, one.dataset): one.verdict for one in study.evidence}
    assert verdicts["Sturdiness", "all"] == "+"
    assert verdicts["Weakness", "all"] in ("-", "0")
    assert {dataset for _, dataset in verdicts} == {"all", "weather", "noise"}


def test_the_report_in_every_shape(study: ExperimentStudy, tmp_path: Path) -> None:
    report = experiment_table(study)
    for width in (40, 60, 100, 160):
        text = report.to_text(width)
        assert max(map(len, text.splitlines())) <= width
        assert "sturdy" in text and "Sturdiness" in text
    markdown = report.to_markdown()
    assert "shiftbench experiment made-up" in markdown and "4 seeds" in markdown
    assert "changed in every recipe: train.epochs=2" in markdown.replace("\\", "")
    data = report.as_data()
    assert [variant["variant"] for variant in data["variants"]] == list(SKILLS)
    assert data["variants"][2]["tau"] == pytest.approx(100 * study.variants[2].tau.value)  # type: ignore[union-attr]
    for suffix in (".md", ".csv", ".tex", ".json", ".txt"):
        assert report.write(tmp_path / f"report{suffix}").stat().st_size > 200


def test_one_seed_has_no_spread(study: ExperimentStudy) -> None:
    one = replace(study, variants=[replace(v, clean=replace(v.clean, spread=None)) for v in study.variants])
    assert "standard" in experiment_table(one).to_text(120)


@pytest.mark.parametrize("name", builtin_names("experiments"))
def test_every_run_of_every_experiment_has_a_recipe_that_can_be_followed(name: str, tmp_path: Path) -> None:
    experiment = load_experiment(name)
    assert {"tiny", "small", "paper"} <= set(experiment.scales)
    known = {variant.name for variant in experiment.variants}
    for scale, chosen in experiment.scales.items():
        runs = plan_runs(experiment, scale, tmp_path)
        at = experiment.at(scale)
        assert len({run.folder for run in runs}) == len(runs) == len(at.variants) * chosen.seeds * len(at.parts)
        assert set(chosen.variants) | set(chosen.recipes) | set(chosen.without) <= known
        assert all(build_suite(part.suite).settings for part in at.parts)
    assert {variant.base for variant in experiment.variants} <= known | {""}


def test_the_paper_scale_leaves_the_recipes_alone(tmp_path: Path) -> None:
    runs = {run.variant: run.recipe for run in plan_runs(load_experiment("cifar-corruptions"), "paper", tmp_path)}
    assert runs["augmix"] == load_recipe("cifar-augmix", ["train.seed=2"])
    assert runs["pgd"].scheme.options["steps"] == 10


@pytest.mark.parametrize("name", ["icons-style", "icons-subtype"])
def test_the_paper_scale_trains_the_network_of_the_paper(name: str, tmp_path: Path) -> None:
    """002 compares MSDNet with DenseNet; the small scales have a simpler network in its place."""
    experiment = load_experiment(name)
    for scale, architecture in (("paper", "msdnet"), ("small", "multiscale")):
        networks = {run.variant: run.recipe.architecture.name for run in plan_runs(experiment, scale, tmp_path)}
        assert networks["multiscale"] == architecture


def test_changes_of_the_user_come_last(tmp_path: Path) -> None:
    runs = plan_runs(load_experiment("size"), "small", tmp_path, seeds=1, changes=["train.epochs=2"])
    assert {run.recipe.train.epochs for run in runs} == {2}


def test_an_experiment_of_ones_own(tmp_path: Path) -> None:
    from importlib import resources

    from shiftbench.errors import UnknownNameError
    from shiftbench.hardening.errors import RecipeError

    text = resources.files("shiftbench.hardening.experiments").joinpath("size.toml").read_text()
    (tmp_path / "mine.toml").write_text(text.replace('better = "resnet-56"', 'better = "wrn-16-4"'))
    mine = load_experiment(tmp_path / "mine.toml")
    assert (mine.name, mine.claims[0].better) == ("mine", "wrn-16-4")
    (tmp_path / "typo.toml").write_text(text.replace("[[claims]]", "[[claim]]"))
    with pytest.raises(RecipeError, match="claim"):
        load_experiment(tmp_path / "typo.toml")
    (tmp_path / "unknown.toml").write_text(text.replace('better = "resnet-56"', 'better = "resnet-65"'))
    with pytest.raises(UnknownNameError, match="resnet-56"):
        load_experiment(tmp_path / "unknown.toml")
    line = text.replace('"resnet-20-half", "resnet-20-third"]', '"resnet-56"]')
    (tmp_path / "line.toml").write_text(line)
    with pytest.raises(RecipeError, match="baseline"):
        load_experiment(tmp_path / "line.toml")
    (tmp_path / "half.toml").write_text(text.replace('suite = "cifar-10-c"\n', ""))
    with pytest.raises(RecipeError) as caught:
        load_experiment(tmp_path / "half.toml")
    assert caught.value.expected == "suite"
    (tmp_path / "seeds.toml").write_text(text.replace("seeds = 2", "seeds = 0"))
    with pytest.raises(RecipeError, match=r"scales\.tiny\.seeds") as caught:
        load_experiment(tmp_path / "seeds.toml")
    (tmp_path / "scale.toml").write_text('base = "size"\n[scales.tiny.variants.smal]\n"data.sample" = 10\n')
    with pytest.raises(UnknownNameError) as unknown:
        load_experiment(tmp_path / "scale.toml")
    assert unknown.value.name == "smal"
    assert (caught.value.found, caught.value.expected) == ("0", "integer >= 1")
