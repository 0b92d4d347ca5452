"""Errors that say what was found, what was expected and what to do, and warnings about results."""

from __future__ import annotations

import copy
import copyreg
import difflib
import importlib
import re
import shlex
import sys
import traceback
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral
from types import EllipsisType, FrameType
from typing import Any, Literal, Self

#: The classes are public; the functions are not.
__all__ = [
    "BadImageError",
    "ClassifierError",
    "DatasetError",
    "LabelError",
    "MissingClassesError",
    "MissingExtraError",
    "ResultWarning",
    "SettingError",
    "ShiftError",
    "ShiftbenchError",
    "StoreError",
    "UnknownNameError",
]
_PACKAGE = __name__.partition(".")[0]
#: Whether the user of this process types commands: messages then name options instead of arguments.
_on_command_line = False
#: The start of a URL, which may have lost a slash, as it does when it is taken for a path, or its scheme.
_SCHEME = r"(?:[a-z][a-z0-9+.-]+:/{1,2}|(?<![\w:/])//)"
_USER_IN_URL = re.compile(rf"({_SCHEME})[^\s/'\"]*@", re.IGNORECASE)
_QUERY_OF_URL = re.compile(rf"({_SCHEME}[^\s?#'\"]*)\?[^\s'\"]+", re.IGNORECASE)
#: What follows the sign ``#``, where browsers get tokens; the name of a part of a page has no ``=``.
_FRAGMENT_OF_URL = re.compile(rf"({_SCHEME}[^\s#'\"]*)#[^\s'\"=]*=[^\s'\"]*", re.IGNORECASE)

#: Control characters but for the tab and the end of a line, and those that change the direction of writing.
CONTROL_CHARACTERS = [*range(9), *range(11, 32), *range(127, 160), 0x200E, 0x200F, *range(0x202A, 0x202F)]
CONTROL_CHARACTERS += range(0x2066, 0x206A)
_WRITTEN_OUT = {code: repr(chr(code))[1:-1] for code in CONTROL_CHARACTERS}


@contextmanager
def naming_options() -> Iterator[None]:
    """Inside, ``argument`` gives the options of commands. The command line runs in this context."""
    global _on_command_line
    was_on_command_line = _on_command_line
    _on_command_line = True
    try:
        yield
    finally:
        _on_command_line = was_on_command_line


def argument(name: str, value: object = ..., *, flag: str | None = None) -> str:
    """An argument as the user writes it: in Python, or as an option of a command.

    Args:
        name: The argument's name in Python.
        value: Its value; left open if not given. A mapping is a repeated option (``--data ROLE=FOLDER``).
        flag: The option, if it is not called like the argument.

    Example:
        >>> argument("labels", "folders"), argument("keep_scores", True), argument("labels")
        ("labels='folders'", 'keep_scores=True', 'labels=...')
        >>> with naming_options():
        ...     argument("labels", "folders"), argument("keep_scores", True), argument("labels")
        ('--labels folders', '--keep-scores', '--labels')
    """
    if not _on_command_line:
        text = "..." if isinstance(value, EllipsisType) else repr(value)
        return f"{name}={text}"
    option = flag or "--" + name.replace("_", "-")
    if isinstance(value, Mapping):
        return " ".join(shlex.join([option, f"{key}={item}"]) for key, item in value.items())
    if isinstance(value, EllipsisType | bool):
        return option
    return shlex.join([option, str(value)])


def shell_command(*words: object) -> str:
    """A command of this package as a shell takes it, to be shown: words with special characters are quoted.

    >>> shell_command("report", "-w", "my results")
    "shiftbench report -w 'my results'"
    """
    return shlex.join([_PACKAGE, *(without_credentials(str(word)) for word in words)])


def without_credentials(text: str) -> str:
    """A text without the users, passwords and queries of the URLs in it, which may hold keys and tokens.

    Records, messages and lists of jobs show URLs only in this form. A URL may have lost its scheme, or a slash, as it
    does when it is taken for a path.

    >>> without_credentials("no https://me:secret@host/model.onnx?token=x here")
    'no https://***@host/model.onnx?*** here'
    >>> without_credentials("git+ssh:/me:secret@host is not a folder")
    'git+ssh:/***@host is not a folder'
    >>> without_credentials("https://host/page#access_token=x")
    'https://host/page#***'
    """
    text = _USER_IN_URL.sub(r"\1***@", text)
    text = _FRAGMENT_OF_URL.sub(r"\1#***", text)
    return _QUERY_OF_URL.sub(r"\1?***", text)


def visible(text: str) -> str:
    r"""A text whose control characters are written out.

    A terminal obeys them, and so the name of a stranger's model could clear a warning or move another number into its
    line; after those for writing from right to left, the digits of a number that follows stand in reverse order.

    >>> print(visible("net" + chr(27) + "[2K"))
    net\x1b[2K
    """
    return text.translate(_WRITTEN_OUT)


def command_without_credentials(arguments: Iterable[str]) -> list[str]:
    """The words of a command line without credentials, in URLs or as values of options such as ``--token``."""
    words: list[str] = []
    for word in arguments:
        option, equals, _ = word.partition("=")
        if equals and _takes_secret(option):
            words.append(f"{option}=***")
        elif words and _takes_secret(words[-1]) and not word.startswith("-"):
            words.append("***")
        else:
            words.append(without_credentials(word))
    return words


def _takes_secret(option: str) -> bool:
    """Whether the value of a command-line option is a credential."""
    return option.startswith("--") and any(word in option for word in ("token", "password", "secret", "credential"))


def _shown(value: object) -> object:
    """A part of a message without credentials; None stays None."""
    return None if value is None else without_credentials(str(value))


class ShiftbenchError(Exception):
    """A problem the user can act on. Its text never shows the credentials of a URL.

    Args:
        message: What is wrong.
        found: What was found.
        expected: What was expected.
        hint: What to do.

    Example:
        >>> print(ShiftbenchError("bad severity", found=7, expected="1 to 5", hint="pass severity=5"))
        bad severity
          found:    7
          expected: 1 to 5
          try:      pass severity=5
    """

    def __init__(self, message: str, *, found: object = None, expected: object = None, hint: str | None = None) -> None:
        message = without_credentials(message)
        parts = {"found:": _shown(found), "expected:": _shown(expected), "try:": _shown(hint)}
        lines = [f"\n  {title:<9} {value}" for title, value in parts.items() if value is not None]
        super().__init__(message + "".join(lines))
        self.message = message
        self.found = without_credentials(found) if isinstance(found, str) else found
        self.expected = expected
        self.hint = hint

    def about(self, subject: object) -> Self:
        """The same error, whose message begins with what it is about; what else the error holds stays."""
        error = copy.copy(self)
        # Subclasses have other arguments.
        ShiftbenchError.__init__(
            error, f"{subject}: {self.message}", found=self.found, expected=self.expected, hint=self.hint
        )
        return error

    def __reduce__(self) -> tuple[object, ...]:
        # An error that a worker process sends is restored without a call of ``__init__``, because subclasses have
        # other arguments.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


def listed(names: Iterable[str], most: int = 4) -> str:
    """The first few names, and how many more there are.

    >>> listed(["fog", "snow", "frost"], most=2)
    'fog, snow and 1 more'
    """
    names = list(names)
    text = ", ".join(names[:most])
    if len(names) > most:
        text += f" and {len(names) - most} more"
    return text


class UnknownNameError(ShiftbenchError):
    """A name that no registry knows; suggests the nearest ones.

    Args:
        kind: What the name should be, such as ``"corruption"``.
        name: The unknown name.
        known: The names that exist.
        hint: What to do; by default the nearest known names are suggested.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str | None = None) -> None:
        known = list(known)
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        if hint is None and near:
            hint = f"did you mean {' or '.join(map(repr, near))}?"
        super().__init__(
            f"unknown {kind} {name!r}",
            expected=f"one of {listed(known, 12)}" if known else f"a registered {kind}",
            hint=hint,
        )
        self.name = name
        self.near = near


def check_names(kind: str, names: Iterable[str], known: Collection[str]) -> None:
    """Raise UnknownNameError for the first name that is not among the known ones."""
    for name in names:
        if name not in known:
            raise UnknownNameError(kind, name, known)


def check_integer(name: str, value: object, least: int | None = 1) -> None:
    """Refuse a value of the argument ``name`` that is not an integer, or is below ``least``."""
    if not isinstance(value, Integral) or (least is not None and value < least):
        expected = "an integer" if least is None else f"an integer, {least} or more"
        raise SettingError(f"invalid {argument(name)}", found=repr(value), expected=expected)


class LabelError(ShiftbenchError):
    """Labels, class folders or label spaces that do not fit together."""


class MissingClassesError(LabelError):
    """A model that lacks classes of the label space it is to be scored over.

    Attributes:
        missing: Number of classes that it lacks.

    Args:
        message: What is wrong.
        missing: Number of classes that the model lacks.
        found: What was found.
        expected: What was expected.
        hint: What to do.
    """

    def __init__(
        self, message: str, missing: int, *, found: object = None, expected: object = None, hint: str | None = None
    ) -> None:
        super().__init__(message, found=found, expected=expected, hint=hint)
        self.missing = missing


class UnknownClassesError(LabelError):
    """Classes that belong to no known label space: probably the user's own."""


class DatasetError(ShiftbenchError):
    """A dataset that cannot be read as what it was opened as."""


class BadImageError(ShiftbenchError):
    """One image that cannot be used; the run goes on without it."""


class ShiftError(ShiftbenchError):
    """A corruption, attack or style with invalid arguments."""


class ClassifierError(ShiftbenchError):
    """A classifier that cannot be loaded or does not keep its contract."""


class SettingError(ShiftbenchError):
    """A setting or suite that cannot be evaluated as asked."""


class StoreError(ShiftbenchError):
    """A workspace that cannot be read or written."""


class MissingExtraError(ShiftbenchError):
    """An optional dependency that this call needs and that is not installed.

    Args:
        package: The package that is missing, or several with commas.
        extra: The extra of shiftbench that installs it.
        purpose: What needs it.
    """

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        missing = f"the package {package!r}, which is not installed"
        if "," in package:
            missing = f"packages that are not installed: {package}"
        super().__init__(
            f"{purpose} needs {missing}",
            hint=f"pip install 'shiftbench[{extra}]'",
        )


def required(module: str, extra: str, purpose: str, package: str = "") -> Any:
    """Import a module that an extra installs; without it, an error names the extra.

    Args:
        module: The module, such as ``"onnxruntime"``.
        extra: The extra of this package.
        purpose: What needs it, for the message.
        package: Its name for people, if the module's first part is another.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(package or module.partition(".")[0], extra, purpose) from error


#: What a warning about a result is about. A strict run fails on every one but the notes.
WarningCode = Literal[
    "permuted-labels",
    "chance-level",
    "assumed-preprocessing",
    "several-outputs",
    "missing-predictions",
    "skipped-images",
    "duplicate-images",
    "training-images",
    "training-corruptions",
    "own-classes",
    "budget",
    "data-files",
    "stray-files",
    "changed-model",
    "unsteady-model",
    "mixing-model",
    "unverified-model",
    "rounded-scores",
    "several-outputs",
    "assumed-outputs",
    "ambiguous-classes",
    "training-mode",
    "unstated-decoding",
    "converted-images",
    "served-answers",
]
#: Codes of warnings that only report what was done.
_NOTES = (
    "own-classes",
    "data-files",
    "stray-files",
    "budget",
    "changed-model",
    "mixing-model",
    "unverified-model",
    "training-mode",
    "converted-images",
    "served-answers",
)


class ResultWarning(UserWarning):
    """A sign that a result may be wrong, or an assumption behind it.

    Attributes:
        code: What it is about, for programs; the text is for people.
        message: The text for people.

    Example:
        >>> warning = ResultWarning("top-1 is at chance level", "chance-level")
        >>> warning.code, str(warning), warning.is_note
        ('chance-level', 'top-1 is at chance level', False)
    """

    def __init__(self, message: str, code: WarningCode) -> None:
        super().__init__(message, code)
        self.code = code

    def __str__(self) -> str:
        return str(self.args[0])

    @property
    def is_note(self) -> bool:
        """Whether it only reports what was done; a strict run does not fail by it."""
        return self.code in _NOTES


def warn_user(warning: str | Warning) -> None:
    """Warn at the line of the user's own code that led here, however many of our functions lie between.

    Args:
        warning: The message, or the warning itself.
    """
    frame = sys._getframe(1)
    level = 2  # that of the function that called this one
    while frame.f_back is not None and _package_of(frame) == _PACKAGE:
        frame = frame.f_back
        level += 1
    warnings.warn(warning, stacklevel=level)


def _package_of(frame: FrameType) -> str:
    """The top-level package whose code a frame runs."""
    return str(frame.f_globals.get("__name__")).partition(".")[0]


@contextmanager
def raising(
    error: type[ShiftbenchError], message: str, *on: type[Exception], hint: str | None = None
) -> Iterator[None]:
    """Inside, an exception of one of the kinds ``on`` becomes an ``error`` that says what was found.

    So does the RecursionError of a parser whose input is nested too deeply.

    >>> with raising(DatasetError, "no number", ValueError):
    ...     int("seven")
    Traceback (most recent call last):
    shiftbench.errors.DatasetError: no number
      found:    invalid literal for int() with base 10: 'seven'
    """
    try:
        yield
    except MissingExtraError:
        raise  # says which extra to install, and nothing about the file
    except RecursionError as problem:
        # The parsers of JSON and TOML call themselves for every bracket, and a stranger may have written very many.
        raise error(message, found="its brackets are nested too deeply", hint=hint) from problem
    except on as problem:
        raise error(message, found=problem, hint=hint) from problem


def is_internal(error: Exception) -> bool:
    """Whether an error is probably a bug in this package.

    It is not one of the errors that users can act on, and between here and the place where it was raised there is only
    code of this package and of Python itself: no model, plug-in or other package.
    """
    if isinstance(error, ShiftbenchError | OSError | MemoryError):
        return False
    packages = {_package_of(frame) for frame, _ in traceback.walk_tb(error.__traceback__)}
    return _PACKAGE in packages and packages <= {_PACKAGE, *sys.stdlib_module_names}


def explain(error: Exception) -> str:
    """The text of our own errors; for others also where they were raised."""
    if isinstance(error, ShiftbenchError):
        return str(error)
    text = without_credentials(f"{type(error).__name__}: {error}")
    frames = traceback.extract_tb(error.__traceback__)
    if frames:
        text += f" ({frames[-1].name}, line {frames[-1].lineno})"
    return text
