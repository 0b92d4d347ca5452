"""``shiftbench gate``: is a candidate worse than its predecessor, anywhere that matters?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

import shiftbench as sb
from shiftbench.cli import console
from shiftbench.cli.commands import OpenGroup
from shiftbench.cli.eval import SHARED, evaluate_arguments, given_arguments
from shiftbench.cli.options import Commands, EvaluationOptions, Json, Quiet, SuiteNames
from shiftbench.errors import StoreError, shell_command
from shiftbench.grouping import by_key
from shiftbench.io.atomic import check_writable, write_bytes
from shiftbench.io.paths import place

if TYPE_CHECKING:
    from shiftbench.runs.plan import RunContext
    from shiftbench.store.baseline import GateBaseline
    from shiftbench.store.spec import ResultSpec
    from shiftbench.store.workspace import Result as StoredResult
    from shiftbench.studies.gate import GateResult

#: Exit code and style of each verdict.
_VERDICTS = {"pass": (0, "bold green"), "fail": (1, "bold red"), "not enough images": (2, "bold yellow")}
#: Refused before anything is evaluated, if it can't be written.
_FILE = {"dir_okay": False, "writable": True}
#: What candidate and baseline have in common.
_SHARED = (*SHARED, "budget", "width")


class _GateGroup(OpenGroup):
    """`gate CANDIDATE ...` is `gate run CANDIDATE ...`."""

    default_command = "run"

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        named = args and (args[0] in self.list_commands(ctx) or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else [self.default_command, *args])


app = Commands(
    "Is a candidate worse than its predecessor, anywhere that matters?\n\n"
    "`shiftbench gate CANDIDATE --against BASELINE --data DIR` is short for `gate run`. Exit codes: 0 pass, 1 fail, "
    "2 not enough images, 3 error.",
    cls=_GateGroup,
)


@dataclass(frozen=True)
class GateEvaluation(EvaluationOptions):
    """What both models are evaluated on."""

    suite: SuiteNames = "corruptions"
    json: Json = False
    quiet: Quiet = False

    def run(self, models: list[str], check: Callable[[RunContext], object], **changed: object) -> sb.Run:
        with console.stoppable(), console.kept_warnings() as warned:
            arguments = self.arguments() | changed
            run = sb.evaluate(models, progress=not self.quiet, check=check, **arguments)
        console.print_warnings(warned)
        return run


@dataclass(frozen=True)
class GateFiles:
    """Where verdicts are written, besides the terminal."""

    markdown: Annotated[Path | None, _FILE, "Write the verdict for a pull-request comment (.md)."] = None
    junit: Annotated[Path | None, _FILE, "Write the verdict for the test report of CI (.xml)."] = None
    report: Annotated[
        Path | None, _FILE, "Write the HTML report, with the images that only the candidate gets wrong."
    ] = None

    def check(self) -> None:
        """Refuse what could not be written when the verdict is known."""
        files = [path.absolute() for path in (self.markdown, self.junit, self.report) if path is not None]
        if len(set(files)) < len(files):
            raise typer.BadParameter("one file is named for two outputs", param_hint="--markdown, --junit, --report")
        for path in files:
            check_writable(path)

    def write(self, result: GateResult, run: sb.Run) -> None:
        from shiftbench.reports import gate

        written = {self.markdown: gate.gate_markdown, self.junit: gate.gate_junit}
        for path, text in written.items():
            if path is not None:
                write_bytes(path, text(result).encode())
        if self.report is not None:
            from shiftbench.reports.page.report_data import ReportOptions
            from shiftbench.reports.page.write import write_report

            wrong = {one.name: set(one.newly_wrong()) for one in result.settings}
            options = ReportOptions(gate.verdict_line(result), mistakes=wrong)
            write_report(self.report, run, options=options)
        for made in filter(None, (self.markdown, self.junit, self.report)):
            console.note(f"written: {made}")


@app.command("run")
def run_command(
    context: typer.Context,
    candidate: Annotated[str, typer.Argument(help="The new model, as in `eval`.", show_default=False)],
    *,
    against: Annotated[
        str,
        {"show_default": False},
        "The predecessor: a model, a workspace that holds its results, or a file of `gate pin`.",
    ],
    model: Annotated[str | None, "Which model of a baseline workspace, if it has several: a name or id."] = None,
    policy: Annotated[Path | None, "Rules and margins in TOML (docs/gate.md); default: a policy for any suite."] = None,
    evaluation: GateEvaluation,
    files: GateFiles,
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
      each image clean and under one corruption: 2 passes instead of 76
        shiftbench gate new.onnx --against old.onnx --data val/ --design one-pass
      without keeping the old model: its predictions in a small file
        shiftbench gate pin old.onnx --data val/ -o baseline.parquet
        shiftbench gate new.onnx --against baseline.parquet --data val/
      in CI
        shiftbench gate new.onnx --against baseline.parquet --data val/ \\
          --policy gate.toml --markdown gate.md --junit gate.xml
    """
    from shiftbench.reports.gate import gate_data, gate_table
    from shiftbench.studies.gate import DEFAULT_POLICY, Policy, check_plan, judge, paired_settings

    rules = DEFAULT_POLICY if policy is None else Policy.read(policy)
    files.check()
    pinned, before = _baseline(against, model)
    shared = dict[str, Any]()
    stored = pinned.predictions.values() if pinned else before.results if before else ()
    specs = by_key((one.setting, one.spec) for one in stored)
    if recorded := pinned.configuration if pinned else _last_configuration(before) if before else {}:
        given = given_arguments(context, evaluation.arguments())
        for name in ("budget", "width"):
            if str(given.pop(name, recorded.get(name))) != str(recorded.get(name)):
                text = f"the images are those of the baseline, which had {recorded.get(name) or 'none'}"
                raise typer.BadParameter(f"{text}; leave the option out", param_hint=f"--{name}")
        known = _on_same_images(recorded, [one for own in specs.values() for one in own])
        shared = evaluate_arguments({key: known[key] for key in _SHARED if key in known}, against) | given
    models = [candidate] if pinned or before else [candidate, against]
    made = pinned.predictions if pinned else {}
    if before and any(rule.of == "calibration" for rule in rules.rule):
        made = {one.setting: before.workspace.read(one, top_k=1, scores=False) for one in before.results}
    run = evaluation.run(models, lambda plan: check_plan(plan, specs or None, rules, made), **shared)
    names = list(dict.fromkeys(result.title for result in run.results))
    own = run.select([names[0]])
    baseline = pinned or _of_run(before or run.select([names[1]]), {}, own.results)
    columns = {rule.by for rule in rules.rule if rule.by}
    settings, notes = paired_settings(run.workspace, own.results, baseline.predictions, columns)
    result = judge(settings, rules, own.results[0].model_id, baseline.model, notes)
    files.write(result, own)
    code, style = _VERDICTS[result.verdict]
    if evaluation.json:
        console.print_json(gate_data(result))
    else:
        table = gate_table(result)
        verdict, _, rest = table.title.partition(":")
        table.title = ""
        console.output.print(Text.assemble((verdict, style), f":{rest}"), soft_wrap=True)
        console.output.print(table)
    raise typer.Exit(code)


@app.command("pin")
def pin_command(
    classifier: Annotated[str, typer.Argument(metavar="MODEL", help="The model, as in `eval`.", show_default=False)],
    file: Annotated[Path, "--output", "-o", _FILE, "Baseline file to write."] = Path("baseline.parquet"),
    *,
    evaluation: GateEvaluation,
) -> None:
    """Keep a model's predictions as a baseline file, so that the model itself need not be kept.

    The file holds the predicted class and confidence of each image in each setting, the fingerprints of the data and of
    the shifts, and the options: `gate --against FILE` evaluates a candidate in the same way, and refuses other data.

    \b
    Example:
      shiftbench gate pin released.onnx --data val/ --suite corruptions \\
        --design one-pass -o baseline.parquet
    """
    from shiftbench.store.baseline import write_baseline
    from shiftbench.store.run_records import describe_call
    from shiftbench.studies.gate import check_plan

    check_writable(file)
    run, arguments = evaluation.run([classifier], check_plan), evaluation.arguments()
    baseline = _of_run(run, describe_call(sb.evaluate, {key: arguments[key] for key in _SHARED})[1])
    write_baseline(file, baseline)
    settings = list(baseline.predictions)
    text = f"{file}: {baseline.model}, {len(settings)} setting{'s' * (len(settings) > 1)}"
    console.show({"file": str(file), "model": baseline.model, "settings": settings}, text, as_json=evaluation.json)


def _baseline(against: str, model: str | None) -> tuple[GateBaseline | None, sb.Run | None]:
    """A pinned baseline, or the results of one model in a workspace; neither if ``against`` names a model."""
    from shiftbench.store.baseline import read_baseline

    path = place(against)
    if path.suffix == ".parquet":
        if not path.exists():
            raise StoreError(
                f"no baseline file {path}", hint=f"write it: {shell_command('gate', 'pin', 'MODEL', '-o', path)}"
            )
        if model is not None:
            raise StoreError(f"--model names a model of a workspace, and {path} is a file")
        return read_baseline(path), None
    if not (path / "workspace.json").is_file():
        return None, None
    run = sb.Run.open(path, [model] if model else ())
    if len(run.classifiers) != 1:
        found = ", ".join(run.classifiers) or "no results"
        raise StoreError(f"which model of {path} is the baseline?", found=found, hint="--model NAME, a name or id")
    return None, run


def _last_configuration(run: sb.Run) -> Mapping[str, object]:
    version = run.results[0].spec.classifier.version
    records = [
        one for one in run.history.records if one.kind == "evaluate" and version in (own.version for own in one.models)
    ]
    return records[-1].configuration if records else {}


def _on_same_images(configuration: Mapping[str, Any], specs: Sequence[ResultSpec]) -> dict[str, object]:
    """As the results are: a workspace may hold more passes than the last run asked for, or by now the full grid.

    A budget or width chose as many images as the baseline's speed and errors asked for: take as many again.
    """
    passes = max((one.shift.passes for one in specs if one.shift.designed), default=0)
    if not passes or configuration.get("design", "full") == "full":
        return {**configuration, "design": "full", "passes": 1, "budget": None, "width": None}
    limited = configuration.get("budget") or configuration.get("width")
    budget = max(one.images for one in specs) * (1 + passes) if limited else None
    return {**configuration, "passes": passes, "budget": budget, "width": None}


def _of_run(run: sb.Run, configuration: Mapping[str, object], like: Sequence[StoredResult] = ()) -> GateBaseline:
    """The results of a model; where it has several in a setting, the one on the same images and shifts as ``like``."""
    from shiftbench.store.baseline import GateBaseline
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
    return GateBaseline(judged[0].model_id, predictions, configuration)
