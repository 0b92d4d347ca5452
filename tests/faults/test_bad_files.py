"""Broken and hostile models and archives at the command line: an error of the package, and nothing is written."""

from __future__ import annotations

import io
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from shiftbench.errors import ShiftbenchError
from tests.commands import call
from tests.faults.attempts import evaluating, start
from tests.runs.helpers import write_onnx_model

Write = Callable[[Path], object]


class _Writes:
    """Unpickling it writes a file."""

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.write_text, (Path("written-by-the-file"), "x"))


def _onnx(change: Callable[[bytes], bytes]) -> Write:
    def write(path: Path) -> None:
        write_onnx_model(path)
        path.write_bytes(change(path.read_bytes()))

    return write


def _onnx_with_weights_in(location: str) -> Write:
    """The order of the classes is read from another file."""

    def write(path: Path) -> None:
        import onnx

        write_onnx_model(path)
        model = onnx.load(path)
        (tensor,) = model.graph.initializer
        tensor.ClearField("int64_data")
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", "0"), ("length", "24")):
            tensor.external_data.add(key=key, value=value)
        path.write_bytes(model.SerializeToString())

    return write


def _zip_file(**members: bytes) -> Write:
    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in members.items():
                archive.writestr(name, content)

    return write


def _bytes(content: bytes) -> Write:
    return lambda path: path.write_bytes(content)


MODELS: dict[str, tuple[str, Write]] = {
    "ONNX that is empty": ("net.onnx", _bytes(b"")),
    "ONNX that is a web page": ("net.onnx", _bytes(b"<!doctype html>")),
    "ONNX that is a pointer of Git LFS": ("net.onnx", _bytes(b"version https://git-lfs.github.com/spec/v1\n")),
    "ONNX that is cut": ("net.onnx", _onnx(lambda content: content[:-40])),
    "ONNX with bytes at its end": ("net.onnx", _onnx(lambda content: content + b"\xff" * 40)),
    "ONNX of an operator that does not exist": ("net.onnx", _onnx(lambda c: c.replace(b"Flatten", b"Flattex"))),
    "ONNX with weights in a file above": ("net.onnx", _onnx_with_weights_in("../secret.bin")),
    "ONNX with weights at an absolute path": ("net.onnx", _onnx_with_weights_in("/etc/hostname")),
    "ONNX with weights that are missing": ("net.onnx", _onnx_with_weights_in("weights.bin")),
    "a pickle as .pkl": ("net.pkl", _bytes(pickle.dumps(_Writes()))),
    "a pickle as .joblib": ("net.joblib", _bytes(pickle.dumps(_Writes()))),
    "a pickle as .pt": ("net.pt", _bytes(pickle.dumps(_Writes()))),
    "a pickle as .pth": ("net.pth", _bytes(pickle.dumps(_Writes()))),
    "a pickle as .bin": ("net.bin", _bytes(pickle.dumps(_Writes()))),
    "a pickle as .safetensors": ("net.safetensors", _bytes(pickle.dumps(_Writes()))),
    "a pickle as .onnx": ("net.onnx", _bytes(pickle.dumps(_Writes()))),
    "a pickle as .pt2": ("net.pt2", _bytes(pickle.dumps(_Writes()))),
    "a zipped pickle of torch": (
        "net.pt",
        _zip_file(**{"net/data.pkl": pickle.dumps(_Writes()), "net/version": b"3\n"}),
    ),
    "safetensors that are empty": ("net.safetensors", _bytes(b"")),
    "safetensors with a header of exabytes": ("net.safetensors", _bytes(b"\xff" * 7 + b"\x7f{}")),
    "a zip archive without members": ("net.pt", _zip_file()),
    "a suffix that nobody knows": ("net.xyz", _bytes(b"x")),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    start(folder)
    (tmp_path / "secret.bin").write_bytes(np.arange(3).tobytes())
    monkeypatch.chdir(folder)
    return folder


def check_refused(folder: Path, *words: object) -> None:
    """An error of the package, no file beside the workspace and the cache, and none above the folder."""
    before = {path for path in folder.parent.rglob("*") if "w" not in path.parts}
    result = call(*words)
    assert result.exit_code != 0
    assert isinstance(result.exception, ShiftbenchError | SystemExit), repr(result.exception)
    workspace = folder / "w"
    new = {path for path in folder.parent.rglob("*") if path != workspace and workspace not in path.parents}
    assert new - before == set()


@pytest.mark.reliability("bad models")
@pytest.mark.parametrize("name", MODELS)
def test_models(here: Path, name: str) -> None:
    file, write = MODELS[name]
    write(here / file)
    check_refused(here, "eval", file, "--data", "data", "--labels", "labels.txt", "-w", "w", "--preprocess", "size=32")


# -- archives ------------------------------------------------------------------------------------------------------


def _image(folder: Path) -> bytes:
    return (folder / "data" / "red" / "0.png").read_bytes()


def _zipped(names: list[str], mode: int = 0o644) -> Callable[[Path], str]:
    def write(folder: Path) -> str:
        with zipfile.ZipFile(folder / "images.zip", "w") as archive:
            for name in names:
                member = zipfile.ZipInfo(name)
                member.external_attr = mode << 16
                archive.writestr(member, _image(folder))
        return "images.zip"

    return write


def _zip_link(folder: Path) -> str:
    with zipfile.ZipFile(folder / "images.zip", "w") as archive:
        member = zipfile.ZipInfo("red/0.png")
        member.external_attr = 0o120777 << 16
        archive.writestr(member, "/etc/hostname")
    return "images.zip"


def _cut_zip(folder: Path) -> str:
    _zipped(["red/0.png"])(folder)
    path = folder / "images.zip"
    path.write_bytes(path.read_bytes()[:-30])
    return path.name


def _wrong_checksum(folder: Path) -> str:
    _zipped(["red/0.png"])(folder)
    path = folder / "images.zip"
    content = bytearray(path.read_bytes())
    content[60] ^= 255
    path.write_bytes(bytes(content))
    return path.name


def _tarred(kind: bytes, name: str = "0.png", link: str = "") -> Callable[[Path], str]:
    """A shard of WebDataset whose first member is no plain file, or lies elsewhere."""

    def write(folder: Path) -> str:
        with tarfile.open(folder / "images-000000.tar", "w") as archive:
            member = tarfile.TarInfo(name)
            member.type = kind
            member.linkname = link
            content = _image(folder) if kind == tarfile.REGTYPE else b""
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        return "images-000000.tar"

    return write


def _object_array(folder: Path) -> str:
    np.savez(folder / "images.npz", images=np.array([_Writes()], object), labels=np.zeros(1, int))
    return "images.npz"


def _negative_shape(folder: Path) -> str:
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (-1, 32, 32, 3), }\n"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(100)
    with zipfile.ZipFile(folder / "images.npz", "w") as archive:
        archive.writestr("images.npy", content)
        archive.writestr("labels.npy", content)
    return "images.npz"


ARCHIVES: dict[str, Callable[[Path], str]] = {
    "a zip with a member above": _zipped(["../red/0.png"]),
    "a zip with a member at an absolute path": _zipped(["/red/0.png"]),
    "a zip with a member on a drive": _zipped(["C:\\red\\0.png"]),
    "a zip with a link": _zip_link,
    "a zip that is cut": _cut_zip,
    "a zip with a damaged member": _wrong_checksum,
    "a zip of nothing": _zipped([]),
    "a zip of texts": _zipped(["red/0.txt"]),
    "a shard with a link": _tarred(tarfile.SYMTYPE, link="/etc/hostname"),
    "a shard with a hard link": _tarred(tarfile.LNKTYPE, link="../secret.bin"),
    "a shard with a device": _tarred(tarfile.CHRTYPE),
    "a shard with a pipe": _tarred(tarfile.FIFOTYPE),
    "a shard with a member above": _tarred(tarfile.REGTYPE, name="../0.png"),
    "an array of pickles": _object_array,
    "an array of a negative length": _negative_shape,
}


@pytest.mark.reliability("bad archives")
@pytest.mark.parametrize("name", ARCHIVES)
def test_archives(here: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "here" / "w" / "cache"
    monkeypatch.setenv("SHIFTBENCH_CACHE", str(cache))
    cache.mkdir(parents=True)
    check_refused(here, *evaluating(data=ARCHIVES[name](here)))
