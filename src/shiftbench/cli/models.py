"""``shiftbench describe`` and ``doctor``: is a model known, and fed as it should be?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import shiftbench as sb
from shiftbench.cli.console import kept_warnings, note, output, print_json, print_warnings, stoppable, titled
from shiftbench.cli.options import (
    Json,
    Labels,
    Limit,
    Model,
    ModelOptions,
    OutputOptions,
    Preprocess,
    Split,
    Trust,
    complete_models,
)
from shiftbench.errors import shell_command

if TYPE_CHECKING:
    from shiftbench.classifiers.base import Classifier
    from shiftbench.diagnosis.exports import ExportCheck
    from shiftbench.diagnosis.search import Diagnosis

#: How tables name the sources of facts.
_SOURCE_NAMES = {
    "given": "given here",
    "sidecar": "sidecar",
    "file": "model file",
    "library": "library",
    "data": "dataset",
    "measured": "trial run",
    "default": "default",
    "assumed": "assumed",
}
# The exit codes of `doctor` are those of `gate`.
_EXIT_FINE = 0
_EXIT_FAULT = 1
_EXIT_UNDECIDED = 2


def describe_command(
    model: Model,
    labels: Labels = None,
    preprocess: Preprocess = None,
    data: Annotated[str | None, "-d", "Images that it is meant for: they decide an unknown input size."] = None,
    split: Split = None,
    write: Annotated[bool, "Write the facts beside the model file, where `eval` finds them."] = False,
    embed: Annotated[bool, "With --write: into the metadata of the ONNX file itself."] = False,
    force: Annotated[bool, "With --write: replace an existing file or description."] = False,
    trust: Trust = False,
    json: Json = False,
) -> None:
    """Show what is known about a model, and where each fact comes from.

    Facts that nothing states are marked as assumed; `eval` assumes the same, and marks the scores. `--write` writes
    MODEL.json, which keeps both apart: state what you know by `--preprocess`. `--write --embed` writes the same
    into the ONNX file, so that it travels with the model; weights and id stay as they are.

    \b
    Examples:
      shiftbench describe model.onnx
      shiftbench describe model.onnx --write \\
        --preprocess size=32,mean=0.49,0.48,0.45,std=0.25,colour=rgb
    """
    from shiftbench.classifiers.loading import load_spec
    from shiftbench.classifiers.onnx_metadata import write_metadata
    from shiftbench.classifiers.options import Options, write_sidecar
    from shiftbench.labels.catalogue import FOLDERS

    options: dict[str, object] = {"trust": trust, "number_classes": True}
    if data is not None:
        from shiftbench.datasets.catalogue import open_dataset
        from shiftbench.runs.execute import common_image_size
        from shiftbench.settings.roles import path_of_split

        dataset = open_dataset(path_of_split(data, split), space=FOLDERS)
        options["image_size"] = lambda: common_image_size([dataset])
        options["default_labels"] = dataset.space
    # `folders` means the classes of the dataset, which are the default labels if there is one.
    stated_labels = None if labels == FOLDERS else labels
    classifier = load_spec(model, Options.of(stated_labels, preprocess, **options))
    notes = _notes(model, classifier)
    sidecar = None
    if write and embed:
        sidecar = write_metadata(model, classifier, force)
    elif write:
        sidecar = write_sidecar(model, classifier, force)
    if json:
        facts = [{"name": fact.name, "value": fact.value, "source": fact.source} for fact in classifier.facts]
        print_json(
            {
                "model": model,
                "name": classifier.name,
                "input": _input_text(classifier),
                "classes": len(classifier.space),
                "engine": classifier.engine,
                "fingerprint": classifier.fingerprint,
                "facts": facts,
                "assumed": list(classifier.assumed),
                "notes": notes,
                "written": None if sidecar is None else str(sidecar),
            }
        )
        return
    from shiftbench.reports.table import Column, Table

    columns = [Column("fact", "fact", "word"), Column("value", "value"), Column("source", "from", "word")]
    output.print(Table(columns, _fact_rows(classifier), title=classifier.name, notes=notes))
    if sidecar is not None:
        note(f"written: {sidecar}")


def _fact_rows(classifier: Classifier) -> list[dict[str, str]]:
    """The rows of `describe`: the facts about a model, with its input first and its identity last."""
    from shiftbench.classifiers.base import BatchedClassifier
    from shiftbench.classifiers.description import fact_text
    from shiftbench.classifiers.options import UNKNOWN_CLASSES

    facts = {fact.name: (fact_text(fact.value), _SOURCE_NAMES[fact.source]) for fact in classifier.facts}
    labels = facts.pop("labels")
    if classifier.space.name == UNKNOWN_CLASSES:
        labels = ("not named; state them by --labels", "")
    outputs, outputs_source = facts.pop("outputs")
    if isinstance(classifier, BatchedClassifier) and classifier.single_output:
        outputs = f"1, for two classes: {outputs}"
    else:
        outputs = f"{len(classifier.space)} {outputs}"
    rows = {
        "input": (_input_text(classifier), ""),
        **facts,
        "outputs": (outputs, outputs_source),
        "labels": labels,
        "engine": (classifier.engine, ""),
        "fingerprint": (classifier.fingerprint[:16], ""),
    }
    return [{"fact": name, "value": value, "source": source} for name, (value, source) in rows.items()]


def _input_text(classifier: Classifier) -> str:
    """Type and shape of a model's input."""
    if classifier.recorded is not None:
        return "none: recorded predictions"
    height, width = classifier.preprocessing.geometry.output or ("H", "W")
    normalisation = classifier.preprocessing.normalisation
    if classifier.takes_pixels:
        return f"uint8 pixels (N, {height}, {width}, {normalisation.channels})"
    if normalisation.layout == "nchw":
        return f"float (N, {normalisation.channels}, {height}, {width})"
    return f"float (N, {height}, {width}, {normalisation.channels})"


def _notes(model: str, classifier: Classifier) -> list[str]:
    """Remarks about what to state: what was assumed, and a file that looks like a sidecar but is not read."""
    from shiftbench.classifiers.options import assumed_warning, foreign_keys, sidecar_of

    notes = []
    if warning := assumed_warning(classifier):
        notes.append(str(warning))
    path = Path(model)
    json_file = path.with_suffix(".json")
    if path.is_file() and sidecar_of(path) is None and json_file.is_file():
        content = ", ".join(foreign_keys(json_file)[:3])
        notes.append(
            f"{json_file.name} is not read as a sidecar, because of its content ({content}); "
            f"name a sidecar {path.name}.json"
        )
    return notes


def doctor_command(
    models: Annotated[
        list[str],
        typer.Argument(
            help="One model, or the original and its export; as for `eval`.",
            show_default=False,
            autocompletion=complete_models,
        ),
    ],
    data: Annotated[str, "-d", {"panel": "Data"}, "A few hundred labelled images; as for `eval`."],
    labels: Labels = None,
    expected: Annotated[float | None, {"min": 0, "max": 100}, "With one model: percentage it should reach."] = None,
    split: Split = None,
    sample: Limit = 400,
    seed: Annotated[int, {"panel": "Data"}, "Seed of the subset, of its halves and of shifts."] = 0,
    agreement: Annotated[
        float, {"min": 50, "max": 100}, "With two models: percentage of images on which they must agree."
    ] = 98.0,
    write: Annotated[bool, "Write the fix beside the model's file, where `eval` finds it."] = False,
    force: Annotated[bool, "With --write: replace an existing file."] = False,
    *,
    loading: ModelOptions,
    output_options: OutputOptions,
) -> None:
    """Find wrong preprocessing or labels of a model; compare an export with its original.

    One model: searches value range, mean and std, RGB or BGR, layout, input size, resize, crop, interpolation,
    orientation and the order of the classes on one half of the images, and tests what it found on the other half.
    Prints the options that fix the model.

    Two models: compares pixels, inputs, scores, answers and accuracy, clean and under four corruptions, and names the
    first stage that differs. If another order of the outputs, other channels or another range of values explain the
    difference, it names that cause and the option that fixes it.

    Exit codes: 0 nothing found, 1 a fault or a difference, 2 (two models) too few images to tell, 3 an error.

    \b
    Examples:
      shiftbench doctor model.onnx --data photos/
      shiftbench doctor model.onnx --data photos/ --write
      shiftbench doctor model.onnx model-int8.onnx --data photos/
    """
    from shiftbench.settings.roles import of_split

    if len(models) > 2:
        raise typer.BadParameter(f"one model or two, not {len(models)}", param_hint="MODELS")
    options: dict[str, Any] = {"labels": labels, "sample": sample, "seed": seed, "level": output_options.level}
    options |= {"progress": not output_options.quiet, **loading.loading()}
    images = of_split(data, split)
    sidecar = _Sidecar(write, force)
    with stoppable(), kept_warnings() as warned:
        if len(models) == 2:
            comparison = sb.verify_export(models[0], models[1], images, least_agreement=agreement / 100, **options)
            code = _report_comparison(comparison, models, sidecar, as_json=output_options.json)
        else:
            sidecar.check(models[0])
            expected_share = None if expected is None else expected / 100
            diagnosis = sb.doctor(models[0], images, expected=expected_share, **options)
            code = _report_diagnosis(diagnosis, models[0], sidecar, as_json=output_options.json)
    print_warnings(warned)
    raise typer.Exit(code)


@dataclass(frozen=True)
class _Sidecar:
    """Whether a fix is written beside the model's file."""

    write: bool
    force: bool

    def check(self, model: str) -> None:
        """Raise before the work starts if the fix could not be written after it."""
        from shiftbench.classifiers.options import new_sidecar

        if self.write:
            new_sidecar(model, self.force)

    def written(self, model: str, fixed: Classifier | None) -> str | None:
        """Write the fix, and return its file; None if there is no fix, or if it should not be written."""
        from shiftbench.classifiers.options import write_sidecar

        if not self.write or fixed is None:
            return None
        return str(write_sidecar(model, fixed, self.force))


def _report_diagnosis(diagnosis: Diagnosis, model: str, sidecar: _Sidecar, *, as_json: bool) -> int:
    """Write the fix if asked to, print the diagnosis, and return the exit code."""
    has_fix = bool(diagnosis.preprocess) or diagnosis.labels is not None
    written = sidecar.written(model, diagnosis.classifier if has_fix else None)
    if as_json:
        print_json({**diagnosis.as_dict(), "written": written})
    else:
        _show_diagnosis(diagnosis, written)
    return _EXIT_FINE if diagnosis.status == "nothing found" else _EXIT_FAULT


def _report_comparison(check: ExportCheck, models: Sequence[str], sidecar: _Sidecar, *, as_json: bool) -> int:
    """Write the fix if asked to, print the comparison, and return the exit code."""
    written = None
    wrong = models[1]
    if check.cause is not None:
        wrong = models[0] if check.cause.model == check.first else models[1]
        written = sidecar.written(wrong, check.cause.classifier)
    if as_json:
        print_json({**check.as_dict(), "written": written})
    else:
        _show_check(check, wrong, written)
    return {"same": _EXIT_FINE, "different": _EXIT_FAULT, "undecided": _EXIT_UNDECIDED}[check.status]


def _show_diagnosis(diagnosis: Diagnosis, written: str | None) -> None:
    """Print the verdict, the changes that help, what was searched, and the fix."""
    from shiftbench.classifiers.description import fact_text
    from shiftbench.reports.table import Column, Table

    style = "bold green" if diagnosis.status == "nothing found" else "bold red"
    output.print(titled(f"{diagnosis.status}:", diagnosis.verdict, style))
    if diagnosis.changes:
        columns = [Column("fact", "fact", "word"), Column("now", "now"), Column("better", "better")]
        rows = []
        for fact, (value, better_value) in diagnosis.changes.items():
            rows.append({"fact": fact, "now": fact_text(value), "better": fact_text(better_value)})
        output.print(Table(columns, rows, title=diagnosis.model))
    for text in diagnosis.notes:
        output.print(f"- {text}")
    unreadable = diagnosis.unreadable
    if unreadable:
        output.print(f"- {len(unreadable)} unreadable images were left out, such as {unreadable[0]}")
    tried = ", ".join(f"{factor} ({count})" for factor, count in diagnosis.factors.items())
    output.print(
        f"tried: {tried}; {diagnosis.forward_passes:,} forward passes\n"
        f"searched on {diagnosis.searched} images, tested on {diagnosis.confirmed} others "
        f"at level {diagnosis.level:g}",
        style="dim",
    )
    _show_fix(diagnosis.preprocess, diagnosis.labels, written)


def _show_fix(preprocess: Mapping[str, object], labels: Sequence[str] | None, written: str | None) -> None:
    """Print the options that fix a model, and the file that states them."""
    from shiftbench.classifiers.description import description_text

    if preprocess:
        output.print(titled("fix:", f"--preprocess {description_text(preprocess)}", "bold"), soft_wrap=True)
    if labels is not None:
        names = ", ".join(labels[:20])
        if len(labels) > 20:
            names += ", ..."
        output.print(titled("fix:", f"--labels with a file of the classes in this order: {names}", "bold"))
    if written is not None:
        note(f"written: {written}")
    elif preprocess or labels is not None:
        output.print("or write it beside the model file: --write", style="dim")


def _show_check(check: ExportCheck, wrong: str, written: str | None) -> None:
    """Print whether two models agree, and why not; ``wrong`` is the model that a cause is about."""
    from shiftbench.classifiers.description import description_text
    from shiftbench.reports.table import Column, Table

    style = {"same": "bold green", "different": "bold red", "undecided": "bold yellow"}[check.status]
    output.print(titled(f"{check.status}:", check.reason, style))
    if check.first_difference:
        output.print(f"first stage that differs: {check.first_difference}")
    else:
        output.print("no stage differs")
    cause = check.cause
    if cause is not None:
        agreement = f"{100 * cause.before:.1f} % of the answers agree, {100 * cause.after:.1f} % with the fix"
        output.print(titled("cause:", f"{cause.text} ({agreement})", "bold"))
        if cause.preprocess and written is None:
            stated = description_text(cause.preprocess)
            command = shell_command("describe", wrong, "--write", "--preprocess", stated)
            output.print(titled("fix:", command, "bold"), soft_wrap=True)
        else:
            _show_fix({}, cause.labels, written)
    columns = [Column("stage", "stage", "word"), Column("finding", "finding", "word"), Column("text", "measured")]
    rows = [{"stage": stage.stage, "finding": stage.finding, "text": stage.text} for stage in check.stages]
    title = f"{check.first} and {check.second} on {check.images} images"
    output.print(Table(columns, rows, title=title))
