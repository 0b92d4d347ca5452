"""Another host, made of a network namespace, whose cable can be cut."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Host:
    """A network namespace with one end of a cable, whose other end is here."""

    name: str
    #: The name of the cable's end here; the other end is called "far".
    cable: str
    #: The address of the host, and that of this end of the cable.
    address: str
    here: str

    def command(self, *words: str) -> list[str]:
        """A command that runs the words on the host."""
        return ["ip", "netns", "exec", self.name, *words]

    def cut(self) -> None:
        _ip("link", "set", self.cable, "down")

    def mend(self) -> None:
        _ip("link", "set", self.cable, "up")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def host() -> Iterator[Host]:
    """A host with delay and loss on its cable, where the kernel can do that; skips the test if there are no hosts."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and iproute2")
    number = os.getpid() % 250
    there = Host(f"sb{os.getpid()}", f"sb{os.getpid()}a", f"10.217.{number}.2", f"10.217.{number}.1")
    try:
        _ip("netns", "add", there.name)
    except subprocess.CalledProcessError:
        pytest.skip("network namespaces are not allowed here")
    try:
        _ip("link", "add", there.cable, "type", "veth", "peer", "name", "far", "netns", there.name)
        _ip("addr", "add", f"{there.here}/24", "dev", there.cable)
        _ip("link", "set", there.cable, "up")
        _ip("-n", there.name, "addr", "add", f"{there.address}/24", "dev", "far")
        _ip("-n", there.name, "link", "set", "far", "up")
        _ip("-n", there.name, "link", "set", "lo", "up")
        slow = ["tc", "qdisc", "add", "dev", there.cable, "root", "netem", "delay", "20ms", "loss", "1%"]
        subprocess.run(slow, check=False, capture_output=True)
        yield there
    finally:
        _ip("netns", "del", there.name)
