"""Every parameter of every public function, class and method is documented, in Google style."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator

import pytest
from scripts import api_reference

SECTION = re.compile(r"^(Args|Attributes):\n((?:[ ]{4,}.*\n|\n)+)", re.MULTILINE)
ENTRY = re.compile(r"^[ ]{4}\*{0,2}(\w+)(?: \([^)]*\))?:", re.MULTILINE)


#: Classes whose methods are called by most users: their parameters are documented, too.
FRONT = ("Run", "RunFigures", "Dataset", "Predictions", "LabelSpace", "Corrupt", "Monitor")


@pytest.mark.parametrize("package", api_reference.PACKAGES)
def test_parameters_are_documented(package: str) -> None:
    missing = [
        f"{name}: {', '.join(lost)}" for name, found in public(package) if (lost := wanted(package, name, found))
    ]
    assert missing == []


@pytest.mark.parametrize("package", api_reference.PACKAGES)
def test_everything_has_a_summary(package: str) -> None:
    """A dataclass without docstring has its signature in place of one."""
    undescribed = [
        name for name, found in public(package) if (inspect.getdoc(found) or f"{name}(").startswith(f"{name}(")
    ]
    assert undescribed == []


def public(package: str) -> Iterator[tuple[str, object]]:
    """Functions and classes that a package exports and that belong to us, then the methods of the classes."""
    module = importlib.import_module(package)
    for name in module.__all__:
        found = getattr(module, name)
        if not (inspect.isclass(found) or inspect.isfunction(found)) or not found.__module__.startswith("shiftbench"):
            continue
        yield name, found
        if inspect.isclass(found):
            for method, member in vars(found).items():
                function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
                ours = inspect.isfunction(function) and function.__module__.startswith("shiftbench")
                if ours and not method.startswith("_"):
                    yield f"{name}.{method}", function


def wanted(package: str, name: str, found: object) -> list[str]:
    """The parameters that lack documentation, of functions, constructors and the methods of the front classes."""
    owner, _, method = name.partition(".")
    if (method and owner not in FRONT) or (inspect.isclass(found) and not _has_own_constructor(found)):
        return []
    return undocumented(found)


def _has_own_constructor(found: type) -> bool:
    """Not that of a framework, of a protocol, or of an abstract class without any."""
    made_by = getattr(found.__init__, "__module__", None) or ""  # type: ignore[misc]
    return made_by.startswith("shiftbench") and not getattr(found, "_is_protocol", False)


def undocumented(found: object) -> list[str]:
    try:
        parameters = inspect.signature(found).parameters  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return []
    # A class may leave the parameters of a constructor that it inherits to the class that has it.
    sources = inspect.getmro(found) if inspect.isclass(found) else [found]
    documented: set[str] = set()
    for source in sources:
        text = inspect.cleandoc(source.__doc__ or "") + "\n"
        for _, body in SECTION.findall(text):
            documented.update(ENTRY.findall(body))
    return [name for name in parameters if name not in ("self", "cls") and name not in documented]
