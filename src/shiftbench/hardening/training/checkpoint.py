"""What a run writes: its log, one JSON line per epoch, and checkpoints, with all it needs to go on as if never stopped.

Random numbers need no place in a checkpoint: every step draws from (seed, step) alone. The file is replaced as a whole,
so that ``kill -9`` leaves the old one or the new one, and it is read without running any code of its own.
"""

from __future__ import annotations

import io
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from shiftbench.errors import argument
from shiftbench.hardening.errors import TrainingError
from shiftbench.hardening.recipe import Recipe, differing_keys, flat, recipe_from
from shiftbench.io.atomic import write_bytes
from shiftbench.reports.page.sections.training import LOG

CHECKPOINT = "checkpoint.pt"


@dataclass
class Position:
    """How far a run has come, and the sums over the epoch it is in."""

    epoch: int = 0
    batch: int = 0
    seconds: float = 0.0
    #: Of each rank: loss times images, right answers, images.
    sums: list[list[float]] = field(default_factory=list)

    def sums_of(self, rank: int, world: int) -> list[float]:
        """A rank's own sums; where there were more or fewer ranks before, the first one takes all."""
        if len(self.sums) == world:
            return self.sums[rank]
        return [0.0] * 3 if rank else [sum(column) for column in zip(*self.sums, strict=True)]


@dataclass
class Checkpoint:
    recipe: Recipe
    #: Of the training data.
    fingerprint: str
    position: Position
    log: list[dict[str, Any]]
    #: State dicts by what they belong to: model, optimizer, ema, scaler.
    states: dict[str, Any]


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    position, recipe = asdict(checkpoint.position), checkpoint.recipe.as_dict()
    content = {**vars(checkpoint), "recipe": recipe, "position": position}
    buffer = io.BytesIO()  # torch itself explains neither a full disk nor one that fails
    torch.save(content, buffer)
    write_bytes(folder / CHECKPOINT, buffer.getbuffer(), durable=True)


def read_checkpoint(folder: Path, recipe: Recipe, fingerprint: str) -> Checkpoint | None:
    """What was left in a folder by the same recipe on the same data; another one's is refused."""
    path = folder / CHECKPOINT
    if not path.is_file():
        return None
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        content |= {"recipe": recipe_from(content["recipe"]), "position": Position(**content["position"])}
        found = Checkpoint(**content)
    except Exception as error:  # whatever torch raises for a damaged file, or Python for one of another version
        raise TrainingError(
            f"{path} cannot be read", found=f"{type(error).__name__}: {error}", hint="remove it to start again"
        ) from error
    refuse_other(folder, found.recipe, found.fingerprint, recipe, fingerprint)
    return found


def refuse_other(folder: Path, old: Recipe, old_data: str, new: Recipe, new_data: str) -> None:
    """A folder belongs to one recipe and one set of training images."""
    keys = differing_keys(old, new)
    if keys:
        before, after = (flat(recipe.as_dict()).get(keys[0]) for recipe in (old, new))
        raise TrainingError(
            f"{folder} belongs to another recipe: {', '.join(keys[:5])} differ{'s' if len(keys) == 1 else ''}",
            found=f"{keys[0]} = {before!r} there, {after!r} now",
            hint=f"choose another folder ({argument('out')}), or remove this one to start again",
        )
    if old_data != new_data:
        raise TrainingError(
            f"{folder} was trained on other images",
            found=f"content {new_data}",
            expected=f"content {old_data}",
            hint=f"choose another folder ({argument('out')}), or the data it was begun with",
        )


def write_log(folder: Path, lines: list[dict[str, Any]]) -> None:
    """All lines anew: short, and whole at any moment."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    write_bytes(folder / LOG, text.encode())
