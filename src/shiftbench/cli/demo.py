"""``shiftbench demo``: real models on real photographs."""

from __future__ import annotations

import json as json_module
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from shiftbench.cli.console import errors, output, print_json, stoppable
from shiftbench.cli.eval import print_problems
from shiftbench.cli.options import Json, parse_severities
from shiftbench.cli.report import bars, show_written

#: Of which 114 photographs in one pass give two or more for each shift.
_MOST_SEVERITIES = 3
_CLASSIFIERS = (
    "demo:squeezenet1_1", "demo:efficientnet-lite0", "demo:efficientnet-lite1", "demo:efficientnet-lite2",
)  # fmt: skip


def demo_command(
    workspace: Annotated[Path, typer.Option("--workspace", "-w", help="Where results are stored.")] = Path(
        "demo-workspace"
    ),
    severity: Annotated[str, typer.Option(help="Severities: 3, 1-5 or 1,3,5.")] = "1,3,5",
    json: Json = False,
) -> None:
    """Four real models on 114 real photographs.

    Clean and under 15 corruptions, then the report: report.html in the workspace. A first table, estimated from two
    forward passes per photograph (docs/designs.md), is shown in under a minute; the full grid follows. Weights and
    photographs come inside ordinary registry packages; torch is not needed. Run again, it resumes, or only prints.
    """
    from shiftbench.api import Run, evaluate
    from shiftbench.reports.page.report_data import ReportOptions
    from shiftbench.reports.page.write import write_report

    severities = parse_severities(severity)
    _check_packages()
    errors.print(
        "Fetching 114 photographs (the first time only), and evaluating each clean and under one corruption ..."
    )
    with stoppable(), warnings.catch_warnings():
        # A model at chance level under a corruption is expected here.
        warnings.simplefilter("ignore", UserWarning)

        def run_models(**design: Any) -> Run:
            return evaluate(
                list(_CLASSIFIERS), "demo", None, workspace, severities=severities, console=errors, **design
            )

        if not json:
            output.print(
                run_models(design="one-pass", passes=1 if len(severities) <= _MOST_SEVERITIES else 2).corruption_table()
            )
            errors.print("\nThe full grid follows; press Ctrl-C to stop, and rerun to continue ...")
        run = run_models()
        options = ReportOptions("Four models on 114 photographs, clean and corrupted")
        written = write_report(workspace / "report.html", run, options=options, bar=bars())
    table = run.corruption_table()
    if json:
        errors_by_type = json_module.loads(table.to_json())
        print_json({**run.summary(), "corruption_errors": errors_by_type, "report": written.as_dict()})
        return
    output.print()
    output.print(table)
    print_problems(run)
    output.print(f"\nEverything is in {workspace}/: one Parquet file per model and setting.")
    output.print(f"  shiftbench table -w {workspace} -s demo            the clean scores", highlight=False)
    output.print(f"  shiftbench compare -w {workspace} -s demo          who is really better", highlight=False)
    output.print(f"  shiftbench table -w {workspace} -f md -o table.md  for a paper", highlight=False)
    output.print(f"  shiftbench serve -w {workspace} --open             the report, live\n", highlight=False)
    show_written(written)


def _check_packages() -> None:
    """Before anything is fetched or written."""
    from shiftbench.classifiers.demo import missing_packages
    from shiftbench.errors import ShiftbenchError

    missing = missing_packages()
    if missing:
        raise ShiftbenchError(
            "the demo needs packages that are not installed",
            found=f"missing: {', '.join(missing)}",
            hint="pip install 'shiftbench[demo]'",
        )
