"""Write the variants of images: checked before the first byte, continued after any interruption, by any executor."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from shiftbench.jobs.base import Block, Executor, Job, Problem, Shard, cut
from shiftbench.jobs.blocks import run_items
from shiftbench.jobs.progress import Advance, progress_bar
from shiftbench.jobs.threads import on_threads, worker_count
from shiftbench.outputs.layouts import Layout, Writer, check_usable, keep_skipped, kept_skipped
from shiftbench.outputs.record import CHECKSUMS, KEPT, WORKSHOP, OutputRecord, Staging, workshop

#: Images per item of an executor: seconds of work, so that the overhead is negligible.
_ITEM_IMAGES = 2000


@dataclass(frozen=True)
class Written:
    """What a call wrote. Subclasses add fields of their own, which stand in the summary after the record."""

    destination: Path
    record: Path
    written: int  #: Number of images written by this call.
    already: int  #: Number of images that existed before.
    seconds: float
    #: By id of a source image: the reason why it could not be used.
    skipped: dict[str, str] = field(default_factory=dict)

    def summary(self) -> dict[str, object]:
        """The content as values that JSON can write."""
        return {
            "destination": str(self.destination),
            "record": str(self.record),
            **self._further_fields(),
            "written": self.written,
            "already": self.already,
            "seconds": round(self.seconds, 3),
            "skipped": [{"id": image_id, "why": reason} for image_id, reason in sorted(self.skipped.items())],
        }

    def _further_fields(self) -> dict[str, object]:
        """The fields of a subclass."""
        common_names = {attribute.name for attribute in fields(Written)}
        further = {}
        for attribute in fields(self):
            if attribute.name not in common_names:
                value = getattr(self, attribute.name)
                further[attribute.name] = str(value) if isinstance(value, Path | Shard) else value
        return further


def write(
    record: OutputRecord,
    layout_of: Callable[[], Layout],
    *,
    what: str,
    shard: Shard,
    workers: int | None = None,
    executor: Executor | None = None,
    verify: bool = False,
    progress: bool = False,
) -> Written:
    """Write what is missing of a layout, on threads of this process or by an executor.

    Files whose size is not what was written count as missing; with ``verify``, so do those with other bytes. What an
    interrupted call left is always verified, because a power failure may have taken any part of it.

    Several shards of the same call may run at the same time, on machines with one file system.
    """
    started = time.monotonic()
    record.draft()  # This raises before anything is touched if the folder was written in another way.
    folder = record.folder
    is_new = not record.path.exists()
    with workshop(folder, shard) as staging_folder:
        try:
            layout = layout_of()
        except BaseException:
            if is_new:  # Nothing was begun, so nothing is left behind.
                shutil.rmtree(folder / WORKSHOP, ignore_errors=True)
            raise
        record.begin()
        was_interrupted = (folder / WORKSHOP / CHECKSUMS).exists()
        layout.verify = verify or was_interrupted
        layout.needs_checksums = was_interrupted
        layout.scan()
        work = _ShardWork.of(layout, shard, is_new=is_new)
        writer = Writer(Staging(staging_folder / "files"), threads=worker_count(workers))
        with progress_bar(what, work.total, work.already, show=progress) as writer.advance:
            layout.prepare(writer)
            _write_units(layout, work.missing_units, writer, executor, staging_folder)
            writer.skipped |= kept_skipped(folder)
            layout.verify = verify
            layout.needs_checksums = False  # The files of other shards may be older than the checksums.
            complete = shard.count == 1 or _complete(layout, record, writer)
            if complete:
                layout.finish(writer)
        if writer.written and hasattr(os, "sync"):
            os.sync()
        skipped = record.finish(writer.skipped, set(_image_ids(layout, work.missing_units)), complete=complete)
        if complete:
            for name in KEPT:
                shutil.rmtree(folder / WORKSHOP / name, ignore_errors=True)
    source = layout.variants.source
    check_usable(source.name, len(source.ids) - len(skipped), skipped)
    usable = sum(image_id not in skipped for image_id in _image_ids(layout, work.units))
    already = usable * len(layout.variants.names) - writer.written
    return Written(folder, record.path, writer.written, already, time.monotonic() - started, skipped)


@dataclass(frozen=True)
class _ShardWork:
    """The units of a shard, and what is missing of them."""

    units: Sequence[int]
    missing_units: Sequence[int]  #: The units of which some variants are missing.
    total: int  #: Number of images of all units, in all variants.
    already: int  #: Number of those that exist.

    @classmethod
    def of(cls, layout: Layout, shard: Shard, *, is_new: bool) -> _ShardWork:
        """Look up what is missing; in a new folder, which has nothing to look up, it is everything."""
        variant_count = len(layout.variants.names)
        units = shard.of(layout.units)
        missing_units = []
        total = 0
        missing = 0
        for unit in units:
            image_count = len(layout.parts[unit])
            missing_variants = variant_count if is_new else len(layout.missing(unit))
            total += image_count * variant_count
            missing += image_count * missing_variants
            if missing_variants:
                missing_units.append(unit)
        return cls(units, missing_units, total, total - missing)


def _image_ids(layout: Layout, units: Iterable[int]) -> Iterator[str]:
    """The ids of the source images of some units."""
    for unit in units:
        for index in layout.parts[unit]:
            yield layout.variants.source.ids[index]


def _write_units(
    layout: Layout, units: Sequence[int], writer: Writer, executor: Executor | None, staging_folder: Path
) -> None:
    """Write units by an executor, or on the writer's threads."""
    if executor is not None:
        size = max(1, _ITEM_IMAGES // (len(layout.variants.names) * layout.unit_images))
        job = _WriteUnits(layout, units, staging_folder)
        run_items(job, cut(len(units), size, "images"), executor, writer.wrote)
    elif layout.threads_inside:
        for unit in units:
            layout.write(unit, writer)
    else:
        threads = writer.threads
        writer.threads = 1
        on_threads(lambda unit: layout.write(unit, writer), units, threads)


def _complete(layout: Layout, record: OutputRecord, writer: Writer) -> bool:
    """Whether the other shards are done, too: only unusable images are missing."""
    skipped = set(writer.skipped)
    content = record.read()
    if content is not None:
        skipped |= {entry["id"] for entry in content["skipped"]}
    layout.scan()
    incomplete_units = (unit for unit in layout.units if layout.missing(unit))
    return all(image_id in skipped for image_id in _image_ids(layout, incomplete_units))


@dataclass(frozen=True)
class _WriteUnits(Job[Block]):
    """Writes the units of a layout that are still to be done; an item is a range of them."""

    layout: Layout
    units: Sequence[int]
    folder: Path  #: Holds the staging folders of the workers.

    def compute(self, item: Block, advance: Advance, *, wait: bool) -> list[Problem]:
        """Write the units of one range. Images that cannot be used are recorded, not returned as problems."""
        # Workers are processes, perhaps of several machines, so that a counter could not keep their folders apart.
        writer = Writer(Staging(self.folder / f"worker-{uuid.uuid4().hex}"))
        for unit in self.units[item.slice]:
            written_before = writer.written
            self.layout.write(unit, writer)
            advance(writer.written - written_before)
        # The first unit names the file: no other range begins with it, and one that is tried again replaces its own.
        keep_skipped(self.layout.folder, self.units[item.start], writer)
        writer.staging.clear()
        return []
