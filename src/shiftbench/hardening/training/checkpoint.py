"""Checkpoints: everything that a run needs to go on as if it had never stopped.

Random numbers need no place in it: every step draws from (seed, step) alone. The file is replaced as a whole, so that
``kill -9`` leaves the old one or the new one, and it is read without running any code of its own.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from shiftbench.hardening.errors import TrainingError
from shiftbench.hardening.recipe import Recipe, differing_keys, recipe_from
from shiftbench.io.atomic import write_atomically

CHECKPOINT = "checkpoint.pt"
FORMAT = 2


@dataclass
class Position:
    """How far a run has come, and the sums over the epoch it is in."""

    epoch: int = 0
    batch: int = 0
    seconds: float = 0.0
    best: float = -1.0
    #: Of each rank: loss times images, right answers, images.
    sums: list[list[float]] = field(default_factory=list)

    def next_epoch(self) -> None:
        self.epoch, self.batch, self.seconds = self.epoch + 1, 0, 0.0

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
    #: State dicts by what they belong to: model, optimizer, ema, scaler, best.
    states: dict[str, Any] = field(default_factory=dict)


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    content = {
        "format": FORMAT,
        "recipe": checkpoint.recipe.as_dict(),
        "fingerprint": checkpoint.fingerprint,
        "position": asdict(checkpoint.position),
        "log": checkpoint.log,
        "states": checkpoint.states,
    }
    write_atomically(folder / CHECKPOINT, lambda path: torch.save(content, path))


def read_checkpoint(folder: Path, recipe: Recipe, fingerprint: str) -> Checkpoint | None:
    """What was left in a folder by the same recipe on the same data; another one's is refused."""
    path = folder / CHECKPOINT
    if not path.is_file():
        return None
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        found = Checkpoint(
            recipe_from(content["recipe"]),
            content["fingerprint"],
            Position(**content["position"]),
            content["log"],
            content["states"],
        )
    except Exception as error:  # whatever a strange file makes torch say
        raise TrainingError(
            f"{path} cannot be read", found=f"{type(error).__name__}: {error}", hint="remove it to start again"
        ) from error
    refuse_other(folder, found.recipe, found.fingerprint, recipe, fingerprint)
    return found


def refuse_other(folder: Path, old: Recipe, old_data: str, new: Recipe, new_data: str) -> None:
    """A folder belongs to one recipe and one set of training images."""
    keys = differing_keys(old, new)
    if keys:
        before, after = (_at(recipe.as_dict(), keys[0]) for recipe in (old, new))
        raise TrainingError(
            f"{folder} belongs to another recipe: {', '.join(keys[:5])} differ{'s' if len(keys) == 1 else ''}",
            found=f"{keys[0]} = {before!r} there, {after!r} now",
            hint="choose another --out, or remove the folder to start again",
        )
    if old_data != new_data:
        raise TrainingError(
            f"{folder} was trained on other images",
            found=f"content {new_data}",
            expected=f"content {old_data}",
            hint="choose another --out, or the data it was begun with",
        )


def _at(tables: object, key: str) -> object:
    for word in key.split("."):
        if isinstance(tables, list):
            tables = tables[int(word)] if int(word) < len(tables) else None
        else:
            tables = tables.get(word) if isinstance(tables, dict) else None
    return tables
