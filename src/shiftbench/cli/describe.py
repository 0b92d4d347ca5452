"""``shiftbench describe``: what is known about a model, and where each fact comes from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftbench.cli.console import errors, output, print_json
from shiftbench.cli.options import Json, Labels, Preprocess, Trust

if TYPE_CHECKING:
    from shiftbench.classifiers.base import Classifier

#: What the sources of facts are called.
_SOURCES = {
    "given": "given here",
    "sidecar": "sidecar",
    "file": "model file",
    "library": "library",
    "data": "dataset",
    "measured": "trial run",
    "assumed": "assumed",
}


def describe_command(
    model: Annotated[str, typer.Argument(help="As for `shiftbench eval`.", show_default=False)],
    labels: Labels = None,
    preprocess: Preprocess = None,
    data: Annotated[
        str | None, typer.Option("--data", "-d", help="Images that it is meant for: they tell an unknown input size.")
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write the facts beside the model file, where `eval` finds them.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="With --write: replace an existing file.")] = False,
    trust: Trust = False,
    json: Json = False,
) -> None:
    """Show what is known about a model, and where each fact comes from.

    Facts that nothing states are marked as assumed; `eval` assumes the same, and marks the scores. `--write` writes
    MODEL.json, which states them from then on: check it, or state what you know by `--preprocess`.

    \b
    Examples:
      shiftbench describe model.onnx
      shiftbench describe model.onnx --write \\
        --preprocess size=32,mean=0.49,0.48,0.45,std=0.25
    """
    from shiftbench.classifiers.options import write_sidecar

    classifier = _load(model, labels, preprocess, data, trust)
    notes = _notes(model, classifier)
    written = write_sidecar(model, classifier, force) if write else None
    if json:
        print_json(_as_data(model, classifier, notes, written))
        return
    from shiftbench.reports.table import Column, Table

    columns = [Column("fact", "fact", "word"), Column("value", "value"), Column("source", "from", "word")]
    output.print(Table(columns, _rows(classifier), title=classifier.name, notes=notes))
    if written is not None:
        errors.print(f"written: {written}", style="dim", highlight=False, soft_wrap=True, markup=False)


def _load(spec: str, labels: str | None, preprocess: str | None, data: str | None, trust: bool) -> Classifier:
    from shiftbench.classifiers.loading import load_spec
    from shiftbench.classifiers.options import Options
    from shiftbench.labels.catalogue import FOLDERS

    options: dict[str, Any] = {"trust": trust, "number_classes": True}
    if data is not None:
        from shiftbench.datasets.catalogue import open_dataset
        from shiftbench.runs.execute import common_image_size

        dataset = open_dataset(data, space=FOLDERS)
        options["image_size"] = lambda: common_image_size([dataset])
        options["default_labels"] = dataset.space
    return load_spec(spec, Options.of(None if labels == FOLDERS else labels, preprocess, **options))


def _rows(classifier: Classifier) -> list[dict[str, str]]:
    from shiftbench.classifiers.options import UNKNOWN_CLASSES

    facts = {fact.name: (fact_text(fact.value), _SOURCES[fact.source]) for fact in classifier.facts}
    labels, outputs = facts.pop("labels"), facts.pop("outputs")
    if classifier.space.name == UNKNOWN_CLASSES:
        labels = ("not named; state them by --labels", "")
    rows = {
        "input": (_input(classifier), ""),
        **facts,
        "outputs": (f"{len(classifier.space)} {outputs[0]}", outputs[1]),
        "labels": labels,
        "engine": (classifier.engine, ""),
        "fingerprint": (classifier.fingerprint[:16], ""),
    }
    return [{"fact": name, "value": value, "source": source} for name, (value, source) in rows.items()]


def _input(classifier: Classifier) -> str:
    """Type and shape of what the model gets."""
    if classifier.recorded is not None:
        return "none: recorded predictions"
    height, width = classifier.preprocessing.geometry.output or ("H", "W")
    if classifier.takes_pixels:
        return f"uint8 pixels (N, {height}, {width}, 3)"
    first = classifier.preprocessing.normalisation.layout == "nchw"
    return f"float (N, 3, {height}, {width})" if first else f"float (N, {height}, {width}, 3)"


def fact_text(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(f"{part:g}" for part in value)
    return "1/255" if value == 1 / 255 else f"{value:g}" if isinstance(value, float) else str(value)


def _notes(model: str, classifier: Classifier) -> list[str]:
    """What the reader should do next."""
    from shiftbench.classifiers.options import assumed_warning, foreign_keys, sidecar_of

    notes = []
    if warning := assumed_warning(classifier):
        notes.append(str(warning))
    path = Path(model)
    if path.is_file() and sidecar_of(path) is None and (other := path.with_suffix(".json")).is_file():
        notes.append(
            f"{other.name} is not read as a sidecar, because of its content ({', '.join(foreign_keys(other)[:3])}); "
            f"name a sidecar {path.name}.json"
        )
    return notes


def _as_data(model: str, classifier: Classifier, notes: list[str], written: Path | None) -> dict[str, Any]:
    return {
        "model": model,
        "name": classifier.name,
        "input": _input(classifier),
        "classes": len(classifier.space),
        "engine": classifier.engine,
        "fingerprint": classifier.fingerprint,
        "facts": [{"name": one.name, "value": one.value, "source": one.source} for one in classifier.facts],
        "assumed": list(classifier.assumed),
        "notes": notes,
        "written": None if written is None else str(written),
    }
