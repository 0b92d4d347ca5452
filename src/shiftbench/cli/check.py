"""``shiftbench check``: does an extension keep the contract of its extension point?"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

import shiftbench as sb
from shiftbench.cli.console import kept_warnings, output, print_json, print_warnings
from shiftbench.cli.options import Commands, Json, Labels, Limit, Model, Preprocess, Split, Trust, parse_data
from shiftbench.errors import ShiftbenchError

if TYPE_CHECKING:
    from shiftbench.conformance import CheckResult

app = Commands(
    "Check that a corruption, metric, dataset, suite, ... keeps its contract.\n\n"
    "Each command runs every requirement of one extension point, and shows what it verified. A failure shows what was "
    "found, what was expected and what to try; the exit code is then 1. Plug-ins that are installed are found by their "
    "names; --plugin FILE.py takes one that is not installed yet. In the tests of a plug-in, call the Python functions "
    "of the same names: shiftbench.conformance.assert_conforms(shiftbench.check_metric('mine'))."
)
Plugin = Annotated[
    list[str] | None,
    typer.Option("--plugin", metavar="MODULE", help="A module or FILE.py that registers the extension (repeatable)."),
]


@dataclass(frozen=True)
class ExtensionOptions:
    """The options of a command that checks an extension with options of its own."""

    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option of the extension (repeatable)."),
    ] = None
    plugin: Plugin = None
    json: Json = False

    def run(self, check: Callable[..., Sequence[CheckResult]], name: str) -> None:
        """Check the extension of this name with its options, print the results, and exit with 1 if one failed."""
        plugin_results = load_plugins(self.plugin)
        print_checks([*plugin_results, *check(name, **parse_options(self.option))], self.json)


@app.command("corruption")
def check_corruption_command(
    name: Annotated[str, typer.Argument(help="The name of a registered corruption.")],
    options: ExtensionOptions,
) -> None:
    """Check a corruption: shape, range, determinism by seed, batches, threads, pickling, odd sizes, severities.

    \b
    Examples:
      shiftbench check corruption fog
      shiftbench check corruption darker --plugin my_plugin.py
      shiftbench check corruption frost --option frost_textures=procedural
    """
    options.run(lambda corruption, **values: sb.check_corruption(corruption, values), name)


@app.command("shift")
def check_shift_command(
    shift: Annotated[
        str, typer.Argument(metavar="SETTING", help="A setting with the shift, such as imagenet-c.fog.3.")
    ],
    suite: Annotated[str, "The suite that has this setting."],
    plugin: Plugin = None,
    json: Json = False,
) -> None:
    """Check the shift of a setting: records, rebuilding, determinism, independence of batch and order, threads, range.

    \b
    Examples:
      shiftbench check shift imagenet-c.fog.3 --suite imagenet-c
      shiftbench check shift night --suite night --plugin my_plugin.py
    """
    from shiftbench.settings.base import build_suite

    plugin_results = load_plugins(plugin)
    print_checks([*plugin_results, *sb.check_shift(build_suite(suite)[shift].shift)], json)


@app.command("metric")
def check_metric_command(
    name: Annotated[str, typer.Argument(help="The name of a registered metric.")],
    replicates: Annotated[int, "Simulated evaluations at each number of images."] = 200,
    plugin: Plugin = None,
    json: Json = False,
) -> None:
    """Check a metric: value, interval, order of images, skipped images; and that its intervals cover.

    A model of known accuracy is simulated. At 18, 100 and 400 images, 95 % intervals must hold the value of 20,000
    images in at least 85 % of the evaluations, less the noise of the simulation, and must never be without a width.

    \b
    Examples:
      shiftbench check metric top1
      shiftbench check metric mine --plugin my_plugin.py --replicates 50
    """
    plugin_results = load_plugins(plugin)
    print_checks([*plugin_results, *sb.check_metric(name, replicates=replicates)], json)


@app.command("suite")
def check_suite_command(
    name: Annotated[str, typer.Argument(help="The name of a registered suite.")],
    data: Annotated[list[str] | None, "-d", "FOLDER or ROLE=FOLDER, to open the suite's datasets (repeatable)."] = None,
    labels: Labels = None,
    plugin: Plugin = None,
    json: Json = False,
) -> None:
    """Check a suite: names, references, metrics, label spaces, shifts, stable keys, options; with --data that it opens.

    \b
    Examples:
      shiftbench check suite imagenet-c
      shiftbench check suite night --plugin my_plugin.py --data day=photos --data night=dark
    """
    plugin_results = load_plugins(plugin)
    suite_results = sb.check_suite(name, parse_data(data) if data else None, labels=labels)
    print_checks([*plugin_results, *suite_results], json)


@app.command("sink")
def check_sink_command(
    name: Annotated[
        str, typer.Argument(help="A sink and its target, as for --sink; without a target, a temporary path.")
    ],
    plugin: Plugin = None,
    json: Json = False,
) -> None:
    """Check a sink: names and numbers, failures, closing, resuming, secrets.

    Order and durability need a function that reads back what was logged: pass it as `read` to
    shiftbench.check_sink in Python.

    \b
    Examples:
      shiftbench check sink tensorboard
      shiftbench check sink mine:runs --plugin my_plugin.py
    """
    plugin_results = load_plugins(plugin)
    # A library may keep its database open until the end of this process, and Windows removes no open file.
    with tempfile.TemporaryDirectory(prefix="shiftbench-", ignore_cleanup_errors=True) as folder:
        if ":" in name:
            results = sb.check_sink(name)
        else:
            # Some sinks write a folder, and some a file: there is neither at this path yet.
            target = Path(folder, "target").as_posix()
            if name == "mlflow":
                target = f"sqlite:///{target}"  # MLflow no longer writes a folder.
            results = sb.check_sink(f"{name}:{target}", folder=folder)
    print_checks([*plugin_results, *results], json)


@app.command("classifier")
def check_classifier_command(
    model: Model,
    labels: Labels = None,
    preprocess: Preprocess = None,
    trust: Trust = False,
    plugin: Plugin = None,
    json: Json = False,
) -> None:
    """Check a classifier: shape, finiteness, determinism, independence of the batch, pickling, threads, fingerprint."""
    plugin_results = load_plugins(plugin)
    with kept_warnings() as warned:
        results = sb.check_classifier(sb.load_classifier(model, labels=labels, preprocessing=preprocess, trust=trust))
    print_checks([*plugin_results, *results], json, warned)


@app.command("attack")
def check_attack_command(
    model: Annotated[str, typer.Argument(help="A classifier with gradients, as for `shiftbench eval`.")],
    labels: Labels = None,
    preprocess: Preprocess = None,
    trust: Trust = False,
    steps: Annotated[int, "Steps of each attack."] = 10,
    json: Json = False,
) -> None:
    """Test whether attacks on a model are reliable.

    Detects masked gradients: the loss must grow with the strength, restarts must not find much more than a single
    run, and an unbounded attack must always succeed.
    """
    from shiftbench.datasets.samples import sample_images
    from shiftbench.shifts.attacks.checks import check_attack

    with kept_warnings() as warned:
        classifier = sb.load_classifier(model, labels=labels, preprocessing=preprocess, trust=trust)
    images = sample_images(8, classifier.preprocessing.geometry.output or (224, 224))
    print_checks(check_attack(classifier, images, steps=steps), json, warned)


@app.command("dataset")
def check_dataset_command(
    data: Annotated[str, typer.Argument(help="A folder, file or name, as for --data.")],
    labels: Labels = None,
    split: Split = None,
    sample: Limit = None,
    plugin: Plugin = None,
    json: Json = False,
) -> None:
    """Check a dataset: ids, labels, images, fingerprint, pickling, threads."""
    from shiftbench.labels.catalogue import find_label_space
    from shiftbench.settings.roles import path_of_split

    plugin_results = load_plugins(plugin)

    def open_again() -> sb.Dataset:
        dataset = sb.open_dataset(path_of_split(data, split), space=find_label_space(labels))
        return sb.Selection(sample=sample).of(dataset)

    print_checks([*plugin_results, *sb.check_dataset(open_again(), reopen=open_again)], json)


def print_checks(results: Sequence[CheckResult], as_json: bool, warned: Sequence[Warning] = ()) -> None:
    """Print the results of checks, and exit with 1 if one of them failed."""
    if as_json:
        print_json([result.as_dict() for result in results])
    else:
        for result in results:
            mark = ("ok    ", "green") if result.ok else ("failed", "bold red")
            output.print(Text.assemble(mark, f" {result.name}  ", (result.message, "dim")))
            for detail in result.details:
                output.print(Text(f"         {detail}"), soft_wrap=True)
    print_warnings(warned)
    if not all(result.ok for result in results):
        raise typer.Exit(1)


def load_plugins(modules: Sequence[str] | None) -> list[CheckResult]:
    """Import modules, or files by their paths, that register extensions; check what only an import can break."""
    from shiftbench.conformance import changed_generators, require, requirement

    results: list[CheckResult] = []
    for module in modules or ():
        libraries = changed_generators(partial(_import_plugin, module))
        with requirement(f"importing {module} leaves the global random numbers alone", results):
            hint = "seed a generator of its own where random numbers are drawn: np.random.default_rng(0)"
            require(not libraries, f"the import draws from or seeds those of {', '.join(libraries)}", hint=hint)
    return results


def _import_plugin(module: str) -> None:
    path = Path(module)
    if path.suffix != ".py":
        importlib.import_module(module)
        return
    if not path.is_file():
        raise ShiftbenchError(f"no such plug-in: {module}", expected="a Python file, or the name of a module")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None  # a path that ends in .py has both
    imported = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = imported  # so that what it defines can be pickled
    spec.loader.exec_module(imported)


def parse_options(words: Sequence[str] | None) -> dict[str, Any]:
    """NAME=VALUE options as a mapping; numbers and true or false are recognised."""
    import msgspec

    options: dict[str, Any] = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not equals:
            raise ShiftbenchError("invalid --option", found=word, expected="NAME=VALUE")
        try:
            options[name] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            options[name] = value
    return options
