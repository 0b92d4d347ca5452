"""A baseline file: the top-1 predictions of one model in several settings, in one small Parquet file.

One row per image; each setting has a column of classes and one of confidences, empty where the setting lacks the image.
The footer holds the specs (with the fingerprints of data and shifts), the label spaces, and the options of the run, so
that a gate can evaluate a candidate in the same way without the model itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from shiftbench._version import __version__
from shiftbench.errors import StoreError, argument, shell_command
from shiftbench.io.atomic import write_atomically
from shiftbench.io.hashing import digest
from shiftbench.io.paths import Location
from shiftbench.labels.space import LabelSpace
from shiftbench.store.prediction_files import from_logits, to_logits
from shiftbench.store.predictions import Predictions
from shiftbench.store.spec import ResultSpec, canonical_json

#: Key of the footer entry that holds model, options, specs and label spaces as JSON.
_CONTENT_KEY = b"shiftbench.baseline"
#: Key of the footer entry that holds the digest of the whole content.
_DIGEST_KEY = b"shiftbench.digest"
_FORMAT = 1


@dataclass(frozen=True)
class GateBaseline:
    """The predictions that a gate compares with: those of one model, by setting, and how they were made."""

    model: str
    predictions: Mapping[str, Predictions]
    configuration: Mapping[str, Any]  #: Arguments of ``evaluate``; empty if they are not known.
    #: The name of the series that it was pinned in, and the models of the series in their order; empty for none.
    series: str = ""
    pins: tuple[str, ...] = ()
    #: The first baseline of the series, unless it is this one.
    first: GateBaseline | None = None

    def after(self, previous: GateBaseline) -> GateBaseline:
        """The same baseline as the next one of the series of a previous one."""
        first = previous.first or replace(previous, series="", pins=())
        return replace(self, pins=(*previous.pins, self.model), first=first)


def write_baseline(path: Location, baseline: GateBaseline) -> None:
    """Write one Parquet file; equal predictions give equal bytes."""
    rows = _image_rows(baseline)
    columns: dict[str, pa.Array] = {"image": pa.array([image_id for _, image_id in rows], pa.string())}
    # Settings of one dataset and one label space share a column of labels.
    label_columns: dict[tuple[str, str], str] = {}
    settings = []
    spaces = {}
    first_settings = baseline.first.predictions.values() if baseline.first else ()
    for index, predictions in enumerate((*baseline.predictions.values(), *first_settings)):
        spec = predictions.spec
        fingerprint = spec.dataset.fingerprint
        setting_rows = np.array([rows[fingerprint, image_id] for image_id in predictions.ids])
        label_column = label_columns.setdefault((fingerprint, spec.space), f"label{len(label_columns)}")
        if label_column not in columns:
            columns[label_column] = _column(predictions.labels.astype(np.int32), setting_rows, len(rows))
        columns[f"top{index}"] = _column(predictions.top[:, 0].astype(np.int32), setting_rows, len(rows))
        columns[f"confidence{index}"] = _column(to_logits(predictions.confidence), setting_rows, len(rows))
        space = predictions.space
        spaces[spec.space] = {"name": space.name, "keys": space.keys, "names": space.names}
        settings.append({"setting": predictions.setting, "spec": spec.to_json(), "labels": label_column})
    content = {
        "format": _FORMAT,
        "made_by": f"shiftbench {__version__}",
        "model": baseline.model,
        "configuration": dict(baseline.configuration),
        "settings": settings[: len(baseline.predictions)],
        "spaces": spaces,
    }
    if baseline.series:
        # Versions that know no series ignore it, and compare with the last model alone.
        content["series"] = {"name": baseline.series, "pins": list(baseline.pins)}
    if baseline.first:
        content["first"] = {"model": baseline.first.model, "settings": settings[len(baseline.predictions) :]}
    table = pa.table(columns)
    metadata = {_CONTENT_KEY: canonical_json(content).encode(), _DIGEST_KEY: _digest(table, content).encode()}
    table = table.replace_schema_metadata(metadata)

    def write(temporary: Path) -> None:
        pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)

    write_atomically(path, write)


def _image_rows(baseline: GateBaseline) -> dict[tuple[str, str], int]:
    """The row of each image, by the fingerprint of its dataset and its id: ids repeat between datasets."""
    rows: dict[tuple[str, str], int] = {}
    first = baseline.first.predictions if baseline.first else {}
    for predictions in (*baseline.predictions.values(), *first.values()):
        for image_id in predictions.ids:
            rows.setdefault((predictions.spec.dataset.fingerprint, image_id), len(rows))
    return rows


def _column(values: NDArray[np.generic], rows: NDArray[np.generic], size: int) -> pa.Array:
    """A column of ``size`` rows with ``values`` at ``rows`` and nulls elsewhere."""
    spread = np.zeros(size, values.dtype)
    spread[rows] = values
    missing = np.ones(size, bool)
    missing[rows] = False
    return pa.array(spread, mask=missing)


def _digest(table: pa.Table, content: Mapping[str, object]) -> str:
    """A digest of all values: other tools that edit the table update the checksums of pages, but not this."""
    parts: list[object] = [canonical_json(content)]
    for name in table.column_names:
        column = table.column(name)
        parts += [name, str(column.type), column.is_valid().to_numpy().tobytes()]
        # The value behind a null is undefined, so nulls are filled before the values are hashed.
        if pa.types.is_string(column.type):
            parts.append(column.fill_null(pa.scalar("", column.type)).to_pylist())
        else:
            parts.append(column.fill_null(pa.scalar(0, column.type)).to_numpy().tobytes())
    return digest(*parts)


def read_baseline(path: Location, *, accept_unsigned: bool = False) -> GateBaseline:
    """Read and check what ``shiftbench gate pin`` wrote; raises StoreError for any other or damaged file.

    Files of version 0.1 have no digest, and neither has a file that somebody edited and took the digest from. They are
    read only if ``accept_unsigned``.
    """
    try:
        with path.open("rb") as file:
            parquet = pq.ParquetFile(file, pre_buffer=False, page_checksum_verification=True)
            footer = parquet.metadata.metadata or {}
            content = json.loads(footer[_CONTENT_KEY])
            if content["format"] != _FORMAT:
                raise StoreError("unsupported baseline format", found=content["format"], expected=_FORMAT)
            table = parquet.read(use_threads=False)
        if _DIGEST_KEY not in footer and not accept_unsigned:
            raise StoreError(
                f"{path.name} has no digest, so nobody can tell whether it was changed",
                expected="a baseline of `gate pin`",
                hint=f"write it again: {shell_command('gate', 'pin', 'MODEL', '-o', path)}; or, if you trust the file, "
                f"{argument('accept_unsigned', True)}",
            )
        if _DIGEST_KEY in footer and footer[_DIGEST_KEY].decode() != _digest(table, content):
            raise ValueError("its content was changed")
        return _read_content(table, content)
    except (OSError, pa.ArrowException, KeyError, ValueError, TypeError) as error:
        raise StoreError(
            f"{path.name} is not a baseline file, or is damaged",
            found=f"{type(error).__name__}: {error}",
            hint=f"write it again: {shell_command('gate', 'pin', 'MODEL', '-o', path)}",
        ) from error


def _read_content(table: pa.Table, content: Mapping[str, Any]) -> GateBaseline:
    configuration = content["configuration"]
    predictions = _read_predictions(table, content, content["model"], content["settings"])
    first = None
    if "first" in content:
        model = content["first"]["model"]
        first_predictions = _read_predictions(
            table, content, model, content["first"]["settings"], start=len(content["settings"])
        )
        first = GateBaseline(model, first_predictions, configuration)
    series = content.get("series", {"name": "", "pins": ()})
    return GateBaseline(content["model"], predictions, configuration, series["name"], tuple(series["pins"]), first)


def _read_predictions(
    table: pa.Table, content: Mapping[str, Any], model: str, settings: Sequence[Mapping[str, Any]], start: int = 0
) -> dict[str, Predictions]:
    """The predictions of one model of a baseline file, by setting; its columns are numbered from ``start``."""
    ids = np.array(table.column("image").to_pylist(), dtype=object)
    predictions = {}
    for index, entry in enumerate(settings, start):
        rows = np.flatnonzero(table.column(f"top{index}").is_valid().to_numpy())
        top = table.column(f"top{index}").to_numpy()[rows]
        logits = table.column(f"confidence{index}").to_numpy()[rows]
        labels = table.column(entry["labels"]).to_numpy()[rows]
        spec = ResultSpec.from_json(entry["spec"])
        space = content["spaces"][spec.space]
        predictions[entry["setting"]] = Predictions(
            classifier=model,
            setting=entry["setting"],
            space=LabelSpace(space["name"], tuple(space["keys"]), tuple(space["names"])),
            ids=ids[rows].tolist(),
            labels=labels.astype(np.int32),
            top=top.astype(np.int32)[:, None],
            confidence=from_logits(logits),
            spec=spec,
        )
    return predictions
