"""Rehearse a paid collection: simulated workers at real pages, and every figure recomputed from their own log.

A project of generated images is served on loopback. Workers of known quality (honest, careless, malicious, drifting)
open the public link for several assignments each, look at the copies that the pages show, and answer. Between rounds,
classes are closed and reopened, careless workers excluded, grids topped up and cancelled. Three sets are sampled,
reviewed over three revisions or more, and frozen. Then selection frequencies, bins, pay and the figures of cards are
computed from the log of what was posted, and compared with those of the program.

    python -m scripts.rehearsal --classes 10 --candidates 60 --workers 40

The workers' opinions are drawn by chance, so that this says nothing about people. Each image is a pattern that encodes
its number, which survives the re-encoding of the copies. The images are not searched for near-duplicates, because all
patterns look alike.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

import httpx
import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from shiftbench.testsets.accounts import create_account, exclude, find_person
from shiftbench.testsets.collection import cancel, close, reopen, top_up
from shiftbench.testsets.configuration import ClassDefinition, Configuration, Recruiting
from shiftbench.testsets.freeze import freeze
from shiftbench.testsets.frequencies import annotator_quality, selection_frequencies, write_answers
from shiftbench.testsets.frozen import FrozenSet
from shiftbench.testsets.pool.entries import import_images
from shiftbench.testsets.project import VARIABLE, Project
from shiftbench.testsets.recruiting import pay_table
from shiftbench.testsets.review import finish_class, mark
from shiftbench.testsets.revisions import revision_images, sample
from shiftbench.testsets.sampling import make_sampling
from shiftbench.testsets.tasks import make_tasks

#: Blocks of a pattern per side, and pixels per block: 64 bits in an image of 32 x 32 pixels.
BLOCKS = 8
BLOCK_PIXELS = 4
#: Bits of the number of an image; the others are its check.
NUMBER_BITS = 24
PAY = 0.25
TASKS_PER_ASSIGNMENT = 2
SETS = {"matched": "matched-frequency", "threshold": "threshold", "top": "top-images"}
#: The share of each kind of worker.
KINDS = {"honest": 0.8, "careless": 0.08, "malicious": 0.04, "drifting": 0.08}
THRESHOLD = Fraction(7, 10)


@dataclass(frozen=True)
class Size:
    """How large the collection is."""

    classes: int = 3
    candidates: int = 24
    references: int = 14
    workers: int = 20
    annotators: int = 4
    grid: int = 16
    per_class: int = 4
    threads: int = 4

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(f"n{number:04d}" for number in range(self.classes))


@dataclass(frozen=True)
class Picture:
    """An image of the pool: what it shows, and the share of honest people who select it for its class."""

    number: int
    role: str
    class_key: str
    frequency: float
    digest: str


def pattern(number: int) -> NDArray[np.uint8]:
    """The pixels that encode a number, with a check."""
    text = f"{number:0{NUMBER_BITS}b}{_check(number):0{BLOCKS * BLOCKS - NUMBER_BITS}b}"
    blocks = np.array([200 if bit == "1" else 50 for bit in text], np.uint8).reshape(BLOCKS, BLOCKS)
    gray = blocks.repeat(BLOCK_PIXELS, axis=0).repeat(BLOCK_PIXELS, axis=1)
    return np.stack([gray] * 3, axis=-1)


def _check(number: int) -> int:
    digest = hashlib.blake2b(str(number).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - (BLOCKS * BLOCKS - NUMBER_BITS))


def read_pattern(data: bytes) -> int:
    """The number in a copy of an image; raises ValueError if it is damaged."""
    pixels = np.asarray(Pillow.open(io.BytesIO(data)).convert("L").resize((32, 32)), float)
    means = pixels.reshape(BLOCKS, BLOCK_PIXELS, BLOCKS, BLOCK_PIXELS).mean(axis=(1, 3))
    text = "".join("1" if mean > 125 else "0" for mean in means.ravel())
    number = int(text[:NUMBER_BITS], 2)
    if int(text[NUMBER_BITS:], 2) != _check(number):
        raise ValueError("the pattern of a copy is damaged")
    return number


def write_pool(folder: Path, size: Size, rng: np.random.Generator) -> list[Picture]:
    """The images of the pool with a manifest for each role."""
    pictures: list[Picture] = []
    for role, each in (("candidate", size.candidates), ("reference", size.references)):
        lines = []
        (folder / role).mkdir()
        for key in size.keys:
            for _ in range(each):
                number = len(pictures)
                path = folder / role / f"{number}.png"
                Pillow.fromarray(pattern(number)).save(path)
                digest = hashlib.blake2b(path.read_bytes(), digest_size=20).hexdigest()
                # A third of the candidates shows something else.
                wrong = role == "candidate" and rng.random() < 1 / 3
                frequency = 0.05 if wrong else float(rng.beta(6, 1))
                pictures.append(Picture(number, role, key, frequency, digest))
                lines.append(json.dumps({"path": path.name, "label": key}) + "\n")
        (folder / role / "list.jsonl").write_text("".join(lines))
    return pictures


@dataclass(frozen=True)
class Answer:
    """What a worker posted, and the server accepted."""

    worker: str
    assignment: str
    class_key: str
    shown: frozenset[int]
    selected: frozenset[int]


@dataclass
class Log:
    """What the simulation knows by itself."""

    pictures: list[Picture]
    answers: list[Answer] = field(default_factory=list)
    #: The code that was shown at the end of an assignment, by worker and assignment.
    codes: dict[tuple[str, str], str] = field(default_factory=dict)
    excluded: set[str] = field(default_factory=set)
    #: The places of answers to cancelled grids; a new grid may have the same images.
    cancelled: set[int] = field(default_factory=set)
    #: Images on the black list.
    marked: set[int] = field(default_factory=set)
    #: Seconds of each request for a grid.
    waits: list[float] = field(default_factory=list)

    @property
    def valid(self) -> list[Answer]:
        """Answers to grids that were not cancelled."""
        return [answer for place, answer in enumerate(self.answers) if place not in self.cancelled]

    @property
    def counted(self) -> list[Answer]:
        return [answer for answer in self.valid if answer.worker not in self.excluded]

    def counts(self) -> dict[int, tuple[int, int]]:
        """For each image, how many people selected it, of those who saw it for its class."""
        selected: Counter[int] = Counter()
        annotations: Counter[int] = Counter()
        for answer in self.counted:
            for number in answer.shown:
                if self.pictures[number].class_key == answer.class_key:
                    annotations[number] += 1
                    selected[number] += number in answer.selected
        return {number: (selected[number], annotations[number]) for number in annotations}


@dataclass
class Worker:
    """A simulated person, who looks at images over HTTP."""

    name: str
    kind: str
    rng: np.random.Generator
    grids: int = 0
    assignments: int = 0
    #: Kept by the browser, to which the account is bound.
    cookies: httpx.Cookies = field(default_factory=httpx.Cookies)

    def selects(self, picture: Picture, class_key: str) -> bool:
        honest = self.rng.random() < (picture.frequency if picture.class_key == class_key else 0.02)
        if self.kind == "careless" or (self.kind == "drifting" and self.grids > 2):
            return bool(self.rng.random() < 0.5)
        return not honest if self.kind == "malicious" else honest


class Rehearsal:
    """The workers at the pages of a server."""

    def __init__(self, log: Log, link: str, address: str, size: Size) -> None:
        self.log = log
        self.link = link
        self.address = address
        self.size = size
        self._turn = threading.Lock()

    def work(self, workers: list[Worker], enough: Callable[[], bool] = lambda: False) -> None:
        """Everybody takes assignments until there are no tasks, or enough was done."""
        active = list(workers)
        with ThreadPoolExecutor(self.size.threads) as pool:
            while active and not enough():
                outcomes = list(pool.map(self._assignment, active))
                active = [worker for worker, more in zip(active, outcomes, strict=True) if more]

    def _assignment(self, worker: Worker) -> bool:
        """One assignment of a worker; whether there may be more tasks."""
        assignment = f"{worker.name}-{worker.assignments}"
        worker.assignments += 1
        # Each worker has a network of their own, which counts for the limits of the server.
        number = int(worker.name[1:])
        headers = {"Origin": self.address, "X-Forwarded-For": f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"}
        with httpx.Client(
            base_url=self.address, timeout=120, headers=headers, cookies=worker.cookies, verify=False
        ) as http:
            parameters = {"workerId": worker.name, "assignmentId": assignment}
            page = http.get(self.link, params={**parameters, "tab": "1"}).text
            entry = http.post(self.link, data={**parameters, "form": _form(page)})
            if entry.status_code != 303:
                raise RuntimeError(f"{worker.name} could not enter: {entry.status_code}")
            answered = 0
            while True:
                started = time.perf_counter()
                page = http.get("/task").text
                self.log.waits.append(time.perf_counter() - started)
                if 'id="review"' not in page:
                    break
                self._answer(http, worker, assignment, page)
                answered += 1
            worker.cookies = http.cookies
        code = re.search(r'id="code"><code>(\w+)</code>', page)
        if code:
            with self._turn:
                self.log.codes[worker.name, assignment] = code[1]
        return answered == TASKS_PER_ASSIGNMENT

    def _answer(self, http: httpx.Client, worker: Worker, assignment: str, page: str) -> None:
        task = _only(r'action="/tasks/([\w-]+)/check"', page)
        class_key = _only(r"<em>class (\w+)</em>", page)
        numbers = {}
        for image in re.findall(r'name="image" value="([\w-]+)"', page):
            numbers[image] = read_pattern(http.get(f"/tasks/{task}/images/{image}").content)
        selected = [image for image, number in numbers.items() if worker.selects(self.log.pictures[number], class_key)]
        fields = {"image": selected} if selected else {"none": "1"}
        answer = http.post(f"/tasks/{task}/answer", data={**fields, "form": _form(page)})
        if answer.status_code != 303:
            raise RuntimeError(f"an answer was refused: {answer.status_code}")
        worker.grids += 1
        shown = frozenset(numbers.values())
        with self._turn:
            chosen = frozenset(numbers[image] for image in selected)
            self.log.answers.append(Answer(worker.name, assignment, class_key, shown, chosen))


def _only(expression: str, page: str) -> str:
    match = re.search(expression, page)
    if match is None:
        raise RuntimeError(f"a page lacks {expression}")
    return match[1]


def _form(page: str) -> str:
    return _only(r'name="form" value="([0-9a-f]+)"', page)


@contextmanager
def served(project: Project, database: str) -> Iterator[tuple[str, str]]:
    """The address of a server in a process of its own, and the public link."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    # As behind a proxy, which says where each worker comes from: the limits of requests are those of networks.
    address = f"http://localhost:{port}"
    words = [sys.executable, "-m", "shiftbench", "testset", "serve", str(project.folder), "--port", str(port)]
    words += ["--public-url", address]
    environment = {**os.environ, VARIABLE: database}
    with subprocess.Popen(
        [*words, "--recruit", "--json"], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            text = ""
            while True:
                line = process.stdout.readline()
                if not line:
                    raise RuntimeError("the server did not start")
                text += line
                try:
                    addresses = json.loads(text)
                    break
                except ValueError:
                    continue
            yield address, addresses["recruiting"].removeprefix(address)
        finally:
            process.terminate()


def _exclude_careless(project: Project, log: Log) -> None:
    """Exclude workers who fail controls; all are faster than people, so that flags of speed say nothing here."""
    for person in annotator_quality(project):
        if person.name.startswith("mturk ") and person.controls >= 10 and person.right < 0.7 * person.controls:
            exclude(project, person.account, "fails controls")
            log.excluded.add(person.name.removeprefix("mturk "))


def _cancel_one(project: Project, log: Log, folder: Path) -> int:
    """Cancel the grid of the first answer; returns its number."""
    path = write_answers(project, folder / "answers.csv")
    with path.open(encoding="utf-8", newline="") as file:
        first = next(row for row in csv.DictReader(file) if row["role"] == "candidate")
    task = int(first["task"])
    digests = {picture.digest: picture.number for picture in log.pictures}
    # Reference images can be in several grids, but a candidate is in one.
    number = digests[Path(first["image"]).stem]
    places = {place for place, answer in enumerate(log.answers) if number in answer.shown}
    assert len({log.answers[place].shown for place in places}) == 1
    cancel(project, [task], "a wrong definition")
    log.cancelled |= places
    return task


def rehearse(size: Size, folder: Path, *, seed: int = 0, database: str = "sqlite", say: Callable[[str], None]) -> Log:
    """Run the whole collection; returns the log. Raises AssertionError if a figure differs."""
    rng = np.random.default_rng(seed)
    (folder / "images").mkdir(parents=True)
    log = Log(write_pool(folder / "images", size, rng))
    classes = tuple(ClassDefinition(key, f"class {key}") for key in size.keys)
    recruiting = Recruiting(tasks_per_assignment=TASKS_PER_ASSIGNMENT, pay_per_task=PAY)
    configuration = replace(Configuration("rehearsal", classes, seed=seed), recruiting=recruiting)
    configuration = configuration.with_rules(
        grid=size.grid,
        annotators=size.annotators,
        references_per_class=min(20, size.references - 3),
        copy_pixels=32,
        examples=0,
    )
    project = Project.create(folder / "project", configuration, database=database)
    for role in ("candidate", "reference"):
        import_images(project, str(folder / "images" / role / "list.jsonl"), role)
    say(f"pool: {len(log.pictures):,} images, {make_tasks(project).tasks:,} grids")
    kinds = rng.choice(list(KINDS), size.workers, p=list(KINDS.values()))
    workers = [Worker(f"A{number}", kind, np.random.default_rng([seed, number])) for number, kind in enumerate(kinds)]
    with served(project, database) as (address, link):
        rehearsal = Rehearsal(log, link, address, size)
        _collect(project, rehearsal, workers, folder, say)
        reviewer = create_account(project, "reviewer", "reviewer").id
        frozen = _revise(project, rehearsal, workers, reviewer, say)
    compare(project, log, frozen, size, say)
    project.close()
    return log


def _collect(
    project: Project, rehearsal: Rehearsal, workers: list[Worker], folder: Path, say: Callable[[str], None]
) -> None:
    """The first answers to all grids, with everything that a lead does meanwhile."""
    log = rehearsal.log
    size = rehearsal.size
    needed = size.annotators * size.classes * -(-size.candidates // size.grid)
    rehearsal.work(workers, enough=lambda: len(log.answers) >= needed // 3)
    closed = size.keys[: size.classes // 2]
    close(project, closed)
    before = len(log.answers)
    rehearsal.work(workers, enough=lambda: len(log.answers) >= 2 * needed // 3)
    late = [answer.class_key for answer in log.answers[before:]]
    assert not set(late) & set(closed), "a closed class was given out"
    reopen(project)
    _exclude_careless(project, log)
    task = _cancel_one(project, log, folder)
    top_up(project, size.annotators + 1, size.keys[-1:])
    made = make_tasks(project).tasks
    rehearsal.work(workers)
    say(f"collected: {len(log.answers):,} answers, {len(log.excluded)} excluded, grid {task} cancelled, {made} new")


def _blacklist(project: Project, log: Log, name: str, reviewer: int) -> None:
    """Remove the first image of a set that was not removed before."""
    numbers = {picture.digest: picture.number for picture in log.pictures}
    image = next(image for image in revision_images(project, name) if numbers[image.digest] not in log.marked)
    mark(project, image.entry, "blacklist", "a drawing", by=reviewer)
    log.marked.add(numbers[image.digest])


def _revise(
    project: Project, rehearsal: Rehearsal, workers: list[Worker], reviewer: int, say: Callable[[str], None]
) -> dict[str, FrozenSet]:
    """Sample, remove, exclude once more and refill, until nothing changes; then freeze."""
    log = rehearsal.log
    size = rehearsal.size
    for name, strategy in SETS.items():
        options: dict[str, object] = {"min_annotations": size.annotators}
        if name == "matched":
            options["min_references"] = 2
        sample(project, name, make_sampling(strategy, **options), per_class=size.per_class)
    for name in SETS:
        _blacklist(project, log, name, reviewer)
        sample(project, name)
    # The most active worker turns out to have used a program, after the sets were sampled.
    counts = Counter(answer.worker for answer in log.counted)
    [(busiest, _)] = counts.most_common(1)
    exclude(project, find_person(project, f"mturk {busiest}").id, "used a program")
    log.excluded.add(busiest)
    rehearsal.work([worker for worker in workers if worker.name != busiest])
    frozen = {}
    for name in SETS:
        sample(project, name)
        _blacklist(project, log, name, reviewer)
    for name in SETS:
        changed = True
        while changed:
            revision, changed = sample(project, name)
        assert revision.number >= 3
        for key in size.keys:
            finish_class(project, reviewer, name, key)
        frozen[name] = freeze(project, name, allow=("short", "unsearched"))
        say(f"{name}: frozen at revision {revision.number} with {revision.images} images")
    return frozen


def compare(project: Project, log: Log, frozen: dict[str, FrozenSet], size: Size, say: Callable[[str], None]) -> None:
    """Recompute every figure from the log; raises AssertionError at the first that differs."""
    counts = log.counts()
    numbers = {picture.digest: picture.number for picture in log.pictures}
    rows = selection_frequencies(project)
    for row in rows:
        assert (row.selected, row.annotations) == counts.get(numbers[row.digest], (0, 0)), row
    say(f"selection frequencies: {len(rows):,} of {len(rows):,} as in the log")
    _compare_pay(project, log)
    say(f"pay: {len(log.codes):,} assignments, {PAY * len(log.answers):,.2f} USD as in the log")
    for name, testset in frozen.items():
        _compare_set(name, testset, log, counts, numbers, size)
        _compare_card(project, testset, log, counts, numbers)
    say(f"{len(frozen)} sets and cards: {', '.join(frozen)} as in the log")


def _compare_pay(project: Project, log: Log) -> None:
    tasks = Counter((answer.worker, answer.assignment) for answer in log.answers)
    rows = {(str(row["worker"]), str(row["assignment"])): row for row in pay_table(project).rows}
    assert {key for key, row in rows.items() if row["tasks"]} == set(tasks)
    for key, row in rows.items():
        assert (row["tasks"], row["pay"]) == (tasks[key], PAY * tasks[key]), key
        assert row["code"] == (log.codes[key] if tasks[key] else ""), key
    assert len(set(log.codes.values())) == len(log.codes), "two assignments have one code"


def _bin(selected: int, annotations: int) -> int:
    return min(4, 5 * selected // annotations)


def _compare_set(
    name: str,
    testset: FrozenSet,
    log: Log,
    counts: dict[int, tuple[int, int]],
    numbers: dict[str, int],
    size: Size,
) -> None:
    """The rule of the strategy, applied to the counts of the log."""
    images: dict[str, list[int]] = defaultdict(list)
    for image in (testset.folder / "images.jsonl").read_text().splitlines():
        record = json.loads(image)
        number = numbers[Path(record["path"]).stem]
        selected, annotations = counts[number]
        assert annotations >= size.annotators and record["selection_frequency"] == selected / annotations, record
        assert log.pictures[number].role == "candidate" and number not in log.marked
        images[log.pictures[number].class_key].append(number)
    for key in size.keys:
        chosen = images[key]
        assert len(set(chosen)) == len(chosen) <= size.per_class
        if name == "threshold":
            assert all(Fraction(*counts[number]) >= THRESHOLD for number in chosen), key
        if name == "matched":
            _compare_bins(key, chosen, log, counts, size)


def _compare_bins(key: str, chosen: list[int], log: Log, counts: dict[int, tuple[int, int]], size: Size) -> None:
    """The histogram of the references, scaled by largest remainders; bins that run out are filled from higher ones."""
    target: Counter[int] = Counter()
    available: Counter[int] = Counter()
    for number, (selected, seen) in counts.items():
        picture = log.pictures[number]
        if picture.class_key == key and number not in log.marked and seen >= size.annotators:
            (target if picture.role == "reference" else available)[_bin(selected, seen)] += 1
    total = sum(target.values())
    shares = {place: Fraction(size.per_class * target[place], total) for place in range(5)}
    wanted = {place: int(share) for place, share in shares.items()}
    rest = size.per_class - sum(wanted.values())
    by_remainder = sorted(range(5), key=lambda place: (shares[place] - wanted[place], place), reverse=True)
    for place in by_remainder[:rest]:
        wanted[place] += 1
    actual = Counter(_bin(*counts[number]) for number in chosen)
    if all(available[place] >= wanted[place] for place in range(5) if wanted[place]):
        assert {place: actual[place] for place in range(5)} == wanted, (key, actual, wanted)


def _compare_card(
    project: Project, testset: FrozenSet, log: Log, counts: dict[int, tuple[int, int]], numbers: dict[str, int]
) -> None:
    """The figures of the card's text."""
    card = " ".join((testset.folder / "README.md").read_text().split())
    counted = log.counted
    workers = {answer.worker for answer in counted}
    grids = {answer.shown for answer in log.valid}
    assert f"{len(workers)} annotators submitted {len(counted):,} answers to {len(grids):,} grids" in card, card
    excluded = {answer.worker for answer in log.valid} & log.excluded
    assert f"Annotators whose answers were excluded: {len(excluded)}." in card
    controls = 0
    right = 0
    for answer in counted:
        for number in answer.shown:
            picture = log.pictures[number]
            if picture.role == "reference":
                controls += 1
                right += (number in answer.selected) == (picture.class_key == answer.class_key)
    assert f"On these controls, {right:,} of {controls:,} answers were correct." in card, (right, controls)
    shares = []
    for line in (testset.folder / "images.jsonl").read_text().splitlines():
        selected, annotations = counts[numbers[Path(json.loads(line)["path"]).stem]]
        shares.append(selected / annotations)
    # A mean such as 0.8125 may be rounded up or down.
    mean = float(_only(r"\| mean \| ([\d.]+) \|", card))
    assert abs(mean - np.mean(shares)) < 0.0005001, (mean, np.mean(shares))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in vars(Size()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--database", default="sqlite", help="sqlite, or the URL of a PostgreSQL database")
    parser.add_argument("--folder", type=Path, help="where everything is kept; default: a temporary folder")
    options = parser.parse_args()
    size = Size(**{name: getattr(options, name) for name in vars(Size())})
    started = time.perf_counter()

    def say(text: str) -> None:
        print(f"{time.perf_counter() - started:7.1f} s  {text}", flush=True)

    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary) / "rehearsal"
        log = rehearse(size, folder, seed=options.seed, database=options.database, say=say)
    waits = np.percentile(log.waits, [50, 99])
    say(f"pages of grids: median {1000 * waits[0]:.0f} ms, 99th percentile {1000 * waits[1]:.0f} ms")


if __name__ == "__main__":
    main()
