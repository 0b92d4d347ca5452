"""Many annotators at once at the real pages: latency, throughput, and that no answer is lost or doubled.

python -m benchmarks.annotation_load [--annotators 200] [--minutes 10] [--think 20] [--database sqlite] [--pictures 600]

Every annotator is a browser of its own: it opens a link, loads the grid and all its pictures, thinks, looks at what
it selected, submits, and takes the next task. The server and the annotators are two processes on one machine.
Without --database: SQLite, and PostgreSQL if a server is installed; 24 minutes in all with the defaults. With it, the
last results of the other database stay on the page. A server that no longer answers ends the run with an error five
minutes later.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
from sqlalchemy import func, select

from benchmarks.page import load_before, save, saved, table
from shiftbench.datasets.catalogue import open_named
from shiftbench.datasets.subset import of_classes, per_class, take
from shiftbench.labels.space import LabelSpace
from shiftbench.testsets.accounts import invite
from shiftbench.testsets.configuration import configuration_for
from shiftbench.testsets.database import Assignment, SelectedSlot
from shiftbench.testsets.pool.entries import import_images
from shiftbench.testsets.project import VARIABLE, Project
from shiftbench.testsets.tasks import make_tasks

SPACE = LabelSpace("pets", ("cat", "dog", "frog"))
#: Connections of one browser to one server.
_CONNECTIONS = 6
#: Seconds for the last answers, after the time is over.
_PATIENCE = 300
#: What PostgreSQL logs, and what of it is printed at the end: why answers took long.
_LOGGED = ("log_min_duration_statement=1000", "log_lock_waits=on", "log_checkpoints=on")
_TELLING = ("duration:", "still waiting", "checkpoint complete", "deadlock")
_SERVE = "from shiftbench.cli import main; main()"


@dataclass
class Books:
    """What the annotators saw."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    #: Task to how many were selected, for answers that were acknowledged.
    acknowledged: dict[str, int] = field(default_factory=dict)
    doubled: int = 0
    errors: Counter[str] = field(default_factory=Counter)

    def keep(self, what: str, seconds: float) -> None:
        self.seconds.setdefault(what, []).append(seconds)


@dataclass(frozen=True)
class Answer:
    status: int
    text: str
    cookies: dict[str, str]


class Browser:
    """As little client as possible, so that what is measured is the server: keep-alive, cookies, plain forms."""

    def __init__(self, address: str, books: Books) -> None:
        self._host, _, port = address.removeprefix("http://").partition(":")
        self._port, self._address, self._books = int(port), address, books
        self._cookies: dict[str, str] = {}
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        # What waits for one of a browser's connections has not been asked for yet.
        self._turn = asyncio.Semaphore(_CONNECTIONS)

    async def get(self, what: str, path: str) -> Answer:
        return await self._ask(what, f"GET {path} HTTP/1.1\r\n", b"")

    async def post(self, what: str, path: str, fields: dict[str, str | list[str]]) -> Answer:
        body = urlencode(fields, doseq=True).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nOrigin: {self._address}\r\nContent-Length: {len(body)}\r\n"
            "Content-Type: application/x-www-form-urlencoded\r\n"
        )
        return await self._ask(what, head, body)

    def hang_up(self) -> None:
        """Servers close what has long been idle."""
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()

    async def _ask(self, what: str, head: str, body: bytes) -> Answer:
        async with self._turn:
            begin = time.perf_counter()
            reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection(self._host, self._port)
            cookies = "; ".join(f"{name}={value}" for name, value in self._cookies.items())
            writer.write(f"{head}Host: {self._host}:{self._port}\r\nCookie: {cookies}\r\n\r\n".encode() + body)
            answer = await self._read(reader)
            self._idle.append((reader, writer))
            self._books.keep(what, time.perf_counter() - begin)
        self._cookies.update(answer.cookies)
        if answer.status not in (200, 303):
            self._books.errors[f"{what}: {answer.status}"] += 1
        return answer

    async def _read(self, reader: asyncio.StreamReader) -> Answer:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        length = re.search(r"(?i)\r\ncontent-length: (\d+)", head)
        body = await reader.readexactly(int(length.group(1)) if length else 0)
        cookies = dict(re.findall(r"(?i)\r\nset-cookie: ([^=]+)=([^;\r]*)", head))
        text = body.decode() if "text/html" in head else ""
        return Answer(int(head.split(" ", 2)[1]), text, cookies)


async def annotate(address: str, token: str, until: float, think: float, books: Books, seed: int) -> None:
    draws = random.Random(seed)
    browser = Browser(address, books)
    await asyncio.sleep(draws.uniform(0, think))  # they do not all come in the same instant
    page = await browser.get("pages", f"/join/{token}")
    await browser.post("entering", "/join", {"token": token, "form": _form(page.text)})
    while time.monotonic() < until:
        page = await browser.get("grids", "/task")
        images = re.findall(r'name="image" value="([\w-]+)"', page.text)
        if not images:
            books.errors["no task left"] += 1
            return
        task = _one(r'action="/tasks/([\w-]+)/check"', page.text)
        shown = re.findall(r'<img src="([^"]+)"', page.text)
        await asyncio.gather(*(browser.get("images", source) for source in shown))
        browser.hang_up()
        await asyncio.sleep(draws.uniform(0.5, 1.5) * think)
        chosen = draws.sample(images, draws.randrange(1, len(images)))
        fields: dict[str, str | list[str]] = {"form": _form(page.text), "image": chosen}
        await browser.post("pages", f"/tasks/{task}/check", fields)
        answer = await browser.post("answers", f"/tasks/{task}/answer", fields)
        if answer.status == 303:
            books.doubled += task in books.acknowledged
            books.acknowledged[task] = len(chosen)
    browser.hang_up()


def _form(text: str) -> str:
    return _one(r'name="form" value="([0-9a-f]+)"', text)


def _one(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    if found is None:
        raise AssertionError(f"the page lacks {pattern}: {text[-500:]}")
    return found.group(1)


async def crowd(address: str, tokens: list[str], seconds: float, think: float) -> Books:
    books = Books()
    until = time.monotonic() + seconds
    async with asyncio.timeout(seconds + _PATIENCE):
        await asyncio.gather(
            *(annotate(address, token, until, think, books, seed) for seed, token in enumerate(tokens))
        )
    return books


def make_project(folder: Path, database: str, annotators: int, pictures: int) -> Project:
    """CIFAR-10's pictures in grids of 48; every annotator may answer every grid."""
    configuration = configuration_for(SPACE, "load").with_rules(annotators=annotators)
    project = Project.create(folder, configuration, database=database)
    for part, count, role in (("test", pictures, "candidate"), ("train", 60, "reference")):
        some = of_classes(take(open_named(f"cifar-10-{part}"), range(10_000)), SPACE)
        import_images(project, per_class(some, count), role)  # type: ignore[arg-type]
    make_tasks(project)
    return project


def start_server(project: Project, url: str) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-c", _SERVE, "testset", "serve", str(project.folder), "--port", "0"]
    environment = {**os.environ, VARIABLE: url, "PYTHONUNBUFFERED": "1"}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert server.stdout is not None
    for line in server.stdout:
        found = re.match(r"(http://\S+)   \(", line)
        if found:
            return server, found.group(1)
    raise AssertionError("the server did not start")


def check(project: Project, books: Books) -> dict[str, int]:
    """Acknowledged answers that the database lacks or has otherwise, and those that it has twice."""
    with project.reading() as session:
        query = select(Assignment.token, Assignment.task_id, Assignment.account_id, func.count(SelectedSlot.slot_id))
        query = query.outerjoin(SelectedSlot, SelectedSlot.assignment_id == Assignment.id)
        rows = session.execute(query.where(Assignment.state == "submitted").group_by(Assignment.id)).all()
    stored = {token: count for token, _, _, count in rows}
    lost = sum(stored.get(task) != count for task, count in books.acknowledged.items())
    doubled = len(rows) - len({(task, account) for _, task, account, _ in rows}) + books.doubled
    return {"lost": lost, "doubled": doubled, "unacknowledged": len(stored) - len(books.acknowledged)}


def measure(database: str, *, annotators: int, minutes: float, think: float, pictures: int) -> dict[str, Any]:
    folder, load = Path(tempfile.mkdtemp(prefix="shiftbench-load-")), load_before()
    try:
        project = make_project(folder / "load", database, annotators, pictures)
        tokens = [invite(project, "annotator").token for _ in range(annotators)]
        server, address = start_server(project, database)
        try:
            begin = time.monotonic()
            books = asyncio.run(crowd(address, tokens, 60 * minutes, think))
            seconds = time.monotonic() - begin
            memory, busy = _peak_mb(server.pid), _cpu_seconds(server.pid)
        finally:
            server.terminate()
            server.wait(30)
        found = check(project, books)
        project.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    spread = {
        what: [len(values), *(float(np.percentile(values, q)) for q in (50, 99)), max(values)]
        for what, values in books.seconds.items()
    }
    requests = sum(len(values) for values in books.seconds.values())
    return {
        "database": database.partition(":")[0].partition("+")[0], "annotators": annotators, "seconds": seconds,
        "think": think, "answers": len(books.acknowledged), "requests_per_second": requests / seconds,
        "latency": spread, "errors": dict(books.errors), "server_mb": memory,
        "server_cpu": busy / seconds, "load": load, **found,
    }  # fmt: skip


def _peak_mb(process: int) -> float:
    text = Path(f"/proc/{process}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", text)
    return int(found.group(1)) / 1024 if found else float("nan")


def _cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Postgres:
    """A server of our own in a folder of its own; None installed, none started. Commits reach the disk."""

    def __init__(self) -> None:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
        self._binaries = found[-1].parent if found else None
        self._folder = Path(tempfile.mkdtemp(prefix="shiftbench-load-pg-"))

    def __enter__(self) -> str | None:
        if self._binaries is None:
            return None
        if os.geteuid() == 0:  # the server refuses to run as root
            shutil.chown(self._folder, "postgres", "postgres")
        self._run("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C")
        settings = ["listen_addresses=''", f"unix_socket_directories='{self._folder}'", "max_connections=100", *_LOGGED]
        options = " ".join(f"-c {setting}" for setting in settings)
        self._run("pg_ctl", "-o", options, "-l", str(self._folder / "log"), "-w", "start")
        return f"postgresql+psycopg://postgres@/postgres?host={self._folder}"

    def __exit__(self, *_: object) -> None:
        if self._binaries is not None:
            self._run("pg_ctl", "-m", "immediate", "-w", "stop")
            lines = (self._folder / "log").read_text(errors="replace").splitlines()
            for line in [line for line in lines if any(sign in line for sign in _TELLING)][:40]:
                print(line[:300], file=sys.stderr)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, name: str, *arguments: str) -> None:
        assert self._binaries is not None
        user: dict[str, Any] = {"user": "postgres", "group": "postgres", "extra_groups": []}
        subprocess.run(
            [str(self._binaries / name), "-D", str(self._folder / "data"), *arguments], check=True, cwd=self._folder,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **(user if os.geteuid() == 0 else {}),
        )  # fmt: skip


def markdown(results: list[dict[str, Any]]) -> str:
    first = results[0]
    rows = [
        (
            result["database"], what, f"{spread[0]:,}",
            *(f"{1000 * value:.0f} ms" for value in spread[1:]),
        )
        for result in results
        for what, spread in sorted(result["latency"].items())
    ]  # fmt: skip
    sums = [
        (
            result["database"], f"{result['answers']:,}", f"{60 * result['answers'] / result['seconds']:.0f}",
            f"{result['requests_per_second']:.0f}", result["lost"], result["doubled"],
            ", ".join(f"{what} ({n})" for what, n in result["errors"].items()) or "none",
            f"{result['server_mb']:.0f} MB", f"{result['server_cpu']:.2f} of a core",
        )
        for result in results
    ]  # fmt: skip
    return (
        f"{first['annotators']} annotators at once for {first['seconds'] / 60:.1f} minutes, each with a think time of "
        f"{first['think']:g} s on average for a grid of 48 real images, all loaded. Server, database and annotators "
        f"share one machine; load average {first['load']}.\n\n"
        + table(("database", "requests", "count", "p50", "p99", "longest"), rows)
        + "\n\n"
        + table(
            (
                "database",
                "answers",
                "per minute",
                "requests/s",
                "lost",
                "doubled",
                "errors",
                "server's peak memory",
                "its CPU",
            ),
            sums,
        )
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--annotators", type=int, default=200)
    arguments.add_argument("--minutes", type=float, default=10)
    arguments.add_argument("--think", type=float, default=20, help="seconds for a grid, on average")
    arguments.add_argument("--pictures", type=int, default=600, help="candidates a class")
    arguments.add_argument("--database", help="sqlite, postgresql or a URL; default: both")
    arguments.add_argument("--dry", action="store_true", help="write nothing")
    options = arguments.parse_args()
    sizes = {name: getattr(options, name) for name in ("annotators", "minutes", "think", "pictures")}
    with Postgres() as url:
        known = {None: ["sqlite", url], "postgresql": [url]}
        results = [measure(one, **sizes) for one in known.get(options.database, [options.database]) if one]
    measured = {result["database"] for result in results}
    earlier: Any = saved("annotation_load")
    kept = [result for result in earlier or [] if result["database"] not in measured]
    results = sorted(kept + results, key=lambda result: result["database"], reverse=True)
    text = markdown(results)
    print(text)
    if not options.dry:
        save("annotation_load", "Annotation by many people at once", results, text)
    if any(result["lost"] or result["doubled"] for result in results):
        sys.exit("answers were lost or doubled")


if __name__ == "__main__":
    main()
