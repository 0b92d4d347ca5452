"""A gate as a process of its own that is killed at a chosen look."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from shiftbench.cli import main
from shiftbench.store.gate_looks import GateLooks
from shiftbench.store.workspace import Workspace


def gate_until_killed(words: Sequence[object], look: int, is_written: bool) -> None:
    """Run the command, and kill this process when it writes this look, counted from 1: before it has, or after."""
    write_look = GateLooks.write
    looks = 0

    def write(self: GateLooks, workspace: Workspace) -> None:
        nonlocal looks
        looks += 1
        if looks < look or is_written:
            write_look(self, workspace)
        if looks == look:
            os.kill(os.getpid(), signal.SIGKILL)

    GateLooks.write = write  # type: ignore[method-assign]
    sys.argv = ["shiftbench", *map(str, words)]
    main()
