"""Vision-language models by way of inspect_ai: a setting as a task, and its log as results beside those of networks.

inspect_ai brings the providers (OpenAI-compatible endpoints among them), retries, time limits, keys and costs. A
setting becomes a task with a closed list of answers; the log becomes predictions of the same images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from shiftbench.bridges.closed_answers import QUESTION, check_question, data_url, named_class, question_text
from shiftbench.bridges.torch_data import SettingDataset
from shiftbench.classifiers import Preprocessing
from shiftbench.errors import SettingError
from shiftbench.extend.classifiers import NO_ANSWER, RecordedPredictions
from shiftbench.extend.errors import required
from shiftbench.extend.settings import import_answers

if TYPE_CHECKING:
    import inspect_ai


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
    check_question(images.classes, question)
    library = required("inspect_ai", "inspect", "a task of inspect_ai", "inspect_ai")
    samples = required("inspect_ai.dataset", "inspect", "a task of inspect_ai", "inspect_ai")
    models = required("inspect_ai.model", "inspect", "a task of inspect_ai", "inspect_ai")
    scorers = required("inspect_ai.scorer", "inspect", "a task of inspect_ai", "inspect_ai")
    text = question_text(images.classes, question)
    entries = []
    for index, image_id in enumerate(images.ids):
        content = [models.ContentText(text=text), models.ContentImage(image=data_url(images.pixels(index)))]
        target = images.classes[images.targets[index]] if images.targets[index] >= 0 else ""
        entries.append(samples.Sample(input=[models.ChatMessageUser(content=content)], target=target, id=image_id))
    dataset = samples.MemoryDataset(entries, name=images.setting.name)
    metadata = {"setting": images.setting.name, "classes": images.classes, "question": question, "seed": images.seed}
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

    Answers to shifted images stand beside the networks' predictions of the same setting and seed.

    Args:
        log: The log file of inspect_ai.
        images: The images of the setting, as they were given to ``inspect_task``.
        workspace: Folder of the workspace.
        name: Name of the model in tables; default: as in the log.

    Returns:
        What was imported: answers outside the list, tokens, cost.

    Raises:
        SettingError: The log is of another setting or seed, or lacks images.
    """
    logs = required("inspect_ai.log", "inspect", "a log of inspect_ai", "inspect_ai")
    content = cast("_Log", logs.read_eval_log(str(log)))
    samples = {str(sample.id): sample for sample in content.samples or []}
    missing = [image_id for image_id in images.ids if image_id not in samples]
    stated = (content.eval.metadata or {}).get("setting", images.setting.name)
    seed = (content.eval.metadata or {}).get("seed", images.seed)
    if missing or stated != images.setting.name or seed != images.seed:
        raise SettingError(
            "the log is not of this setting",
            found=f"{stated}, seed {seed}, without {len(missing)} of {len(images.ids)} images",
            expected=f"{images.setting.name}, seed {images.seed}, each image once",
        )
    refused = 0
    tokens = 0
    costs: list[float] = []
    classes: list[int] = []
    for image_id in images.ids:
        sample = samples[image_id]
        answer = named_class(sample.output.completion, images.classes)
        if answer is None:
            refused += 1
            classes.append(NO_ANSWER)
        else:
            classes.append(images.classes.index(answer))
        for usage in (sample.model_usage or {}).values():
            tokens += usage.total_tokens
            if usage.total_cost is not None:
                costs.append(usage.total_cost)
    model = name or content.eval.model.replace("/", "-")
    answers = RecordedPredictions(images.ids, name=model, space=images.space, top=classes)
    if images.preprocessing is not None:
        answers.preprocessing = Preprocessing(images.preprocessing.geometry)
    import_answers(answers, images.setting, images.dataset, workspace, seed=images.seed)
    return InspectImport(model, len(classes), refused, tokens, sum(costs) if costs else None)


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
