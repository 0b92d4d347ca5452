"""Trains until it is killed: run by test_train, and under torchrun by test_distributed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from shiftbench.datasets.catalogue import open_named
from shiftbench.datasets.subset import sample
from shiftbench.hardening.recipe import load_recipe
from shiftbench.hardening.training.train import train

if __name__ == "__main__":
    Path(f"{sys.argv[2]}.pid{os.environ.get('RANK', '0')}").write_text(str(os.getpid()))
    validation = sample(open_named("cifar-10-test"), 51) if "--validate" in sys.argv else None
    train(load_recipe(sys.argv[1]), sys.argv[2], progress=False, name="killed", validation=validation, device="cpu")
