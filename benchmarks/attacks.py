"""Accuracy over the radius of attacks, for two real models: docs/attacks.md.

    python -m benchmarks.attacks [--workspace FOLDER] [--photographs N M] [--cifar N M] [--print]

PGD of a few steps over a ladder of radii, then the testbed's four attacks of 100 steps, away from the label and, as
the testbed ran them, away from the classifier's own prediction. An attack of 100 steps costs 300 times a plain
evaluation, so only some images are taken: N for the curve, M for the attacks of 100 steps. In a workspace that is
kept, a stopped run continues.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import shiftbench as sb
from benchmarks.page import machine, table
from shiftbench.metrics.base import Score
from shiftbench.settings.base import Setting
from shiftbench.settings.roles import Selection
from shiftbench.shifts.attacks.attack import ATTACK_VERSION, ATTACKS, Attack, fgsm, published_attacks
from shiftbench.shifts.attacks.checks import check_attack

PAGE = Path(__file__).parents[1] / "docs" / "attacks.md"
LADDER = (0.0625, 0.125, 0.25, 0.5, 1, 2)
STEPS = 10
SEED = 0
#: Classifier, its data and what they are called, and the batch of which an eighth is attacked at once.
Case = tuple[str, str, str, int]
CASES: tuple[Case, ...] = (
    ("demo:squeezenet1_1", "demo", "photographs", 16),
    ("demo:resnet8-cifar10", "cifar-10-test", "CIFAR-10 test images", 256),
)
#: The prose above this heading is kept.
HEADING = "## Two real models"
INTRODUCTION = """
Accuracy in %, with 95 % Clopper-Pearson intervals in brackets. The samples are small, because an attack with 100
steps costs about as much as 300 plain evaluations. `python -m benchmarks.attacks` regenerates this section.
"""


def ladder() -> list[Attack]:
    many = [Attack(f"pgd{STEPS}.linf.eps{e:g}", "linf", e / 255, STEPS, 2.5 * e / 255 / STEPS) for e in LADDER]
    return [*many, *(fgsm(f"fgsm.linf.eps{e:g}", "linf", e / 255) for e in LADDER)]


def published() -> list[Attack]:
    return [replace(attack, name=f"{name}.from-prediction") for name, attack in published_attacks().items()]


def scores(case: Case, attacks: Sequence[Attack], images: int, workspace: Path) -> dict[str, Score]:
    spec, data, _, batch = case
    classifier = sb.load_classifier(spec, batch_size=batch)
    settings = [Setting("clean", "data"), *(Setting(a.name, "data", a, reference="clean") for a in attacks)]
    run = sb.evaluate(classifier, settings, data, workspace, seed=SEED, select=Selection(sample=images))
    return {setting: score for _, setting, score in run.scores("top1")}


def percent(score: Score) -> str:
    return f"{100 * score.value:.1f} ({100 * score.low:.0f}–{100 * score.high:.0f})"


def curve(found: dict[str, Score]) -> str:
    rows = [("0", percent(found["clean"]), percent(found["clean"]))]
    rows += [
        (f"{e:g}", percent(found[f"pgd{STEPS}.linf.eps{e:g}"]), percent(found[f"fgsm.linf.eps{e:g}"])) for e in LADDER
    ]
    return table(("eps x 255", f"PGD, {STEPS} steps", "FGSM"), rows)


def testbed(found: dict[str, Score]) -> str:
    clean = percent(found["clean"])
    rows = [("none", clean, clean)]
    rows += [(name, percent(found[name]), percent(found[f"{name}.from-prediction"])) for name in published_attacks()]
    return table(("attack, 100 steps", "away from the label", "away from the prediction, as published"), rows)


def checks(case: Case) -> str:
    spec, data, _, batch = case
    classifier, dataset = sb.load_classifier(spec, batch_size=batch), sb.open_dataset(data)
    rows = np.linspace(0, len(dataset) - 1, 8).astype(int)
    images = np.stack([classifier.preprocessing.geometry(dataset.read(int(row)).pixels) for row in rows])
    results = check_attack(classifier, images, np.asarray(dataset.labels)[rows], steps=STEPS)
    return table(("check", "", "seen"), [(r.name, "ok" if r.ok else "**failed**", r.message) for r in results])


def section(case: Case, counts: Sequence[int], workspace: Path) -> str:
    named = [ATTACKS[name] for name in published_attacks()]
    few, many = scores(case, ladder(), counts[0], workspace), scores(case, [*named, *published()], counts[1], workspace)
    return "\n".join(
        [
            f"### {case[0]}\n",
            f"Over {few['clean'].n} {case[2]}:\n",
            curve(few),
            f"\nOver {many['clean'].n} {case[2]}:\n",
            testbed(many),
            "\nThe checks, on 8 images:\n",
            checks(case),
            "",
        ]
    )


def page(counts: Sequence[Sequence[int]], workspace: Path) -> str:
    parts = [section(case, count, workspace) for case, count in zip(CASES, counts, strict=True)]
    prose, _, _ = PAGE.read_text(encoding="utf-8").partition(HEADING)
    made = f"Attacks {ATTACK_VERSION}, seed {SEED}; {machine()}.\n"
    return prose + "\n".join([HEADING, INTRODUCTION, *parts, made])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--workspace", type=Path, help="where predictions are kept; else a temporary folder")
    for name, default in (("--photographs", (20, 6)), ("--cifar", (100, 100))):
        arguments.add_argument(name, type=int, nargs=2, default=default, help="how many, drawn by a seed")
    arguments.add_argument("--print", action="store_true", help="print the page and do not write it")
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="shiftbench-attacks-") as folder:
        text = page((chosen.photographs, chosen.cifar), chosen.workspace or Path(folder))
    if chosen.print:
        print(text)
    else:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
