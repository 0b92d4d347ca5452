"""The command groups, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from shiftbench.cli import (
    check,
    corrupt,
    data,
    data_factors,
    demo,
    experiment,
    figure,
    harden,
    harden_train,
    import_,
    report,
    reproduce,
    store,
    study,
    table,
    testset,
    uncertainty,
)
from shiftbench.cli import (
    eval as eval_,
)
from shiftbench.cli import (
    list as list_,
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


app.command("eval")(eval_.evaluate_command)
app.command("import")(import_.import_command)
app.command("table")(table.table_command)
app.command("compare")(table.compare_command)
app.command("groups")(uncertainty.groups_command)
app.command("detect")(uncertainty.detect_command)
app.command("calibrate")(uncertainty.calibrate_command)
app.command("images-needed")(table.images_needed_command)
app.add_typer(study.app, name="study")
app.add_typer(figure.app, name="figure")
app.command("report")(report.report_command)
app.command("serve")(report.serve_command)
app.command("reproduce")(reproduce.reproduce_command)
app.command("corrupt")(corrupt.corrupt_command)
app.command("preview")(corrupt.preview_command)
app.command("list")(list_.list_command)
app.add_typer(check.app, name="check")
data.app.command("factors")(data_factors.factors_command)
app.add_typer(data.app, name="data")
app.add_typer(store.app, name="store")
app.add_typer(testset.app, name="testset")
harden.app.command("train")(harden_train.train_command)
harden.app.command("recipes")(harden_train.recipes_command)
harden.app.command("show")(harden_train.show_command)
app.add_typer(harden.app, name="harden")
app.command("experiment")(experiment.experiment_command)
app.command("demo")(demo.demo_command)
