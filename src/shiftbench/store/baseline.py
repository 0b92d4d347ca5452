"""A baseline file: the top-1 predictions of one model in several settings, in one small Parquet file.

One row per image; each setting has a column of classes and one of confidences, empty where the setting lacks the image.
The footer holds the specs (with the fingerprints of data and shifts), the label spaces, and the options of the run, so
that a gate can evaluate a candidate in the same way without the model itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from shiftbench._version import __version__
from shiftbench.errors import StoreError, shell_command
from shiftbench.io.atomic import write_atomically
from shiftbench.io.hashing import digest
from shiftbench.io.paths import Location
from shiftbench.labels.space import LabelSpace
from shiftbench.store.prediction_files import from_logits, to_logits
from shiftbench.store.predictions import Predictions
from shiftbench.store.spec import ResultSpec, canonical_json

_KEY, _DIGEST, _FORMAT = b"shiftbench.baseline", b"shiftbench.digest", 1


@dataclass(frozen=True)
class GateBaseline:
    """What is compared with: the predictions of one model, by setting, and how they were made."""

    model: str
    predictions: Mapping[str, Predictions]
    configuration: Mapping[str, Any]  #: Arguments of ``evaluate``; empty if they are not known.


def write_baseline(path: Location, baseline: GateBaseline) -> None:
    """Write one Parquet file; equal predictions give equal bytes."""
    rows: dict[tuple[str, str], int] = {}
    for one in baseline.predictions.values():
        for name in one.ids:
            rows.setdefault((one.spec.dataset.fingerprint, name), len(rows))
    columns: dict[str, pa.Array] = {"image": pa.array([name for _, name in rows], pa.string())}
    labels: dict[tuple[str, str], str] = {}
    settings, spaces = [], {}
    for place, one in enumerate(baseline.predictions.values()):
        own = np.array([rows[one.spec.dataset.fingerprint, name] for name in one.ids])
        column = labels.setdefault((one.spec.dataset.fingerprint, one.spec.space), f"label{len(labels)}")
        if column not in columns:
            columns[column] = _column(one.labels.astype(np.int32), own, len(rows))
        columns[f"top{place}"] = _column(one.top[:, 0].astype(np.int32), own, len(rows))
        columns[f"confidence{place}"] = _column(to_logits(one.confidence), own, len(rows))
        space = one.space
        spaces[one.spec.space] = {"name": space.name, "keys": space.keys, "names": space.names}
        settings.append({"setting": one.setting, "spec": one.spec.to_json(), "labels": column})
    about = {
        "format": _FORMAT,
        "made_by": f"shiftbench {__version__}",
        "model": baseline.model,
        "configuration": dict(baseline.configuration),
        "settings": settings,
        "spaces": spaces,
    }
    table = pa.table(columns)
    metadata = {_KEY: canonical_json(about).encode(), _DIGEST: _digest(table, about).encode()}
    table = table.replace_schema_metadata(metadata)
    write_atomically(
        path, lambda temporary: pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)
    )


def _column(values: NDArray[np.generic], rows: NDArray[np.generic], size: int) -> pa.Array:
    spread, missing = np.zeros(size, values.dtype), np.ones(size, bool)
    spread[rows], missing[rows] = values, False
    return pa.array(spread, mask=missing)


def _digest(table: pa.Table, about: Mapping[str, object]) -> str:
    """A digest of all values: other tools that edit the table update the checksums of pages, but not this."""
    parts: list[object] = [canonical_json(about)]
    for name in table.column_names:
        column = table.column(name)
        empty, numbers = pa.scalar("" if pa.types.is_string(column.type) else 0, column.type), column.is_valid()
        values = column.fill_null(empty)
        parts += [name, str(column.type), numbers.to_numpy().tobytes()]
        parts.append(values.to_pylist() if pa.types.is_string(column.type) else values.to_numpy().tobytes())
    return digest(*parts)


def read_baseline(path: Location) -> GateBaseline:
    """Read and check what ``shiftbench gate pin`` wrote."""
    try:
        with path.open("rb") as file:
            opened = pq.ParquetFile(file, pre_buffer=False, page_checksum_verification=True)
            footer = opened.metadata.metadata or {}
            about = json.loads(footer[_KEY])
            if about["format"] != _FORMAT:
                raise StoreError("unsupported baseline format", found=about["format"], expected=_FORMAT)
            table = opened.read(use_threads=False)
            if _DIGEST in footer and footer[_DIGEST].decode() != _digest(table, about):  # older files have none
                raise ValueError("its content was changed")
            ids, found = np.array(table.column("image").to_pylist(), dtype=object), {}
            for place, one in enumerate(about["settings"]):
                rows = np.flatnonzero(table.column(f"top{place}").is_valid().to_numpy())
                top, sure, labels = (
                    table.column(name).to_numpy()[rows] for name in (f"top{place}", f"confidence{place}", one["labels"])
                )
                spec = ResultSpec.from_json(one["spec"])
                known = about["spaces"][spec.space]
                space = LabelSpace(known["name"], tuple(known["keys"]), tuple(known["names"]))
                named = (about["model"], one["setting"], space, ids[rows].tolist(), labels.astype(np.int32))
                found[one["setting"]] = Predictions(*named, top.astype(np.int32)[:, None], from_logits(sure), spec)
        return GateBaseline(about["model"], found, about["configuration"])
    except (OSError, pa.ArrowException, KeyError, ValueError, TypeError) as error:
        raise StoreError(
            f"{path.name} is not a baseline file, or is damaged",
            found=f"{type(error).__name__}: {error}",
            hint=f"write it again: {shell_command('gate', 'pin', 'MODEL', '-o', path)}",
        ) from error
