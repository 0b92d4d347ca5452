"""One flipped bit in any file that a command has written: noticed when the file is read again, or without effect.

Workspaces have tests of their own (tests/store/test_damage.py), and so have databases of test sets
(tests/testsets/test_damage.py). Some bits of every file in the normal suite, many more in the soak.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from shiftbench.classifiers.loading import load_classifier
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import open_dataset
from shiftbench.errors import ShiftbenchError
from shiftbench.shifts.write import Format, write_corruptions
from shiftbench.store.baseline import read_baseline, write_baseline
from shiftbench.testsets.frozen import read_frozen
from tests.faults.flows import FLOWS
from tests.outputs.helpers import bytes_below
from tests.runs.helpers import colour_folder
from tests.store.test_baseline import baseline

#: Preparing these takes many seconds.
LONG = ("testset freeze", "harden train")
SAMPLE = 24
SOAK_SAMPLE = 2_000


@dataclass(frozen=True)
class Writer:
    """A command, as functions of a folder: what it writes below ``out``, and what its reader makes of these files."""

    write: Callable[[Path], object]
    read: Callable[[Path], object]


def _corrupt(folder: Path, layout: Format) -> object:
    write_corruptions(
        folder / "data",
        folder / "out",
        names=("contrast",),
        severities=(1,),
        format=layout,
        size=32,
        labels="folders",
        verify=True,
        workers=1,
    )
    return bytes_below(folder / "out")


def _corrupt_a_new_folder(folder: Path, layout: Format) -> None:
    colour_folder(folder / "data", per_class=2, size=32)
    _corrupt(folder, layout)


def _copies(layout: Format) -> Writer:
    return Writer(partial(_corrupt_a_new_folder, layout=layout), partial(_corrupt, layout=layout))


def _pin(folder: Path) -> None:
    (folder / "out").mkdir()
    write_baseline(folder / "out" / "baseline.parquet", baseline())


def _pinned(folder: Path) -> object:
    stored = read_baseline(folder / "out" / "baseline.parquet")
    predictions = [
        (name, setting.ids, setting.labels.tolist(), setting.top.tolist(), setting.confidence.tolist(), setting.spec)
        for name, setting in stored.predictions.items()
    ]
    return repr((stored.model, stored.configuration, predictions))


def _freeze(folder: Path) -> None:
    flow = FLOWS["freeze"]
    flow.prepare(folder)
    flow.step(folder)
    frozen = next(path for path in (folder / "p" / "frozen").iterdir() if path.is_dir())
    shutil.copytree(frozen, folder / "out")


def _frozen(folder: Path) -> object:
    frozen = read_frozen(folder / "out")
    return frozen.fingerprint, _pixels(frozen.open())


def _pixels(dataset: Dataset) -> list[tuple[str, int, bytes]]:
    return [
        (image_id, int(label), np.ascontiguousarray(dataset.read(row).pixels).tobytes())
        for row, (image_id, label) in enumerate(zip(dataset.ids, dataset.labels, strict=True))
    ]


def _train(folder: Path) -> None:
    flow = FLOWS["training"]
    flow.prepare(folder)
    flow.step(folder)


def _trained(folder: Path) -> object:
    model = load_classifier(f"hardened:{folder / 'out'}")
    images = np.stack([open_dataset(folder / "data", space="folders").read(row).pixels[:32, :32] for row in range(3)])
    assert model.trained_on is not None and model.trained_on.keys is not None
    return model.fingerprint, model.space.keys, model.trained_on.keys.tobytes(), model.scores(images).tolist()


WRITERS = {
    "corrupt": _copies("tree"),
    "corrupt to arrays": _copies("arrays"),
    "corrupt to shards": _copies("shards"),
    "corrupt to tables": _copies("huggingface"),
    "gate pin": Writer(_pin, _pinned),
    "testset freeze": Writer(_freeze, _frozen),
    "harden train": Writer(_train, _trained),
}


def _bits(path: Path, count: int) -> Iterator[int]:
    """Bits over the whole file, at every place in a byte."""
    size = path.stat().st_size * 8
    yield from range(sum(path.name.encode()) % 97, size, size // count + 1)


def check_flips(writer: Writer, folder: Path, count: int) -> int:
    """Flip bits one by one; returns their number. No flip may change what is read, whether it is noticed or not."""
    writer.write(folder)
    expected = writer.read(folder)
    pristine = folder / "pristine"
    shutil.copytree(folder / "out", pristine)
    files = [path.relative_to(pristine) for path in sorted(pristine.rglob("*")) if path.is_file()]
    tried = 0
    for file in files:
        content = (pristine / file).read_bytes()
        for bit in _bits(pristine / file, max(1, count // len(files))):
            flipped = bytearray(content)
            flipped[bit // 8] ^= 1 << bit % 8
            (folder / "out" / file).write_bytes(flipped)
            try:
                seen = writer.read(folder)
            except ShiftbenchError:
                seen = expected
                shutil.rmtree(folder / "out")
                shutil.copytree(pristine, folder / "out")
            assert seen == expected, f"bit {bit} of {file} changes what is read"
            (folder / "out" / file).write_bytes(content)
            tried += 1
    return tried


@pytest.mark.reliability("bit flips")
@pytest.mark.parametrize("command", [command for command in WRITERS if command not in LONG])
def test_some_flips(command: str, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    record_property("tries", check_flips(WRITERS[command], tmp_path, SAMPLE))


@pytest.mark.soak
@pytest.mark.reliability("bit flips")
@pytest.mark.parametrize("command", WRITERS)
def test_many_flips(command: str, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    record_property("tries", check_flips(WRITERS[command], tmp_path, SOAK_SAMPLE))
