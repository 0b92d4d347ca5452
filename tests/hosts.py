"""Hosts of their own for tests: network namespaces at the end of slow and lossy cables, which can be cut."""

from __future__ import annotations

import fcntl
import itertools
import os
import random
import select
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

#: Seconds that a packet travels, and the share of packets that are lost.
DELAY = 0.01
LOSS = 0.01
#: From the kernel's if_tun.h: attach to a device, which carries packets without a header.
_TUNSETIFF = 0x400454CA
_IFF_TUN_WITHOUT_HEADER = 0x1001
_LARGEST_PACKET = 1 << 16
_numbers = itertools.count(os.getpid())


class Cable(threading.Thread):
    """Carries packets between two network devices: after a delay, not all of them, and none while it is cut.

    The kernel's own emulation (netem) is not part of every kernel.
    """

    def __init__(self, here: int, there: int) -> None:
        super().__init__(daemon=True)
        #: Where packets from one device are written to.
        self._ends = {here: there, there: here}
        self._chance = random.Random(0)
        self._is_cut = threading.Event()
        self._is_removed = threading.Event()
        self.carried = 0
        self.lost = 0

    def cut(self) -> None:
        """From now on nobody at one end hears of the other: no packet, and no error either."""
        self._is_cut.set()

    def mend(self) -> None:
        self._is_cut.clear()

    def remove(self) -> None:
        self._is_removed.set()
        self.join()
        for end in self._ends:
            os.close(end)

    def run(self) -> None:
        on_the_way: deque[tuple[float, int, bytes]] = deque()
        while not self._is_removed.is_set():
            wait = 0.1
            if on_the_way:
                wait = max(0.0, on_the_way[0][0] - time.monotonic())
            ready, _, _ = select.select(list(self._ends), [], [], wait)
            for end in ready:
                packet = os.read(end, _LARGEST_PACKET)
                if self._is_cut.is_set() or self._chance.random() < LOSS:
                    self.lost += 1
                else:
                    on_the_way.append((time.monotonic() + DELAY, self._ends[end], packet))
            while on_the_way and on_the_way[0][0] <= time.monotonic():
                _, end, packet = on_the_way.popleft()
                # A device that is going down refuses packets.
                with suppress(OSError):
                    os.write(end, packet)
                self.carried += 1


@dataclass(frozen=True)
class Host:
    """A network namespace at the end of a cable, whose other end is here."""

    name: str
    #: The name of the cable's end here; the other end is called "far".
    cable: str
    #: The address of the host, and that of this end of the cable.
    address: str
    here: str
    packets: Cable

    def command(self, *words: str) -> list[str]:
        """A command that runs the words on the host."""
        return ["ip", "netns", "exec", self.name, *words]

    def cut(self) -> None:
        """From now on nobody at one end hears of the other."""
        self.packets.cut()

    def mend(self) -> None:
        self.packets.mend()

    @contextmanager
    def running(self, command: Sequence[str], log: Path, port: int | None = None) -> Iterator[None]:
        """A server on this host; if it has a port, it is waited for until it listens."""
        with log.open("wb") as output:
            server = subprocess.Popen(self.command(*command), stdout=output, stderr=output)
        try:
            if port is not None:
                _wait_for(self.address, port, server)
            yield
        finally:
            server.terminate()
            with suppress(subprocess.TimeoutExpired):
                server.wait(30)
            server.kill()
            server.wait()


def _wait_for(address: str, port: int, server: subprocess.Popen[bytes]) -> None:
    limit = time.monotonic() + 300
    while time.monotonic() < limit:
        assert server.poll() is None, "the server has ended"
        with suppress(OSError), socket.create_connection((address, port), timeout=5):
            return
        time.sleep(0.1)
    raise AssertionError(f"nothing listens on {address}:{port}")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _device(name: str) -> int:
    """A new network device; its packets are read from, and written to, the file descriptor."""
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TUN_WITHOUT_HEADER))
    return device


@contextmanager
def host() -> Iterator[Host]:
    """A host at the end of a cable; skips the test if there are no hosts here."""
    if shutil.which("ip") is None or os.geteuid() != 0 or not Path("/dev/net/tun").exists():
        pytest.skip("hosts in network namespaces need root, iproute2 and /dev/net/tun")
    number = next(_numbers) % 60_000
    name = f"sb{number}"
    here, there = f"10.{200 + number % 50}.{number // 250}.1", f"10.{200 + number % 50}.{number // 250}.2"
    try:
        _ip("netns", "add", name)
    except subprocess.CalledProcessError:
        pytest.skip("network namespaces are not allowed here")
    try:
        packets = Cable(_device(f"{name}a"), _device(f"{name}b"))
        _ip("link", "set", f"{name}b", "netns", name, "name", "far")
        _ip("addr", "add", here, "peer", there, "dev", f"{name}a")
        _ip("link", "set", f"{name}a", "up")
        _ip("-n", name, "addr", "add", there, "peer", here, "dev", "far")
        _ip("-n", name, "link", "set", "far", "up")
        _ip("-n", name, "link", "set", "lo", "up")
        packets.start()
        try:
            yield Host(name, f"{name}a", there, here, packets)
        finally:
            packets.remove()
    finally:
        _ip("netns", "del", name)
