"""Numbers and names as text: percentages, intervals, and escaping for each format."""

from __future__ import annotations

import csv
import io
import math
import re
import unicodedata
from collections.abc import Iterable

#: From this many images on a percentage is shown with two decimals; below, one: the second would be noise.
FINE_N = 1000

MISSING = "–"


def digits(n: int, unit: str = "%") -> int:
    """Decimals that n images can carry."""
    if unit != "%":
        return 3
    return 2 if n >= FINE_N else 1


def number(value: float, places: int, unit: str = "%", *, signed: bool = False) -> str:
    """A value as tables show it: percentages without the sign, nan as a dash.

    >>> number(0.7613, 2), number(-0.031, 1, signed=True), number(float("nan"), 1)
    ('76.13', '-3.1', '–')
    """
    if math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if unit == "%":
        value = value * 100
    # "z" writes what is rounded to zero without the sign of the value.
    if signed and round(float(value), places) != 0:
        return f"{value:+.{places}f}"
    return f"{value:z.{places}f}"


def interval(low: float, high: float, places: int, unit: str = "%", *, signed: bool = False) -> str:
    """``[75.75, 76.50]``, or nothing where there is no interval."""
    if math.isnan(low) or math.isnan(high):
        return ""
    return f"[{number(low, places, unit, signed=signed)}, {number(high, places, unit, signed=signed)}]"


def count(n: int) -> str:
    return f"{n:,}"


def p_value(p: float) -> str:
    """
    >>> p_value(0.0421), p_value(3.2e-9), p_value(1.0)
    ('0.042', '3e-09', '1')
    """
    if math.isnan(p):
        return MISSING
    if p >= 0.9995:
        return "1"
    return f"{p:.3f}" if p >= 0.001 else f"{p:.0e}"


def level_text(level: float) -> str:
    """
    >>> level_text(0.95), level_text(0.995)
    ('95 %', '99.5 %')
    """
    return f"{level * 100:.10g} %"


def named(titles: Iterable[str]) -> str:
    """The titles as they are enumerated in a sentence.

    >>> named(["a", "b", "c"]), named(["a"])
    ('a, b and c', 'a')
    """
    *first, last = titles
    return f"{', '.join(first)} and {last}" if first else last


def one_line(text: str) -> str:
    """The text without line breaks and tabs, which would break every table format."""
    return re.sub(r"\s+", " ", text).strip()


#: A dictionary of texts as Python prints it; the group is what lies between its braces.
_PRINTED_RECORD = re.compile(r"\{('[^{}]*)\}")


def provenance(text: str) -> str:
    """The provenance of a score for people: on one line, and dictionaries in it without braces and quotation marks.

    >>> provenance("seed 0; frost: {'textures': 'original pictures', 'content': '1f'}")
    'seed 0; frost: textures original pictures, content 1f'
    """

    def as_words(record: re.Match[str]) -> str:
        return record[1].replace("':", "").replace("'", "")

    return one_line(_PRINTED_RECORD.sub(as_words, text))


#: What stands for a character on terminals that print ASCII only; any other character becomes "?".
_ASCII = {"–": "-", "×": "x", "·": "|", "≤": "<=", "†": "+", "‡": "#", "◇": "o"}


def ascii_text(text: str) -> str:
    """The text for a terminal that prints ASCII only."""
    for character, replacement in _ASCII.items():
        text = text.replace(character, replacement)
    return text.encode("ascii", "replace").decode()


def markdown(text: str) -> str:
    """The text on one line, with a backslash before each character that Markdown would interpret."""
    return re.sub(r"([\\`*_{}<>|~\[\]])", r"\\\1", one_line(text))


_GREEK = """alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu
    nu xi omicron pi rho varsigma sigma tau upsilon phi chi psi omega"""
#: Marks behind names and numbers, in LaTeX's math mode.
LATEX_MARKS = {"†": r"\dagger", "‡": r"\ddagger", "★": r"\star", "◇": r"\diamond", "~": r"\sim"}
_LATEX = {
    **{mark: f"$^{symbol}$" for mark, symbol in LATEX_MARKS.items()},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "–": "--",
    "×": r"$\times$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "`": r"\textasciigrave{}",
    "\N{MINUS SIGN}": "$-$",
    "\N{ZERO WIDTH SPACE}": "{}",
    **{character: f"\\{character}" for character in "{}&%$#_"},
    **{chr(ord("α") + i): f"$\\{name}$" for i, name in enumerate(_GREEK.split())},
    "ο": "o",
}
#: What pdflatex can't print without further packages.
_UNPRINTED = re.compile("[^\0-ſ‐-‖‘’“”†‡•…‰€™←-↓]+|[«»ÐÞðþĄąĐđĘęĦħĮįĸĿŀŉŊŋŦŧŲųſ]+")


#: The sign of a number, which a hyphen is too short for.
_SIGN = re.compile(r"(?<![^\s\[(,])-(?=\d)")


def latex(text: str) -> str:
    """Text with LaTeX's special characters escaped; signs are minus signs, and two hyphens are no dash.

    Other scripts are printed by XeLaTeX and LuaLaTeX; pdflatex prints the code points.

    >>> latex("-0.5 [-1, 2] by --level")
    '$-$0.5 [$-$1, 2] by -{}-level'
    """
    line = unicodedata.normalize("NFC", one_line(text))
    signed = _SIGN.sub("\N{MINUS SIGN}", line).replace("--", "-\N{ZERO WIDTH SPACE}-")
    escaped = "".join(_LATEX.get(character, character) for character in signed)
    return _UNPRINTED.sub(_code_points, escaped)


def _code_points(unprinted: re.Match[str]) -> str:
    code_points = " ".join(f"U+{ord(character):04X}" for character in unprinted[0])
    return rf"\ifdefined\Umathcode {unprinted[0]}\else[{code_points}]\fi{{}}"


def csv_text(text: str) -> str:
    """A name that a spreadsheet would run as a formula gets a leading apostrophe, which it then hides."""
    text = one_line(text)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def csv_lines(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows([header, *rows])
    return stream.getvalue()


def wrap_name(name: str, width: int) -> list[str]:
    """Break a long name after ``. _ - / :`` into lines of at most ``width``, so that it stays readable.

    A number stays with what it belongs to.

    >>> wrap_name("imagenet-c.gaussian_noise.3", 14)
    ['imagenet-c.', 'gaussian_', 'noise.3']
    """
    lines = [""]
    for piece in re.split(r"(?<=[._\-/: ])(?=[^\d._\-/: ])", one_line(name)):
        if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
        while len(lines[-1].rstrip()) > width:
            lines[-1:] = [lines[-1][:width], lines[-1][width:]]
    return [line.rstrip() for line in lines]
