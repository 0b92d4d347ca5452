"""Models and datasets by their name on a hub: against a server on loopback that speaks the hub's protocol.

The commands run in processes of their own, because ``huggingface_hub`` reads the environment when it is imported.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from shiftbench.io.hub import HubRepository

torch = pytest.importorskip("torch")
pytest.importorskip("huggingface_hub")

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPOSITORIES = {"models": "org/tiny", "datasets": "org/photos"}


class Hub(BaseHTTPRequestHandler):
    """The endpoints that a download asks for: what a repository holds, and each file at a commit."""

    root: Path
    requested: list[str]

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        path = self.path.partition("?")[0]
        self.requested.append(path)
        for kind, name in REPOSITORIES.items():
            files = self.root / kind
            if path in (f"/api/{kind}/{name}/revision/main", f"/api/{kind}/{name}/revision/{COMMIT}"):
                siblings = [{"rfilename": str(file.relative_to(files))} for file in files.rglob("*") if file.is_file()]
                content = json.dumps({"id": name, "sha": COMMIT, "siblings": siblings}).encode()
                return self.send(200, content, body)
            if path == f"/api/{kind}/{name}/tree/{COMMIT}":
                return self.send(200, json.dumps([self.entry(file) for file in files.rglob("*")]).encode(), body)
            prefix = f"/{'datasets/' if kind == 'datasets' else ''}{name}/resolve/{COMMIT}/"
            if path.startswith(prefix) and (files / path.removeprefix(prefix)).is_file():
                return self.send(200, (files / path.removeprefix(prefix)).read_bytes(), body)
        return self.send(404, b"{}", body)

    def entry(self, path: Path) -> dict[str, object]:
        """A file or folder in the tree of a repository."""
        size = path.stat().st_size if path.is_file() else 0
        name = "/".join(path.relative_to(self.root).parts[1:])
        return {
            "type": "file" if path.is_file() else "directory",
            "path": name,
            "size": size,
            "oid": f"{len(name):040x}",
        }

    def send(self, status: int, content: bytes, body: bool) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        if status == 404:
            self.send_header("X-Error-Code", "RepoNotFound")
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""


def make_model(folder: Path) -> None:
    from shiftbench.classifiers.zoo import import_torchvision

    transformers = pytest.importorskip("transformers")
    import_torchvision("hf")
    torch.manual_seed(0)
    names = {0: "dark", 1: "light"}
    config = transformers.ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8],
        depths=[1],
        layer_type="basic",
        id2label=names,
        label2id={name: i for i, name in names.items()},
    )
    transformers.ResNetForImageClassification(config).save_pretrained(folder)
    transformers.ConvNextImageProcessor(size={"shortest_edge": 32}).save_pretrained(folder)
    (folder / "trap.py").write_text("raise SystemExit('run')\n")
    (folder / "pytorch_model.bin").write_bytes(b"a pickle")


def make_data(folder: Path) -> None:
    from PIL import Image

    for name, level in (("dark", 30), ("light", 220)):
        (folder / "val" / name).mkdir(parents=True)
        for i in range(4):
            Image.new("RGB", (32, 32), (level + i,) * 3).save(folder / "val" / name / f"{i}.png")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, type[Hub]]]:
    root = tmp_path_factory.mktemp("hub")
    make_model(root / "models")
    make_data(root / "datasets")
    handler = type("OneHub", (Hub,), {"root": root, "requested": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", handler
    server.shutdown()


def shiftbench(endpoint: str, folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(folder / "hf"), "HF_HUB_DISABLE_XET": "1"}
    return subprocess.run(
        [sys.executable, "-m", "shiftbench", *words],
        cwd=folder,
        env=variables | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.slow
def test_model_and_data_of_a_hub(hub: tuple[str, type[Hub]], tmp_path: Path) -> None:
    endpoint, handler = hub
    data = "hf://datasets/org/photos/val"
    words = ("eval", "hf:org/tiny", "--data", data, "-w", "w", "-q", "--json")
    done = shiftbench(endpoint, tmp_path, *words)
    assert done.returncode == 0, (done.stderr, [path for path in handler.requested if "photos" in path])
    fetched = [path for path in handler.requested if "/resolve/" in path]
    assert any(path.endswith("model.safetensors") for path in fetched)
    assert not any(path.endswith((".py", ".bin")) for path in fetched)
    records = [json.loads(file.read_text()) for file in (tmp_path / "w" / "runs").glob("*.json")]
    assert f"hf:org/tiny@{COMMIT}" in json.dumps(records)
    # With the cache, no network is needed, and the same commit can be asked for by name.
    for spec in ("hf:org/tiny", f"hf:org/tiny@{COMMIT}"):
        offline = shiftbench("http://127.0.0.1:9", tmp_path, "describe", spec, "--json", HF_HUB_OFFLINE="1")
        assert offline.returncode == 0, offline.stderr


@pytest.mark.slow
def test_a_model_of_timm_on_a_hub(tmp_path: Path) -> None:
    from shiftbench.classifiers.zoo import import_timm

    timm = import_timm()
    torch.manual_seed(0)
    network = timm.create_model("test_resnet", num_classes=2)
    network.pretrained_cfg |= {"input_size": (3, 32, 32), "std": (0.25, 0.25, 0.25)}
    timm.models.save_for_hf(network, tmp_path / "models", safe_serialization=True)
    (tmp_path / "models" / "pytorch_model.bin").write_bytes(b"a pickle")
    requested: list[str] = []
    handler = type("TimmHub", (Hub,), {"root": tmp_path, "requested": requested})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        make_data(tmp_path)
        words = ("--data", "val", "--labels", "folders", "-w", "w", "-q", "--json")
        done = shiftbench(endpoint, tmp_path, "eval", "timm:hf-hub:org/tiny", *words)
        server.shutdown()
    assert done.returncode == 0, done.stderr
    assert not any(path.endswith(".bin") for path in requested if "/resolve/" in path)
    records = [json.loads(file.read_text()) for file in (tmp_path / "w" / "runs").glob("*.json")]
    assert f"hf:org/tiny@{COMMIT}" in json.dumps(records)
    offline = shiftbench(
        "http://127.0.0.1:9", tmp_path, "describe", f"timm:hf-hub:org/tiny@{COMMIT}", "--json", HF_HUB_OFFLINE="1"
    )
    assert offline.returncode == 0 and "0.25" in offline.stdout, offline.stderr


def test_what_cannot_be_fetched(hub: tuple[str, type[Hub]], tmp_path: Path) -> None:
    endpoint, _ = hub
    missing = shiftbench(endpoint, tmp_path, "describe", "hf:org/none", HF_TOKEN="hf_secret")
    assert missing.returncode != 0 and "org/none cannot be fetched" in missing.stderr
    assert "hf_secret" not in missing.stderr + missing.stdout
    offline = shiftbench("http://127.0.0.1:9", tmp_path, "describe", "hf:org/tiny", HF_HUB_OFFLINE="1")
    assert offline.returncode != 0 and "cannot be fetched" in offline.stderr and "Traceback" not in offline.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("org/name", HubRepository("org/name")),
        ("org/name@v1.0", HubRepository("org/name", "v1.0")),
        ("org/name@refs/pr/1", HubRepository("org/name", "refs/pr/1")),
        ("folder", None),
        ("./org/name", None),
        ("a/b/c", None),
        ("org/../name", None),
    ],
)
def test_names_of_repositories(text: str, expected: HubRepository | None) -> None:
    assert HubRepository.parse(text) == expected
