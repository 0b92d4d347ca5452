"""``shiftbench eval``, ``import`` and ``demo``: results that enter a workspace."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec
import typer

import shiftbench as sb
from shiftbench.cli import console
from shiftbench.cli.options import (
    DEFAULT_WORKSPACE,
    EvaluationOptions,
    Json,
    OutputOptions,
    Quiet,
    Split,
    WorkspacePath,
    complete_models,
    parse_severities,
)
from shiftbench.errors import (
    MissingExtraError,
    SettingError,
    UnknownNameError,
    listed,
    raising,
    shell_command,
)
from shiftbench.io.schema import decode, read_toml

# Shell completion loads this module, so that whatever takes long to import is imported where it is used.
if TYPE_CHECKING:
    from shiftbench.runs.dry_run import DryRun
    from shiftbench.store.run_records import RunRecord

#: Arguments of ``evaluate`` that may be paths, or hold some.
_PATH_ARGUMENTS = (
    "classifiers",
    "data",
    "labels",
    "frost_textures",
    "style_network",
    "styles",
    "preprocessing",
    "workspace",
)
#: Options behind the name of a model, as in ``hf:FOLDER?prompts=FILE``, that name a file.
_FILE_OPTIONS = ("checkpoint", "prompts")
#: Recorded arguments that belong to the machine or to the process that ran; a repeated run does not take them over.
_NOT_REPEATED = ("executor", "workers", "progress", "check")
#: The options behind an argument of ``evaluate``, where they have other names than the argument.
_OPTIONS_OF_ARGUMENT = {
    "select": ("per_class", "sample", "subset"),
    "executor": ("executor_name", "workers", "address", "cpus", "gpus", "memory", "resources", "reader_cpus"),
}
#: Number of settings that a dry run lists.
_MAX_LISTED_SETTINGS = 10
_DEMO_CLASSIFIERS = (
    "demo:squeezenet1_1",
    "demo:efficientnet-lite0",
    "demo:efficientnet-lite1",
    "demo:efficientnet-lite2",
)
#: What `demo` suggests to run next: a title and the arguments of the command, without the workspace.
_AFTER_DEMO = (
    ("errors by corruption", "table", ("--mce",)),
    ("significant differences", "compare", ("-s", "demo")),
    ("for a paper", "table", ("-f", "md", "-o", "table.md")),
)


def evaluate_command(
    context: typer.Context,
    classifiers: Annotated[
        list[str] | None,
        typer.Argument(
            help="timm:NAME, torchvision:NAME, hf:FOLDER, model.onnx, model.pt2, model.py:factory, predictions.csv, "
            "demo:efficientnet-lite0 ...",
            metavar="MODELS",
            show_default=False,
            autocompletion=complete_models,
        ),
    ] = None,
    *,
    evaluation: EvaluationOptions,
    defences: Annotated[
        str,
        "--defence",
        {"panel": "Models"},
        "Input defences before every model: clahe, denoise, ten-crop; separated by commas.",
    ] = "",
    shard: Annotated[
        str | None,
        {"panel": "Execution"},
        "JOB/JOBS, such as 3/8: compute only this job's blocks, for job arrays; the last job joins all.",
    ] = None,
    rebalance: Annotated[
        bool, {"panel": "Execution"}, "With --shard: then also compute blocks that other jobs have not begun."
    ] = False,
    detach: Annotated[
        bool, {"panel": "Execution"}, "Run without this terminal; see `shiftbench jobs list | attach | cancel`."
    ] = False,
    wait: Annotated[
        float | None,
        {"panel": "Execution", "min": 0},
        "Seconds to wait for blocks that another run computes before computing them, too (default: no limit).",
    ] = None,
    keep_scores: Annotated[bool, "Store all scores, not only the top five classes."] = False,
    config: Annotated[
        Path | None,
        "Take what is not given here from a file: TOML with the arguments of `evaluate`, or the record of an earlier "
        "run, WORKSPACE/runs/ID.json, which is repeated exactly.",
    ] = None,
    plan: Annotated[
        bool, "--dry-run", "Only print settings, images, forward passes and the estimated time; nothing is written."
    ] = False,
    output_options: OutputOptions,
) -> None:
    """Evaluate models under the settings of a suite.

    An interrupted run resumes if the same command is run again. Results that are already in the workspace are not
    computed again.

    \b
    Examples:
      your images, as they are
        shiftbench eval model.onnx --data photos/
      your own network, with its preprocessing (docs/models.md)
        shiftbench eval model.onnx --data photos/ \\
          --preprocess size=32,mean=0.49,0.48,0.45,std=0.25,colour=rgb
      ImageNet-C, corrupted in memory
        shiftbench eval timm:resnet50 model.onnx --suite imagenet-c --data val/
      an estimate of it from two forward passes per image (docs/designs.md)
        shiftbench eval model.onnx -s imagenet-c --data val/ --design one-pass
      on a Ray cluster; for job arrays see `launch` (docs/scale.md)
        shiftbench eval timm:resnet50 --suite imagenet-c --data val/ \\
          --executor ray --address HOST:6379 --gpus 1
      an earlier run again, with another model
        shiftbench eval new.onnx --config shiftbench-workspace/runs/ID.json
    """
    if detach:
        _start_detached(as_json=output_options.json)
        return

    arguments = evaluation.arguments() | {
        "classifiers": classifiers,
        "defences": defences,
        "shard": shard,
        "rebalance": rebalance,
        "wait": wait,
        "keep_scores": keep_scores,
    }
    record = None
    if config is not None:
        configured, record = _read_configuration(config)
        typed = given_arguments(context, arguments)
        arguments |= configured | typed
        # With other options than these, the run is not a repetition, and may differ from its record.
        if typed.keys() - {"workspace", "executor"}:
            record = None
    if not arguments["classifiers"]:
        raise typer.BadParameter("name at least one model", param_hint="MODELS")
    if plan:
        with console.kept_warnings() as warned:
            dry_run = sb.dry_run(**arguments)
        _show_plan(dry_run, as_json=output_options.json)
        console.print_warnings(warned)
    else:
        _evaluate_and_report(arguments, record, output_options)


def _show_plan(dry_run: DryRun, *, as_json: bool) -> None:
    """Print the settings of a dry run, with what is done of them, and its totals."""
    lines = []
    for setting in dry_run.settings:
        line = f"{setting.name}: {setting.images:,} images"
        if setting.done:
            line += ", done"
            if setting.done != setting.models:
                line += f" for {setting.done} of {setting.models} models"
        lines.append(line)
    unlisted = len(lines) - _MAX_LISTED_SETTINGS
    if unlisted > 0:
        lines[_MAX_LISTED_SETTINGS:] = [f"... and {unlisted} more settings (--json lists all)"]
    console.show(dry_run.as_dict(), "\n".join([*lines, "", str(dry_run)]), as_json=as_json)


def _evaluate_and_report(arguments: Mapping[str, Any], record: RunRecord | None, output_options: OutputOptions) -> None:
    """Evaluate, print the results, and raise or exit if the run failed.

    If ``record`` is given, only the machine may differ from that run: results that the record does not name are
    reported.
    """
    failure: sb.IncompleteRunError | sb.StrictRunError | None = None
    with console.stoppable(), console.kept_warnings() as warned:
        try:
            run = sb.evaluate(**arguments, progress=not output_options.quiet)
        except (sb.IncompleteRunError, sb.StrictRunError) as error:
            # The results that there are get printed before the error is raised.
            run = error.run
            failure = error
    if record is not None:
        warned += _differences_from_record(run, record)
    if isinstance(failure, sb.StrictRunError):
        # Loading has already warned of assumed preprocessing.
        warned += [warning for warning in failure.warnings if warning.code != "assumed-preprocessing"]
    _report_run(run, warned, output_options.level, as_json=output_options.json)
    if isinstance(failure, sb.StrictRunError):
        console.errors.print(console.titled("error:", failure.message))
        raise typer.Exit(3)
    if failure is not None:
        raise failure


def _differences_from_record(run: sb.Run, record: RunRecord) -> list[Warning]:
    """A warning that names the settings whose results are not those of the record; none if all are."""
    recorded_keys: set[str] = set()
    for model in record.models:
        recorded_keys.update(model.results)
    changed = [result.setting for result in run.results if result.key not in recorded_keys]
    if not changed:
        return []
    text = f"not the recorded run: data, model, preprocessing or shift have changed in {listed(changed)}"
    return [UserWarning(text)]


def _start_detached(*, as_json: bool) -> None:
    """Start the present command again, without its terminal."""
    from shiftbench.cli.jobs import describe
    from shiftbench.jobs.detached import start_job
    from shiftbench.store.run_records import command_line

    job = start_job([word for word in command_line.get()[1:] if word != "--detach"])
    text = f"{job.id} is running; show its output: shiftbench jobs attach {job.id}"
    console.show(describe(job), text, as_json=as_json)


def _report_run(run: sb.Run, caught: Sequence[Warning], level: float, *, as_json: bool) -> None:
    """Print the tables, skipped images, warnings and settings left out; last the summary and what to run next."""
    from shiftbench.api import SharedRun
    from shiftbench.reports.summary import summarise
    from shiftbench.store.run_records import command_line

    summary = summarise(run, level=level, command=command_line.get())
    if as_json:
        console.print_json(
            {**run.summary(level=level), "summary": summary.as_dict(), "warnings": console.warning_data(caught)}
        )
    else:
        for report in run.overview(level=level):
            console.output.print(report)
            console.output.print()
    _print_problems(run)
    if isinstance(run, SharedRun):
        console.errors.print(run.word)
    # Skipped images are listed above.
    console.print_warnings([warning for warning in caught if getattr(warning, "code", None) != "skipped-images"])
    settings_by_reason: dict[str, list[str]] = {}
    for name, reason in run.left_out.items():
        settings_by_reason.setdefault(reason, []).append(name)
    for reason, names in settings_by_reason.items():
        console.errors.print(f"left out: {listed(names, 8)}: {reason}", style="dim")
    console.errors.print(f"predictions: {run.workspace.root}/predictions", style="dim")
    if not as_json:
        console.output.print(summary.to_text(min(console.output.width, 80)), soft_wrap=True)


def _print_problems(run: sb.Run) -> None:
    """Print the images that could not be used; a warning counts those that were converted."""
    skipped = [(problem["id"], problem["why"]) for problem in run.problems() if problem["action"] == "skipped"]
    console.print_images(skipped, "were skipped", "--json lists all")


def given_arguments(context: typer.Context, arguments: Mapping[str, object]) -> dict[str, object]:
    """The arguments that the user typed, without those that are defaults."""

    def is_typed(argument: str) -> bool:
        for option in _OPTIONS_OF_ARGUMENT.get(argument, (argument,)):
            source = context.get_parameter_source(option)
            if source is not None and source.name == "COMMANDLINE":
                return True
        return False

    return {name: value for name, value in arguments.items() if is_typed(name)}


def _read_configuration(file: Path) -> tuple[dict[str, object], RunRecord | None]:
    """The arguments of ``evaluate`` from a TOML file, or from the record of a run: ``WORKSPACE/runs/ID.json``.

    The record is returned, too. Raises ``SettingError`` if there is no such file, or if the command line can't repeat
    what it records.
    """
    if not file.is_file():
        raise SettingError(f"no configuration file {file}", hint="a TOML file, or WORKSPACE/runs/ID.json of a run")
    if file.suffix != ".json":
        return evaluate_arguments(read_toml(file, SettingError), file), None
    from shiftbench.store.run_records import RunRecord

    with raising(SettingError, f"{file} is not the record of a run", msgspec.MsgspecError):
        record = msgspec.json.decode(file.read_bytes(), type=RunRecord)
    # The source of a model that was a Python object is its repr.
    objects = [model.id for model in record.models if model.source.startswith("<")]
    if objects:
        raise SettingError(
            f"{file} can't be repeated from the command line",
            found=f"models given as Python objects: {listed(objects)}",
            hint="repeat it from Python",
        )
    if record.kind != "evaluate":
        raise SettingError(
            f"{file} can't be repeated from the command line",
            found=f"a run of {record.kind!r}",
            hint="name the record of an evaluation",
        )
    arguments = evaluate_arguments(record.configuration, file)
    for name in _PATH_ARGUMENTS:
        arguments[name] = _resolve_paths(record.folder, arguments[name])
    return arguments, record


def evaluate_arguments(document: Mapping[str, object], source: object) -> dict[str, object]:
    """The arguments of ``evaluate`` that a document states, which comes from the file ``source``.

    Names are checked here, and values where they are used.
    """
    from shiftbench.api import argument_names

    repeated = [name for name in argument_names() if name not in _NOT_REPEATED]
    for name in document:
        if name not in (*repeated, *_NOT_REPEATED):
            raise UnknownNameError(f"argument in {source}:", name, repeated)
    arguments = {name: value for name, value in document.items() if name in repeated}
    hidden = [name for name, value in arguments.items() if "***" in str(value)]
    if hidden:
        raise SettingError(f"{source} does not hold the credentials of {listed(hidden)}", hint="give them as options")
    if arguments.get("select") is not None:
        arguments["select"] = decode(arguments["select"], sb.Selection, str(source), SettingError, "select")
    return arguments


def _resolve_paths(folder: str, value: object) -> object:
    """A recorded value with its paths, which are relative to the folder where the run started, joined to the folder.

    A text is a path if a file of that name exists.
    """
    if isinstance(value, Mapping):
        return {key: _resolve_paths(folder, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolve_paths(folder, item) for item in value]
    if not isinstance(value, str):
        return value
    resolved = _resolve_path(folder, value)
    if resolved != value:
        return resolved
    # Options of a model may follow, some of which name files: hf:FOLDER?prompts=FILE.
    source, question_mark, query = value.partition("?")
    options = []
    for option in query.split("&"):
        key, equals, text = option.partition("=")
        if key in _FILE_OPTIONS:
            text = _resolve_path(folder, text)
        options.append(f"{key}{equals}{text}")
    return f"{_resolve_path(folder, source)}{question_mark}{'&'.join(options)}"


def _resolve_path(folder: str, value: str) -> str:
    """A text with the path in it joined to the folder; unchanged if no file of that name exists."""
    # A function may follow the path: model.py:factory.
    path, _, _ = value.partition(":")
    if (Path(folder) / path).exists():
        return str(Path(folder) / value)
    # A kind of model or data, or a name, may precede the path: hf:FOLDER, unlabelled:FOLDER, timm:NAME@FILE.
    for separator in (":", "@"):
        prefix, _, path = value.partition(separator)
        if path and (Path(folder) / path).exists():
            return f"{prefix}{separator}{Path(folder) / path}"
    return value


def import_command(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Predictions: .csv, .parquet, .npz or .npy, of one or many models; or a table of `store export`.",
            show_default=False,
        ),
    ],
    setting: Annotated[str, "-s", "Setting they were made in: a name from `list settings`, or one of your own."],
    labels: Annotated[
        str | None,
        {"panel": "Data"},
        "Label space of the predictions: a name from `list spaces`, or a file of classes in order.",
    ] = None,
    data: Annotated[
        str | None, "-d", {"panel": "Data"}, "The images themselves, if you have them; as for `eval`."
    ] = None,
    split: Split = None,
    truth: Annotated[
        Path | None,
        {"panel": "Data"},
        "The true classes, if the files lack them: a table of id and label, or an .npy of labels.",
    ] = None,
    array: Annotated[
        str | None, {"panel": "Data"}, "For an .npz file with several test sets: name of the array to import."
    ] = None,
    reference: Annotated[
        str | None, {"show_default": "that of the suite"}, "Setting without shift to compare with."
    ] = None,
    made_by: Annotated[
        str | None,
        "Who made the shifted images of a setting that a suite makes in memory: testbed (the ImageNet testbed's code; "
        "results then stand beside its published ones), or released-files (a benchmark's own files).",
    ] = None,
    in_order: Annotated[bool, {"panel": "Data"}, "The files name no images: row i is the i-th image."] = False,
    allow_unknown: Annotated[
        bool, {"panel": "Data"}, "Ignore predictions for images that are not in the dataset."
    ] = False,
    workspace: WorkspacePath = DEFAULT_WORKSPACE,
    replace: Annotated[bool, "Replace existing predictions of the same models."] = False,
    *,
    output_options: OutputOptions,
) -> None:
    """Import predictions made elsewhere into a workspace.

    `table`, `compare` and `study` then treat them like those of a run. Nothing is unpickled.

    \b
    A table (.csv, .parquet) has the column id, and one of
      prediction, optionally confidence; the model is named after the file
      top1, top2, ..., best first
      score_0, score_1, ...; or logit_CLASS, prob_CLASS for each class
      one column per model, named after it
    A column model allows several models per table. The usual names are
    understood, too: filename, y_true, y_pred. So is a table that
    `shiftbench store export` wrote, of which --setting chooses the rows.
    An .npz file has models, ids, labels, and predictions of shape
    (models, images) or (models, images, k). An .npy file has the scores,
    (images, classes), in the order of the images: --in-order.

    Classes are keys (wnids), names or numbers, the same throughout a file. True classes come from a column label, from
    --truth or from --data. With --data, images are found by id, else by file name.

    \b
    Examples:
      all models of one file, with its own labels
        shiftbench import all.npz --setting new --labels imagenet-1k
      two models on your own images
        shiftbench import resnet.csv vit.csv --setting photos --data photos/
      logits that numpy saved, in the order of the sorted images
        shiftbench import logits.npy --setting photos --data photos/ --in-order
      predictions on the released files of ImageNet-C
        shiftbench import fog3.npz --setting imagenet-c.fog.3 \
          --made-by released-files --labels imagenet-1k
      then
        shiftbench study reproducibility -w W --x val --y new
    """
    from shiftbench.settings.roles import of_split

    with console.stoppable(), console.kept_warnings() as warned:
        imported = sb.import_predictions(
            files,
            setting,
            workspace,
            labels=labels,
            truth=truth,
            data=cast(str | None, of_split(data, split)),
            array=array,
            reference=reference,
            in_order=in_order,
            allow_unknown=allow_unknown,
            replace_old=replace,
            made_by=made_by,
            progress=not output_options.quiet,
        )
    run = sb.Run(imported.results.workspace, imported.results.results)
    if output_options.json:
        matching = {"matched_by": imported.matched_by, "missing": imported.missing, "unknown": imported.unknown}
        console.print_json(
            {**run.summary(level=output_options.level), **matching, "warnings": console.warning_data(warned)}
        )
        return
    _report_run(run, warned, output_options.level, as_json=False)
    if imported.matched_by not in ("id", "order"):
        console.note(f"images were found by {imported.matched_by}")


def demo_command(
    workspace: Annotated[Path, "-w", "Where results are stored."] = Path("demo-workspace"),
    severity: Annotated[str, "Severities: 3, 1-5 or 1,3,5."] = "1,3,5",
    verbose: Annotated[bool, "--verbose", "-v", "Also print the corruption errors of every type."] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Four real models on 114 real photographs.

    Evaluates them clean and under 15 corruptions, and writes report.html into the workspace. A first table,
    estimated from two forward passes per photograph (docs/designs.md), appears within a minute; the full grid
    follows. Weights and photographs come from registry packages; torch is not needed. An interrupted demo resumes.
    """
    from shiftbench.classifiers.demo import missing_packages
    from shiftbench.cli.report import show_written
    from shiftbench.jobs.progress import progress_bar
    from shiftbench.reports.frames import clean_and_corrupted
    from shiftbench.reports.page.report_data import ReportOptions
    from shiftbench.reports.page.write import write_report

    severities = parse_severities(severity)
    # Nothing is fetched or written unless the demo can run.
    missing = missing_packages()
    if missing:
        raise MissingExtraError(", ".join(missing), "demo", "the demo")

    def run_models(**design: Any) -> sb.Run:
        models = list(_DEMO_CLASSIFIERS)
        return sb.evaluate(models, "demo", None, workspace, severities=severities, progress=not quiet, **design)

    def say(text: str) -> None:
        if not quiet:
            console.errors.print(text)

    say("Fetching 114 photographs (the first time only), and evaluating each clean and under one corruption ...")
    with console.stoppable(), warnings.catch_warnings():
        # A model at chance level under a corruption is expected here.
        warnings.simplefilter("ignore", UserWarning)
        if not json:
            # With more than three severities, one pass over 114 photographs leaves fewer than two for some shifts.
            passes = 1 if len(severities) <= 3 else 2
            console.output.print(clean_and_corrupted(run_models(design="one-pass", passes=passes)))
            say("\nThe full grid follows; press Ctrl-C to stop, and rerun to continue ...")
        run = run_models()
        options = ReportOptions("Four models on 114 photographs, clean and corrupted")
        bar = partial(progress_bar, show=not quiet)
        written = write_report(workspace / "report.html", run, options=options, bar=bar)
    corruption_errors = run.corruption_table()
    if json:
        console.print_json(
            {**run.summary(), "corruption_errors": corruption_errors.as_data(), "report": written.as_dict()}
        )
        return
    console.output.print()
    if verbose:
        console.output.print(corruption_errors)
    else:
        console.output.print(clean_and_corrupted(run))
    _print_problems(run)
    _print_demo_commands(workspace)
    show_written(written)


def _print_demo_commands(workspace: Path) -> None:
    """Print where the results of the demo are, and what to run next."""
    console.output.print(f"\nEverything is in {workspace}/: one Parquet file per model and setting.")
    for title, command, options in _AFTER_DEMO:
        text = shell_command(command, "-w", workspace, *options)
        console.output.print(f"  {title + ':':<25}{text}", soft_wrap=True)
