"""Where a monitor's metrics go: experiment trackers, registered by name.

A third party's sink is one class with ``log`` and ``close``, and a function from the text after the colon to it::

    from shiftbench.integrations import sinks

    @sinks.register("mine")
    def mine(target):
        return MySink(target)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from shiftbench.registry import Registry


class Sink(Protocol):
    """A place that metrics are logged to."""

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Keep the metrics of one step, durably: training may be killed at any time."""

    def close(self) -> None:
        """End what was begun; runs and writers that the user made are left open."""


#: What follows the colon of ``name:target`` (may be empty) to a sink.
SinkMaker = Callable[[str], Sink]
_PACKAGE = "shiftbench.integrations"
sinks: Registry[SinkMaker] = Registry(
    "sink", builtin=(f"{_PACKAGE}.tensorboard", f"{_PACKAGE}.mlflow", f"{_PACKAGE}.wandb")
)


def find_sink(sink: str | Sink) -> Sink:
    """The sink of a spec such as ``"tensorboard:runs/first"``, or the given one.

    Args:
        sink: ``name`` or ``name:target``, or an object with ``log`` and ``close``.

    Returns:
        The sink.

    Raises:
        UnknownNameError: If no sink of that name is registered.
        MissingExtraError: If its library is not installed.
    """
    if not isinstance(sink, str):
        return sink
    name, _, target = sink.partition(":")
    return sinks.get(name)(target)
