"""The command groups, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from shiftbench.cli import (
    checking,
    corrupting,
    data,
    demonstration,
    evaluating,
    experimenting,
    factors,
    figures,
    hardening,
    hardening_training,
    importing,
    listing,
    reporting,
    reproducing,
    store,
    studying,
    tabulating,
    testsets,
    uncertainty,
)

app = typer.Typer(
    name="shiftbench",
    no_args_is_help=True,
    # Plain help: it stays legible in a narrow terminal, and answers at once.
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="What happens to an image classifier when the data shifts, and is that robustness or just accuracy?",
    epilog="Start with `shiftbench demo`, then `shiftbench eval model.onnx --suite corruptions --data FOLDER`.",
)


def _version(wanted: bool) -> None:
    if wanted:
        from shiftbench._version import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command("eval")(evaluating.evaluate_command)
app.command("import")(importing.import_command)
app.command("table")(tabulating.table_command)
app.command("compare")(tabulating.compare_command)
app.command("groups")(uncertainty.groups_command)
app.command("detect")(uncertainty.detect_command)
app.command("calibrate")(uncertainty.calibrate_command)
app.command("images-needed")(tabulating.images_needed_command)
app.add_typer(studying.app, name="study")
app.add_typer(figures.app, name="figure")
app.command("report")(reporting.report_command)
app.command("serve")(reporting.serve_command)
app.command("reproduce")(reproducing.reproduce_command)
app.command("corrupt")(corrupting.corrupt_command)
app.command("preview")(corrupting.preview_command)
app.command("list")(listing.list_command)
app.add_typer(checking.app, name="check")
data.app.command("factors")(factors.factors_command)
app.add_typer(data.app, name="data")
app.add_typer(store.app, name="store")
app.add_typer(testsets.app, name="testset")
hardening.app.command("train")(hardening_training.train_command)
hardening.app.command("recipes")(hardening_training.recipes_command)
hardening.app.command("show")(hardening_training.show_command)
app.add_typer(hardening.app, name="harden")
app.command("experiment")(experimenting.experiment_command)
app.command("demo")(demonstration.demo_command)
