"""Install the package into fresh environments and run the documented commands there, as a newcomer would.

    python scripts/environments.py                    # everything that this machine can run
    python scripts/environments.py --fast             # the newest Python, the README only: about a minute
    python scripts/environments.py --python 3.12      # one Python
    python scripts/environments.py --only oldest      # environments whose name matches this

Wheel and sdist are built from this checkout. Each environment is removed when its commands have run. The commands are
read from the Markdown pages, and run in their order, in a folder with generated images and ONNX models.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUPPORTED = ("3.11", "3.12", "3.13", "3.14")
#: Packages whose versions the final table shows.
SHOWN_PACKAGES = ("numpy", "scipy", "pillow", "pyarrow", "onnxruntime", "torch", "transformers", "fastapi")
#: Extras that install torch, whose version can be chosen.
TORCH_EXTRAS = ("torch", "hf", "hardening", "keras", "open-clip")
README = ROOT / "README.md"
START = ROOT / "docs" / "start.md"

#: Two classes of images that differ in brightness, and three models by brightness. The design of one pass needs two
#: images for each of its 75 shifts.
MAKE_DATA = """
from pathlib import Path
import numpy as np
from PIL import Image
from shiftbench.classifiers.demo import Graph

generator = np.random.default_rng(0)
for name, level in (("cat", 100), ("dog", 160)):
    Path("photos", name).mkdir(parents=True)
    for i in range(80):
        pixels = generator.normal(level, 30, (48, 48, 3)) + generator.normal(0, 40)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(f"photos/{name}/{i}.png")
for name, bias in (("model", 0), ("old", 0), ("new", 0.1)):
    graph = Graph(None)
    weight = np.array([[-1, -1, -1], [1, 1, 1]], np.float32)
    scores = graph.dense(graph.mean("images"), weight, np.array([0, bias], np.float32))
    graph.ending(scores).save(Path(f"{name}.onnx"))
Path("classes.csv").write_text("key,name\\ncat,cat\\ndog,dog\\n")
"""
MAKE_TORCH_MODEL = """
import torch
network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(3, 2)).eval()
torch.export.save(torch.export.export(network, (torch.zeros(2, 3, 32, 32),)), "model.pt2")
"""
MAKE_HF_FOLDER = """
import transformers
config = transformers.ResNetConfig(
    embedding_size=8, hidden_sizes=[8], depths=[1], layer_type="basic", id2label={0: "cat", 1: "dog"},
    label2id={"cat": 0, "dog": 1},
)
transformers.ResNetForImageClassification(config).save_pretrained("network")
"""
MAKE_OPENVINO_MODEL = """
import openvino
openvino.save_model(openvino.convert_model("model.onnx"), "model.xml")
"""
MAKE_KERAS_MODEL = """
import os
os.environ["KERAS_BACKEND"] = "torch"
import keras
layers = [keras.Input((32, 32, 3)), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(2)]
keras.Sequential(layers).save("model.keras")
"""
#: Weights of the smallest network of open_clip that does not need a second library.
MAKE_OPEN_CLIP_WEIGHTS = """
import open_clip, torch
torch.save(open_clip.create_model("ViT-S-32-alt").state_dict(), "weights.pt")
"""
#: The mean of each colour and one dense layer, written in the format of LiteRT: its converter is a package of its own.
MAKE_LITERT_MODEL = """
import flatbuffers
import numpy as np
from pathlib import Path
from ai_edge_litert import schema_py_generated as schema

def filled(record, **values):
    for name, value in values.items():
        assert hasattr(record, name), name
        setattr(record, name, value)
    return record

def tensor(name, shape, buffer, kind=schema.TensorType.FLOAT32):
    return filled(schema.TensorT(), name=name, shape=shape, type=kind, buffer=buffer)

def operator(number, inputs, output, kind, options):
    return filled(
        schema.OperatorT(), opcodeIndex=number, inputs=inputs, outputs=[output], builtinOptionsType=kind,
        builtinOptions=options,
    )

mean = operator(0, [0, 1], 2, schema.BuiltinOptions.ReducerOptions, schema.ReducerOptionsT())
dense = operator(1, [2, 3, 4], 5, schema.BuiltinOptions.FullyConnectedOptions, schema.FullyConnectedOptionsT())
tensors = [
    tensor("images", [1, 32, 32, 3], 0),
    tensor("axes", [2], 1, schema.TensorType.INT32),
    tensor("means", [1, 3], 0),
    tensor("weight", [2, 3], 2),
    tensor("bias", [2], 3),
    tensor("scores", [1, 2], 0),
]
graph = filled(schema.SubGraphT(), tensors=tensors, inputs=[0], outputs=[5], operators=[mean, dense])
codes = []
for code in (schema.BuiltinOperator.MEAN, schema.BuiltinOperator.FULLY_CONNECTED):
    codes.append(filled(schema.OperatorCodeT(), builtinCode=code, deprecatedBuiltinCode=code))
buffers = [schema.BufferT()]
for values in (np.array([1, 2], np.int32), np.array([[-1] * 3, [1] * 3], np.float32), np.zeros(2, np.float32)):
    buffers.append(filled(schema.BufferT(), data=np.frombuffer(values.tobytes(), np.uint8)))
model = filled(schema.ModelT(), version=3, subgraphs=[graph], operatorCodes=codes, buffers=buffers)
builder = flatbuffers.Builder(0)
builder.Finish(model.Pack(builder), b"TFL3")
Path("model.tflite").write_bytes(bytes(builder.Output()))
"""


@dataclass(frozen=True)
class Step:
    """A command, the exit codes that are right, and a pattern that its output must contain."""

    command: str
    codes: tuple[int, ...] = (0,)
    output: str = ""
    #: A file that the command must have written.
    file: str = ""


@dataclass(frozen=True)
class Environment:
    """What is installed, and what runs there."""

    name: str
    python: Path
    extra: str
    steps: tuple[Step, ...]
    #: Code that makes more files than every environment has.
    preparation: str = ""
    #: Requirements that pip must meet, besides those of the package.
    constraints: tuple[str, ...] = ()
    #: Whether pip builds the package from the source distribution.
    sdist: bool = False


@dataclass
class Outcome:
    """How an environment fared."""

    name: str
    passed: bool
    seconds: float
    commands: int = 0
    problem: str = ""
    constraints: list[str] = field(default_factory=list)
    #: What pip installed, by name.
    versions: dict[str, str] = field(default_factory=dict)

    def verdict(self) -> str:
        word = "passed" if self.passed else "FAILED"
        return f"{word}  {self.commands:3} commands  {self.seconds:5.0f} s"


class WrongOutcomeError(Exception):
    """A command that did not do what the page says."""


# Reading the pages


def documented_commands(page: Path) -> list[str]:
    """The command lines in the code blocks of a page (fenced or indented), continuation lines joined."""
    commands: list[str] = []
    fenced = False
    continued = False
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            fenced = not fenced
            continue
        if continued:
            commands[-1] = commands[-1][:-1] + line.strip()
        elif (fenced or line.startswith("    ")) and re.match(r"\s*(?:shiftbench|pip install) ", line):
            commands.append(line.strip())
        continued = bool(commands) and commands[-1].endswith("\\")
    return commands


def steps_of(page: Path) -> tuple[Step, ...]:
    """What a page tells its reader to run, without the installation, which ``install`` does."""
    return tuple(_step(command) for command in documented_commands(page) if not command.startswith("pip "))


def _step(command: str) -> Step:
    words = shlex.split(command, comments=True)
    text = shlex.join(words)
    verb = words[1]
    if "--strict" in words:
        return Step(text, codes=(3,))
    if verb == "gate":
        # With so few images, "not enough images" is a right answer; an error is not.
        return Step(text, codes=(0, 1, 2), output=r"(?i)pass|fail|not enough")
    if verb == "doctor":
        return Step(text, codes=(0, 1, 2))
    if verb == "report":
        return Step(text, file=words[words.index("-o") + 1])
    if verb in ("eval", "table"):
        # A table with many columns shows the interval below the number.
        return Step(text, output=r"(?s)\d\d\.\d.*\[\d+\.\d, \d+\.\d\]")
    return Step(text)


def first_extra(page: Path) -> str:
    """The extra in the first installation that a page names: "onnx" of ``pip install '.[onnx]'``."""
    for command in documented_commands(page):
        match = re.search(r"pip install .*\[(\w+)\]", command)
        if match:
            return match[1]
    raise WrongOutcomeError(f"{page.name} says nowhere how to install the package with an extra")


def oldest_versions() -> tuple[str, ...]:
    """The lowest allowed version of every direct dependency of the core and of the extra onnx."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = [*project["dependencies"], *project["optional-dependencies"]["onnx"]]
    return tuple(re.split("[,;]", requirement)[0].replace(">=", "==") for requirement in requirements)


# Finding out which environments this machine can have
def find_pythons() -> dict[str, Path]:
    """The supported versions of Python on this machine: pyenv's, and those on the path."""
    pythons: dict[str, Path] = {}
    for version in SUPPORTED:
        candidates = sorted(Path.home().glob(f".pyenv/versions/{version}*/bin/python"), reverse=True)
        on_path = shutil.which(f"python{version}")
        if on_path:
            candidates.append(Path(on_path))
        for candidate in [*candidates, Path(sys.executable)]:
            if _version(candidate) == version:
                pythons[version] = candidate
                break
    return pythons


def _version(python: Path) -> str:
    """The version of a Python that can make environments; an empty text if it can't."""
    code = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    completed = subprocess.run([python, "-c", code], capture_output=True, text=True)
    return completed.stdout.strip()


def plan(pythons: dict[str, Path], torch: str | None) -> Iterator[Environment]:
    """All environments that these versions of Python can have."""
    documented = (*steps_of(README), *steps_of(START))
    extra = first_extra(README)
    oldest = min(pythons, key=SUPPORTED.index)
    for version, python in pythons.items():
        yield Environment(f"newest-{version}-{extra}", python, extra, documented)
    yield Environment(f"oldest-{oldest}-{extra}", pythons[oldest], extra, documented, constraints=oldest_versions())
    yield Environment(f"sdist-{oldest}-{extra}", pythons[oldest], extra, steps_of(README), sdist=True)
    for version, python in pythons.items():
        step = Step("shiftbench demo", output=r"\d\d\.\d", file="demo-workspace/report.html")
        yield Environment(f"newest-{version}-demo", python, "demo", (step,))
    for version, python in pythons.items():
        for extra, steps, preparation in _framework_plan():
            constraints = (f"torch=={torch}",) if torch and extra in TORCH_EXTRAS else ()
            yield Environment(f"newest-{version}-{extra}", python, extra, steps, preparation, constraints)


def _testset_step() -> Step:
    """The first command of the page about test sets, which makes a project."""
    commands = documented_commands(ROOT / "docs" / "test-sets.md")
    init = next(command for command in commands if "testset init" in command)
    return Step(init, file="pets/testset.toml")


def _framework_plan() -> Iterator[tuple[str, tuple[Step, ...], str]]:
    """Extras that stand alone: the name, the first commands of its documentation, and code that makes their files."""
    accuracy = r"accuracy +\d+\.\d % \["
    testset = _testset_step()
    # Port 9 is the one that discards: nothing answers there, and nothing leaves this machine.
    keys = "AWS_ACCESS_KEY_ID=nobody AWS_SECRET_ACCESS_KEY=nothing AWS_MAX_ATTEMPTS=1"
    settle = Step(f"{keys} shiftbench testset settle pets http://127.0.0.1:9", codes=(1,), output="MTurk did not")
    evaluate_program = Step("shiftbench eval model.pt2 --data photos/ --trust --preprocess size=32", output=accuracy)
    evaluate_folder = Step("shiftbench eval hf:network --data photos/ --preprocess size=32", output=accuracy)
    evaluate_ir = Step("shiftbench eval model.xml --data photos/ --preprocess size=32", output=accuracy)
    evaluate_lite = Step("shiftbench eval model.tflite --data photos/", output=accuracy)
    evaluate_keras = Step("shiftbench eval model.keras --data photos/", output=accuracy)
    zero_shot = "shiftbench eval open_clip:ViT-S-32-alt@weights.pt --data photos/ --labels folders"
    list_recipes = Step(documented_commands(ROOT / "docs" / "hardening.md")[0], output="cifar-augmix")
    tiny = "--set train.epochs=1 --set data.sample=64 --set architecture.name=resnet-20 --set architecture.depth=8"
    train = Step(f"shiftbench harden train cifar-standard --out run {tiny} -q", file="run/log.jsonl")
    yield "testsets", (testset,), ""
    yield "torch", (evaluate_program,), MAKE_TORCH_MODEL
    yield "hf", (evaluate_folder,), MAKE_HF_FOLDER
    yield "hardening", (list_recipes, train), ""
    yield "openvino", (evaluate_ir,), MAKE_OPENVINO_MODEL
    yield "litert", (evaluate_lite,), MAKE_LITERT_MODEL
    yield "keras", (evaluate_keras,), MAKE_KERAS_MODEL
    yield "open-clip", (Step(zero_shot, output=accuracy),), MAKE_OPEN_CLIP_WEIGHTS
    yield "mturk", (testset, settle), ""


# Building, installing, running


def build(folder: Path) -> tuple[Path, Path]:
    """Wheel and sdist of this checkout."""
    _run([sys.executable, "-m", "venv", str(folder / "build-env")])
    python = folder / "build-env" / "bin" / "python"
    _run([str(python), "-m", "pip", "install", "-q", "build"])
    _run([str(python), "-m", "build", "-o", str(folder / "dist"), str(ROOT)])
    shutil.rmtree(folder / "build-env")
    [wheel] = (folder / "dist").glob("*.whl")
    [sdist] = (folder / "dist").glob("*.tar.gz")
    return wheel, sdist


def install(environment: Environment, folder: Path, archive: Path) -> Path:
    """A fresh environment with the package and one extra; its folder of commands."""
    _run([str(environment.python), "-m", "venv", str(folder)])
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    if environment.constraints:
        constraints = folder / "constraints.txt"
        constraints.write_text("\n".join(environment.constraints) + "\n")
        command += ["-c", str(constraints)]
    _run([*command, f"shiftbench[{environment.extra}] @ {archive.as_uri()}"])
    return folder / "bin"


def installed_versions(commands: Path) -> dict[str, str]:
    """The versions of all packages in an environment."""
    text = _run([str(commands / "python"), "-m", "pip", "--disable-pip-version-check", "list", "--format", "json"])
    return {package["name"].lower(): package["version"] for package in json.loads(text)}


def try_out(environment: Environment, commands: Path, folder: Path) -> int:
    """Run the documented commands in a folder with data, and return their number. A wrong outcome raises an error."""
    # Nothing of the Python that runs this script may be visible.
    variables = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    variables["PATH"] = f"{commands}{os.pathsep}{variables['PATH']}"
    variables["COLUMNS"] = "120"
    folder.mkdir()
    for code in (MAKE_DATA, environment.preparation):
        if code:
            _run([str(commands / "python"), "-c", code], cwd=folder, env=variables)
    for step in environment.steps:
        _try_step(step, folder, variables)
    return len(environment.steps)


def _try_step(step: Step, folder: Path, env: dict[str, str]) -> None:
    """Run a command, and raise ``WrongOutcomeError`` if its outcome is not what the step expects."""
    completed = subprocess.run(step.command, shell=True, cwd=folder, env=env, capture_output=True, text=True)
    text = completed.stdout + completed.stderr
    problem = ""
    if completed.returncode not in step.codes:
        problem = f"exit code {completed.returncode}, expected {' or '.join(map(str, step.codes))}"
    elif "Traceback" in text or "please report it" in text:
        problem = "an internal error"
    elif not re.search(step.output, text):
        problem = f"nothing in the output matches {step.output}"
    elif step.file and not (folder / step.file).is_file():
        problem = f"{step.file} was not written"
    if problem:
        raise WrongOutcomeError(f"{step.command}\n{problem}\n{text[-2000:]}")


def _run(command: Sequence[str], cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """What a command prints; ``WrongOutcomeError`` if it fails."""
    completed = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    if completed.returncode != 0:
        raise WrongOutcomeError(f"{shlex.join(command)}\nexit code {completed.returncode}\n{completed.stderr[-2000:]}")
    return completed.stdout


def outcome_of(environment: Environment, archives: tuple[Path, Path], folder: Path) -> Outcome:
    """Make an environment, use it, and remove it."""
    start = time.monotonic()
    outcome = Outcome(environment.name, True, 0.0, constraints=list(environment.constraints))
    wheel, sdist = archives
    archive = sdist if environment.sdist else wheel
    try:
        commands = install(environment, folder / "env", archive)
        outcome.versions = installed_versions(commands)
        outcome.commands = try_out(environment, commands, folder / "work")
    except WrongOutcomeError as error:
        outcome.passed = False
        outcome.problem = str(error)
    finally:
        shutil.rmtree(folder / "env", ignore_errors=True)
        shutil.rmtree(folder / "work", ignore_errors=True)
    outcome.seconds = time.monotonic() - start
    return outcome


# The command line


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], epilog="Exit code 1 if a command in any environment did the wrong thing."
    )
    parser.add_argument("--python", action="append", metavar="3.X", help="only this version of Python (repeatable)")
    parser.add_argument("--fast", action="store_true", help="the newest Python here, the README only")
    parser.add_argument("--only", metavar="PATTERN", default="", help="only environments whose name matches this")
    parser.add_argument("--torch", metavar="VERSION", help="install this version of torch (default: the newest)")
    parser.add_argument("--list", action="store_true", help="name the environments, and stop")
    parser.add_argument("--json", action="store_true", help="print the outcomes as JSON")
    return parser.parse_args()


def selected_environments(arguments: argparse.Namespace) -> list[Environment]:
    """The environments that the options of the command line leave."""
    pythons = find_pythons()
    missing = [version for version in SUPPORTED if version not in pythons]
    if missing:
        print(f"not on this machine, and not tried: Python {', '.join(missing)}", file=sys.stderr)
    if arguments.python:
        pythons = {version: path for version, path in pythons.items() if version in arguments.python}
    if not pythons:
        sys.exit("no supported Python found: expected one of " + ", ".join(SUPPORTED))
    if arguments.fast:
        newest = max(pythons, key=SUPPORTED.index)
        extra = first_extra(README)
        return [Environment(f"newest-{newest}-{extra}", pythons[newest], extra, steps_of(README))]
    environments = plan(pythons, arguments.torch)
    return [environment for environment in environments if re.search(arguments.only, environment.name)]


def main() -> None:
    arguments = parse_arguments()
    environments = selected_environments(arguments)
    if arguments.list:
        print("\n".join(environment.name for environment in environments))
        return
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="shiftbench-environments-") as folder:
        archives = build(Path(folder))
        for environment in environments:
            print(f"{environment.name} ...", file=sys.stderr, flush=True)
            outcome = outcome_of(environment, archives, Path(folder))
            print(f"  {outcome.verdict()}\n{outcome.problem}", file=sys.stderr, flush=True)
            outcomes.append(outcome)
    if arguments.json:
        print(json.dumps([asdict(outcome) for outcome in outcomes], indent=2))
    else:
        show(outcomes)
    sys.exit(not all(outcome.passed for outcome in outcomes))


def show(outcomes: Sequence[Outcome]) -> None:
    """A line per environment, with the versions that differ most often; then what went wrong, again."""
    width = max(len(outcome.name) for outcome in outcomes)
    print(f"{'environment':{width}}  result  commands  seconds  installed")
    for outcome in outcomes:
        result = "passed" if outcome.passed else "FAILED"
        versions = [f"{name} {outcome.versions[name]}" for name in SHOWN_PACKAGES if name in outcome.versions]
        print(f"{outcome.name:{width}}  {result}  {outcome.commands:8}  {outcome.seconds:7.0f}  {', '.join(versions)}")
    failed = [outcome for outcome in outcomes if not outcome.passed]
    for outcome in failed:
        print(f"\n{outcome.name}: {outcome.problem}")
    print(f"\n{len(outcomes) - len(failed)} of {len(outcomes)} environments passed")


if __name__ == "__main__":
    main()
