"""Scores of a model beside the model: a section of its card, ``model-index``, and ``.eval_results/*.yaml``.

The formats are those of the Hugging Face hub, written by its own library. The card of the model is completed, not
replaced: our section lies between two comments, and of the entries in ``model-index`` only earlier ones of ours are
replaced.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from shiftbench import Run, __version__
from shiftbench.bridges.published_scores import PublishedScore, published_scores
from shiftbench.errors import ShiftbenchError
from shiftbench.extend.errors import listed, required
from shiftbench.extend.io import write_bytes

if TYPE_CHECKING:
    import huggingface_hub

CARD = "README.md"
RESULTS = ".eval_results/shiftbench.yaml"
#: By this argument of their dataset, our entries in ``model-index`` are recognised.
_MADE_BY = "evaluated_with"
_BEGIN = "<!-- shiftbench:begin -->"
_END = "<!-- shiftbench:end -->"
_SECTION = re.compile(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}\n?", re.DOTALL)
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class Publication:
    """The files that are published for one model.

    Attributes:
        model: The model's id in the workspace.
        files: By path, the new content.
        notes: What is left out, and why.
    """

    model: str
    files: Mapping[str, str]
    notes: tuple[str, ...] = ()


def is_on_hub(target: str) -> bool:
    """Whether a target is ``org/model`` of a hub, and no folder.

    Args:
        target: What the user named.
    """
    return bool(_HUB_NAME.fullmatch(target)) and not Path(target).exists()


def publication(
    run: Run,
    *,
    model: str | None = None,
    card: str = "",
    datasets: Mapping[str, str] | None = None,
    level: float = 0.95,
) -> Publication:
    """What is to be published about a model, without writing it.

    Args:
        run: The results.
        model: Name or id of the model, if there are several.
        card: The present text of the model's card.
        datasets: By setting or family, the dataset of a hub that it is a task of: ``org/name`` or ``org/name/task``.
            Only these become entries of ``.eval_results``.
        level: Confidence level of the intervals.

    Raises:
        ShiftbenchError: There are several models, or no scores.
    """
    hub = _library()
    if model is not None:
        run = run.select([model])
    scores = published_scores(run, level=level)
    models = list(dict.fromkeys(score.model_id for score in scores))
    if len(models) != 1:
        raise ShiftbenchError(
            "a model's scores are published beside it, one model at a time",
            found=listed(models) if models else "no scores",
            expected="one model",
        )
    entries = _result_entries(hub, scores, datasets or {}, level)
    files = {CARD: _completed_card(hub, card, scores, level)}
    notes: tuple[str, ...] = ()
    if entries:
        files[RESULTS] = hub.yaml_dump(hub.entries_to_yaml(entries))
    else:
        notes = (f"{RESULTS} is left out: no setting is named as a dataset of the hub",)
    return Publication(models[0], files, notes)


def write_publication(published: Publication, folder: Path) -> list[Path]:
    """Write the files below a folder, each atomically.

    Args:
        published: What is published.
        folder: The folder of the model.
    """
    paths = []
    for name, text in published.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, text.encode())
        paths.append(path)
    return paths


def present_file(target: str, name: str) -> str:
    """A file of the model as it is now, such as its card; empty if there is none.

    Args:
        target: A folder, or ``org/model`` of a hub.
        name: Name of the file there.
    """
    if not is_on_hub(target):
        path = Path(target) / name
        return path.read_text(encoding="utf-8") if path.is_file() else ""
    hub = _library()
    return hub.text_of(target, name)


def propose(published: Publication, repository: str) -> str:
    """Open a pull request with the files at a hub, and return its address.

    Args:
        published: What is published.
        repository: ``org/model``.
    """
    return _library().pull_request(repository, published)


def _completed_card(hub: _Hub, card: str, scores: Sequence[PublishedScore], level: float) -> str:
    """The card with our section, and with our entries in its metadata."""
    section = f"{_BEGIN}\n{_section(scores, level)}\n{_END}\n"
    if _SECTION.search(card):
        card = _SECTION.sub(lambda _: section, card, count=1)
    elif card:
        card = f"{card.rstrip()}\n\n{section}"
    else:
        card = f"# {_cell(scores[0].model)}\n\n{section}"
    return hub.with_results(card, scores, level)


def _section(scores: Sequence[PublishedScore], level: float) -> str:
    """The section of the card, as Markdown."""
    lines = [
        "## Robustness",
        "",
        f"| setting | metric | value, with its {100 * level:g} % interval | images |",
        "|---|---|---|---|",
    ]
    for score in scores:
        lines.append(f"| {_cell(score.setting)} | {_cell(score.metric)} | {score.text} | {score.images:,} |")
    lines += ["", f"Version {_cell(scores[0].model_id)}, evaluated with shiftbench {__version__}."]
    if scores[0].assumed:
        lines.append(
            f"**Assumed, not stated by anyone: {scores[0].assumed}.** The scores are wrong if the model was trained "
            "otherwise."
        )
    trained = [score.setting for score in scores if score.training_images]
    if trained:
        lines.append(f"**Partly on training images: {', '.join(dict.fromkeys(trained))}.**")
    lines += ["", "<details><summary>What each value rests on</summary>", ""]
    lines += [f"- {_cell(score.name)}: {_cell(score.provenance)}" for score in scores]
    lines += ["", "</details>"]
    return "\n".join(lines)


def _cell(text: str) -> str:
    """A name as plain text of a Markdown table: a name could end the cell, or be read as HTML."""
    text = " ".join(text.split())
    for character in "\\|<>`*_[]":
        text = text.replace(character, f"&#{ord(character)};")
    return text


def _result_entries(
    hub: _Hub, scores: Sequence[PublishedScore], datasets: Mapping[str, str], level: float
) -> list[huggingface_hub.EvalResultEntry]:
    """One entry for each of the named settings: its first score."""
    entries = []
    for setting, dataset in datasets.items():
        score = next((score for score in scores if score.setting == setting), None)
        if score is None:
            raise ShiftbenchError(
                f"no scores of {setting!r}", found=listed(dict.fromkeys(score.setting for score in scores))
            )
        parts = dataset.split("/")
        if len(parts) not in (2, 3) or not all(parts):
            raise ShiftbenchError(f"not a dataset of a hub: {dataset!r}", expected="org/name or org/name/task")
        task = parts[2] if len(parts) == 3 else "default"
        notes = f"{score.metric}, {score.text} at {100 * level:g} %, n = {score.images}; {score.provenance}; "
        notes += f"{score.model_id}; shiftbench {__version__}"
        if score.assumed:
            notes += f"; assumed: {score.assumed}"
        entries.append(hub.entry("/".join(parts[:2]), task, round(score.value, 4), notes))
    return entries


class _Hub(Protocol):
    """What is used of huggingface_hub."""

    def text_of(self, repository: str, name: str) -> str: ...
    def entry(self, dataset: str, task: str, value: float, notes: str) -> huggingface_hub.EvalResultEntry: ...
    def entries_to_yaml(self, entries: Sequence[huggingface_hub.EvalResultEntry]) -> list[dict[str, object]]: ...
    def pull_request(self, repository: str, published: Publication) -> str: ...
    def with_results(self, card: str, scores: Sequence[PublishedScore], level: float) -> str: ...
    def yaml_dump(self, value: object) -> str: ...


class _HuggingFaceHub:
    """huggingface_hub, imported when something is published."""

    def __init__(self) -> None:
        required("huggingface_hub", "hub", "publishing scores")

    def text_of(self, repository: str, name: str) -> str:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError

        try:
            path = hf_hub_download(repository, name)
        except EntryNotFoundError:
            return ""
        return Path(path).read_text(encoding="utf-8")

    def entry(self, dataset: str, task: str, value: float, notes: str) -> huggingface_hub.EvalResultEntry:
        from huggingface_hub import EvalResultEntry

        return EvalResultEntry(dataset_id=dataset, task_id=task, value=value, notes=notes)

    def entries_to_yaml(self, entries: Sequence[huggingface_hub.EvalResultEntry]) -> list[dict[str, object]]:
        from huggingface_hub import eval_result_entries_to_yaml

        return eval_result_entries_to_yaml(list(entries))

    def yaml_dump(self, value: object) -> str:
        import yaml

        return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True))

    def with_results(self, card: str, scores: Sequence[PublishedScore], level: float) -> str:
        from huggingface_hub import EvalResult, ModelCard, ModelCardData

        if not card.lstrip().startswith("---"):
            card = f"---\n{{}}\n---\n{card}"  # The library would warn of a card without metadata.
        try:
            parsed = ModelCard(card)
        except ValueError as error:
            raise ShiftbenchError(
                "the metadata of the model's card can't be read",
                found=str(error),
                hint="correct its model-index first, so that nothing is lost",
            ) from error
        data = cast(ModelCardData, parsed.data)
        others = [result for result in data.eval_results or [] if _MADE_BY not in (result.dataset_args or {})]
        ours = []
        for score in scores:
            arguments = {"interval": [round(score.low, 4), round(score.high, 4)], "level": level, "n": score.images}
            ours.append(
                EvalResult(
                    task_type="image-classification",
                    dataset_type=score.setting,
                    dataset_name=score.setting,
                    dataset_args={
                        "provenance": score.provenance,
                        "model": score.model_id,
                        _MADE_BY: f"shiftbench {__version__}",
                    },
                    metric_type="accuracy" if score.metric == "top1" else score.metric,
                    metric_name=score.metric,
                    metric_value=round(score.value, 4),
                    metric_args=arguments,
                )
            )
        data.eval_results = [*others, *ours]
        if not data.model_name:
            data.model_name = scores[0].model
        return str(parsed)

    def pull_request(self, repository: str, published: Publication) -> str:
        from huggingface_hub import CommitOperationAdd, HfApi

        operations = [
            CommitOperationAdd(path_in_repo=name, path_or_fileobj=text.encode())
            for name, text in published.files.items()
        ]
        commit = HfApi().create_commit(
            repository, operations, commit_message=f"Add scores of shiftbench {__version__}", create_pr=True
        )
        return str(commit.pr_url)


def _library() -> _Hub:
    return cast("_Hub", _HuggingFaceHub())
