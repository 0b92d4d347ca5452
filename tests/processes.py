"""Processes that tests kill or talk to: forks of one that has imported everything, as to import takes two seconds."""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing.context import ForkServerProcess
from pathlib import Path

#: Imported once by the process that is forked.
PRELOADED = (
    "tests.cli.gate_target",
    "tests.runs.kill_target",
    "tests.store.unchecked_target",
    "tests.outputs.kill_target",
    "tests.hardening.augmentations.kill_target",
    "tests.hardening.training.kill_target",
    "shiftbench.testsets.commands.serve",
    "shiftbench.testsets.web.app",
    "tests.integrations.rank_target",
)


def start(target: Callable[..., object], *arguments: object) -> ForkServerProcess:
    """Runs a function of a module in a process of its own."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    process = context.Process(target=target, args=arguments)
    process.start()
    return process


def kill_often(
    target: Callable[..., object],
    arguments: Callable[[random.Random], tuple[object, ...]],
    begun: Path,
    kills: int,
    longest: float,
) -> int:
    """Starts it again and again, and kills it after some time: how many times, at most ``kills``.

    The first time it may begin, which ``begun`` shows; then it is hit anywhere, also while it is starting.
    """
    chance = random.Random(str(begun.name))
    killed = 0
    while killed < kills:
        process = start(target, *arguments(chance))
        deadline = time.monotonic() + 300
        while killed == 0 and not begun.exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        process.join(chance.uniform(0.01, longest))
        if process.exitcode is None:
            process.kill()
            killed += 1
        process.join()
        if process.exitcode == 0:
            break
    return killed


def start_command(*words: object, output: Path, env: Mapping[str, str]) -> ForkServerProcess:
    """Runs a command; what it prints goes to a file."""
    return start(_command, [str(word) for word in words], str(output), {**os.environ, **env})


def _command(words: list[str], output: str, env: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(env)
    printed = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    sys.argv = ["shiftbench", *words]
    from shiftbench.cli import main

    main()
