"""``harden``: make a model more robust on its own classes, and measure what the augmentation gained.

    before      the model as it is
    control     fine-tuned with small shifts
    hardened    fine-tuned for as many steps, with the augmentation

All three are evaluated on the same validation images, clean and under corruptions. The control separates what the
augmentation gained from what more training gained.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn

from shiftbench import Classifier, Dataset, Run, evaluate
from shiftbench.classifiers import Options
from shiftbench.errors import ClassifierError, MissingExtraError, UnknownNameError
from shiftbench.extend.classifiers import evaluating, from_module, onnx_twin, write_sidecar
from shiftbench.extend.datasets import identity, sample_images
from shiftbench.extend.errors import argument
from shiftbench.extend.io import digest, inside, write_json
from shiftbench.extend.studies import GateResult, judge_by_default_policy
from shiftbench.extend.tables import Column, Table, verdict_line
from shiftbench.hardening.architectures.own import OwnNetwork
from shiftbench.hardening.classifier import EXPORT, WEIGHTS, read_finished
from shiftbench.hardening.errors import TrainingError
from shiftbench.hardening.finetuning.model import Images, LoadOptions, OwnModel, open_inputs
from shiftbench.hardening.finetuning.plan import (
    CONTROL,
    PLAN,
    HardeningPlan,
    check_validation,
    finetuning_recipe,
    make_plan,
    measure,
    planned,
    read_plan,
)
from shiftbench.hardening.recipe import Recipe
from shiftbench.hardening.training.train import train

#: The suite of the evaluation.
SUITE = "corruptions"
#: The pairs of models, in the order in which they are reported, and what their difference means.
_PAIRS = {
    ("hardened", "control"): "gained by the augmentation",
    ("hardened", "before"): "gained in all",
    ("control", "before"): "gained by more training",
}


@dataclass(frozen=True)
class Gain:
    """The difference between two of the three models on the same images, in fractions of 1."""

    #: "hardened", "control" or "before".
    first: str
    second: str
    #: "clean" or "corruptions".
    images: str
    first_accuracy: float
    second_accuracy: float
    difference: float
    low: float
    high: float
    #: Corrected for the three pairs (Holm).
    p: float
    #: Images.
    n: int


@dataclass(frozen=True)
class Hardened:
    """What ``harden`` made: the model, and what it gained.

    Attributes:
        folder: Holds the plan, both trainings, the results and the exported model.
        augment: The augmentation.
        plan: Epochs, steps and measured times.
        module: The user's own torch module with its new weights.
        classifier: The same as a classifier, with the model's preprocessing and classes.
        run: The results of all three models.
        gains: The paired differences.
        gate: The gate's verdict on the hardened model against the original.
        export: The hardened model as ONNX; None if it could not be exported.
        why_not_exported: The reason.
    """

    folder: Path
    augment: str
    plan: HardeningPlan
    module: nn.Module
    classifier: Classifier
    run: Run
    gains: tuple[Gain, ...]
    gate: GateResult
    export: Path | None
    why_not_exported: str = ""

    def gain(self, first: str = "hardened", second: str = "control", images: str = "corruptions") -> Gain:
        """One of the differences; by default what the augmentation gained under corruptions."""
        for gain in self.gains:
            if (gain.first, gain.second, gain.images) == (first, second, images):
                return gain
        known = [f"{gain.first}, {gain.second}, {gain.images}" for gain in self.gains]
        raise UnknownNameError("difference", f"{first}, {second}, {images}", known)

    @property
    def conclusion(self) -> str:
        """What the augmentation gained, and whether the model is better than it was."""
        gain = self.gain()
        clean = self.gain(images="clean")
        if gain.low > 0:
            verdict = f"{self.augment} made the model more robust than as much plain fine-tuning"
        elif gain.high < 0:
            verdict = f"{self.augment} made the model less robust than as much plain fine-tuning"
        else:
            verdict = f"{self.augment} and plain fine-tuning are not clearly different under corruptions"
        text = f"{verdict}: {_points(gain)} under corruptions, {_points(clean)} on clean images."
        totals = [self.gain(second="before", images=images) for images in ("corruptions", "clean")]
        worse = [total for total in totals if total.high < 0]
        if worse:
            losses = " and ".join(f"{_points(total)} ({total.images})" for total in worse)
            lower_rate = argument("changes", {"optimizer.lr": 5e-5}, flag="--set")
            text += f" But it is WORSE THAN THE ORIGINAL: {losses}."
            text += f" Keep the original, or try {lower_rate}, or more time."
        return text

    def table(self) -> Table:
        """The differences with intervals."""
        rows = []
        for (first, second), meaning in _PAIRS.items():
            for images in ("corruptions", "clean"):
                gain = self.gain(first, second, images)
                rows.append({"meaning": meaning, "pair": f"{first} - {second}", **asdict(gain)})
        columns = [
            Column("meaning", "what"),
            Column("pair", "pair", "word", optional=True),
            Column("images", "images", "word"),
            Column("first_accuracy", "first", "number", places=1, times=100, optional=True),
            Column("second_accuracy", "second", "number", places=1, times=100, optional=True),
            Column("difference", "points", "points", ("low", "high"), places=1, times=100),
            Column("p", "p (Holm)", "p"),
        ]
        n = self.gains[0].n
        notes = [
            f"points of top-1 accuracy, 95 % intervals, paired on the same {n:,} validation images; both trainings had "
            "as many steps on the same images",
            f"gate against the original: {verdict_line(self.gate)}",
        ]
        return Table(columns, rows, title="What was gained", lead=[self.conclusion], notes=notes)

    def summary(self) -> dict[str, object]:
        """JSON-able."""
        return {
            "folder": str(self.folder),
            "augment": self.augment,
            "conclusion": self.conclusion,
            "plan": self.plan._asdict(),
            "gains": [asdict(gain) for gain in self.gains],
            "gate": {"verdict": self.gate.verdict, "text": verdict_line(self.gate)},
            "export": None if self.export is None else str(self.export),
            "why_not_exported": self.why_not_exported,
        }


def _points(gain: Gain) -> str:
    return f"{100 * gain.difference:+.1f} points [{100 * gain.low:+.1f}, {100 * gain.high:+.1f}]"


def harden(
    model: object,
    data: Images,
    val: Images | None = None,
    *,
    augment: str | Path = "augmix",
    minutes: float = 30.0,
    out: str | Path | None = None,
    name: str | None = None,
    labels: object = None,
    preprocessing: object = None,
    trust: bool = False,
    changes: Mapping[str, object] | Sequence[str] = (),
    seed: int = 0,
    device: str = "auto",
    workers: int | None = None,
    progress: bool = True,
    report: Callable[[str], object] | None = None,
) -> Hardened:
    """Fine-tune a model with an augmentation, and measure what it gained over as much plain fine-tuning.

    The same call continues after an interruption. The model keeps its preprocessing and its classes; a module that is
    given is not changed.

    Args:
        model: A torch module, or a spec of one: ``"timm:NAME@FILE"``, ``"hardened:RUN"``, ``"module.py:factory"``,
            ``"model.pt2"`` (with ``trust``).
        data: Training images, as everywhere: class folders, a file, a dataset.
        val: Validation images, none of which is a training image. They are only used to compare.
        augment: ``"augmix"``, ``"noise"``, ``"deepaugment"``, ``"pgd"``, the name of an image augmentation, or a TOML
            file.
        minutes: Time for everything. A few steps are measured first, and a plan is made.
        out: Folder of plan, trainings and results (default: ``hardened/NAME-AUGMENT``).
        name: Name of the model in tables.
        labels: The model's classes, as for ``load_classifier``.
        preprocessing: What the model was trained with, as for ``load_classifier``.
        trust: Load a model file that runs code of its own.
        changes: Keys of both recipes to change: ``{"optimizer.lr": 1e-4}``.
        seed: Seed of both trainings.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``.
        workers: Processes that prepare batches; they change no result.
        progress: Whether progress bars are shown.
        report: Called with each message about the plan and about what is done next.

    Returns:
        The hardened model, and the comparison: ``print(sb.harden(...).table())``.

    Raises:
        ShiftbenchError: The model can't be trained, classes differ, images are in both datasets, or the time is too
            short; the message says what to change.
    """
    began = time.monotonic()
    own, train_set, val_set = open_inputs(model, data, val, LoadOptions(name, labels, preprocessing, trust, device))
    check_validation(len(val_set))
    title = Path(augment).stem
    if title == CONTROL:
        raise TrainingError(f"{CONTROL!r} is what the control is trained with", hint=argument("augment", "augmix"))
    recipes = {}
    for role, recipe in ((CONTROL, CONTROL), (title, augment)):
        recipes[role] = finetuning_recipe(recipe, own, changes, seed, len(train_set))
    hardening = _Hardening(
        own,
        train_set,
        val_set,
        recipes,
        title,
        Path(out) if out is not None else Path("hardened") / f"{own.name}-{title}",
        device,
        workers,
        progress,
        report or (lambda message: None),
    )
    return hardening.go(minutes, began)


@dataclass(frozen=True)
class _Hardening:
    """One call of ``harden``, with everything opened and checked."""

    own: OwnModel
    train_set: Dataset
    val_set: Dataset
    #: The recipes by role: the control, and the augmentation.
    recipes: Mapping[str, Recipe]
    augment: str
    folder: Path
    device: str
    workers: int | None
    progress: bool
    report: Callable[[str], object]

    def go(self, minutes: float, began: float) -> Hardened:
        self._claim_folder()
        plan = self._plan(minutes, began)
        self.report(plan.text(self.augment, self.own, self.train_set, self.val_set))
        networks = {role: self._trained(role, plan) for role in self.recipes}
        hardened = self._as_classifier(networks[self.augment], self.augment)
        control = self._as_classifier(networks[CONTROL], CONTROL)
        self.report("evaluating all three models, clean and under corruptions")
        run = self._evaluated([hardened, control, self.own.original], plan.passes)
        roles = {hardened.name: "hardened", control.name: "control", self.own.name: "before"}
        export = None
        why_not = ""
        try:
            export = self._exported(networks[self.augment], hardened)
        except (ClassifierError, MissingExtraError) as error:
            why_not = str(error.found or error.message)
        network = networks[self.augment]
        module = network.module if isinstance(network, OwnNetwork) else network
        gate = _gate(run, hardened.name, self.own.name)
        result = Hardened(
            self.folder, self.augment, plan, module, hardened, run, _gains(run, roles), gate, export, why_not
        )
        write_json(self.folder / "summary.json", result.summary())
        return result

    def _claim_folder(self) -> None:
        """Makes the folder; raises if a file would be written through a link to another place."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for role in self.recipes:
            inside(self.folder / role / WEIGHTS, self.folder)
        for file in (PLAN, "workspace/workspace.json"):
            inside(self.folder / file, self.folder)

    def _plan(self, minutes: float, began: float) -> HardeningPlan:
        """The plan of the first call, or a new one."""
        tables = {role: recipe.as_dict() for role, recipe in self.recipes.items()}
        contents = [self.own.classifier.fingerprint, identity(self.train_set), identity(self.val_set)]
        key = digest("harden", *contents, tables, float(minutes))
        plan = read_plan(self.folder, key)
        if plan is not None:
            return plan
        self.report(f"measuring {self.own.name}: its evaluation, and a few steps of each training")
        evaluation_began = time.monotonic()
        self._evaluated([self.own.original], 1)
        per_pass = (time.monotonic() - evaluation_began) / 2
        measured = {}
        for role, recipe in self.recipes.items():
            measured[role] = measure(
                recipe, self.own, self.train_set, device=self.device, workers=self.workers, progress=self.progress
            )
        spent = time.monotonic() - began
        plan = make_plan(
            key,
            measured[CONTROL],
            measured[self.augment],
            self.recipes[CONTROL].train.batch_size,
            per_pass=per_pass,
            remaining=60 * minutes - spent,
            spent=spent,
        )
        write_json(self.folder / PLAN, plan._asdict())
        return plan

    def _trained(self, role: str, plan: HardeningPlan) -> nn.Module:
        """The network after one of the two trainings, which is finished if it was begun."""
        folder = self.folder / role
        if read_finished(folder) is None:
            self.report(f"training {self.own.name}-{role}: {plan.epochs} epochs")
        network = copy.deepcopy(self.own.network)
        train(
            planned(self.recipes[role], plan),
            folder,
            data=self.train_set,
            name=f"{self.own.name}-{role}",
            workers=self.workers,
            device=self.device,
            progress=self.progress,
            network=network,
        )
        network.cpu().load_state_dict(load_file(folder / WEIGHTS))
        return network.eval()

    def _as_classifier(self, network: nn.Module, role: str) -> Classifier:
        """A network as a classifier with the preprocessing and the classes of the model."""
        name = f"{self.own.name}-{role}"
        options = Options.of(
            self.own.classifier.space,
            self.own.classifier.preprocessing,
            name=name,
            device=self.device,
            outputs="logits" if isinstance(network, OwnNetwork) else self.own.classifier.outputs,
        )
        classifier = from_module(copy.deepcopy(network), options, name=name)
        # What was assumed about the model is assumed about its successors, and marked so.
        classifier.sources = {**classifier.sources, **self.own.classifier.sources}
        return classifier

    def _evaluated(self, models: Sequence[Classifier], passes: int) -> Run:
        workspace = self.folder / "workspace"
        return evaluate(
            list(models), SUITE, self.val_set, workspace, design="one-pass", passes=passes, progress=self.progress
        )

    def _exported(self, network: nn.Module, classifier: Classifier) -> Path:
        """Writes the network as ONNX, with what is known about it beside it; raises if no exporter succeeds."""
        path = self.folder / self.augment / EXPORT
        preprocessing = self.own.classifier.preprocessing
        images = sample_images(4, preprocessing.geometry.output or (224, 224))
        inputs = torch.from_numpy(preprocessing.normalisation(images))
        with torch.inference_mode(), evaluating(network):
            reference = network(inputs).float().numpy()
        onnx_twin(network, path, images, preprocessing, reference)
        write_sidecar(str(path), classifier, force=True)
        return path


def _gains(run: Run, roles: Mapping[str, str]) -> tuple[Gain, ...]:
    """The paired differences of the three models, under corruptions and on clean images."""
    members = [run.workspace.setting_record(result).member for result in run.results]
    families = dict.fromkeys(member.family for member in members if member is not None)
    gains = []
    for images, setting in (("corruptions", next(iter(families))), ("clean", run.settings[0])):
        for row in run.compare(setting).rows:
            first = roles[row["first"]]
            second = roles[row["second"]]
            values = (row["first_accuracy"], row["second_accuracy"])
            difference = (row["difference"], row["low"], row["high"])
            if (first, second) not in _PAIRS:
                first, second = second, first
                values = (values[1], values[0])
                difference = (-row["difference"], -row["high"], -row["low"])
            gains.append(Gain(first, second, images, *values, *difference, row["p_holm"], row["n"]))
    return tuple(gains)


def _gate(run: Run, candidate: str, baseline: str) -> GateResult:
    """The verdict of `gate` by its default policy."""
    of_candidate = run.select([candidate]).results
    of_baseline = run.select([baseline]).results
    return judge_by_default_policy(run.workspace, of_candidate, of_baseline)
