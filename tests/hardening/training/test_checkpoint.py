"""A checkpoint of which one bit has changed is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from shiftbench.hardening.errors import TrainingError  # noqa: E402
from shiftbench.hardening.recipe import recipe_from  # noqa: E402
from shiftbench.hardening.training.checkpoint import (  # noqa: E402
    CHECKPOINT,
    Checkpoint,
    Position,
    read_checkpoint,
    write_checkpoint,
)


def test_a_flipped_bit_in_the_weights_is_noticed(tmp_path: Path) -> None:
    recipe = recipe_from({"architecture": "resnet8"})
    weights = torch.arange(64, dtype=torch.float32)
    write_checkpoint(tmp_path, Checkpoint(recipe, "data", Position(), [], {"model": {"w": weights}}))
    before = read_checkpoint(tmp_path, recipe, "data")
    assert before is not None and torch.equal(before.states["model"]["w"], weights)
    path = tmp_path / CHECKPOINT
    content = bytearray(path.read_bytes())
    place = content.index(weights.numpy().tobytes())
    content[place + 41] ^= 1
    path.write_bytes(content)
    with pytest.raises(TrainingError) as caught:
        read_checkpoint(tmp_path, recipe, "data")
    assert "checksum" in str(caught.value.found)


def test_a_torch_that_may_run_code_reads_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = recipe_from({"architecture": "resnet8"})
    write_checkpoint(tmp_path, Checkpoint(recipe, "data", Position(), [], {}))
    monkeypatch.setattr(torch, "__version__", "2.5.1+cpu")
    with pytest.raises(TrainingError) as caught:
        read_checkpoint(tmp_path, recipe, "data")
    assert caught.value.found == "torch 2.5.1+cpu"
    assert caught.value.expected == "torch 2.6 or later"
