"""Models and tables by web address, from a server on this machine."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import shiftbench as sb
from shiftbench.classifiers import load_classifier
from shiftbench.errors import ClassifierError
from shiftbench.io import downloads
from shiftbench.io.downloads import DownloadError, fetched
from shiftbench.store.run_records import read_runs
from tests.runs.helpers import colour_folder, write_onnx_model

INPUT = {"size": 32, "mean": 0.5, "std": 0.25, "colour": "rgb", "interpolation": "bilinear"}


class Server(ThreadingHTTPServer):
    """Serves a folder, and keeps the methods and paths of the requests."""

    def __init__(self, folder: Path) -> None:
        self.requests: list[str] = []
        super().__init__(("127.0.0.1", 0), partial(Handler, directory=str(folder)))

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        assert isinstance(self.server, Server)
        self.server.requests.append(f"{self.command} {self.path}")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHIFTBENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "served").mkdir()
    write_onnx_model(tmp_path / "served" / "light.onnx")
    return tmp_path / "served"


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    running = Server(folder)
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


def write_table(path: Path, images: Path) -> None:
    datasets = pytest.importorskip("datasets")
    classes = ["blue", "green", "red"]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=classes)})
    files = sorted(images.glob("*/*.png"))
    # Without a file name, for the library would store that in place of the image.
    images_in_memory = [Image.open(file).copy() for file in files]
    rows = {"image": images_in_memory, "label": [classes.index(file.parent.name) for file in files]}
    datasets.Dataset.from_dict(rows, features=features).to_parquet(str(path))


def test_a_model_and_a_table(server: Server, folder: Path, tmp_path: Path) -> None:
    write_table(folder / "val.parquet", colour_folder(tmp_path / "images", per_class=4))
    options: Any = {"preprocessing": INPUT, "progress": False, "workers": 1}
    model = f"{server.address}/light.onnx"
    data = f"{server.address}/val.parquet?token=secret"
    run = sb.evaluate(model, data=data, workspace=tmp_path / "w", **options)
    assert run.settings == ["val.parquet"] and run.classifiers == ["light"]
    assert run.predictions().correct.all()
    here = sb.evaluate(str(folder / "light.onnx"), data=folder / "val.parquet", workspace=tmp_path / "v", **options)
    assert run.results[0].key == here.results[0].key
    # Each file was sent once; the record names the address and the hash, and no token.
    again = sb.evaluate(model, data=data, workspace=tmp_path / "w", **options)
    assert again.results[0].key == run.results[0].key
    assert len([request for request in server.requests if request.startswith("GET")]) == 2
    record = read_runs(run.workspace)[0][0]
    sha256 = hashlib.sha256((folder / "light.onnx").read_bytes()).hexdigest()
    assert record.models[0].source == f"{model} (SHA-256 {sha256})"
    assert "secret" not in str(record)
    assert not any(b"secret" in path.read_bytes() for path in (tmp_path / "w").rglob("*") if path.is_file())


def test_a_changed_file_is_fetched_again(server: Server, folder: Path) -> None:
    (folder / "words.txt").write_text("first")
    address = f"{server.address}/words.txt"
    first = fetched(address)
    (folder / "words.txt").write_text("the second")
    second = fetched(address)
    assert first.sha256 != second.sha256 and second.path.read_text() == "the second"


def test_without_a_connection_the_copy_is_used(server: Server, folder: Path) -> None:
    address = f"{server.address}/light.onnx"
    first = fetched(address)
    server.shutdown()
    server.server_close()
    with pytest.warns(UserWarning, match="fetched before"):
        assert fetched(address) == first
    with pytest.raises(DownloadError):
        fetched(f"{server.address}/other.onnx")


def test_what_is_not_fetched(server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DownloadError) as caught:
        load_classifier(f"{server.address}/nothing.onnx")
    assert "404" in str(caught.value.found)
    with pytest.raises(DownloadError) as caught:
        load_classifier("http://example.invalid/light.onnx")
    assert caught.value.expected == "https://"
    (folder / "model.py").write_text("def classifier(): ...")
    for address in (f"{server.address}/model.py", f"{server.address}/model.txt"):
        with pytest.raises(ClassifierError):
            load_classifier(address)
    monkeypatch.setattr(downloads.fetch, "__kwdefaults__", {"most_bytes": 100})
    with pytest.raises(DownloadError) as caught:
        load_classifier(f"{server.address}/light.onnx")
    assert "100 bytes" in str(caught.value.found)
