"""The advice of errors, as data: every ``hint=`` in the source, and what it asks the user to type."""

from __future__ import annotations

import ast
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[1] / "src" / "shiftbench"
#: A hint asks the user to type something if its source has one of these.
_TYPED = re.compile(r"argument\(|shell_command\(|shiftbench |--[a-z]|`|(?<![\w.])[a-z_]+=(?!=)|pip install")
#: An option and its value in a sentence. What follows a comma or a bracket belongs to the sentence, as do these words.
_OPTION = re.compile(r"(?<![\w-])(--?[a-z][a-z-]*)(?:[ =]('[^']*'|[^\s,;()]+))?")
_ARGUMENT = re.compile(r"(?<![\w.])([a-z_]+)=('[^']*'|\{[^}]*\}|True|False|[\d.]+)")
_WORDS = (
    "or",
    "if",
    "and",
    "of",
    "with",
    "for",
    "when",
    "replaces",
    "leaves",
    "takes",
    "confirms",
    "from",
    "too",
    "in",
    "is",
    "shows",
)


@dataclass(frozen=True)
class Hint:
    """A hint in the source: the file, the function, which of its hints it is, and its expression."""

    key: str
    expression: ast.expr

    @property
    def text(self) -> str:
        return ast.unparse(self.expression)

    @property
    def is_typed(self) -> bool:
        """Whether it names a command, an option or an argument."""
        return bool(_TYPED.search(self.text))

    def option_names(self) -> list[str]:
        """The options that its calls of ``argument`` give on the command line."""
        names: list[str] = []
        for node in ast.walk(self.expression):
            match node:
                case ast.Call(func=ast.Name(id="argument"), args=[ast.Constant(value=str(name)), *_]):
                    flags = [keyword.value for keyword in node.keywords if keyword.arg == "flag"]
                    flag = ast.literal_eval(flags[0]) if flags else "--" + name.replace("_", "-")
                    names += flag.split(", ")
        return names

    def fits(self, hint: str) -> bool:
        """Whether a hint that the user has seen may be this one."""
        return re.fullmatch(_pattern(self.expression), hint, re.DOTALL) is not None


def _pattern(node: ast.expr) -> str:
    """The texts that an expression may give; what is not known before it runs may be anything."""
    match node:
        case ast.Constant():
            return re.escape(str(node.value))
        case ast.JoinedStr():
            return "".join(map(_pattern, node.values))
        case ast.FormattedValue():
            return _pattern(node.value)
        case ast.IfExp():
            return f"(?:{_pattern(node.body)}|{_pattern(node.orelse)})"
        case ast.BoolOp():
            return f"(?:{'|'.join(map(_pattern, node.values))})"
        case ast.BinOp(op=ast.Add()):
            return _pattern(node.left) + _pattern(node.right)
        case ast.Call(func=ast.Name(id="argument"), args=[ast.Constant(value=str(name)), *_]):
            flags = [_pattern(keyword.value) for keyword in node.keywords if keyword.arg == "flag"]
            option = flags[0] if flags else "--" + name.replace("_", "-")
            return f"(?:{option}|{name}=).*"
    return ".*"


def all_hints() -> list[Hint]:
    hints: list[Hint] = []
    for path in sorted(SOURCE.rglob("*.py")):
        numbers: Counter[str] = Counter()
        for function, value in _hints_of(ast.parse(path.read_text(encoding="utf-8")), ""):
            numbers[function] += 1
            number = f"#{numbers[function]}" if numbers[function] > 1 else ""
            hints.append(Hint(f"{path.relative_to(SOURCE)}::{function}{number}", value))
    return hints


def _hints_of(node: ast.AST, function: str) -> Iterator[tuple[str, ast.expr]]:
    """Hints of calls, and texts that are assigned to a variable `hint` first, each with its function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            for keyword in child.keywords:
                if keyword.arg == "hint" and not isinstance(keyword.value, ast.Name | ast.Attribute):
                    yield function, keyword.value
        if isinstance(child, ast.Assign):
            names = [target.id for target in child.targets if isinstance(target, ast.Name)]
            if "hint" in names:
                yield function, child.value
        inside = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
        yield from _hints_of(child, inside)


def options_in(hint: str, values: Mapping[str, object]) -> list[list[str]]:
    """The options that a hint names, each with its value; ``values`` replaces placeholders such as FOLDER."""
    options = []
    for flag, value in _OPTION.findall(re.sub(r"`[^`]*`", "", hint)):
        words = [flag]
        text = value.rstrip(".?:") if value not in _WORDS else ""
        if text:
            words.append(_filled(shlex.split(text)[0], values))
        elif flag in values:
            words.append(str(values[flag]))
        options.append(words)
    return options


def arguments_in(hint: str, values: Mapping[str, object]) -> list[tuple[str, Any]]:
    """The arguments of Python that a hint names, each with its value."""
    found = []
    for name, text in _ARGUMENT.findall(hint):
        value = ast.literal_eval(text)
        found.append((name, values.get(value, value) if isinstance(value, str) else value))
    return found


def commands_in(hint: str, values: Mapping[str, object]) -> list[list[str]]:
    """The commands of this package in a hint, without the name of the program."""
    texts = [text for text in re.findall(r"`([^`]*)`", hint) if text.startswith("shiftbench ")]
    if not texts:
        texts = re.findall(r"shiftbench (?:[^,;`]|(?<=\d),)+", hint)
    return [[_filled(word, values) for word in shlex.split(text)[1:]] for text in texts]


def _filled(word: str, values: Mapping[str, object]) -> str:
    """A word with its placeholders replaced: FOLDER, ROLE=FOLDER."""
    name, equals, value = word.partition("=")
    if equals:
        return f"{values.get(name, name)}={values.get(value, value)}"
    return str(values.get(word, word))
