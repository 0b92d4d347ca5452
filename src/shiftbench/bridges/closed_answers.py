"""Questions to vision-language models with a closed list of answers: the names of the classes."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

from PIL import Image

from shiftbench.errors import SettingError
from shiftbench.extend.types import Pixels

#: ``{classes}`` are the names of the classes, separated by commas.
QUESTION = "Which of these is shown in the image? {classes}. Answer with one of these names and nothing else."
_MARGINS = " \t\r\n.!?\"'`*"


def check_question(classes: Sequence[str], question: str) -> None:
    """Raise SettingError if two classes have one name, or the question does not list the classes."""
    folded = [name.casefold() for name in classes]
    if len(set(folded)) != len(folded) or len(classes) < 2:
        raise SettingError(
            "answers must tell the classes apart", found=", ".join(classes[:8]), expected="distinct names"
        )
    if "{classes}" not in question:
        raise SettingError("the question does not list the answers", found=question, expected="{classes} in its text")


def question_text(classes: Sequence[str], question: str) -> str:
    """The question with the names of the classes."""
    return question.replace("{classes}", ", ".join(classes))


def named_class(text: str, classes: Sequence[str]) -> str | None:
    """The class that a text names, and nothing else; None for any other text.

    >>> named_class(" Cat.", ["cat", "dog"]), named_class("a cat or a dog", ["cat", "dog"])
    ('cat', None)
    """
    plain = text.strip(_MARGINS).casefold()
    return next((name for name in classes if name.casefold() == plain), None)


def data_url(pixels: Pixels) -> str:
    """An image as the text that stands in place of an address, without loss."""
    encoded = io.BytesIO()
    Image.fromarray(pixels).save(encoded, "PNG")
    return f"data:image/png;base64,{base64.b64encode(encoded.getvalue()).decode()}"
