"""Models behind a loopback server that speaks the Open Inference Protocol and runs a real ONNX model."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shiftbench as sb
from shiftbench.bridges import json_server, served
from shiftbench.errors import ClassifierError
from tests.runs.helpers import colour_folder, write_onnx_model

KEY = "a-key-of-this-test"
STATED = {
    "resize": "squash",
    "interpolation": "bilinear",
    "mean": 0.5,
    "std": 0.25,
    "colour": "rgb",
    "outputs": "logits",
}


class Handler(BaseHTTPRequestHandler):
    """The paths of the protocol: metadata and inference, from an onnxruntime session."""

    server: Served

    def do_GET(self) -> None:
        entries = {"inputs": self.server.session.get_inputs(), "outputs": self.server.session.get_outputs()}
        described = {
            kind: [
                {
                    "name": value.name,
                    "datatype": "FP32",
                    "shape": [side if isinstance(side, int) else -1 for side in value.shape],
                }
                for value in values
            ]
            for kind, values in entries.items()
        }
        self._answer(200, {"name": "light", "versions": ["1"], "platform": "onnxruntime_onnx", **described})

    def do_POST(self) -> None:
        content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(dict(self.headers))
        if self.server.failures:
            self._answer(self.server.failures.pop(), {"error": "busy"})
            return
        (entry,) = content["inputs"]
        assert self.path == "/v2/models/light/infer" and entry["datatype"] == "FP32"
        batch = np.array(entry["data"], np.float32).reshape(entry["shape"])
        scores = self.server.sign * self.server.session.run(None, {entry["name"]: batch})[0]
        output = {"name": "scores", "datatype": "FP32", "shape": list(scores.shape), "data": scores.ravel().tolist()}
        self._answer(200, {"model_name": "light", "outputs": [output]})

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        if self.server.key and self.headers.get("Authorization") != f"Bearer {self.server.key}":
            status, content = 401, {"error": "no key"}
        body = json.dumps(content).encode()
        self.send_response(status)
        if status in (301, 302):
            self.send_header("Location", "http://127.0.0.1:9/v2/models/light")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


class Served(ThreadingHTTPServer):
    def __init__(self, model: Path) -> None:
        import onnxruntime

        super().__init__(("127.0.0.1", 0), Handler)
        self.session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
        self.requests: list[dict[str, str]] = []
        self.failures: list[int] = []
        self.key = ""
        self.sign = 1.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v2/models/light"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_onnx_model(tmp_path / "light.onnx")
    return tmp_path / "light.onnx"


@pytest.fixture
def server(model: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.delenv(json_server.TOKEN_VARIABLE, raising=False)
    monkeypatch.setattr(json_server, "_FIRST_PAUSE", 0.01)
    with Served(model) as loopback:
        thread = threading.Thread(target=loopback.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield loopback
        loopback.shutdown()
        thread.join()


def test_a_served_model_gives_the_predictions_of_its_file(server: Served, model: Path, tmp_path: Path) -> None:
    data = colour_folder(tmp_path / "photos", per_class=9)
    runs = [
        sb.evaluate(spec, data=data, labels="folders", preprocessing=STATED, name="net", workspace=tmp_path / folder,
                    progress=False)
        for spec, folder in ((server.url, "served"), (str(model), "file"))
    ]  # fmt: skip
    tops = [run.predictions("net", "photos").top[:, 0].tolist() for run in runs]
    assert tops[0] == tops[1] and runs[0].metrics()["photos/top1"] == runs[1].metrics()["photos/top1"] == 1.0
    spec = runs[0].results[0].spec.classifier
    assert "not tied to weights" in spec.engine
    classifier = sb.load_classifier(f"kserve:{server.url}", labels=["a", "b", "c"], preprocessing=STATED)
    assert classifier.assumed == () and not classifier.self_contained
    # Other weights under the same name are another version: the run notices by its fixed images.
    server.sign = -1.0
    with pytest.warns(sb.ResultWarning):
        again = sb.evaluate(server.url, data=data, labels="folders", preprocessing=STATED, name="net",
                            workspace=tmp_path / "served", progress=False)  # fmt: skip
    assert again.metrics()["photos/top1"] == 0.0


def test_busy_servers_are_asked_again_and_others_are_not(server: Served) -> None:
    classifier = sb.load_classifier(server.url, labels=["a", "b", "c"], preprocessing=STATED)
    assert isinstance(classifier, served.ServedClassifier)
    images = np.zeros((2, 32, 32, 3), np.uint8)
    server.failures = [503, 429]
    expected = classifier.scores(images)
    assert expected.shape == (2, 3) and classifier.server.repeated == 2
    server.failures = [503] * 9
    with pytest.raises(ClassifierError, match="refuses"):
        classifier.scores(images)
    server.failures = [400]
    before = len(server.requests)
    with pytest.raises(ClassifierError, match="400"):
        classifier.scores(images)
    assert len(server.requests) == before + 1
    server.failures = [302]
    with pytest.raises(ClassifierError, match="redirects"):
        classifier.scores(images)


def test_the_key_comes_from_the_environment_alone(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    server.key = KEY
    with pytest.raises(ClassifierError, match=json_server.TOKEN_VARIABLE):
        sb.load_classifier(server.url, labels=["a", "b", "c"])
    monkeypatch.setenv(json_server.TOKEN_VARIABLE, KEY)
    classifier = sb.load_classifier(server.url, labels=["a", "b", "c"], preprocessing=STATED)
    assert KEY not in repr(vars(classifier)) + repr(vars(vars(classifier)["server"])) + json.dumps(
        classifier.describe()
    )
    with pytest.raises(ClassifierError, match="environment"):
        sb.load_classifier("kserve:" + server.url.replace("://", "://me:secret@"))


def test_other_addresses_and_silent_servers(server: Served) -> None:
    for wrong in (
        "http://127.0.0.1:1/models/x",
        "ftp://host/v2/models/x",
        f"{server.url}?retries=3",
        f"{server.url}?timeout=0",
    ):
        with pytest.raises(ClassifierError):
            sb.load_classifier(f"kserve:{wrong}")
    with pytest.raises(ClassifierError, match="does not answer"):
        sb.load_classifier("http://127.0.0.1:1/v2/models/x")


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 100_000, b"<html>", b""])
def test_an_answer_that_is_no_json(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    server = json_server.JsonServer("http://127.0.0.1:1", 1)
    server.protocol = "anything"
    monkeypatch.setattr(server, "_text", lambda url, data: text)
    with pytest.raises(ClassifierError):
        server.answer(server.url)
