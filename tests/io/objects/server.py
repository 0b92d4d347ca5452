"""A real S3-compatible server on loopback, a client of it that is not ours, and a wire that can be cut."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest


@dataclass
class Server:
    """Moto, as a process of its own."""

    port: int
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self) -> Any:
        return boto3.client("s3", endpoint_url=self.endpoint)

    def new_bucket(self) -> Bucket:
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        self.client().create_bucket(Bucket=name)
        return Bucket(name, self)

    def requests(self) -> list[str]:
        """All so far, as "GET /bucket/key"."""
        return re.findall(r'"(?:\x1b\[[0-9;]*m)*([A-Z]+ \S+) HTTP', self.log.read_text())

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclass(frozen=True)
class Bucket:
    """A bucket of its own for a test, seen by boto3."""

    name: str
    server: Server

    @property
    def url(self) -> str:
        return f"s3://{self.name}"

    def listed(self, prefix: str = "") -> list[str]:
        pages = self.server.client().get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    def files(self, prefix: str) -> dict[str, bytes]:
        """Contents by name below a folder, without the empty objects that stand for folders."""
        client = self.server.client()
        return {
            key.removeprefix(f"{prefix}/"): client.get_object(Bucket=self.name, Key=key)["Body"].read()
            for key in self.listed(f"{prefix}/")
            if not key.endswith("/")
        }

    def put(self, key: str, data: bytes) -> None:
        self.server.client().put_object(Bucket=self.name, Key=key, Body=data)

    def put_folder(self, folder: Path, prefix: str) -> str:
        """Copy a folder; its URL."""
        client = self.server.client()
        for path in folder.rglob("*"):
            if path.is_file():
                client.upload_file(str(path), self.name, f"{prefix}/{path.relative_to(folder)}")
        return f"{self.url}/{prefix}"


@contextmanager
def running_server(folder: Path) -> Iterator[Server]:
    """Started on a free port, and stopped at the end."""
    for _ in range(5):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = int(listener.getsockname()[1])
        log = folder / f"server-{port}.log"
        with log.open("wb") as output:
            command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
            server = Server(port, subprocess.Popen(command, stdout=output, stderr=output), log)
        try:
            if _answers(server):
                yield server
                return
        finally:
            server.stop()
    pytest.fail("the S3 server does not start")


def _answers(server: Server) -> bool:
    limit = time.monotonic() + 300
    while time.monotonic() < limit and server.process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", server.port), timeout=1):
            return True
        time.sleep(0.05)
    return False


class Wire:
    """A way to the server that can be cut after so many bytes sent, or made to break every connection."""

    def __init__(self, server: Server) -> None:
        self._target = server.port
        self._listener = socket.create_server(("127.0.0.1", 0))
        #: Bytes that still come through to the server; None for all.
        self.left: int | None = None
        #: Connections on which this is sent break; the others hold.
        self.breaks_at: bytes | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                threading.Thread(target=self._carry, args=(near, far, True), daemon=True).start()
                threading.Thread(target=self._carry, args=(far, near, False), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, counted: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if counted and self.breaks_at is not None and self.breaks_at in data:
                    break
                if counted and self.left is not None:
                    data, self.left = data[: self.left], max(0, self.left - len(data))
                    target.sendall(data)
                    if self.left == 0:
                        break
                else:
                    target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def credentials(endpoint: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "tester",
        "AWS_SECRET_ACCESS_KEY": "not-to-be-told",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        # Nothing of the machine's own.
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
