"""``shiftbench demo``: something real on the first try."""

from __future__ import annotations

import json as json_module
import warnings
from pathlib import Path
from typing import Annotated

import typer

from shiftbench.cli.console import errors, output, print_json, stoppable
from shiftbench.cli.eval import parse_severities, tell_problems
from shiftbench.cli.report import bars, show_written

_CLASSIFIERS = (
    "demo:efficientnet-lite0",
    "demo:efficientnet-lite1",
    "demo:efficientnet-lite2",
    "demo:squeezenet1_1",
)


def demo_command(
    workspace: Annotated[Path, typer.Option("--workspace", "-w", help="Where results are kept.")] = Path(
        "demo-workspace"
    ),
    severity: Annotated[str, typer.Option(help="Severities: 3, 1-5 or 1,3,5.")] = "1,3,5",
    json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
) -> None:
    """Four real classifiers on 114 real photographs.

    Clean and under 15 corruptions, ending with the report: report.html in the workspace. Weights and photographs
    come inside ordinary registry packages. Started again, it continues, or only prints.
    """
    from shiftbench.api import evaluate
    from shiftbench.reports.page.build import Choices
    from shiftbench.reports.page.report import write_report

    severities = parse_severities(severity)
    errors.print("Loading four classifiers and 114 photographs (the first time takes about a minute) ...")
    with stoppable(), warnings.catch_warnings():
        # A classifier at chance level under a corruption is no news here.
        warnings.simplefilter("ignore", UserWarning)
        run = evaluate(list(_CLASSIFIERS), "demo", None, workspace, severities=severities, console=errors)
        choices = Choices("Four classifiers on 114 photographs, clean and corrupted")
        written = write_report(workspace / "report.html", run, choices=choices, bar=bars())
    table = run.corruption_table()
    if json:
        errors_by_type = json_module.loads(table.to_json())
        print_json({**run.summary(), "corruption_errors": errors_by_type, "report": written.as_dict()})
        return
    output.print()
    output.print(table)
    tell_problems(run)
    output.print(f"\nEverything is in [bold]{workspace}/[/]: one Parquet file a classifier and setting.")
    output.print(f"  shiftbench table -w {workspace} -s demo            the clean scores", highlight=False)
    output.print(f"  shiftbench compare -w {workspace} -s demo          who is really better", highlight=False)
    output.print(f"  shiftbench table -w {workspace} -f md -o table.md  for a paper", highlight=False)
    output.print(f"  shiftbench serve -w {workspace} --open             the report, live\n", highlight=False)
    show_written(written)
