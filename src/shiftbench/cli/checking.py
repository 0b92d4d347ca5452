"""``shiftbench check``: the conformance suites, for third parties' own classifiers and data sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Protocol

import typer

from shiftbench.cli.console import output, print_json

app = typer.Typer(no_args_is_help=True, help="Check that a classifier or data set keeps its contract.")

Json = Annotated[bool, typer.Option("--json", help="As JSON.")]
Labels = Annotated[str | None, typer.Option(help="Label space: a name of `list spaces`, or a file.")]


class _Result(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def ok(self) -> bool: ...
    @property
    def message(self) -> str: ...


@app.command("classifier")
def check_classifier_command(
    spec: Annotated[str, typer.Argument(help="As for `shiftbench eval`.")],
    labels: Labels = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Allow model files that run code when they are loaded.")
    ] = False,
    json: Json = False,
) -> None:
    """Shape, finiteness, determinism, independence of the batch, pickling, threads, fingerprint."""
    from shiftbench.classifiers.check import check_classifier
    from shiftbench.classifiers.loading import load_classifier
    from shiftbench.runs.evaluate import find_label_space

    classifier = load_classifier(spec, labels=find_label_space(labels), trust=trust)
    _tell(check_classifier(classifier), json)


@app.command("dataset")
def check_dataset_command(
    spec: Annotated[str, typer.Argument(help="A folder, file or name, as for --data.")],
    labels: Labels = None,
    json: Json = False,
) -> None:
    """Ids, labels, pictures, fingerprint, pickling, threads."""
    from shiftbench.datasets.catalogue import open_dataset
    from shiftbench.datasets.check import check_dataset
    from shiftbench.runs.evaluate import find_label_space

    _tell(check_dataset(open_dataset(spec, space=find_label_space(labels))), json)


def _tell(results: Sequence[_Result], as_json: bool) -> None:
    if as_json:
        print_json([{"check": r.name, "ok": r.ok, "message": r.message} for r in results])
    else:
        for result in results:
            mark = "[green]ok    [/]" if result.ok else "[bold red]failed[/]"
            output.print(f"{mark} {result.name}  [dim]{result.message}[/]", highlight=False)
    if not all(result.ok for result in results):
        raise typer.Exit(1)
