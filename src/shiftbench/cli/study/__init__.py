"""``shiftbench study``: is it robustness, or just accuracy? One file for each kind of question."""

from __future__ import annotations

import typer

from shiftbench.cli.study import evidence, lines, mistakes, new_test_sets

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Is it robustness, or just accuracy? From a table of results or a workspace; no model is run.",
)

app.command(
    "fit",
    help="The line of the baseline models and the models farthest from it.\n\n"
    "Least squares of y on x on the chosen scale, with intervals from resampling the models.\n\n"
    "\b\nshiftbench study fit -r imagenet-testbed/ --shift imagenetv2 --own WORKSPACE\n"
    "shiftbench study fit -r results.csv -m models.csv --x val --y imagenetv2-matched-frequency-format-val --min-x 55",
)(lines.line_command)
app.command(
    "effective",
    help="Effective robustness of every model: accuracy under shift beyond what its accuracy predicts.\n\n"
    "\b\nshiftbench study effective -r imagenet-testbed/ --shift all\n"
    "shiftbench study effective -w WORKSPACE --x demo --y demo-c.fog.3 --scale linear\n"
    "shiftbench study effective -w WORKSPACE --y imagenetv2-matched-frequency --published",
)(lines.line_command)
app.command("relative")(lines.relative_command)
app.command("interventions")(lines.interventions_command)
app.command("correlate")(lines.correlate_command)
app.command("reproducibility")(new_test_sets.reproducibility_command)
app.command("gap")(new_test_sets.gap_command)
app.command("bins")(new_test_sets.bins_command)
app.command("difficulty")(new_test_sets.difficulty_command)
app.command("agreement")(evidence.agreement_command)
app.command("hypotheses")(evidence.hypotheses_command)
app.command("many-faces")(evidence.many_faces_command)
app.command("confusion")(mistakes.confusion_command)
app.command("tags")(mistakes.tags_command)
