"""The tree shows the architecture: a package imports only from packages above it in ``LAYERS``.

Every import counts: at the top of a module, inside a function, under ``TYPE_CHECKING``, and module names in strings,
which registries import later.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from PIL import Image
from scripts import api_reference

import shiftbench
from shiftbench import extend, workshops
from shiftbench.cli.commands import COMMAND_GROUP
from shiftbench.testsets import frozen

ROOT = Path(shiftbench.__file__).parent
#: From the bottom of the package to the top, as in docs/architecture.md.
LAYERS = (
    "_version", "arrays", "grouping", "errors", "conformance", "registry", "native", "io", "jobs", "outputs",
    "labels", "datasets", "shifts", "classifiers", "settings", "store", "metrics", "runs", "diagnosis", "studies",
    "published", "reports", "api", "integrations", "cli", "extend", "bridges", "testsets", "hardening",
    "workshop_commands", "workshops", "__main__",
)  # fmt: skip
#: Looks names up in all layers when they are asked for, and imports nothing.
FACADE = "__init__"
WORKSHOPS = ("bridges", "testsets", "hardening")
#: Layers of the plug-ins, which may import each other.
PLUGIN_LAYERS = (["bridges"], ["testsets"], ["hardening"], ["workshops"], ["workshop_commands"])
EXAMPLES = ROOT.parents[1] / "examples"
#: A module in a string, or what it defines: "shiftbench.cli.eval:app".
MODULE_NAME = re.compile(r"(shiftbench(?:\.[a-z_][a-z0-9_]*)+)(?::\w+)?")


def test_every_module_belongs_to_a_layer() -> None:
    found = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert found == {*LAYERS, FACADE}


def test_layers_import_only_from_layers_above() -> None:
    wrong = sorted(
        f"{path.relative_to(ROOT)}:{line} imports {layer}"
        for path, own, line, layer in _imports()
        if LAYERS.index(layer) > LAYERS.index(own)
    )
    assert wrong == []


def test_the_core_knows_no_workshop() -> None:
    """The command line belongs to the core; only the tables that entry points name know both."""
    plugins = {*WORKSHOPS, "workshop_commands", "workshops"}
    users = {own for _, own, _, layer in _imports() if layer in plugins and own not in plugins}
    assert users == set()


def test_workshops_use_the_public_and_the_extension_api_only() -> None:
    """A third party could have written them: what they import from the core is documented."""
    allowed = {(package, name) for package in api_reference.PACKAGES for name in _exports(package)}
    allowed |= {(package, name) for package in api_reference.EXTENSION_MODULES for name in _exports(package)}
    allowed |= {("shiftbench.extend", module) for module in extend.MODULES}
    wrong = []
    for path in _workshop_files():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for module, name in _imported_names(node):
                if module.split(".")[1:2] not in PLUGIN_LAYERS and (module, name) not in allowed:
                    wrong.append(f"{path.name}:{getattr(node, 'lineno', 0)} imports {name} from {module}")
    assert wrong == []


def test_the_workshops_share_no_private_name() -> None:
    private = []
    for path in _workshop_files():
        layer = path.relative_to(ROOT).parts[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for module, name in _imported_names(node):
                if name.startswith("_") and name != "__version__" and module.split(".")[1] != layer:
                    private.append(f"{path.name} imports {name} from {module}")
    assert private == []


def test_the_extension_api_has_no_name_that_nobody_uses() -> None:
    used: set[tuple[str, str]] = set()
    modules_used_whole: set[str] = set()
    for path in [*_workshop_files(), *sorted(EXAMPLES.rglob("*.py"))]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            used.update(_imported_names(node))
            modules_used_whole.update(f"{module}.{name}" for module, name in _imported_names(node))
    unused = []
    for module in api_reference.EXTENSION_MODULES:
        if module not in modules_used_whole:
            unused += [f"{module}.{name}" for name in _exports(module) if (module, name) not in used]
    assert unused == []


def _workshop_files() -> list[Path]:
    packages = [path for name in WORKSHOPS for path in sorted((ROOT / name).rglob("*.py"))]
    return [*packages, ROOT / "workshops.py", ROOT / "workshop_commands.py"]


def _exports(module: str) -> list[str]:
    names: list[str] = importlib.import_module(module).__all__
    return names


def _imported_names(node: ast.AST) -> list[tuple[str, str]]:
    """What a node imports from this package, as pairs of module and name."""
    if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "shiftbench":
        return [(str(node.module), alias.name) for alias in node.names]
    return []


@cache
def _imports() -> list[tuple[Path, str, int, str]]:
    """(file, its layer, line, the layer that it imports or names)."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        own = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if own == FACADE:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for module in _modules(node):
                layer = module.split(".")[1]
                if layer in LAYERS:
                    found.append((path, own, getattr(node, "lineno", 0), layer))
    return found


def _modules(node: ast.AST) -> list[str]:
    """The modules of this package that a node imports, or names in a string."""
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "relative imports hide the layer"
        if node.module == "shiftbench":
            return [f"shiftbench.{name.name}" for name in node.names]
        return [node.module] if (node.module or "").startswith("shiftbench.") and node.module else []
    if isinstance(node, ast.Import):
        return [name.name for name in node.names if name.name.startswith("shiftbench.")]
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        match = MODULE_NAME.fullmatch(node.value)
        return [match[1]] if match else []
    return []


@pytest.mark.parametrize(
    ("source", "layers"),
    [
        ("def f():\n    from shiftbench.cli.app import app", ["cli"]),
        ("if TYPE_CHECKING:\n    import shiftbench.reports.page", ["reports"]),
        ("Registry('suite', builtin=('shiftbench.testsets.suites',))", ["testsets"]),
        ("from shiftbench import api", ["api"]),
        ("CommandEntry('shiftbench.hardening.commands:app', 'Train.')", ["hardening"]),
        ('"""See ``shiftbench.cli`` for more."""', []),
    ],
)
def test_imports_are_found_wherever_they_stand(source: str, layers: list[str]) -> None:
    found = [module.split(".")[1] for node in ast.walk(ast.parse(source)) for module in _modules(node)]
    assert found == layers


def test_workshops_register_as_a_third_party_would() -> None:
    assert "shiftbench.workshops" in {entry.value for entry in entry_points(group="shiftbench.plugins")}
    assert "shiftbench.workshop_commands:COMMANDS" in {entry.value for entry in entry_points(group=COMMAND_GROUP)}
    assert (workshops.FROZEN_RECORD, workshops.FROZEN_REFERENCE) == (frozen.RECORD, frozen.REFERENCE_FILE)


#: The command line; then the modules of ours that were loaded, and those of which a function was called.
EVALUATION = """
import sys, threading
entered = set()
def profile(frame, event, argument):
    if event == "call" and frame.f_code.co_name != "<module>":
        entered.add(frame.f_globals.get("__name__", ""))
sys.setprofile(profile)
threading.setprofile(profile)
from shiftbench.cli import main
try:
    main()
finally:
    sys.setprofile(None)
    for names in (list(sys.modules), list(entered)):
        print("MODULES", *sorted(name for name in names if name.startswith("shiftbench")), file=sys.stderr)
"""
#: Two classes by brightness.
MODEL = """
import numpy as np
def model():
    def by_brightness(images):
        bright = images.mean(axis=(1, 2, 3)) / 255
        return np.stack([1 - bright, bright], axis=1)
    return by_brightness
"""


def test_the_overview_of_commands_imports_none_of_them() -> None:
    program = """
import sys
from shiftbench.cli import main
sys.argv = ["shiftbench", "--help"]
try:
    main()
finally:
    watched = ("rich", "numpy")
    print(*(name for name in sys.modules if name.startswith("shiftbench.") or name in watched), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert "\n  testset " in done.stdout and "\n  harden " in done.stdout
    # Nothing of the package but this: the time of `shiftbench --help` is the time of these imports.
    expected = {"shiftbench._version", "shiftbench.cli", "shiftbench.cli.app", "shiftbench.cli.commands",
                "shiftbench.errors", "shiftbench.workshop_commands"}  # fmt: skip
    assert set(done.stderr.split()) == expected


def test_a_plain_evaluation_loads_no_workshop_and_enters_few_modules(tmp_path: Path) -> None:
    for name, level in (("dark", 20), ("light", 230)):
        (tmp_path / "data" / name).mkdir(parents=True)
        Image.new("RGB", (32, 32), (level,) * 3).save(tmp_path / "data" / name / "1.png")
    (tmp_path / "model.py").write_text(MODEL)
    done = subprocess.run(
        [sys.executable, "-c", EVALUATION, "eval", "model.py:model", "--data", "data", "--labels", "folders",
         "--suite", "corruptions", "--corruption", "fog", "--severity", "3"],
        cwd=tmp_path, env={**os.environ, "COLUMNS": "100"}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert "100.0" in done.stdout, done.stderr
    loaded, entered = (names.split() for names in done.stderr.split("MODULES")[-2:])
    assert [name for name in loaded if name.startswith(tuple(f"shiftbench.{name}" for name in WORKSHOPS))] == []
    assert 50 < len(entered) < 130
