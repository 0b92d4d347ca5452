"""Whether a gate's `needed` images give the promised power, and how many they are: docs/gate.md.

    python -m benchmarks.gate [--pilots 40] [--gates 200]

Two simulated models that disagree on a share of the images, clean and under 15 corruptions, and are equally good. Small
gates (pilots) ask for a number of images; gates with the median of these numbers should pass with probability 80 %.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.page import save, table
from shiftbench.studies.gate import GateResult, GateSetting, Observations, Policy, Rule, judge

CORRUPTIONS = (
    "gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "snow",
    "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression",
)  # fmt: skip
PILOT_IMAGES = 200
#: Half-width of a 95 % interval, in standard errors.
_Z = 1.96
#: Rules that must be decided, by name in the table.
POLICIES = {
    "clean and mean (1 point)": Policy((Rule("clean", 1.0), Rule("mean", 1.0))),
    "each corruption (3 points)": Policy((Rule("corruption", 3.0),)),
}


def simulated(
    rng: np.random.Generator, n: int, disagreement: float, one_pass: bool, drop: float = 0.0
) -> list[GateSetting]:
    """Models that are right on 80 % of the images, clean and corrupted; the candidate has this drop everywhere."""
    lost = (disagreement + drop) / 2 / 0.8
    won = (disagreement - drop) / 2 / 0.2
    assigned = rng.permutation(n) % len(CORRUPTIONS)
    settings = []
    for number, name in enumerate(("val", *CORRUPTIONS)):
        images = np.arange(n)
        if one_pass and number:
            images = np.flatnonzero(assigned == number - 1)
        count = len(images)
        was_right = rng.random(count) < 0.8
        changed = rng.random(count) < np.where(was_right, lost, won)
        confidence = np.full(count, 0.8)
        observations = Observations(
            images=images,
            parts=np.full(count, number),
            labels=images % 10,
            was_right=was_right,
            is_right=was_right ^ changed,
            confidence_before=confidence,
            confidence=confidence,
        )
        shifted = number > 0
        grid = "val-c" if shifted else name
        settings.append(
            GateSetting(name, observations, shifted, grid, name if shifted else "", {}, tuple("abcdefghij"))
        )
    return settings


def gates(policy: Policy, n: int, disagreement: float, one_pass: bool, count: int, seed: int) -> list[GateResult]:
    rng = np.random.default_rng(seed)
    return [judge(simulated(rng, n, disagreement, one_pass), policy, "new", "old") for _ in range(count)]


def measure(
    name: str, policy: Policy, disagreement: float, one_pass: bool, pilots: int, count: int
) -> Mapping[str, Any] | None:
    """None if the pilots have images enough."""
    undecided = [
        result
        for result in gates(policy, PILOT_IMAGES, disagreement, one_pass, pilots, seed=1)
        if result.verdict == "not enough images"
    ]
    if not undecided:
        return None
    asked = [result.images_needed for result in undecided]
    to_fail = [max(result.needed_to_fail(rule) for rule in result.rules) for result in undecided]
    needed = int(np.median(asked))
    results = gates(policy, needed, disagreement, one_pass, count, seed=2)
    passed = float(np.mean([result.verdict == "pass" for result in results]))
    return {
        "rules": name,
        "design": "one-pass" if one_pass else "full",
        "disagreement": disagreement,
        "needed": needed,
        "quartiles": [int(np.percentile(asked, share)) for share in (25, 75)],
        "to_fail": int(np.median(to_fail)),
        "passed": passed,
        "error": _Z * math.sqrt(passed * (1 - passed) / count),
    }


def main(pilots: int, count: int) -> None:
    rows = []
    for name, policy in POLICIES.items():
        for one_pass in (True, False):
            for disagreement in (0.0, 0.02, 0.05, 0.1):
                row = measure(name, policy, disagreement, one_pass, pilots, count)
                if row is not None:
                    print(row, flush=True)
                    rows.append(row)
    shown = []
    for row in rows:
        low, high = row["quartiles"]
        passed = f"{100 * row['passed']:.0f} ± {100 * row['error']:.0f} %"
        needed = f"{row['needed']:,} ({low:,} to {high:,})"
        share = f"{100 * row['disagreement']:g} %"
        shown.append([row["rules"], row["design"], share, needed, passed, f"{row['to_fail']:,}"])
    header = [
        "rules",
        "design",
        "disagreement",
        "needed, median (quartiles)",
        "passed with the median",
        "needed to fail",
    ]
    text = (
        f"Equal models; {pilots} pilots of {PILOT_IMAGES} images each ask for a number of images, and {count} gates "
        "with the median of these numbers are judged; ± is the 95 % Monte Carlo error. Promised: 80 %. Needed to "
        "fail: for a drop of twice the margin in one number.\n\n"
    )
    save("gate", "Images that a gate needs", rows, text + table(header, shown))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pilots", type=int, default=40)
    parser.add_argument("--gates", type=int, default=200)
    options = parser.parse_args()
    main(options.pilots, options.gates)
