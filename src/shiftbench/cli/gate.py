"""``shiftbench gate``: is a candidate worse than its predecessor, anywhere that matters?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from rich.text import Text

import shiftbench as sb
from shiftbench.cli import console
from shiftbench.cli.commands import DefaultGroup
from shiftbench.cli.eval import evaluate_arguments, given_arguments
from shiftbench.cli.options import Commands, EvaluationOptions, Json, Quiet, SuiteNames
from shiftbench.errors import StoreError, shell_command
from shiftbench.grouping import by_key
from shiftbench.io.atomic import check_writable, write_bytes
from shiftbench.io.paths import place

if TYPE_CHECKING:
    from shiftbench.runs.plan import RunContext
    from shiftbench.store.baseline import GateBaseline
    from shiftbench.store.predictions import Predictions
    from shiftbench.store.spec import ResultSpec
    from shiftbench.store.workspace import Result as StoredResult
    from shiftbench.studies.gate import GateResult, Policy
    from shiftbench.studies.gate_cells import PassLimit

#: Exit code and style of each verdict.
_VERDICTS = {
    "pass": (0, "bold green"),
    "identical": (0, "bold yellow"),
    "fail": (1, "bold red"),
    "not enough images": (2, "bold yellow"),
}
#: Refused before anything is evaluated, if it can't be written.
_FILE = {"dir_okay": False, "writable": True}
#: The second sentence is for the reference of all commands: the help of the group is that of `gate run`.
app = Commands(
    "Is a candidate worse than its predecessor, anywhere that matters?\n\n"
    "`shiftbench gate CANDIDATE --against BASELINE --data DIR` is short for `gate run`.",
    cls=DefaultGroup,
)


@dataclass(frozen=True)
class GateEvaluation(EvaluationOptions):
    """What both models are evaluated on."""

    suite: SuiteNames = "corruptions"
    passes: Annotated[
        int,
        {"metavar": "N"},
        "With a baseline of the full grid: stop after N forward passes, or as soon as the rules are decided. With "
        "one-pass: number of shifts that each image is evaluated under.",
    ] = 1
    json: Json = False
    quiet: Quiet = False

    def run(self, models: list[str], check: Callable[[RunContext], object], **changed: object) -> sb.Run:
        from shiftbench.runs.execute import AnsweredByPlanError

        warned: list[Warning] = []
        try:
            with console.stoppable(), console.kept_warnings() as warned:
                arguments = self.arguments() | changed
                run = sb.evaluate(models, progress=not self.quiet, check=check, **arguments)
        except AnsweredByPlanError:
            console.print_warnings(warned)
            raise
        console.print_warnings(warned)
        return run


@dataclass(frozen=True)
class GateFiles:
    """Where verdicts are written, besides the terminal."""

    panel: ClassVar[str] = "Output"
    markdown: Annotated[Path | None, _FILE, "Write the verdict for a pull-request comment (.md)."] = None
    junit: Annotated[Path | None, _FILE, "Write the verdict for the test report of CI (.xml)."] = None
    report: Annotated[
        Path | None, _FILE, "Write the HTML report, with the images that only the candidate gets wrong."
    ] = None

    @property
    def paths(self) -> list[Path]:
        return [path for path in (self.markdown, self.junit, self.report) if path is not None]

    def check(self) -> None:
        """Refuse what could not be written when the verdict is known."""
        files = [path.absolute() for path in self.paths]
        if len(set(files)) < len(files):
            raise typer.BadParameter("one file is named for two outputs", param_hint="--markdown, --junit, --report")
        for path in files:
            check_writable(path)

    def write(self, result: GateResult, run: sb.Run, *, strict: bool) -> None:
        """``run`` holds the candidate's results."""
        from shiftbench.reports import gate

        if self.markdown is not None:
            write_bytes(self.markdown, gate.gate_markdown(result).encode())
        if self.junit is not None:
            write_bytes(self.junit, gate.gate_junit(result, strict=strict).encode())
        if self.report is not None:
            from shiftbench.reports.page.report_data import ReportOptions
            from shiftbench.reports.page.write import write_report

            newly_wrong = {setting.name: set(setting.newly_wrong()) for setting in result.settings}
            options = ReportOptions(gate.verdict_line(result), mistakes=newly_wrong)
            write_report(self.report, run, options=options)
        for path in self.paths:
            console.note(f"written: {path}")


@dataclass(frozen=True)
class _Baseline:
    """What the candidate is compared with: a stored baseline, or (if neither is given) a model that is run as well."""

    pinned: GateBaseline | None = None
    stored: sb.Run | None = None
    #: Its results, by setting; a workspace may hold several of one setting.
    specs: Mapping[str, Sequence[ResultSpec]] = field(default_factory=dict)

    @property
    def model_id(self) -> str:
        """Empty for a model that is run as well."""
        if self.pinned is not None:
            return self.pinned.model
        return self.stored.results[0].model_id if self.stored is not None else ""

    @property
    def all_specs(self) -> list[ResultSpec]:
        return list(chain.from_iterable(self.specs.values()))

    @property
    def configuration(self) -> Mapping[str, object]:
        """The arguments of ``evaluate`` that it was made with; empty if they are not known."""
        if self.pinned is not None:
            return self.pinned.configuration
        return _last_configuration(self.stored) if self.stored is not None else {}

    def predictions(self) -> Mapping[str, Predictions]:
        if self.pinned is not None:
            return self.pinned.predictions
        if self.stored is None:
            return {}
        workspace = self.stored.workspace
        return {result.setting: workspace.read(result, top_k=1, scores=False) for result in self.stored.results}


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
    accept_unsigned: Annotated[bool, "Read a baseline file without a digest, as old versions wrote it."] = False,
    time: Annotated[
        str | None,
        {"metavar": "TIME"},
        "Stop after this time (60s, 5m), or as soon as the rules are decided: only what tells most is "
        "evaluated, chosen by a baseline of the full grid; `--passes N` limits forward passes in the same way.",
    ] = None,
    policy: Annotated[Path | None, "Rules and margins in TOML (docs/gate.md); default: a policy for any suite."] = None,
    evaluation: GateEvaluation,
    files: GateFiles,
) -> None:
    """Compare a candidate with its predecessor, image by image, and give a verdict.

    Every rule of the policy has a margin: the drop that is accepted. The gate fails if a drop is shown to be more than
    its margin, and passes if all drops are shown to be less, except in rules that may stay undecided. Otherwise there
    are not enough images, and the verdict says how many are needed: add images and repeat the gate, as often as you
    like. A false alarm, or a false pass, has a probability of at most 5 %, over all rules and all repetitions. A
    candidate that is the baseline itself is not evaluated.

    Exit codes: 0 pass or identical, 1 fail, 2 not enough images, 3 error (with --strict also: identical, or warnings).

    \b
    Examples:
      the new export against the old one, clean and under 15 corruptions
        shiftbench gate new.onnx --against old.onnx --data val/
      each image clean and under one corruption: 2 passes instead of 76
        shiftbench gate new.onnx --against old.onnx --data val/ --design one-pass
      without keeping the old model: its predictions in a small file
        shiftbench gate pin old.onnx --data val/ -o baseline.parquet
        shiftbench gate new.onnx --against baseline.parquet --data val/
      in at most 2,000 forward passes, where the baseline was least sure
        shiftbench gate new.onnx --against baseline.parquet --data val/ --passes 2000
      in CI
        shiftbench gate new.onnx --against baseline.parquet --data val/ \\
          --policy gate.toml --markdown gate.md --junit gate.xml
    """
    from shiftbench.store.workspace import Workspace
    from shiftbench.studies.gate import DEFAULT_POLICY, GateResult, IdenticalModelsError, Policy

    rules = DEFAULT_POLICY if policy is None else Policy.read(policy)
    files.check()
    baseline = _baseline(against, model, accept_unsigned=accept_unsigned)
    limit = _pass_limit(context, evaluation, baseline, time)
    shared = _shared_arguments(context, evaluation, baseline, against)
    if limit is not None:
        shared["passes"] = 1
    try:
        run, result = _judged(candidate, against, baseline, rules, evaluation, shared, limit)
    except IdenticalModelsError as error:
        result = GateResult.of_identical_models(error, rules)
        run = sb.Run(Workspace(evaluation.workspace), [])
        files.write(result, run, strict=evaluation.strict)
        _show(result, as_json=evaluation.json)
        if evaluation.strict:
            raise
        raise typer.Exit(_VERDICTS[result.verdict][0]) from None
    files.write(result, run, strict=evaluation.strict)
    _show(result, as_json=evaluation.json)
    raise typer.Exit(_VERDICTS[result.verdict][0])


def _judged(
    candidate: str,
    against: str,
    baseline: _Baseline,
    policy: Policy,
    evaluation: GateEvaluation,
    shared: Mapping[str, Any],
    limit: PassLimit | None = None,
) -> tuple[sb.Run, GateResult]:
    """Evaluate what is missing, and apply the policy; the run holds the candidate's results alone.

    With a limit, only single cells are evaluated, and the run holds no results.
    """
    from shiftbench.store.workspace import Workspace
    from shiftbench.studies.gate import FirstOfSeries, check_not_identical, check_plan, judge, paired_settings
    from shiftbench.studies.gate_cells import CellGate, CellsJudgedError, check_cells

    predictions: Mapping[str, Predictions] = {}
    if limit or baseline.pinned is not None or any(rule.of == "calibration" for rule in policy.rule):
        predictions = baseline.predictions()

    def check(plan: RunContext) -> None:
        check_plan(plan, baseline.specs or None, policy, predictions)
        check_not_identical(plan, baseline.all_specs, baseline.model_id)
        if limit is not None:
            check_cells(plan, policy)
            first = baseline.pinned.first if baseline.pinned else None
            raise CellsJudgedError(CellGate(plan, predictions, policy, limit, baseline.model_id, first).judge())

    if limit is not None:
        try:
            evaluation.run([candidate], check, **shared)
        except CellsJudgedError as judged:
            return sb.Run(Workspace(evaluation.workspace), []), judged.result

    models = [candidate] if baseline.model_id else [candidate, against]
    run = evaluation.run(models, check, **shared)
    titles = list(dict.fromkeys(result.title for result in run.results))
    of_candidate = run.select([titles[0]])
    before = baseline.pinned
    if before is None:
        of_baseline = baseline.stored or run.select([titles[1]])
        before = _of_run(of_baseline, {}, of_candidate.results)
    columns = {rule.by for rule in policy.rule if rule.by}
    settings, notes = paired_settings(run.workspace, of_candidate.results, before.predictions, columns)
    since = None
    if before.first is not None:
        first_settings, _ = paired_settings(run.workspace, of_candidate.results, before.first.predictions, columns)
        since = FirstOfSeries(before.first.model, first_settings)
    return of_candidate, judge(settings, policy, of_candidate.results[0].model_id, before.model, notes, since)


def _show(result: GateResult, *, as_json: bool) -> None:
    from shiftbench.reports.gate import gate_data, gate_table

    if as_json:
        console.print_json(gate_data(result))
        return
    table = gate_table(result)
    headline, _, reason = table.title.partition(":")
    table.title = ""
    console.output.print(Text.assemble((headline, _VERDICTS[result.verdict][1]), f":{reason}"), soft_wrap=True)
    if result.rules:
        console.output.print(table)


@app.command("pin")
def pin_command(
    classifier: Annotated[str, typer.Argument(metavar="MODEL", help="The model, as in `eval`.", show_default=False)],
    file: Annotated[Path, "--output", "-o", _FILE, "Baseline file to write."] = Path("baseline.parquet"),
    *,
    series: Annotated[
        str | None,
        {"metavar": "NAME"},
        "The model is the next one of a series: gates also compare with its first model, which the file keeps.",
    ] = None,
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
    from shiftbench.runs.arguments import KEYWORDS
    from shiftbench.store.baseline import read_baseline, write_baseline
    from shiftbench.store.run_records import Call, describe_call
    from shiftbench.studies.gate import check_plan

    check_writable(file)
    previous = read_baseline(file) if series and file.exists() else None
    if previous is not None and previous.series != series:
        raise StoreError(
            f"{file} is not of the series {series!r}",
            found=f"the series {previous.series!r}" if previous.series else "a baseline of no series",
            hint="name a new file to begin a series",
        )
    run = evaluation.run([classifier], check_plan)
    arguments = evaluation.arguments()
    shared = {name: arguments[name] for name in _shared_names()}
    call = Call("evaluate", sb.evaluate, shared, defaults=dict.fromkeys(KEYWORDS))
    _, configuration = describe_call(call)
    baseline = replace(_of_run(run, configuration), series=series or "")
    if series:
        baseline = replace(baseline, pins=(baseline.model,))
    if previous is not None and baseline.model == previous.model:
        baseline = replace(baseline, pins=previous.pins, first=previous.first)
    elif previous is not None:
        baseline = baseline.after(previous)
    _check_series(baseline)
    write_baseline(file, baseline)
    settings = list(baseline.predictions)
    count = "1 setting" if len(settings) == 1 else f"{len(settings)} settings"
    text = f"{file}: {baseline.model}, {count}"
    if series:
        text += f"; number {len(baseline.pins)} of {series!r}, which began with {baseline.pins[0]}"
    data = {"file": str(file), "model": baseline.model, "settings": settings, "series": list(baseline.pins)}
    console.show(data, text, as_json=evaluation.json)


def _check_series(baseline: GateBaseline) -> None:
    """Refuse a series whose first model was evaluated on other images than its new one."""
    from shiftbench.studies.gate import check_same_images

    if baseline.first is None:
        return
    for setting, predictions in baseline.first.predictions.items():
        if setting in baseline.predictions:
            check_same_images(setting, baseline.predictions[setting].spec, predictions.spec)


def _baseline(against: str, model: str | None, *, accept_unsigned: bool = False) -> _Baseline:
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
        pinned = read_baseline(path, accept_unsigned=accept_unsigned)
        return _Baseline(pinned=pinned, specs=_specs_by_setting(pinned.predictions.values()))
    if not (path / "workspace.json").is_file():
        return _Baseline()
    run = sb.Run.open(path, [model] if model else ())
    if len(run.classifiers) != 1:
        models = ", ".join(run.classifiers) or "no results"
        raise StoreError(f"which model of {path} is the baseline?", found=models, hint="--model NAME, a name or id")
    return _Baseline(stored=run, specs=_specs_by_setting(run.results))


def _pass_limit(
    context: typer.Context, evaluation: GateEvaluation, baseline: _Baseline, time: str | None
) -> PassLimit | None:
    """The limit of forward passes or time of a gate on the full grid; None if all images are to be evaluated.

    Under a design, ``--passes`` is the number of shifts of each image.
    """
    from shiftbench.runs.budget import duration
    from shiftbench.studies.gate_cells import PassLimit

    stated = given_arguments(context, evaluation.arguments())
    design = stated.get("design", baseline.configuration.get("design", "full"))
    passes = evaluation.passes if "passes" in stated and design == "full" else None
    if passes is None and time is None:
        return None
    if design != "full":
        raise typer.BadParameter("the baseline is of a design; pin it on the full grid", param_hint="--time")
    if not baseline.model_id:
        raise StoreError(
            "a limit of forward passes needs a baseline whose answers are known",
            found="a model that would have to be evaluated on the full grid first",
            hint=f"pin it once: {shell_command('gate', 'pin', 'MODEL', '-o', 'baseline.parquet')}",
        )
    if passes is not None and passes < 1:
        raise typer.BadParameter("a number above 0 is needed", param_hint="--passes")
    return PassLimit(passes, None if time is None else duration(time))


def _specs_by_setting(results: Iterable[Predictions | StoredResult]) -> Mapping[str, Sequence[ResultSpec]]:
    return by_key((result.setting, result.spec) for result in results)


def _shared_names() -> list[str]:
    """The arguments of ``evaluate`` that candidate and baseline have in common: settings and images."""
    from shiftbench.runs.arguments import DESIGN_KEYWORDS, SHIFT_KEYWORDS

    return ["suite", "labels", *SHIFT_KEYWORDS, "seed", "select", "design", *DESIGN_KEYWORDS]


def _shared_arguments(
    context: typer.Context, evaluation: GateEvaluation, baseline: _Baseline, against: str
) -> dict[str, Any]:
    """The settings and images of the candidate: as the baseline's evaluation has recorded them.

    Options that the user states take the place of recorded ones; those that would choose other images are refused.
    Empty if the baseline has no record.
    """
    recorded = baseline.configuration
    if not recorded:
        return {}
    stated = given_arguments(context, evaluation.arguments())
    for name in ("budget", "width"):
        recorded_limit = recorded.get(name)
        stated_limit = stated.pop(name, recorded_limit)
        # The record is JSON and the option is text, so that both are compared as text.
        if str(stated_limit) != str(recorded_limit):
            text = f"the images are those of the baseline, which had {recorded_limit or 'none'}"
            raise typer.BadParameter(f"{text}; leave the option out", param_hint=f"--{name}")
    configuration = _on_same_images(recorded, baseline.all_specs)
    shared = {name: configuration[name] for name in _shared_names() if name in configuration}
    return evaluate_arguments(shared, against) | stated


def _last_configuration(run: sb.Run) -> Mapping[str, object]:
    """The arguments of the last run that evaluated this model; empty if there is none."""
    version = run.results[0].spec.classifier.version
    configuration: Mapping[str, object] = {}
    for record in run.history.records:
        if record.kind == "evaluate" and any(model.version == version for model in record.models):
            configuration = record.configuration
    return configuration


def _on_same_images(configuration: Mapping[str, Any], specs: Sequence[ResultSpec]) -> dict[str, object]:
    """As the results are: a workspace may hold more passes than the last run asked for, or by now the full grid.

    A budget or width chose as many images as the baseline's speed and errors asked for: take as many again.
    """
    passes = max((spec.shift.passes for spec in specs if spec.shift.designed), default=0)
    if not passes or configuration.get("design", "full") == "full":
        return {**configuration, "design": "full", "passes": 1, "budget": None, "width": None}
    budget = None
    if configuration.get("budget") or configuration.get("width"):
        budget = max(spec.images for spec in specs) * (1 + passes)
    return {**configuration, "passes": passes, "budget": budget, "width": None}


def _of_run(run: sb.Run, configuration: Mapping[str, object], like: Sequence[StoredResult] = ()) -> GateBaseline:
    """The results of a model; where it has several in a setting, the one on the same images and shifts as ``like``."""
    from shiftbench.store.baseline import GateBaseline
    from shiftbench.studies.gate import is_comparable

    candidate_specs = {result.setting: result.spec for result in like}
    judged = [result for result in run.results if result.spec.judged_by_image]
    if not judged:
        raise StoreError("no setting has one label per image", found=", ".join(run.settings[:4]))
    results: dict[str, StoredResult] = {}
    for result in judged:
        spec = candidate_specs.get(result.setting, result.spec)
        if result.setting not in results or is_comparable(spec, result.spec):
            results[result.setting] = result
    predictions = {name: run.workspace.read(result, top_k=1, scores=False) for name, result in results.items()}
    return GateBaseline(judged[0].model_id, predictions, configuration)
