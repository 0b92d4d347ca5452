"""The gate: its error rates by simulation, its rules against other code, and what it refuses."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shiftbench.errors import ShiftbenchError
from shiftbench.metrics import metrics
from shiftbench.store.spec import ResultSpec
from shiftbench.studies.gate import (
    DEFAULT_POLICY,
    GateError,
    GateResult,
    GateSetting,
    Observations,
    Policy,
    Rule,
    check_same_images,
    judge,
)
from tests.metrics.making import predictions

RUNS = 120
CORRUPTIONS = ("fog", "snow", "gaussian_noise")


def models(rng: np.random.Generator, n: int, drops: dict[str, float], disagreement: float = 0.06) -> list[GateSetting]:
    """Two models that disagree on some images, in a clean setting and under corruptions; the new one drops."""
    labels = np.arange(n) % 4
    found = []
    easy = rng.random(n)
    for place, name in enumerate(["val", *CORRUPTIONS]):
        was = easy < 0.8 - 0.1 * place
        lost = disagreement / 2 + drops.get(name, 0.0)
        won = disagreement / 2
        # Shares of all images: a right answer is lost, a wrong one won.
        now = np.where(was, rng.random(n) >= lost / was.mean(), rng.random(n) < won / (1 - was.mean()))
        confidence = np.full(n, 0.75 - 0.1 * place)
        seen = Observations(np.arange(n), np.full(n, place), labels, was, now, confidence, confidence)
        shifted = name != "val"
        found.append(
            GateSetting(name, seen, shifted, "val-c" if shifted else name, name if shifted else "", {}, tuple("abcd"))
        )
    return found


def verdicts(n: int, drops: dict[str, float], policy: Policy, runs: int = RUNS, seed: int = 0) -> list[GateResult]:
    rng = np.random.default_rng(seed)
    return [judge(models(rng, n, drops), policy, "new", "old") for _ in range(runs)]


def share(results: list[GateResult], verdict: str) -> float:
    return float(np.mean([result.verdict == verdict for result in results]))


def noise(p: float, runs: int = RUNS) -> float:
    return 3 * math.sqrt(p * (1 - p) / runs)


ALL = Policy(
    (
        Rule("clean", 2.0),
        Rule("mean", 2.0),
        Rule("family", 3.0),
        Rule("corruption", 4.0),
        Rule("setting", 4.0),
        Rule("class", 8.0),
        Rule("calibration", 4.0),
    )
)


@pytest.mark.parametrize("n", [60, 400])
def test_equal_models_fail_in_at_most_alpha_of_runs(n: int) -> None:
    assert share(verdicts(n, {}, ALL), "fail") <= ALL.alpha + noise(ALL.alpha)


@pytest.mark.parametrize("n", [200, 1000])
def test_false_alarms_where_every_drop_is_its_margin(n: int) -> None:
    """The worst case of the null hypothesis: many rules at their margins at once."""
    policy = Policy((Rule("clean", 3.0), Rule("mean", 3.0), Rule("family", 3.0), Rule("corruption", 3.0)))
    drops = dict.fromkeys(["val", *CORRUPTIONS], 0.03)
    assert share(verdicts(n, drops, policy), "fail") <= policy.alpha + noise(policy.alpha)


def test_false_passes_where_one_drop_is_its_margin() -> None:
    results = verdicts(2000, {"fog": 0.04}, Policy((Rule("clean", 4.0), Rule("corruption", 4.0))))
    assert share(results, "pass") <= 0.05 + noise(0.05)
    # The others are decided, so that the one number is what stops the gate.
    assert all(result.rules[0].verdict == "pass" for result in results)


def test_a_drop_of_twice_the_margin_is_caught_with_the_promised_power() -> None:
    policy = Policy((Rule("clean", 3.0), Rule("mean", 3.0), Rule("family", 3.0), Rule("corruption", 3.0)))
    pilot = judge(models(np.random.default_rng(5), 150, {}), policy, "new", "old")
    assert pilot.verdict == "not enough images"
    n = max(pilot.needed_to_fail(rule) for rule in pilot.rules)
    assert 500 < n < 20_000
    assert share(verdicts(n, {"val": 0.06}, policy, runs=80), "fail") >= policy.power - noise(policy.power, 80)
    assert share(verdicts(n, {"snow": 0.06}, policy, runs=80), "fail") >= policy.power - noise(policy.power, 80)
    weather = verdicts(n, {"fog": 0.06, "snow": 0.06}, policy, runs=80)
    caught = [check.name == "weather" for one in weather for check in one.rules[2].failing]
    assert sum(caught) >= 80 * (policy.power - noise(policy.power, 80))


def test_an_equal_candidate_passes_with_the_promised_power() -> None:
    """All rules that may not stay undecided, at once, with the number of images that small pilots ask for."""
    policy = Policy((Rule("clean", 3.0), Rule("mean", 3.0), Rule("corruption", 3.0), Rule("class", 1.0)))
    policy = replace_rule(policy, undecided="allow")
    pilots = verdicts(200, {}, policy, runs=20, seed=7)
    assert all(pilot.verdict == "not enough images" for pilot in pilots)
    n = int(np.median([pilot.images_needed for pilot in pilots]))
    assert 500 < n < 3000
    passed = share(verdicts(n, {}, policy), "pass")
    assert passed >= policy.power - noise(policy.power)
    # Numbers of the same images pass together, so that it may be more than promised, but not by much.
    fewer = share(verdicts(n // 2, {}, policy), "pass")
    assert fewer < policy.power


def test_a_drop_near_the_margin_asks_for_more_images_than_there_are() -> None:
    policy = Policy((Rule("clean", 3.0),))
    undecided = [
        verdict for verdict in verdicts(3000, {"val": 0.025}, policy, runs=20) if verdict.verdict == "not enough images"
    ]
    assert undecided
    for result in undecided:
        assert result.needed.if_as_observed and result.images_needed >= result.images


def test_the_rule_that_was_violated_fails_and_names_the_number() -> None:
    [one] = verdicts(4000, {"snow": 0.15}, Policy((Rule("clean", 3.0), Rule("corruption", 3.0))), runs=1)
    clean, corruption = one.rules
    assert (clean.verdict, corruption.verdict, one.verdict) == ("pass", "fail", "fail")
    assert [check.name for check in corruption.failing] == ["snow"]
    assert corruption.worst.drop.value == pytest.approx(0.15, abs=0.03)


def test_undecided_rules_block_or_are_reported() -> None:
    settings = models(np.random.default_rng(0), 3000, {})
    strict = Policy((Rule("clean", 2.0), Rule("class", 0.5)))
    assert judge(settings, strict, "new", "old").verdict == "not enough images"
    allowed = replace_rule(strict, undecided="allow")
    result = judge(settings, allowed, "new", "old")
    assert result.verdict == "pass"
    assert result.rules[1].verdict == "not enough images" and result.total_needed(result.rules[1]) > 3000


def replace_rule(policy: Policy, **change: Any) -> Policy:
    import msgspec

    return Policy((*policy.rule[:-1], msgspec.structs.replace(policy.rule[-1], **change)))


def test_the_calibration_rule_is_about_the_expected_calibration_error() -> None:
    rng = np.random.default_rng(2)
    n = 700
    before = rng.random(n) ** 0.5
    now = rng.random(n) ** 0.3
    was = rng.random(n) < before
    new = rng.random(n) < now * 0.8
    seen = Observations(np.arange(n), np.zeros(n, int), np.zeros(n, int), was, new, before, now)

    def ece(confidence: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> float:
        made = predictions(np.where(right, 0, 1), np.zeros(n))
        return metrics.get("ece")(replace(made, confidence=confidence.astype(np.float32))).value

    assert seen.calibration_drop(0.02).value == pytest.approx(ece(now, new) - ece(before, was), abs=1e-6)


def test_families_are_those_of_the_corruptions_and_of_the_policy() -> None:
    settings = models(np.random.default_rng(0), 400, {"fog": 0.05})
    rules = (Rule("family", 5.0), Rule("class", 20.0, only=("weather",)))
    result = judge(settings, Policy(rules, families={"dim": ("fog", "gaussian_*"), "all": ("*",)}), "new", "old")
    drops = {check.name: check.drop.value for check in result.rules[0].checks}
    lost = {
        setting.name: float(np.mean(setting.observations.was_right * 1 - setting.observations.is_right))
        for setting in settings
    }
    assert drops == pytest.approx(
        {
            "weather": (lost["fog"] + lost["snow"]) / 2,
            "noise": lost["gaussian_noise"],
            "dim": (lost["fog"] + lost["gaussian_noise"]) / 2,
            "all": sum(lost.values()) / 4,
        }
    )
    assert [check.name for check in result.rules[1].checks] == [f"{name} in weather" for name in "abcd"]
    with pytest.raises(GateError, match="'night' has no settings"):
        judge(settings, Policy(rules, families={"night": ("dark*",)}), "new", "old")


def test_groups_are_those_of_a_column() -> None:
    [val] = models(np.random.default_rng(0), 400, {})[:1]
    countries = np.array(["fr", "us"] * 200, dtype=object)
    val = replace(val, groups={"country": countries})
    result = judge([val], Policy((Rule("group", 9.0, by="country"),)), "new", "old")
    assert [check.name for check in result.rules[0].checks] == ["fr in val", "us in val"]
    seen = val.observations
    lost = (seen.was_right.astype(int) - seen.is_right)[countries == "fr"].mean()
    assert result.rules[0].checks[0].drop.value == pytest.approx(lost)
    with pytest.raises(GateError) as error:
        judge([val], Policy((Rule("group", 9.0, by="city"),)), "new", "old")
    assert "country" in str(error.value.found)


def test_a_rule_that_matches_nothing_is_refused_except_in_the_default_policy() -> None:
    clean = models(np.random.default_rng(0), 50, {})[:1]
    with pytest.raises(GateError, match="matches nothing"):
        judge(clean, Policy((Rule("corruption", 1.0),)), "new", "old")
    with pytest.raises(GateError, match="matches nothing"):
        judge(clean, Policy((Rule("clean", 1.0, only=("nosuch*",)),)), "new", "old")
    assert any("mean under shift" in note for note in judge(clean, DEFAULT_POLICY, "new", "old").notes)


def test_patterns_choose_settings() -> None:
    settings = models(np.random.default_rng(0), 50, {})
    result = judge(settings, Policy((Rule("setting", 5.0, only=("s*", "fog")),)), "new", "old")
    assert [check.name for check in result.rules[0].checks] == ["fog", "snow"]
    result = judge(settings, Policy((Rule("class", 5.0, only=("val-c",)),)), "new", "old")
    assert [check.name for check in result.rules[0].checks] == [f"{name} in val-c" for name in "abcd"]


SPEC: dict[str, Any] = {
    "dataset": {"name": "val", "fingerprint": "abc"},
    "images": 5,
    "shift": {"shift": "corruption", "corruption": "fog", "generator": "shiftbench 1", "seed": 0},
    "space": "imagenet-1",
    "source": "in-memory",
}


@pytest.mark.parametrize(
    ("change", "reason", "found"),
    [
        ({"dataset": {"name": "val", "fingerprint": "abd"}}, "dataset has changed", "abd"),
        ({"images": 6}, "dataset has changed", "6 images"),
        ({"space": "cifar-10-2"}, "label space", "cifar-10-2"),
        ({"shift": {**SPEC["shift"], "generator": "shiftbench 2"}}, "shift is another version", "shiftbench 2"),
        ({"source": "jpeg-85"}, "shift is another version", "source jpeg-85"),
    ],
)
def test_a_baseline_of_other_data_or_shifts_is_refused(change: dict[str, Any], reason: str, found: str) -> None:
    old = ResultSpec.from_json(SPEC)
    check_same_images("val", old, old)
    with pytest.raises(GateError, match=reason) as error:
        check_same_images("val", ResultSpec.from_json({**SPEC, **change}), old)
    assert found in str(error.value.found)


def test_policies_are_read_from_toml(tmp_path: Path) -> None:
    path = tmp_path / "gate.toml"
    text = 'alpha = 0.01\n[[rule]]\nof = "corruption"\nmargin = 2\nonly = ["fog"]\nundecided = "allow"\n'
    path.write_text(text + '[families]\nnight = ["brightness", "*.contrast.*"]\n')
    families: dict[str, tuple[str, ...]] = {"night": ("brightness", "*.contrast.*")}
    assert Policy.read(path) == Policy((Rule("corruption", 2.0, ("fog",), undecided="allow"),), 0.01, 0.8, families)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rule = []",
        '[[rule]]\nof = "accuracy"\nmargin = 1',
        '[[rule]]\nof = "clean"\nmargin = 0',
        '[[rule]]\nof = "clean"\nmargins = 1',
        '[[rule]]\nof = "group"\nmargin = 1',
        '[[rule]]\nof = "clean"\nby = "country"\nmargin = 1',
        '[families]\nnight = "fog"\n[[rule]]\nof = "clean"\nmargin = 1',
        'alpha = 0.7\n[[rule]]\nof = "clean"\nmargin = 1',
    ],
)
def test_bad_policies(tmp_path: Path, text: str) -> None:
    path = tmp_path / "gate.toml"
    path.write_text(text)
    with pytest.raises(ShiftbenchError):
        Policy.read(path)
