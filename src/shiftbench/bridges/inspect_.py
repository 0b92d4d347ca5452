"""Vision-language models by way of inspect_ai: a setting as a task, and its log as results beside those of networks.

inspect_ai brings the providers (OpenAI-compatible endpoints among them), retries, time limits, keys and costs. A
setting becomes a task with a closed list of answers; the log becomes predictions of the same images.
"""

from __future__ import annotations

import base64
import csv
import io
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from PIL import Image

from shiftbench import import_predictions
from shiftbench.bridges.torch_data import SettingDataset
from shiftbench.errors import SettingError
from shiftbench.extend.errors import required
from shiftbench.extend.types import Pixels

if TYPE_CHECKING:
    import inspect_ai

#: ``{classes}`` are the names of the classes, separated by commas.
QUESTION = "Which of these is shown in the image? {classes}. Answer with one of these names and nothing else."
_MARGINS = " \t\r\n.!?\"'`*"


@dataclass(frozen=True)
class InspectImport:
    """What a log of inspect_ai held.

    Attributes:
        model: The name of the model in the workspace.
        images: Number of images.
        refused: Images without an answer from the list: refusals, other words, errors. They count as wrong.
        tokens: Number of tokens that the provider counted.
        cost: What the provider charged, if it says so.
    """

    model: str
    images: int
    refused: int
    tokens: int
    cost: float | None

    @property
    def text(self) -> str:
        """One line for people."""
        cost = "" if self.cost is None else f", cost {self.cost:g}"
        return (
            f"{self.model}: {self.images:,} images, {self.refused:,} without an answer from the list (counted as "
            f"wrong), {self.tokens:,} tokens{cost}; a served answer is not tied to weights"
        )


def inspect_task(images: SettingDataset, *, question: str = QUESTION) -> inspect_ai.Task:
    """A setting as a task of inspect_ai: one sample per image, with the names of the classes as the only answers.

    Args:
        images: The images of the setting: ``sb.torch_dataset("photos-c.fog.3", "photos")``.
        question: The prompt, with ``{classes}``.

    Raises:
        MissingExtraError: inspect_ai is not installed.
        SettingError: Two classes have one name, or the question does not list the classes.
    """
    _check_names(images.classes, question)
    library = required("inspect_ai", "inspect", "a task of inspect_ai", "inspect_ai")
    samples = required("inspect_ai.dataset", "inspect", "a task of inspect_ai", "inspect_ai")
    models = required("inspect_ai.model", "inspect", "a task of inspect_ai", "inspect_ai")
    scorers = required("inspect_ai.scorer", "inspect", "a task of inspect_ai", "inspect_ai")
    text = question.format(classes=", ".join(images.classes))
    entries = []
    for index, image_id in enumerate(images.ids):
        content = [models.ContentText(text=text), models.ContentImage(image=_data_url(images.pixels(index)))]
        target = images.classes[images.targets[index]] if images.targets[index] >= 0 else ""
        entries.append(samples.Sample(input=[models.ChatMessageUser(content=content)], target=target, id=image_id))
    dataset = samples.MemoryDataset(entries, name=images.setting.name)
    metadata = {"setting": images.setting.name, "classes": images.classes, "question": question}
    task = library.Task(
        dataset=dataset, scorer=scorers.exact(), name=_task_name(images.setting.name), metadata=metadata
    )
    return cast("inspect_ai.Task", task)


def import_inspect_log(
    log: str | Path,
    images: SettingDataset,
    workspace: str | Path = "shiftbench-workspace",
    *,
    name: str | None = None,
) -> InspectImport:
    """Put the answers of a log into a workspace, as predictions in the setting that the task was made of.

    The setting must be one whose images are used as they are: of shifted images, the log itself has the accuracy.

    Args:
        log: The log file of inspect_ai.
        images: The images of the setting, as they were given to ``inspect_task``.
        workspace: Folder of the workspace.
        name: Name of the model in tables; default: as in the log.

    Returns:
        What was imported: answers outside the list, tokens, cost.

    Raises:
        SettingError: The log is of another setting, lacks images, or is of a setting with a shift.
    """
    logs = required("inspect_ai.log", "inspect", "a log of inspect_ai", "inspect_ai")
    content = cast("_Log", logs.read_eval_log(str(log)))
    samples = {str(sample.id): sample for sample in content.samples or []}
    missing = [image_id for image_id in images.ids if image_id not in samples]
    stated = (content.eval.metadata or {}).get("setting", images.setting.name)
    if missing or stated != images.setting.name:
        raise SettingError(
            "the log is not of this setting",
            found=f"{stated}, without {len(missing)} of {len(images.ids)} images",
            expected=f"{images.setting.name}, each image once",
        )
    refused = 0
    tokens = 0
    costs: list[float] = []
    rows: list[tuple[str, str]] = []
    for image_id, label in zip(images.ids, images.targets, strict=True):
        sample = samples[image_id]
        answer = _answer(sample.output.completion, images.classes)
        if answer is None:
            refused += 1
            # Another class than the true one: an image without an answer counts as wrong, and is not left out.
            answer = images.classes[(label + 1) % len(images.classes)]
        rows.append((image_id, answer))
        for usage in (sample.model_usage or {}).values():
            tokens += usage.total_tokens
            if usage.total_cost is not None:
                costs.append(usage.total_cost)
    model = name or content.eval.model.replace("/", "-")
    with tempfile.TemporaryDirectory(prefix="shiftbench-") as folder:
        file = Path(folder) / f"{model}.csv"
        with file.open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows([("id", "prediction"), *rows])
        import_predictions(file, images.setting, workspace, labels=images.space, data=images.dataset)
    return InspectImport(model, len(rows), refused, tokens, sum(costs) if costs else None)


def _answer(text: str, classes: Sequence[str]) -> str | None:
    """The class that a text names, and nothing else; None for any other text."""
    plain = text.strip(_MARGINS).casefold()
    return next((name for name in classes if name.casefold() == plain), None)


def _check_names(classes: Sequence[str], question: str) -> None:
    folded = [name.casefold() for name in classes]
    if len(set(folded)) != len(folded) or len(classes) < 2:
        raise SettingError(
            "answers must tell the classes apart", found=", ".join(classes[:8]), expected="distinct names"
        )
    if "{classes}" not in question:
        raise SettingError("the question does not list the answers", found=question, expected="{classes} in its text")


def _data_url(pixels: Pixels) -> str:
    encoded = io.BytesIO()
    Image.fromarray(pixels).save(encoded, "PNG")
    return f"data:image/png;base64,{base64.b64encode(encoded.getvalue()).decode()}"


def _task_name(setting: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in setting)


class _Usage(Protocol):
    total_tokens: int
    total_cost: float | None


class _Output(Protocol):
    completion: str


class _Sample(Protocol):
    id: int | str
    output: _Output
    model_usage: Mapping[str, _Usage] | None


class _Eval(Protocol):
    model: str
    metadata: Mapping[str, object] | None


class _Log(Protocol):
    eval: _Eval
    samples: Sequence[_Sample] | None
