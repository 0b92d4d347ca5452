"""A zip archive of class folders is unpacked into the cache, once."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from shiftbench.datasets.catalogue import open_dataset
from shiftbench.errors import DatasetError, StoreError
from shiftbench.io import cache
from tests.runs.helpers import colour_folder


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIFTBENCH_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("within", [".", ".."])
def test_the_same_as_the_folder(tmp_path: Path, within: str) -> None:
    """With the class folders at the top of the archive, or in one folder."""
    folder = colour_folder(tmp_path / "all" / "photos", per_class=3)
    shutil.make_archive(str(tmp_path / "photos"), "zip", folder / within)
    for _ in range(2):
        dataset = open_dataset(tmp_path / "photos.zip", space="folders")
        assert dataset.name == "photos"
        assert dataset.fingerprint == open_dataset(folder, space="folders").fingerprint


def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "damaged.zip").write_bytes(b"PK and nothing else")
    with pytest.raises(StoreError):
        open_dataset(tmp_path / "damaged.zip")
    with zipfile.ZipFile(tmp_path / "outside.zip", "w") as archive:
        archive.writestr("../../outside.txt", "not here")
    with pytest.raises(DatasetError):
        open_dataset(tmp_path / "outside.zip")
    assert not list(tmp_path.glob("outside.txt")) and not list((tmp_path / "cache").glob("outside.txt"))
    monkeypatch.setattr(cache, "MOST_UNPACKED", 10)
    colour_folder(tmp_path / "photos", per_class=1)
    shutil.make_archive(str(tmp_path / "large"), "zip", tmp_path / "photos")
    with pytest.raises(StoreError) as caught:
        open_dataset(tmp_path / "large.zip")
    assert "10 bytes" in str(caught.value.expected)
