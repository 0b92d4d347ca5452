"""Trains until it is killed: run by test_train, and by test_distributed as one of several ranks."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from shiftbench.classifiers.zoo import import_timm
from shiftbench.datasets.catalogue import open_named
from shiftbench.datasets.subset import sample
from shiftbench.hardening.recipe import load_recipe
from shiftbench.hardening.training.train import train

# Training needs it: four seconds for each process, unless it is forked from one that has imported it.
import_timm()


def run(recipe: Path, folder: Path, validate: bool, environment: Mapping[str, str]) -> None:
    os.environ.update(environment)
    Path(f"{folder}.pid{os.environ.get('RANK', '0')}").write_text(str(os.getpid()))
    validation = sample(open_named("cifar-10-test"), 51) if validate else None
    try:
        train(load_recipe(recipe), folder, progress=False, name="killed", validation=validation, device="cpu")
    except Exception as error:
        Path(f"{folder}.error{os.environ.get('RANK', '0')}").write_text(str(error))
        raise


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]), True, {})
