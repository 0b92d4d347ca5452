"""``shiftbench doctor``: wrong preprocessing and labels of one model, or the difference between two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftbench.cli import complete
from shiftbench.cli.console import errors, output, print_json, stoppable, titled
from shiftbench.cli.options import Labels, ModelOptions, OutputOptions, grouped
from shiftbench.errors import ShiftbenchError

if TYPE_CHECKING:
    from shiftbench.diagnosis.exports import ExportCheck
    from shiftbench.diagnosis.search import Diagnosis

#: Exit codes, as those of `gate`.
_FINE, _FAULT, _UNDECIDED, _ERROR = range(4)


@grouped
def doctor_command(
    models: Annotated[
        list[str],
        typer.Argument(
            help="One model, or the original and its export; as for `eval`.",
            show_default=False,
            autocompletion=complete.models,
        ),
    ],
    data: Annotated[str, typer.Option("--data", "-d", help="A few hundred labelled images; as for `eval`.")],
    labels: Labels = None,
    sample: Annotated[int, typer.Option(min=1, help="Use a random subset of at most N images.")] = 400,
    seed: Annotated[int, typer.Option(help="Seed of the subset, of its halves and of shifts.")] = 0,
    agreement: Annotated[
        float, typer.Option(min=50, max=100, help="With two models: percentage of images on which they must agree.")
    ] = 98.0,
    write: Annotated[
        bool, typer.Option("--write", help="With one model: write the fix beside its file, where `eval` finds it.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="With --write: replace an existing file.")] = False,
    *,
    loading: ModelOptions,
    shown: OutputOptions,
) -> None:
    """Find wrong preprocessing or labels of a model; compare an export with its original.

    One model: searches value range, mean and std, RGB or BGR, layout, input size, resize, crop, interpolation and the
    order of the classes on one half of the images, and tests what it found on the other half. Prints the options that
    fix the model.

    Two models: compares pixels, inputs, scores, answers and accuracy, clean and under four corruptions, and names the
    first stage that differs.

    Exit codes: 0 nothing wrong, 1 a fault or a difference, 2 (two models) too few images to tell, 3 an error.

    \b
    Examples:
      shiftbench doctor model.onnx --data photos/
      shiftbench doctor model.onnx --data photos/ --write
      shiftbench doctor model.onnx model-int8.onnx --data photos/
    """
    from shiftbench.cli.eval import kept_warnings, print_warnings

    try:
        with stoppable(), kept_warnings() as warned:
            code = _run(models, data, labels, sample, seed, agreement, write, force, loading, shown)
        print_warnings(warned)
    except ShiftbenchError as error:
        errors.print(titled("error:", error))
        code = _ERROR
    raise typer.Exit(code)


def _run(
    models: list[str],
    data: str,
    labels: str | None,
    sample: int,
    seed: int,
    agreement: float,
    write: bool,
    force: bool,
    loading: ModelOptions,
    shown: OutputOptions,
) -> int:
    if len(models) > 2 or (write and len(models) == 2):
        raise typer.BadParameter("one model, or two without --write", param_hint="MODELS")
    options: dict[str, Any] = {"labels": labels, "sample": sample, "seed": seed, "level": shown.level}
    options |= {"progress": not shown.quiet, "console": errors, **loading.options()}
    if len(models) == 2:
        from shiftbench.diagnosis.exports import verify_export

        check = verify_export(models[0], models[1], data, least_agreement=agreement / 100, **options)
        if shown.json:
            print_json(check.as_dict())
        else:
            _show_check(check)
        return {"same": _FINE, "different": _FAULT, "undecided": _UNDECIDED}[check.status]
    from shiftbench.classifiers.options import new_sidecar, write_sidecar
    from shiftbench.diagnosis.search import doctor

    if write:
        new_sidecar(models[0], force)  # before the work, not after it
    found = doctor(models[0], data, **options)
    written = str(write_sidecar(models[0], found.classifier, force)) if write and found.changes else None
    if shown.json:
        print_json({**found.as_dict(), "written": written})
    else:
        _show(found, written)
    return _FINE if found.status == "fine" else _FAULT


def _show(found: Diagnosis, written: str | None) -> None:
    from shiftbench.classifiers.description import description_text
    from shiftbench.cli.describe import fact_text
    from shiftbench.reports.table import Column, Table

    if found.changes:
        if found.high:
            gain = f"{100 * found.gain:+.1f} points [{100 * found.low:.1f}, {100 * found.high:.1f}], p = {found.p:.2g}"
            text = f"{100 * found.before:.1f} % as it is, {100 * found.after:.1f} % with the changes below: {gain}"
        else:
            text = "the kind of the outputs"
        output.print(titled("fault:", text))
        columns = [Column("fact", "fact", "word"), Column("now", "now"), Column("better", "better")]
        rows = [
            {"fact": fact, "now": fact_text(was), "better": fact_text(new)}
            for fact, (was, new) in found.changes.items()
        ]
        output.print(Table(columns, rows, title=found.model))
    elif found.status == "fine":
        text = f"{100 * found.before:.1f} %; no other preprocessing or order of classes is significantly better"
        output.print(titled("fine:", text, "bold green"))
    else:
        output.print(titled("fault:", "chance level, and nothing that was tried helps"))
    for note in found.notes:
        output.print(f"- {note}")
    if found.unreadable:
        output.print(f"- {len(found.unreadable)} unreadable images were left out, such as {found.unreadable[0]}")
    tried = ", ".join(f"{one.factor} ({one.tried})" for one in found.factors)
    output.print(f"tried: {tried}; {found.forward_passes:,} forward passes", style="dim")
    output.print(
        f"searched on {found.searched} images, tested on {found.confirmed} others at level {found.level:g}", style="dim"
    )
    if found.preprocess:
        output.print(titled("fix:", f"--preprocess {description_text(found.preprocess)}", "bold"), soft_wrap=True)
    if found.labels is not None:
        shown = ", ".join(found.labels[:20]) + (", ..." if len(found.labels) > 20 else "")
        output.print(titled("fix:", f"--labels with a file of the classes in this order: {shown}", "bold"))
    if written is not None:
        errors.print(f"written: {written}", style="dim", soft_wrap=True)
    elif found.changes:
        output.print("or write it beside the model file: --write", style="dim")


def _show_check(check: ExportCheck) -> None:
    from shiftbench.reports.table import Column, Table

    style = {"same": "bold green", "different": "bold red", "undecided": "bold yellow"}[check.status]
    output.print(titled(f"{check.status}:", check.reason, style))
    first = check.first_difference
    output.print(f"first stage that differs: {first}" if first else "no stage differs")
    columns = [Column("stage", "stage", "word"), Column("finding", "finding", "word"), Column("text", "measured")]
    rows = [{"stage": one.stage, "finding": one.finding, "text": one.text} for one in check.stages]
    title = f"{check.first} and {check.second} on {check.images} images"
    output.print(Table(columns, rows, title=title))
