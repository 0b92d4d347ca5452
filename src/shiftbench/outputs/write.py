"""Write the variants of images: checked before the first byte, continued after any interruption, by any executor."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from shiftbench.jobs.base import Block, Executor, Job, Problem, Shard, cut
from shiftbench.jobs.blocks import run_items
from shiftbench.jobs.progress import Advance, progress_bar
from shiftbench.jobs.threads import on_threads, worker_count
from shiftbench.outputs.layouts import Layout, Writer, check_usable, keep_skipped, kept_skipped
from shiftbench.outputs.record import KEPT, WORKSHOP, OutputRecord, Staging, workshop

#: Images per item of an executor: seconds of work, so that the overhead is negligible.
_ITEM_IMAGES = 2000


@dataclass(frozen=True)
class Written:
    destination: Path
    record: Path
    #: Images written now, and those that were there before.
    written: int
    already: int
    seconds: float
    #: Source images that could not be used, and why.
    skipped: dict[str, str] = field(default_factory=dict)

    def summary(self) -> dict[str, object]:
        common = {one.name for one in fields(Written)}
        own = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in common}
        return {
            "destination": str(self.destination),
            "record": str(self.record),
            **{name: str(value) if isinstance(value, (Path, Shard)) else value for name, value in own.items()},
            "written": self.written,
            "already": self.already,
            "seconds": round(self.seconds, 3),
            "skipped": [{"id": image_id, "why": why} for image_id, why in sorted(self.skipped.items())],
        }


def write(
    record: OutputRecord,
    layout_of: Callable[[], Layout],
    *,
    what: str,
    shard: Shard,
    workers: int | None = None,
    executor: Executor | None = None,
    progress: bool = False,
) -> Written:
    """Write what is missing of a layout, on threads of this process or by an executor.

    Several shards of the same call may run at the same time, on machines with one file system.
    """
    started = time.monotonic()
    record.draft()  # refuses before anything is touched
    folder = record.folder
    fresh = not record.path.exists()
    with workshop(folder, shard) as staging_folder:
        try:
            layout = layout_of()
        except BaseException:
            if fresh:  # nothing was begun, so nothing is left behind
                shutil.rmtree(folder / WORKSHOP, ignore_errors=True)
            raise
        record.begin()
        own = shard.of(layout.units)
        layout.scan()
        variants, ids = len(layout.variants.names), layout.variants.source.ids
        missing = {unit: variants if fresh else len(layout.missing(unit)) for unit in own}
        todo = [unit for unit, count in missing.items() if count]
        total = sum(len(layout.parts[unit]) for unit in own) * variants
        already = total - sum(len(layout.parts[unit]) * missing[unit] for unit in todo)
        writer = Writer(Staging(staging_folder / "files"), threads=worker_count(workers))
        with progress_bar(what, total, already, show=progress) as writer.advance:
            layout.prepare(writer)
            _write_units(layout, todo, writer, executor, staging_folder)
            writer.skipped |= kept_skipped(folder)
            complete = shard.count == 1 or _complete(layout, record, writer)
            if complete:
                layout.finish(writer)
        if writer.written and hasattr(os, "sync"):
            os.sync()
        tried = {ids[index] for unit in todo for index in layout.parts[unit]}
        skipped = record.finish(writer.skipped, tried, complete=complete)
        if complete:
            for name in KEPT:
                shutil.rmtree(folder / WORKSHOP / name, ignore_errors=True)
    check_usable(layout.variants.source.name, len(ids) - len(skipped), skipped)
    usable = sum(ids[index] not in skipped for unit in own for index in layout.parts[unit])
    before = usable * variants - writer.written
    return Written(folder, record.path, writer.written, before, time.monotonic() - started, skipped)


def _write_units(
    layout: Layout, todo: Sequence[int], writer: Writer, executor: Executor | None, staging_folder: Path
) -> None:
    if executor is not None:
        size = max(1, _ITEM_IMAGES // (len(layout.variants.names) * layout.unit_images))
        run_items(_WriteUnits(layout, todo, staging_folder), cut(len(todo), size, "images"), executor, writer.wrote)
    elif layout.threads_inside:
        for unit in todo:
            layout.write(unit, writer)
    else:
        threads, writer.threads = writer.threads, 1
        on_threads(lambda unit: layout.write(unit, writer), todo, threads)


def _complete(layout: Layout, record: OutputRecord, writer: Writer) -> bool:
    """Whether the other shards are done, too: only unusable images are missing."""
    content, ids = record.read(), layout.variants.source.ids
    skipped = {*writer.skipped, *(entry["id"] for entry in (content or {"skipped": []})["skipped"])}
    layout.scan()
    return all(
        all(ids[index] in skipped for index in layout.parts[unit]) for unit in layout.units if layout.missing(unit)
    )


@dataclass(frozen=True)
class _WriteUnits(Job[Block]):
    """Writes the units of a layout that are still to be done; an item is a range of them."""

    layout: Layout
    todo: Sequence[int]
    folder: Path

    def compute(self, item: Block, advance: Advance, *, wait: bool) -> list[Problem]:
        writer = Writer(Staging(self.folder / f"worker-{uuid.uuid4().hex}"))
        for number in self.todo[item.slice]:
            before = writer.written
            self.layout.write(number, writer)
            advance(writer.written - before)
        keep_skipped(self.layout.folder, self.todo[item.start], writer)
        writer.staging.clear()
        return []
