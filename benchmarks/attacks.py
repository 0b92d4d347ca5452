"""Accuracy over the radius of attacks, for two real classifiers: docs/attacks.md.

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
from shiftbench.shifts.attacks import ATTACKS, Attack, check_attack, fgsm, published_attacks
from shiftbench.shifts.attacks.attack import ATTACK_VERSION

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


_HEAD = """# Attacks

An attack looks for the smallest change of an image that makes *one* classifier fail, along that classifier's gradients.

    shiftbench eval demo:squeezenet1_1 --suite attacks --data FOLDER

gives the clean accuracy, four attacks by projected gradient descent (PGD, Madry et al. 2018) with the settings of the
ImageNet testbed (Taori et al. 2020), and the fast gradient sign method (FGSM, Goodfellow et al. 2015):

| setting | norm | eps, on pixels in [0, 1] | steps | step size |
|---|---|---|---|---|
| `<data>-pgd.linf.eps0.5` | L-infinity | 0.5/255 | 100 | 3 % of eps |
| `<data>-pgd.linf.eps2` | L-infinity | 2/255 | 100 | 3 % of eps |
| `<data>-pgd.l2.eps0.1` | L2 | 0.1 x side/224 | 100 | 0.01 |
| `<data>-pgd.l2.eps0.5` | L2 | 0.5 x side/224 | 100 | 0.05 |
| `<data>-fgsm.linf.eps0.5`, `eps2` | L-infinity | 0.5/255, 2/255 | 1 | eps |

Any other attack is one line of Python, `Attack(name, norm, eps, steps, step_size, restarts=1)`, and runs wherever a
shift does: `sb.evaluate(model, [Setting("mine", "data", attack)], data)`.

## What is computed

- **The classifier.** Its torch network, on pixels in [0, 1] before normalisation. A classifier that onnxruntime
  evaluates is loaded again as the torch module it was made from. One that has none (an ONNX file, a function, a
  scikit-learn estimator, predictions made elsewhere) is refused before the run begins. So is one behind an input
  defence: attacking the network alone would say nothing about the defence.
- **The images.** They are driven away from their label, within the ball and within [0, 1]. They stay in floating
  point: rounding to 8 bits would undo much of half a grey level. The scores of an attacked image come from the same
  torch network in 32 bits, and the stored spec says so.
- **Label spaces.** Only the classes that compete in the setting count in the loss. Settings over super-classes are
  refused.
- **Random starts.** Drawn for the image's id, the seed and the restart. On a CPU, torch's operators run on one core
  each and every batch has the same size, so an image gets the same result in any order and with any number of
  workers; blocks of images run side by side. On a GPU torch does not promise that.
- **Batches.** An eighth of the evaluation batch, at least one image.
- **Restarts.** The most harmful run of an image counts.
- **Resuming.** As everywhere: results are stored block by block, and the same command continues.

## Differences from the testbed

1. **Away from the label.** The testbed's call passes no labels, so an image is driven away from the classifier's own
   prediction. An image that is classified wrongly is then sometimes driven into its right class, which leaves a floor:
   at 2/255 the published accuracies lie near 7 % (ResNet-50 7.2, SqueezeNet 1.1 6.9), not near zero. The tables below
   show both. `published_attacks()` reproduces the testbed's way, for numbers to compare with the published ones; the
   spec keeps the two apart.
2. **Results are clipped to [0, 1].** The testbed passed no clip range. Clipped images are images; at these radii only
   nearly black or white pixels differ.
3. **The random start in L2** is uniform in the ball. The library that the testbed used draws from a cube and projects
   onto the ball; in that many dimensions both lie near the surface in a random direction.
4. The radius in L2 follows the image's height, as the testbed's does; step sizes do not.

## AutoAttack

`--suite autoattack` runs the AutoAttack of the Adversarial Robustness Toolbox (`pip install 'shiftbench[attacks]'`):
APGD on cross-entropy, APGD on the difference of logits ratio, DeepFool and Square, each on the images that are still
right. It is not the standard ensemble of Croce and Hein (2020), which has targeted APGD and FAB: do not compare its
numbers with RobustBench's. Images go one at a time, and an image that resists costs some ten thousand passes.

## Is it the attack that fails?

A network may hide its gradients without being robust. `check_attack(classifier, images, labels)` looks for the
symptoms that Athalye et al. (2018) and Carlini et al. (2019) describe: images without a gradient, a loss that does not
rise with eps, one step that beats many, restarts or random points that find what the attack missed, and an unbounded
attack that does not reach 0 %. A network whose softmax is saturated and one that rounds its input fail them (tests).

## Two real classifiers

Accuracy in %, with 95 % Clopper-Pearson intervals in brackets. The samples are small, because an attack of 100 steps
costs about 300 plain evaluations. Regenerated by `python -m benchmarks.attacks`;
`--photographs` and `--cifar` take more.
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
    return "\n".join([_HEAD, *parts, f"Attacks {ATTACK_VERSION}, seed {SEED}; {machine()}."]) + "\n"


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
