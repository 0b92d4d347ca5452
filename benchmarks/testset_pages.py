"""How long the pages of `shiftbench testset serve` take with a project of the size of ImageNetV2.

1,000 classes, 228 candidates and 20 references each, 10 annotators per grid, all grids answered. The rows are generated
(no image files), and every page is requested several times as the lead, a reviewer and an annotator.

    python benchmarks/testset_pages.py [--classes 1000] [--repeat 10] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import tempfile
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import uvicorn

from shiftbench.testsets.accounts import create_account, enter_by_link, invite
from shiftbench.testsets.configuration import ClassDefinition, Configuration
from shiftbench.testsets.project import Project
from shiftbench.testsets.revisions import sample
from shiftbench.testsets.sampling.base import make_sampling
from shiftbench.testsets.web.app import bind, shielded, workshop_app

CANDIDATES, REFERENCES, PEOPLE = 228, 20, 10
NOW = "2026-03-01 12:00:00.000000"
#: Addresses by who asks.
PAGES = {
    "lead": ("/lead", "/lead?page=20", "/lead/frequencies", "/lead/frequencies?page=20", "/lead/annotators/{anna}",
             "/lead/log", "/review", "/review/sets/matched", "/review/sets/matched?page=10",
             "/review/sets/matched/classes/n0500", "/review/sets/matched/freeze", "/review/pairs", "/review/marks"),
    "annotator": ("/task", "/account"),
}  # fmt: skip


def fill(project: Project, classes: int) -> None:
    """Rows as the workshop would have written them."""
    rng = np.random.default_rng(0)
    each, per_grid = CANDIDATES + REFERENCES, 46
    grids = -(-each // per_grid)
    people = [create_account(project, f"annotator {i}", "annotator").id for i in range(PEOPLE * 20)]
    connection = sqlite3.connect(project.folder / "testset.sqlite")
    connection.execute("PRAGMA synchronous = OFF")
    entries = classes * each
    connection.executemany(
        "INSERT INTO images VALUES (?, ?, '.jpg', 500, 375, 40000)", ((i, f"{i:040x}") for i in range(1, entries + 1))
    )
    easy = rng.beta(2, 1, entries)
    yes = rng.binomial(PEOPLE, easy)
    connection.executemany(
        "INSERT INTO entries (id, role, image_id, class_key, source, source_id, date, extra, imported_at, selected, "
        "annotations) VALUES (?, ?, ?, ?, 'flickr', ?, '2012-08-01', '{}', ?, ?, ?)",
        (
            (i + 1, "reference" if i % each >= CANDIDATES else "candidate", i + 1, f"n{i // each:04d}", f"{i}", NOW,
             int(yes[i]), PEOPLE)
            for i in range(entries)
        ),
    )  # fmt: skip
    tasks = classes * grids
    connection.executemany(
        "INSERT INTO tasks VALUES (?, ?, ?, 0, '00', ?)",
        ((t + 1, f"n{t // grids:04d}", PEOPLE, NOW) for t in range(tasks)),
    )
    slot_of = [(e // each) * grids + (e % each) % grids for e in range(entries)]
    connection.executemany(
        "INSERT INTO slots VALUES (?, ?, ?)", ((e + 1, slot_of[e] + 1, e + 1) for e in range(entries))
    )
    connection.executemany(
        "INSERT INTO assignments (id, token, task_id, account_id, state, leased_at, expires_at, submitted_at, seconds, "
        "images, selected, positives, positives_selected, negatives, negatives_left) "
        "VALUES (?, ?, ?, ?, 'submitted', ?, ?, ?, 60, 48, 30, 4, 4, 3, 3)",
        (
            (t * PEOPLE + p + 1, f"t{t}-{p}", t + 1, people[(t + p * 7) % len(people)], NOW, NOW, NOW)
            for t in range(tasks)
            for p in range(PEOPLE)
        ),
    )
    connection.executemany(
        "INSERT INTO selections VALUES (?, ?)",
        ((slot_of[e] * PEOPLE + p + 1, e + 1) for e in range(entries) for p in range(int(yes[e]))),
    )
    connection.executemany(  # open grids, for the annotator
        "INSERT INTO tasks VALUES (?, ?, ?, ?, '00', ?)",
        ((tasks + t + 1, f"n{t:04d}", PEOPLE, PEOPLE, NOW) for t in range(classes)),
    )
    connection.commit()
    connection.execute("ANALYZE")
    connection.close()


def measure(project: Project, repeat: int) -> dict[str, dict[str, float]]:
    listener = bind("127.0.0.1", 0)
    address = f"http://localhost:{listener.getsockname()[1]}"
    app = workshop_app(project)
    server = uvicorn.Server(uvicorn.Config(shielded(app), lifespan="off", log_level="warning"))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    times: dict[str, dict[str, float]] = {}
    for role, paths in PAGES.items():
        _, session = enter_by_link(project, invite(project, role).token)  # type: ignore[arg-type]
        client = httpx.Client(base_url=address, cookies={"shiftbench-session": session}, timeout=600)
        for path in paths:
            taken, used = [], time.process_time()
            for _ in range(repeat):
                start = time.perf_counter()
                answer = client.get(path.format(anna=1))
                taken.append(time.perf_counter() - start)
                assert answer.status_code == 200, (path, answer.status_code)
            used = (time.process_time() - used) / repeat  # of server and client together
            times[path] = {
                "cpu": used,
                "median": float(np.median(taken)), "worst": float(max(taken)), "kilobytes": len(answer.content) / 1000,
            }  # fmt: skip
            print(f"{role:10} {path:40} median {np.median(taken):6.3f} s, worst {max(taken):6.3f} s, CPU {used:6.3f} s")
    server.should_exit = True
    thread.join()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = options.keep or Path(folder) / "large"
        if (place / "testset.toml").exists():
            project = Project.open(place)
        else:
            classes = tuple(ClassDefinition(f"n{i:04d}", f"class {i}") for i in range(options.classes))
            project = Project.create(place, Configuration("large", classes), database="sqlite")
            fill(project, options.classes)
            start = time.perf_counter()
            sample(project, "matched", make_sampling("matched-frequency"), per_class=10)
            print(f"sampled in {time.perf_counter() - start:.1f} s")
        times = measure(project, options.repeat)
        project.close()
        if options.json:
            options.json.write_text(json.dumps(times, indent=1))


if __name__ == "__main__":
    main()
