"""Trains in the folder that it is told, until it is killed: run by test_train."""

from __future__ import annotations

import sys

import torch

from shiftbench.hardening.recipe import load_recipe
from shiftbench.hardening.training.train import train

if __name__ == "__main__":
    torch.set_num_threads(1)
    train(load_recipe(sys.argv[1]), sys.argv[2], progress=False, name="killed")
