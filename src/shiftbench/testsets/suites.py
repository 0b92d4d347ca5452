"""Frozen test sets where evaluations look for them: ``--suite testset:DIR`` and ``--data testset:DIR``.

Registered by ``shiftbench.workshops``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shiftbench.datasets.base import Dataset
from shiftbench.datasets.subset import of_classes
from shiftbench.labels.catalogue import FOLDERS, label_space
from shiftbench.labels.space import LabelSpace
from shiftbench.settings.base import Setting
from shiftbench.testsets.frozen import REFERENCE_FILE, FrozenSet, frozen_sets, one_frozen


def open_testset(
    path: str | Path, *, space: LabelSpace | str | None = None, name: str | None = None, set: str | None = None
) -> Dataset:
    """A frozen test set: its folder, its project, or its reference.jsonl for the reference images."""
    path = Path(path)
    part, folder = ("reference", path.parent) if path.name == REFERENCE_FILE else ("images", path)
    dataset = one_frozen(frozen_sets(folder), set).open(part, name=name)  # type: ignore[arg-type]
    own = None if space == FOLDERS else space  # it brings its classes, whatever folders are called
    target = label_space(own) if isinstance(own, str) else own
    return dataset if target is None or target.keys == dataset.space.keys else of_classes(dataset, target)


def testset_settings(folder: str) -> list[Setting]:
    """The frozen sets of a test-set project, each against its annotated reference images."""
    return _settings(frozen_sets(folder))


def _settings(sets: Sequence[FrozenSet]) -> list[Setting]:
    common = len({one.reference_fingerprint for one in sets}) == 1
    settings: dict[str, Setting] = {}
    for one in sets:
        reference = (f"{one.project}-reference" if common else one.part_name("reference")) if one.references else None
        if reference is not None:
            original = Setting(reference, reference, default=f"testset:{one.folder / REFERENCE_FILE}")
            settings.setdefault(reference, original)
        own = Setting(one.name, one.name, reference=reference, note=_note(one), default=f"testset:{one.folder}")
        settings[one.name] = own
    return list(settings.values())


def _note(one: FrozenSet) -> str:
    return f"revision {one.revision}, sampled by {one.sampling['strategy']}, frozen {one.frozen_at:%Y-%m-%d}"
