"""How long the pages of `shiftbench testset serve` take with a project of the size of ImageNetV2.

1,000 classes, 228 candidates and 20 references each, 10 annotators per grid, all grids answered, and three sets. The
rows are generated (no image files), and every page is requested several times as the lead and an annotator, on SQLite
and, if a server is installed, on PostgreSQL. Before each request for a page of sets, the counts of an image change, as
by an answer.

    python -m benchmarks.testset_pages [--classes 1000] [--workers 10000] [--repeat 100] [--database sqlite]

About 15 minutes with the defaults. A page gets at most 30 s on each database: slow ones are requested fewer times.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import uvicorn
from sqlalchemy import select

from benchmarks.annotation_load import Postgres
from benchmarks.page import load_before, save, table
from shiftbench.testsets.accounts import create_account, enter_by_link, invite
from shiftbench.testsets.configuration import ClassDefinition, Configuration
from shiftbench.testsets.database import PoolEntry, counts_digest
from shiftbench.testsets.project import Project
from shiftbench.testsets.revisions import sample
from shiftbench.testsets.sampling import make_sampling
from shiftbench.testsets.web.app import bind, shielded, workshop_app

CANDIDATES, REFERENCES, PEOPLE = 228, 20, 10
#: Of requests to one page; one answer may take this long.
_SECONDS = 30
NOW = "2026-03-01 12:00:00.000000+00:00"
#: Addresses by who asks.
PAGES = {
    "lead": ("/lead", "/lead?page=20", "/lead/frequencies", "/lead/frequencies?page=20", "/lead/annotators/{anna}",
             "/lead/log", "/review", "/review/sets/matched", "/review/sets/matched?page=10",
             "/review/sets/matched/classes/{key}", "/review/sets/matched/freeze", "/review/pairs", "/review/marks",
             "/review/keywords", "/review/keywords/{key}?word=word 3"),
    "annotator": ("/task", "/account"),
}  # fmt: skip
#: Pages whose content depends on what sampling again would give.
OF_SETS = ("/review", "/review/sets/matched", "/review/sets/matched?page=10", "/review/sets/matched/freeze")
SETS = {"matched": "matched-frequency", "threshold": "threshold", "top": "top-images"}


def rows_of(classes: int, people: list[int]) -> dict[str, tuple[str, Iterator[tuple[Any, ...]]]]:
    """For each table, in an order that keeps foreign keys: columns and rows as the workshop would have written them."""
    rng = np.random.default_rng(0)
    each, per_grid = CANDIDATES + REFERENCES, 46
    grids = -(-each // per_grid)
    entries, tasks = classes * each, classes * grids
    yes = rng.binomial(PEOPLE, rng.beta(2, 1, entries)).tolist()
    slot_of = [(e // each) * grids + (e % each) % grids for e in range(entries)]
    candidates = [e for e in range(entries) if e % each < CANDIDATES]

    def role_of(entry: int) -> str:
        return "reference" if entry % each >= CANDIDATES else "candidate"

    return {
        "images": (
            "id, digest, suffix, width, height, size",
            ((i, f"{i:040x}", ".jpg", 500, 375, 40000) for i in range(1, entries + 1)),
        ),
        "entries": (
            "id, role, image_id, class_key, source, source_id, keyword, date, extra, imported_at, selected, "
            "annotations, digest",
            ((i + 1, role_of(i), i + 1, f"n{i // each:04d}", "flickr", f"{i}", f"word {i % 25}", "2012-08-01", "{}",
              NOW, yes[i], PEOPLE, counts_digest(role_of(i), f"n{i // each:04d}", f"{i + 1:040x}.jpg", yes[i], PEOPLE))
             for i in range(entries)),
        ),
        "tasks": (  # answered ones, and open ones for the annotator
            "id, class_key, wished, places_left, rank, made_at",
            ((t + 1, f"n{t // grids if t < tasks else t - tasks:04d}", PEOPLE, 0 if t < tasks else PEOPLE, "00", NOW)
             for t in range(tasks + classes)),
        ),
        "slots": ("id, task_id, entry_id", ((e + 1, slot_of[e] + 1, e + 1) for e in range(entries))),
        "assignments": (
            "id, token, task_id, account_id, state, leased_at, expires_at, submitted_at, seconds, images, selected, "
            "positives, positives_selected, negatives, negatives_left",
            ((t * PEOPLE + p + 1, f"t{t}-{p}", t + 1, people[(t + p * 7) % len(people)], "submitted", NOW, NOW, NOW, 60,
              48, 30, 4, 4, 3, 3) for t in range(tasks) for p in range(PEOPLE)),
        ),
        "selections": (
            "assignment_id, slot_id",
            ((slot_of[e] * PEOPLE + p + 1, e + 1) for e in range(entries) for p in range(yes[e])),
        ),
        "near_pairs": (
            "id, entry_id, other_id, distances, state",
            ((i + 1, e + 1, e + 2, '{"pixels": 3.5}', ("open", "dismissed", "confirmed")[i % 3])
             for i, e in enumerate(candidates[::each])),
        ),
        "marks": (
            "id, entry_id, kind, note, made_at",
            ((i + 1, e + 1, "blacklist", "a drawing", NOW) for i, e in enumerate(candidates[7::each])),
        ),
    }  # fmt: skip


def fill(project: Project, classes: int, workers: int) -> None:
    """Millions of rows, past the workshop's own functions, which would take hours."""
    people = [create_account(project, f"annotator {i}", "annotator").id for i in range(workers)]
    connection = project.database.engine.raw_connection()
    cursor: Any = connection.cursor()
    cursor.execute("BEGIN")  # SQLite would commit every row
    for name, (columns, rows) in rows_of(classes, people).items():
        if project.database.is_sqlite:
            places = ", ".join("?" * len(columns.split(",")))
            cursor.executemany(f"INSERT INTO {name} ({columns}) VALUES ({places})", rows)
        else:
            with cursor.copy(f"COPY {name} ({columns}) FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
            if columns.startswith("id,"):
                cursor.execute(f"SELECT setval(pg_get_serial_sequence('{name}', 'id'), max(id)) FROM {name}")
    cursor.execute("COMMIT")
    cursor.execute("ANALYZE")
    connection.commit()
    connection.close()


def cpu_seconds(project: Project) -> float:
    """Of server and client together, and of the PostgreSQL server: what counts on a busy machine."""
    total, host = time.process_time(), project.database.url.query.get("host")
    if host:
        server = (Path(str(host)) / "data" / "postmaster.pid").read_text().split()[0]
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                fields = path.read_text().rpartition(") ")[2].split()
                total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields[1] == server else 0
    return total


def vote(project: Project, number: int) -> None:
    """Change the counts of an image of some class, and of a reference, as an answer does."""
    key = project.space.keys[number % len(project.space)]
    with project.writing() as session:
        for role in ("candidate", "reference"):
            query = select(PoolEntry).where(PoolEntry.class_key == key, PoolEntry.role == role)
            entry = session.scalars(query.order_by(PoolEntry.id)).first()
            assert entry is not None
            entry.annotations += 1
            entry.digest = counts_digest(
                role, key, f"{entry.image.digest}{entry.image.suffix}", entry.selected, entry.annotations
            )


def measure(project: Project, repeat: int) -> dict[str, dict[str, float]]:
    listener = bind("127.0.0.1", 0)
    address = f"http://localhost:{listener.getsockname()[1]}"
    app = workshop_app(project)
    server = uvicorn.Server(uvicorn.Config(shielded(app), lifespan="off", log_level="warning"))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    times: dict[str, dict[str, float]] = {}
    try:
        for role, paths in PAGES.items():
            _, session = enter_by_link(project, invite(project, role).token)  # type: ignore[arg-type]
            client = httpx.Client(base_url=address, cookies={"shiftbench-session": session}, timeout=10 * _SECONDS)
            for path in paths:
                taken: list[float] = []
                used = cpu_seconds(project)
                until = time.perf_counter() + _SECONDS
                while len(taken) < repeat and (len(taken) < 3 or time.perf_counter() < until):
                    if path in OF_SETS:
                        vote(project, len(taken))
                    start = time.perf_counter()
                    answer = client.get(path.format(anna=1, key=project.space.keys[-1]))
                    taken.append(time.perf_counter() - start)
                    assert answer.status_code == 200, (path, answer.status_code)
                used = (cpu_seconds(project) - used) / len(taken)
                times[path] = {
                    "requests": len(taken), "cpu": used, "median": float(np.median(taken)),
                    "p99": float(np.percentile(taken, 99)),
                    "worst": max(taken), "kilobytes": len(answer.content) / 1000,
                }  # fmt: skip
                shown = ", ".join(f"{name} {times[path][name]:6.3f} s" for name in ("median", "p99", "worst", "cpu"))
                print(f"{role:10} {path:40} {shown}", flush=True)
    finally:
        server.should_exit = True
        thread.join()
    return times


def run(database: str, classes: int, repeat: int, workers: int) -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory() as folder:
        names = tuple(ClassDefinition(f"n{i:04d}", f"class {i}") for i in range(classes))
        project = Project.create(Path(folder) / "large", Configuration("large", names), database=database)
        fill(project, classes, workers)
        for name, strategy in SETS.items():
            start = time.process_time()
            sample(project, name, make_sampling(strategy), per_class=10)
            seconds = time.process_time() - start
            print(f"{project.database.shown.partition(':')[0]}: {name} sampled in {seconds:.1f} s of CPU", flush=True)
        times = measure(project, repeat)
        project.close()
    return times


def markdown(times: dict[str, dict[str, dict[str, float]]], classes: int, workers: int, load: str) -> str:
    rows = [
        (database, f"`{path}`", found["requests"],
         *(f"{1000 * found[name]:.0f} ms" for name in ("median", "p99", "cpu")),
         f"{found['kilobytes']:.0f} kB")
        for database, paths in times.items()
        for path, found in paths.items()
    ]  # fmt: skip
    slowest = {database: max(found["p99"] for found in paths.values()) for database, paths in times.items()}
    cpu_times = {database: max(found["cpu"] for found in paths.values()) for database, paths in times.items()}
    most_cpu = ", ".join(f"{database} {seconds:.2f} s" for database, seconds in cpu_times.items())
    ends = ", ".join(f"{database} {seconds:.2f} s" for database, seconds in slowest.items())
    return (
        f"{classes:,} classes, {classes * (CANDIDATES + REFERENCES):,} images, {PEOPLE} answers each, by {workers:,} "
        f"annotators, three sets; one request at a time, load average {load}. CPU time is that of server, client and "
        "database, the mean of the requests; before each request for a page of sets, an answer changed the counts of "
        f"an image. The slowest page at the 99th percentile: {ends}; by CPU time: {most_cpu}.\n\n"
        + table(("database", "page", "requests", "p50", "p99", "CPU time", "size"), rows)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=10_000, help="annotators, who share the answers")
    parser.add_argument("--repeat", type=int, default=100)
    parser.add_argument("--database", help="sqlite, postgresql or a URL; default: both")
    parser.add_argument("--dry", action="store_true", help="write nothing")
    options, load = parser.parse_args(), load_before()
    with Postgres() as url:
        chosen = [options.database] if options.database else ["sqlite", *([url] if url else [])]
        chosen = [str(url) if one == "postgresql" else one for one in chosen]
        times = {name.partition("+")[0]: run(name, options.classes, options.repeat, options.workers) for name in chosen}
    text = markdown(times, options.classes, options.workers, load)
    print(text)
    if not options.dry:
        save("testset_pages", "Pages of a large test-set project", times, text)


if __name__ == "__main__":
    main()
