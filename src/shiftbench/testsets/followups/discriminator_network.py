"""A small convolutional network that learns from random weights which of two sets a picture comes from."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.classifiers.torch_ import import_torch
from shiftbench.jobs.threads import one_torch_thread

EPOCHS = 12
_BATCH = 64
_RATE = 0.05


def by_network(
    rows: NDArray[np.uint8],
    origins: NDArray[np.int64],
    others: NDArray[np.uint8],
    seed: int,
    *,
    side: int,
    epochs: int = EPOCHS,
) -> NDArray[np.int64]:
    """Trained by SGD with momentum on the squashed pictures and their mirror images; the origins of ``others``.

    On one thread, which so small a network hardly misses: the same seed then gives the same answers.
    """
    torch = import_torch()
    with one_torch_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = _network(torch)
        _train(torch, network, _pictures(torch, rows, side), torch.from_numpy(origins), epochs)
        network.eval()
        with torch.inference_mode():
            scores = torch.cat([network(part) for part in _pictures(torch, others, side).split(512)])
    guesses: NDArray[np.int64] = scores.argmax(dim=1).numpy()
    return guesses


def _network(torch: Any) -> Any:
    layers: list[Any] = []
    channels = 3
    for filters in (16, 32, 64):
        layers += [
            torch.nn.Conv2d(channels, filters, 3, padding=1, bias=False),
            torch.nn.BatchNorm2d(filters),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
        ]
        channels = filters
    return torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(channels, 2))


def _train(torch: Any, network: Any, pictures: Any, origins: Any, epochs: int) -> None:
    optimiser = torch.optim.SGD(network.parameters(), _RATE, momentum=0.9, weight_decay=5e-4)
    steps = epochs * max(1, -(-len(pictures) // _BATCH))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    network.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(pictures)).split(_BATCH):
            if len(batch) < 2:  # a batch norm can't learn from one picture
                continue
            images = torch.where(torch.rand(len(batch), 1, 1, 1) < 0.5, pictures[batch], pictures[batch].flip(3))
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(network(images), origins[batch]).backward()
            optimiser.step()
            schedule.step()


def _pictures(torch: Any, rows: NDArray[np.uint8], side: int) -> Any:
    images = torch.from_numpy(np.ascontiguousarray(rows)).reshape(-1, side, side, 3).permute(0, 3, 1, 2)
    return (images.float() - 120) / 64
