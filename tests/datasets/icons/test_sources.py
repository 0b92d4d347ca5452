"""Archives from strangers: links, paths that lead out, bombs and damage."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from shiftbench.datasets import registry_packages
from shiftbench.datasets.registry_packages import read_members
from shiftbench.errors import DatasetError
from tests.datasets.icons.making import tgz, wheel
from tests.raised import raises

Make = Callable[[Mapping[str, bytes]], bytes]


def everything(name: str) -> bool:
    return True


@pytest.mark.parametrize("make", [tgz, wheel])
def test_members_come_in_order_and_only_those_wanted(tmp_path: Path, make: Make) -> None:
    path = tmp_path / "some"
    path.write_bytes(make({"a/1.png": b"one", "b/2.png": b"two", "a/3.png": b"three"}))
    found = list(read_members(path, lambda name: name.startswith("a/")))
    assert found == [("a/1.png", b"one"), ("a/3.png", b"three")]


def test_links_devices_and_folders_are_passed_over(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE):
            info = tarfile.TarInfo(f"package/{ord(kind)}.png")
            info.type = kind
            info.linkname = "/etc/passwd"
            tar.addfile(info)
    path = tmp_path / "links.tgz"
    path.write_bytes(buffer.getvalue())
    assert list(read_members(path, everything)) == []


@pytest.mark.parametrize("make", [tgz, wheel])
def test_nothing_is_written_wherever_a_name_leads(tmp_path: Path, make: Make) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    path = inside / "some"
    path.write_bytes(make({"../outside.png": b"x", "/absolute.png": b"y"}))
    assert [data for _, data in read_members(path, everything)] == [b"x", b"y"]
    assert [entry.name for entry in tmp_path.rglob("*")] == ["inside", "some"]


@pytest.mark.parametrize("make", [tgz, wheel])
def test_what_swells_is_refused(tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb"
    path.write_bytes(make({"a.png": bytes(200_000), "b.png": bytes(10)}))
    monkeypatch.setattr(registry_packages, "MAX_MEMBER_BYTES", 100_000)
    with raises(DatasetError, found="100,001 bytes or more", expected="up to 100,000"):
        list(read_members(path, everything))
    assert [name for name, _ in read_members(path, lambda name: name == "b.png")] == ["b.png"]
    monkeypatch.setattr(registry_packages, "MAX_TOTAL_BYTES", 200_000)
    with raises(DatasetError, found="2 members, 200,010 bytes", expected="up to 100,000 members and 200,000 bytes"):
        list(read_members(path, lambda name: name == "b.png"))
    monkeypatch.setattr(registry_packages, "MAX_TOTAL_BYTES", 10**9)
    monkeypatch.setattr(registry_packages, "MAX_MEMBERS", 1)
    with raises(DatasetError, found="2 members, 200,010 bytes", expected="up to 1 members and 1,000,000,000 bytes"):
        list(read_members(path, lambda name: name == "b.png"))


def test_a_zip_that_lies_about_a_size_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_packages, "MAX_MEMBER_BYTES", 1_000)
    path = tmp_path / "lying.whl"
    path.write_bytes(wheel({"a.png": bytes(50_000)}))
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as made:
        info = made.getinfo("a.png")
    for start in (22, data.rindex(b"PK\x01\x02") + 24):  # the size, in the local header and in the directory
        data[start : start + 4] = (10).to_bytes(4, "little")
    path.write_bytes(data)
    assert info.file_size == 50_000
    with pytest.raises(DatasetError):
        list(read_members(path, everything))


@pytest.mark.parametrize("cut", [0, 10, 100])
def test_damage_is_told_with_the_archive_s_name(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "cut.tgz"
    path.write_bytes(tgz({f"{i}.png": bytes(range(256)) for i in range(50)})[:cut])
    with pytest.raises(DatasetError, match=r"cut\.tgz can't be read"):
        list(read_members(path, everything))
