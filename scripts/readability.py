#!/usr/bin/env python3
"""Measures how easily the source reads, package by package, and lists the statements that hold the most syntax.

    python scripts/readability.py                                   # every package of src/shiftbench
    python scripts/readability.py src/shiftbench/runs --worst 15    # the places of one package to begin with
    python scripts/readability.py --markdown                        # the table of docs/architecture.md

All figures are per 1,000 statements, so that neither long nor short lines change them. They show where to look, and a
reader decides: a loop is better than a comprehension only where it is understood sooner.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "shiftbench"

#: Variable names that stand for a noun which the reader has to find out.
PLACEHOLDER_NAMES = frozenset(
    """
    about among anew at chosen ends found given here it known made more now of one other others own part place rest
    said shown stuff there these thing things those wanted what whole why
    """.split()  # noqa: SIM905 (a list would take one line for each word)
)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
#: Syntax that makes a reader hold several things in mind within one statement.
DENSE_SYNTAX = (*COMPREHENSIONS, ast.IfExp, ast.Lambda, ast.BoolOp)
#: Syntax at which a function takes one of several ways.
BRANCHES = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.IfExp,
    ast.BoolOp,
    ast.ExceptHandler,
    ast.match_case,
    ast.comprehension,
)
#: A function with more branches than this is split, or says why it is one.
MOST_BRANCHES = 15
SIMPLE_STATEMENTS = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Expr)


@dataclass
class Figures:
    """What was counted in some files."""

    statements: int = 0
    assigned_names: int = 0
    placeholder_names: int = 0
    tuple_assignments: int = 0
    comprehensions: int = 0
    nested_comprehensions: int = 0
    conditional_expressions: int = 0
    comment_lines: int = 0
    formatter_exceptions: int = 0
    branching_functions: int = 0

    def __add__(self, other: Figures) -> Figures:
        return Figures(*(mine + theirs for mine, theirs in zip(self.values(), other.values(), strict=True)))

    def values(self) -> tuple[int, ...]:
        return tuple(vars(self).values())

    def placeholder_percentage(self) -> float:
        return 100 * self.placeholder_names / max(self.assigned_names, 1)

    def per_thousand(self, count: int) -> float:
        return 1000 * count / max(self.statements, 1)

    def cells(self) -> list[str]:
        """The columns of the table, in the order of ``HEADINGS``."""
        rates = [
            self.per_thousand(self.tuple_assignments),
            self.per_thousand(self.comprehensions),
            self.per_thousand(self.nested_comprehensions),
            self.per_thousand(self.conditional_expressions),
            self.per_thousand(self.comment_lines),
        ]
        return [
            f"{self.statements:,}",
            f"{self.placeholder_percentage():.1f}",
            *(f"{rate:.1f}" for rate in rates),
            str(self.formatter_exceptions),
            str(self.branching_functions),
        ]


HEADINGS = (
    "package",
    "statements",
    "placeholder names (%)",
    "tuple assignments",
    "comprehensions",
    "nested",
    "conditional expressions",
    "comment lines",
    "fmt: skip",
    f"functions with more than {MOST_BRANCHES} branches",
)


@dataclass(frozen=True)
class DenseStatement:
    """One statement, and how much syntax it holds."""

    weight: int
    path: Path
    line: int
    text: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, default=[SOURCE], help="folders and files to measure")
    parser.add_argument("--worst", type=int, default=0, metavar="N", help="also list the N densest statements")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    options = parser.parse_args()

    rows = [[name, *figures.cells()] for name, figures in measured_packages(options.paths)]
    if options.markdown:
        print_markdown(rows)
    else:
        print_columns(rows)
    for statement in densest_statements(python_files(options.paths), options.worst):
        print(f"{statement.weight:>5} {statement.path}:{statement.line}\n      {statement.text}")


def python_files(paths: list[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files.extend(sorted(path.rglob("*.py")))
        else:
            files.append(path)
    return files


def measured_packages(paths: list[Path]) -> Iterator[tuple[str, Figures]]:
    """Name and figures of each package below the given folders, then of everything together."""
    total = Figures()
    by_package: dict[str, Figures] = {}
    for root in paths:
        for file in python_files([root]):
            figures = measure(file)
            total += figures
            package = file.relative_to(root).parts[0] if root.is_dir() else file.name
            by_package[package] = by_package.get(package, Figures()) + figures
    yield from by_package.items()
    yield "all", total


def measure(file: Path) -> Figures:
    """Count the syntax of one file."""
    text = file.read_text(encoding="utf-8")
    figures = Figures()
    for line in text.splitlines():
        figures.comment_lines += line.lstrip().startswith("#")
        figures.formatter_exceptions += "# fmt: skip" in line
    for node in ast.walk(ast.parse(text)):
        figures.statements += isinstance(node, ast.stmt)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            figures.assigned_names += 1
            figures.placeholder_names += node.id in PLACEHOLDER_NAMES
        elif isinstance(node, ast.Assign):
            both_are_tuples = isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)
            figures.tuple_assignments += both_are_tuples
        elif isinstance(node, COMPREHENSIONS):
            figures.comprehensions += 1
            figures.nested_comprehensions += is_nested(node)
        elif isinstance(node, ast.IfExp):
            figures.conditional_expressions += 1
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            figures.branching_functions += branch_count(node) > MOST_BRANCHES
    return figures


def branch_count(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The branches of a function, those of functions within it included."""
    return sum(isinstance(node, BRANCHES) for node in ast.walk(function))


def is_nested(comprehension: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> bool:
    """Whether a comprehension has several loops, or holds another comprehension."""
    if len(comprehension.generators) > 1:
        return True
    inner_nodes = (node for node in ast.walk(comprehension) if node is not comprehension)
    return any(isinstance(node, COMPREHENSIONS) for node in inner_nodes)


def densest_statements(files: list[Path], count: int) -> list[DenseStatement]:
    """The statements with the most syntax, among those that do more than one thing at once."""
    statements: list[DenseStatement] = []
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, SIMPLE_STATEMENTS):
                continue
            inner_nodes = list(ast.walk(node))
            dense = sum(isinstance(inner, DENSE_SYNTAX) for inner in inner_nodes)
            if dense >= 2:
                text = ast.unparse(node)[:150]
                statements.append(DenseStatement(len(inner_nodes) + 10 * dense, file, node.lineno, text))
    statements.sort(key=lambda statement: statement.weight, reverse=True)
    return statements[:count]


def print_columns(rows: list[list[str]]) -> None:
    widths = [max(len(cell) for cell in column) for column in zip(HEADINGS, *rows, strict=True)]
    for row in [list(HEADINGS), *rows]:
        name = row[0].ljust(widths[0])
        numbers = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("  ".join([name, *numbers]))


def print_markdown(rows: list[list[str]]) -> None:
    print("| " + " | ".join(HEADINGS) + " |")
    print("|---" + "|---:" * (len(HEADINGS) - 1) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
