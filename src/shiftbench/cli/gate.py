"""``shiftbench gate``: is a candidate worse than its predecessor, anywhere that matters?"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text
from typer.core import TyperGroup

from shiftbench.cli.configuration import SHARED, evaluate_arguments, given_arguments
from shiftbench.cli.console import errors, output, print_json, stoppable, titled
from shiftbench.cli.eval import kept_warnings, print_warnings
from shiftbench.cli.options import (
    DEFAULT_WORKSPACE,
    AllowOutside,
    CorruptionOptions,
    DataSources,
    ExecutorOptions,
    Json,
    Labels,
    ModelOptions,
    Quiet,
    SubsetOptions,
    SuiteNames,
    WorkspacePath,
    grouped,
    parse_data,
)
from shiftbench.errors import ShiftbenchError, StoreError
from shiftbench.io.paths import Location, place

if TYPE_CHECKING:
    from shiftbench.api import Run
    from shiftbench.store.baseline import Baseline
    from shiftbench.store.workspace import Result as StoredResult
    from shiftbench.studies.gate import GateResult

_CODES = {"pass": 0, "fail": 1, "not enough images": 2}
_STYLES = {"pass": "bold green", "fail": "bold red", "not enough images": "bold yellow"}
_ERROR = 3


class _GateGroup(TyperGroup):
    """`gate CANDIDATE ...` is `gate run CANDIDATE ...`. Every error exits with 3: 1 and 2 are verdicts."""

    default_command = "run"

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        named = args and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else [self.default_command, *args])

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):
            raise
        except typer.exceptions.TyperException as error:  # wrong usage
            errors.print(titled("error:", getattr(error, "format_message", error.__str__)()))
        except ShiftbenchError as error:
            errors.print(titled("error:", error))
        except Exception:
            traceback.print_exc()
        raise typer.Exit(_ERROR)


app = typer.Typer(
    cls=_GateGroup,
    help="Is a candidate worse than its predecessor, anywhere that matters?\n\n"
    "`shiftbench gate CANDIDATE --against BASELINE --data DIR` is short for `gate run`. Exit codes: 0 pass, 1 fail, "
    "2 not enough images, 3 error.",
)


@dataclass(frozen=True)
class EvaluationOptions:
    """What both models are evaluated on."""

    data: DataSources = None
    suite: SuiteNames = "corruptions"
    labels: Labels = None
    allow_outside: AllowOutside = False


@dataclass(frozen=True)
class GateFiles:
    """Where verdicts are written, besides the terminal."""

    markdown: Annotated[Path | None, typer.Option(help="Write the verdict for a pull-request comment (.md).")] = None
    junit: Annotated[Path | None, typer.Option(help="Write the verdict for the test report of CI (.xml).")] = None
    report: Annotated[
        Path | None, typer.Option(help="Write the HTML report, with the images that only the candidate gets wrong.")
    ] = None

    def write(self, result: GateResult, run: Run) -> None:
        from shiftbench.reports import gate

        written = {self.markdown: gate.gate_markdown, self.junit: gate.gate_junit}
        for path, text in written.items():
            if path is not None:
                path.write_text(text(result), encoding="utf-8")
        if self.report is not None:
            from shiftbench.reports.page.report_data import ReportOptions
            from shiftbench.reports.page.write import write_report

            wrong: dict[str, set[str]] = {one.stored_as: set() for one in result.settings}
            for one in result.settings:
                wrong[one.stored_as].update(one.newly_wrong())
            options = ReportOptions(gate.verdict_line(result), mistakes=wrong)
            write_report(self.report, run, options=options)
        for made in filter(None, (self.markdown, self.junit, self.report)):
            errors.print(f"written: {made}", style="dim")


@app.command("run")
@grouped
def run_command(
    context: typer.Context,
    candidate: Annotated[str, typer.Argument(help="The new model, as in `eval`.", show_default=False)],
    *,
    against: Annotated[
        str,
        typer.Option(
            help="The predecessor: a model, a workspace that holds its results, or a file of `gate pin`.",
            show_default=False,
        ),
    ],
    evaluation: EvaluationOptions,
    policy: Annotated[
        Path | None, typer.Option(help="Rules and margins in TOML (docs/gate.md); default: a policy for any suite.")
    ] = None,
    workspace: WorkspacePath = DEFAULT_WORKSPACE,
    model: Annotated[
        str | None, typer.Option(help="Which model of a baseline workspace, if it has several: a name or id.")
    ] = None,
    models: ModelOptions,
    corruptions: CorruptionOptions,
    subset: SubsetOptions,
    executor: ExecutorOptions,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 3 if there are warnings, such as assumed preprocessing.")
    ] = False,
    files: GateFiles,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare a candidate with its predecessor, image by image, and give a verdict.

    Every rule of the policy has a margin: the drop that is accepted. The gate fails if a drop is shown to be more than
    its margin, and passes if all drops are shown to be less. Otherwise there are not enough images, and the verdict
    says how many are needed. A false alarm, or a false pass, has a probability of at most 5 %, over all rules.

    Exit codes: 0 pass, 1 fail, 2 not enough images, 3 error.

    \b
    Examples:
      the new export against the old one, clean and under 15 corruptions
        shiftbench gate new.onnx --against old.onnx --data val/
      each image clean and under one corruption: 1/75 of the work
        shiftbench gate new.onnx --against old.onnx --data val/ --design one-pass
      without keeping the old model: its predictions in a small file
        shiftbench gate pin old.onnx --data val/ -o baseline.parquet
        shiftbench gate new.onnx --against baseline.parquet --data val/
      in CI
        shiftbench gate new.onnx --against baseline.parquet --data val/ \\
          --policy gate.toml --markdown gate.md --junit gate.xml --report gate.html
    """
    from shiftbench.reports.gate import gate_data, gate_table
    from shiftbench.studies.gate import DEFAULT_POLICY, Policy, judge, paired_settings

    rules = DEFAULT_POLICY if policy is None else Policy.read(policy)
    arguments = _arguments(evaluation, models, corruptions, subset, executor, workspace, strict, quiet)
    path = place(against)
    pinned, before = _pinned(path, model), _results_of(path, model)
    known = pinned.configuration if pinned else _last_configuration(before) if before else {}
    if known:
        shared = evaluate_arguments({key: known[key] for key in SHARED if key in known}, against)
        arguments |= {**shared, **given_arguments(context, arguments)}
    run = _evaluate([candidate] if pinned or before else [candidate, against], arguments)
    names = list(dict.fromkeys(result.title for result in run.results))
    own = run.select([names[0]])
    baseline = pinned or _of_run(before or run.select([names[1]]), {}, own.results)
    columns = {rule.by for rule in rules.rule if rule.by}
    settings, notes = paired_settings(run.workspace, own.results, baseline.predictions, columns)
    result = judge(settings, rules, own.results[0].model_id, baseline.model, notes)
    files.write(result, own)
    if json:
        print_json(gate_data(result))
    else:
        table = gate_table(result)
        verdict, _, rest = table.title.partition(":")
        table.title = ""
        output.print(Text.assemble((verdict, _STYLES[result.verdict]), f":{rest}"), soft_wrap=True)
        output.print(table)
    raise typer.Exit(_CODES[result.verdict])


@app.command("pin")
@grouped
def pin_command(
    classifier: Annotated[str, typer.Argument(metavar="MODEL", help="The model, as in `eval`.", show_default=False)],
    file: Annotated[Path, typer.Option("--output", "-o", help="Baseline file to write.")] = Path("baseline.parquet"),
    *,
    evaluation: EvaluationOptions,
    workspace: WorkspacePath = DEFAULT_WORKSPACE,
    models: ModelOptions,
    corruptions: CorruptionOptions,
    subset: SubsetOptions,
    executor: ExecutorOptions,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 3 if there are warnings.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Keep a model's predictions as a baseline file, so that the model itself need not be kept.

    The file holds the predicted class and confidence of each image in each setting, the fingerprints of the data and of
    the shifts, and the options: `gate --against FILE` evaluates a candidate in the same way, and refuses other data.

    \b
    Example:
      shiftbench gate pin released.onnx --data val/ --suite corruptions \\
        --design one-pass -o baseline.parquet
    """
    from shiftbench.api import evaluate
    from shiftbench.store.baseline import write_baseline
    from shiftbench.store.run_records import describe_call

    arguments = _arguments(evaluation, models, corruptions, subset, executor, workspace, strict, quiet)
    run = _evaluate([classifier], arguments)
    configuration = describe_call(evaluate, {key: arguments[key] for key in SHARED})[1]
    baseline = _of_run(run, configuration)
    write_baseline(file, baseline)
    if json:
        print_json({"file": str(file), "model": baseline.model, "settings": list(baseline.predictions)})
    else:
        count = len(baseline.predictions)
        output.print(f"{file}: {baseline.model}, {count} setting{'s' * (count > 1)}", soft_wrap=True)


def _arguments(
    evaluation: EvaluationOptions,
    models: ModelOptions,
    corruptions: CorruptionOptions,
    subset: SubsetOptions,
    executor: ExecutorOptions,
    workspace: Location,
    strict: bool,
    quiet: bool,
) -> dict[str, Any]:
    """As keyword arguments of ``evaluate``."""
    return {
        "suite": evaluation.suite,
        "data": parse_data(evaluation.data or []),
        "labels": evaluation.labels,
        "allow_outside": evaluation.allow_outside,
        **models.options(),
        **corruptions.options(),
        **subset.options(),
        "executor": executor.executor(),
        "workspace": workspace,
        "strict": strict,
        "progress": not quiet,
    }


def _evaluate(models: list[str], arguments: Mapping[str, Any]) -> Run:
    from shiftbench.api import evaluate

    with stoppable(), kept_warnings() as warned:
        run = evaluate(models, console=errors, **arguments)
    print_warnings(warned)
    return run


def _pinned(path: Location, model: str | None) -> Baseline | None:
    from shiftbench.store.baseline import read_baseline

    if path.suffix != ".parquet":
        return None
    if model is not None:
        raise StoreError(f"--model names a model of a workspace, and {path} is a file")
    return read_baseline(path)


def _results_of(path: Location, model: str | None) -> Run | None:
    """The results of one model in a workspace; None if the path is of no workspace."""
    from shiftbench.api import Run

    if not (path / "workspace.json").is_file():
        return None
    run = Run.open(path, [model] if model else ())
    if len(run.classifiers) != 1:
        found = ", ".join(run.classifiers) or "no results"
        raise StoreError(f"which model of {path} is the baseline?", found=found, hint="--model NAME, a name or id")
    return run


def _last_configuration(run: Run) -> Mapping[str, Any]:
    version = run.results[0].spec.classifier.version
    records = [one for one in run.history.records if version in (own.version for own in one.models)]
    return records[-1].configuration if records else {}


def _of_run(run: Run, configuration: Mapping[str, Any], like: Sequence[StoredResult] = ()) -> Baseline:
    """The results of a model; where it has several in a setting, the one on the same images and shifts as ``like``."""
    from shiftbench.store.baseline import Baseline
    from shiftbench.studies.gate import is_comparable

    wanted = {result.setting: result.spec for result in like}
    judged = [result for result in run.results if result.spec.judged_by_image]
    if not judged:
        raise StoreError("no setting has one label per image", found=", ".join(run.settings[:4]))
    chosen: dict[str, StoredResult] = {}
    for result in judged:
        spec = wanted.get(result.setting, result.spec)
        if result.setting not in chosen or is_comparable(spec, result.spec):
            chosen[result.setting] = result
    predictions = {name: run.workspace.read(one, top_k=1, scores=False) for name, one in chosen.items()}
    return Baseline(judged[0].model_id, predictions, configuration)
