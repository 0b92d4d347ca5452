"""What a run writes: its log, one JSON line per epoch, and checkpoints, from which it continues as if never stopped.

Random numbers need no place in a checkpoint: every step draws from (seed, step) alone. The file is replaced as a whole,
so that ``kill -9`` leaves the old one or the new one. Reading it runs no code that the file contains.
"""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from shiftbench.extend.classifiers import can_read_tensors_safely
from shiftbench.extend.errors import argument
from shiftbench.extend.io import write_bytes
from shiftbench.extend.tables import LOG
from shiftbench.hardening.errors import TrainingError
from shiftbench.hardening.recipe import Recipe, differing_keys, flat, recipe_from

CHECKPOINT = "checkpoint.pt"


@dataclass
class Position:
    """How far a run has come, and the sums over its present epoch."""

    epoch: int = 0
    batch: int = 0
    seconds: float = 0.0
    #: Each rank's sums: loss times images, correct answers, images.
    sums: list[list[float]] = field(default_factory=list)

    def sums_of(self, rank: int, world: int) -> list[float]:
        """The sums that a rank continues with; if the number of ranks has changed, the first rank takes all."""
        if len(self.sums) == world:
            return self.sums[rank]
        if rank > 0:
            return [0.0, 0.0, 0.0]
        return [sum(column) for column in zip(*self.sums, strict=True)]


@dataclass
class Checkpoint:
    """All that a run needs to continue."""

    recipe: Recipe
    #: The fingerprint of the training data.
    fingerprint: str
    position: Position
    log: list[dict[str, Any]]
    #: State dicts by what they belong to: model, optimizer, ema, scaler.
    states: dict[str, Any]


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    content = {
        **vars(checkpoint),
        "recipe": checkpoint.recipe.as_dict(),
        "position": asdict(checkpoint.position),
    }
    # The file is written by ``write_bytes``, because torch's own errors explain neither a full disk nor a broken one.
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_bytes(folder / CHECKPOINT, buffer.getbuffer(), durable=True)


def read_checkpoint(folder: Path, recipe: Recipe, fingerprint: str) -> Checkpoint | None:
    """The checkpoint in a folder, or None; raises if another recipe or other data wrote it."""
    path = folder / CHECKPOINT
    if not path.is_file():
        return None
    if not can_read_tensors_safely():
        raise TrainingError(
            f"{path} was not read: this version of torch may run code while it reads tensors",
            found=f"torch {torch.__version__}",
            expected="torch 2.6 or later",
            hint="pip install 'torch>=2.6', or remove the file to start again",
        )
    try:
        _check_content(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
        content |= {"recipe": recipe_from(content["recipe"]), "position": Position(**content["position"])}
        checkpoint = Checkpoint(**content)
    except Exception as error:  # torch raises anything for a damaged file, Python for one of another version.
        raise TrainingError(
            f"{path} cannot be read", found=f"{type(error).__name__}: {error}", hint="remove it to start again"
        ) from error
    refuse_other(folder, checkpoint.recipe, checkpoint.fingerprint, recipe, fingerprint)
    return checkpoint


def _check_content(path: Path) -> None:
    """Raise ValueError if a part of the file is not what was written: torch itself does not look at the checksums."""
    with zipfile.ZipFile(path) as archive:
        damaged_part = archive.testzip()
    if damaged_part is not None:
        raise ValueError(f"the checksum of {damaged_part} is wrong")


def refuse_other(folder: Path, old: Recipe, old_data: str, new: Recipe, new_data: str) -> None:
    """Raises if a folder belongs to another recipe, or to other training images."""
    keys = differing_keys(old, new)
    if keys:
        before = flat(old.as_dict()).get(keys[0])
        after = flat(new.as_dict()).get(keys[0])
        verb = "differs" if len(keys) == 1 else "differ"
        raise TrainingError(
            f"{folder} belongs to another recipe: {', '.join(keys[:5])} {verb}",
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
    """Writes all lines anew: they are few, and the file is complete at any moment."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    write_bytes(folder / LOG, text.encode())
