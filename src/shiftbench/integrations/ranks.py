"""Metrics in a training on several ranks: rank 0 computes them, and every rank that asks receives them.

They travel through the key-value store with which torch's ranks have found each other, not by a collective operation.
Rank 0 therefore waits for no rank that does not ask, so that a training loop may as well call the monitor on rank 0
alone. And the ranks that wait for a long evaluation are not ended by the timeout of collective operations.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from shiftbench.errors import ShiftbenchError

#: Seconds in which rank 0 has to begin, after another rank has asked; the timeout of torch's collective operations.
_START_TIMEOUT = 30 * 60.0
#: Seconds that rank 0 gives the waiting ranks to read a result; they look for it all the time.
_READ_TIMEOUT = 10.0
#: Seconds between two looks into the store.
_POLL_INTERVAL = 0.05
#: How often each name was asked for in this process: the first call on one rank belongs to the first call on another.
_call_counts: Counter[str] = Counter()


def is_first_rank() -> bool:
    """Whether this process is rank 0, or the only one.

    Before the process group exists, the variables of torchrun and of Lightning's launcher tell the rank.
    """
    distributed = _distributed()
    if distributed is not None:
        return bool(distributed.get_rank() == 0)
    rank = os.environ.get("RANK") or os.environ.get("LOCAL_RANK") or "0"
    return rank == "0"


def computed_on_rank_0(name: str, compute: Callable[[], dict[str, float]]) -> dict[str, float]:
    """The metrics that ``compute`` returns on rank 0; the other ranks wait for them and do not call it.

    Args:
        name: What is computed; the same on all ranks.
        compute: Computes the metrics. In a training on one rank, this is all that happens.

    Raises:
        ShiftbenchError: On the other ranks, if rank 0 fails, or does not begin within half an hour.
    """
    distributed = _distributed()
    if distributed is None:
        return compute()
    _call_counts[name] += 1
    key = f"shiftbench/{name}/{_call_counts[name]}"
    store = distributed.distributed_c10d._get_default_store()
    if distributed.get_rank() == 0:
        return _published(store, key, compute)
    return _received(store, key)


def _distributed() -> Any:
    """The module ``torch.distributed`` if this process is one of several ranks, else None; torch is not imported."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    if torch.distributed.get_world_size() == 1:
        return None
    return torch.distributed


def _published(store: Any, key: str, compute: Callable[[], dict[str, float]]) -> dict[str, float]:
    """Compute the metrics, and leave them or the failure in the store."""
    store.set(f"{key}/begun", "")
    try:
        metrics = compute()
    except BaseException as error:
        # Whatever ends this rank, the others must not wait for it forever.
        failure = {"error": f"{type(error).__name__}: {error}"}
        if isinstance(error, ShiftbenchError):
            failure = {"error": error.message, "found": str(error.found), "hint": error.hint or ""}
        store.set(f"{key}/result", json.dumps(failure))
        _await_readers(store, key)
        raise
    store.set(f"{key}/result", json.dumps({"metrics": metrics}))
    _await_readers(store, key)
    return metrics


def _await_readers(store: Any, key: str) -> None:
    """Wait until the ranks that have asked so far have read the result: the store may end with this process."""
    waiting = store.add(f"{key}/waiting", 0)
    deadline = time.monotonic() + _READ_TIMEOUT
    while store.add(f"{key}/received", 0) < waiting and time.monotonic() < deadline:
        time.sleep(_POLL_INTERVAL)


def _received(store: Any, key: str) -> dict[str, float]:
    """Wait for what rank 0 leaves in the store."""
    try:
        store.add(f"{key}/waiting", 1)
        _await_key(store, f"{key}/begun", _START_TIMEOUT)
        _await_key(store, f"{key}/result")
        result = json.loads(store.get(f"{key}/result"))
        store.add(f"{key}/received", 1)
    except RuntimeError as error:  # torch's, of a connection that is lost
        raise ShiftbenchError("rank 0 has ended before it returned metrics", found=str(error)) from error
    if "error" in result:
        raise ShiftbenchError(
            f"rank 0 could not evaluate the model: {result['error']}",
            found=result.get("found"),
            hint=result.get("hint") or None,
        )
    metrics: dict[str, float] = result["metrics"]
    return metrics


def _await_key(store: Any, key: str, timeout: float = math.inf) -> None:
    deadline = time.monotonic() + timeout
    while not store.check([key]):
        if time.monotonic() > deadline:
            raise ShiftbenchError(
                "the monitor waits for rank 0, which computes the metrics",
                found=f"no call of the monitor on rank 0 within {timeout / 60:g} minutes",
                expected="calls of the monitor on every rank, or on rank 0 alone",
            )
        time.sleep(_POLL_INTERVAL)
