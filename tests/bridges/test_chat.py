"""Vision-language models behind a loopback server that speaks OpenAI's chat completions."""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import shiftbench as sb
from shiftbench.bridges import chat, json_server
from shiftbench.bridges.closed_answers import QUESTION
from shiftbench.errors import ClassifierError, SettingError
from tests.runs.helpers import colour_folder

KEY = "a-key-of-this-test"
STATED = "size=32,resize=squash,interpolation=bilinear"


class Handler(BaseHTTPRequestHandler):
    """Answers with the brightest channel of the image, decoded from the request as a provider would."""

    server: Provider

    def do_POST(self) -> None:
        content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == "/v1/chat/completions" and content["model"] == "org/vlm"
        self.server.temperatures.add(content.get("temperature"))
        if self.server.key and self.headers.get("Authorization") != f"Bearer {self.server.key}":
            self._answer(401, {"error": {"message": "no key"}})
            return
        if self.server.failures:
            self._answer(*self.server.failures.pop())
            return
        (message,) = content["messages"]
        question, image = message["content"]
        self.server.questions.add(question["text"])
        encoded = image["image_url"]["url"].removeprefix("data:image/png;base64,")
        pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(encoded))))
        name = ("red", "green", "blue")[int(pixels.mean(axis=(0, 1)).argmax())]
        choice = self.server.replies.get(name, {"message": {"content": f" {name.title()}.\n"}, "finish_reason": "stop"})
        usage = {"prompt_tokens": 90, "completion_tokens": 10, "total_tokens": 100, "cost": 0.5}
        self._answer(200, {"model": self.server.snapshot, "choices": [choice], "usage": usage})

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


class Provider(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.key = ""
        self.snapshot = "vlm-2026-01-01"
        self.failures: list[tuple[int, dict[str, Any]]] = []
        #: Other choices than the right one, by the name of the right one.
        self.replies: dict[str, dict[str, Any]] = {}
        self.questions: set[str] = set()
        self.temperatures: set[float | None] = set()

    @property
    def spec(self) -> str:
        return f"chat:http://127.0.0.1:{self.server_address[1]}/v1?model=org/vlm"


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    monkeypatch.delenv(json_server.TOKEN_VARIABLE, raising=False)
    monkeypatch.setattr(json_server, "_FIRST_PAUSE", 0.01)
    with Provider() as loopback:
        thread = threading.Thread(target=loopback.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield loopback
        loopback.shutdown()
        thread.join()


def load(provider: Provider, more: str = "") -> chat.ChatClassifier:
    classifier = sb.load_classifier(provider.spec + more, labels=["red", "green", "blue"], preprocessing=STATED)
    assert isinstance(classifier, chat.ChatClassifier)
    return classifier


def test_answers_are_scored_refusals_count_as_wrong_and_costs_are_kept(provider: Provider, tmp_path: Path) -> None:
    data = colour_folder(tmp_path / "photos", per_class=4)
    provider.replies["green"] = {"message": {"content": None, "refusal": "I can't help with that."}}
    run = sb.evaluate(
        provider.spec, data=data, labels="folders", preprocessing=STATED, workspace=tmp_path / "w", progress=False
    )
    assert run.metrics()["photos/top1"] == pytest.approx(8 / 12)
    predictions = run.predictions("org-vlm", "photos")
    unanswered = predictions.top[:, 0] == -2
    assert unanswered.sum() == 4 and {predictions.predicted_name(i) for i in np.flatnonzero(unanswered).tolist()} == {
        "no answer"
    }
    assert predictions.valid.all() and not predictions.correct[unanswered].any()
    assert np.isnan(predictions.confidence).all() and "no answer" in predictions._repr_html_()
    (note,) = [warning for warning in run.warnings() if warning.code == "served-answers"]
    # The first request is the trial of the loader.
    assert note.is_note and "4 of 12 images without an answer" in str(note) and "requests 13" in str(note)
    assert "tokens 1,300" in str(note) and "cost 6.5" in str(note) and "refusals 5" in str(note)
    assert "vlm-2026-01-01, not tied to weights" in run.results[0].spec.classifier.engine
    assert provider.questions == {QUESTION.replace("{classes}", "blue, green, red")}
    assert provider.temperatures == {0}
    # The rest of the tools take what has no confidence and no second answer.
    table = str(run.table()) + run.report(tmp_path / "report.html").read_text()
    assert "org-vlm" in table
    assert run.to_arrow("predictions").num_rows == 12
    # Nothing is asked twice but the trial of the loader.
    again = sb.evaluate(
        provider.spec, data=data, labels="folders", preprocessing=STATED, workspace=tmp_path / "w", progress=False
    )
    (note,) = [warning for warning in again.warnings() if warning.code == "served-answers"]
    assert "requests 14" in str(note)
    # Another model under the same name is another version.
    provider.snapshot = "vlm-2026-02-02"
    other = sb.evaluate(
        provider.spec, data=data, labels="folders", preprocessing=STATED, workspace=tmp_path / "w", progress=False
    )
    assert len(set(sb.Run.open(tmp_path / "w").classifiers)) == 2 and len(other.classifiers) == 1


def test_other_words_and_refused_content_are_no_answers_and_busy_servers_are_asked_again(provider: Provider) -> None:
    classifier = load(provider)
    green = np.zeros((1, 32, 32, 3), np.uint8)
    green[..., 1] = 200
    assert classifier.scores(green).tolist() == [[0, 1, 0]]
    provider.replies["green"] = {"message": {"content": "green or blue"}}
    assert classifier.scores(green).sum() == 0
    provider.failures = [(400, {"error": {"code": "content_policy_violation", "message": "no"}})]
    assert classifier.scores(green).sum() == 0 and classifier.take_usage()["refusals"] == 1
    provider.replies.clear()
    provider.failures = [(503, {}), (429, {})]
    assert classifier.scores(green).sum() == 1 and classifier.take_usage()["repeated requests"] == 2
    provider.failures = [(400, {"error": {"code": "invalid_value"}})]
    with pytest.raises(ClassifierError, match="400"):
        classifier.scores(green)
    provider.failures = [(200, {"choices": []})]
    with pytest.raises(ClassifierError, match="choices"):
        classifier.scores(green)
    provider.snapshot = "another"
    with pytest.raises(ClassifierError, match="another model"):
        classifier.scores(green)


def test_the_key_comes_from_the_environment_alone(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    provider.key = KEY
    with pytest.raises(ClassifierError, match=json_server.TOKEN_VARIABLE):
        load(provider)
    monkeypatch.setenv(json_server.TOKEN_VARIABLE, KEY)
    classifier = load(provider)
    assert KEY not in repr(vars(classifier)) + repr(vars(classifier.server)) + json.dumps(classifier.describe())
    with pytest.raises(ClassifierError, match="environment"):
        sb.load_classifier(provider.spec.replace("://", "://me:secret@"), labels=["a", "b"])


def test_options_of_the_address(provider: Provider, tmp_path: Path) -> None:
    (tmp_path / "question.txt").write_text("One of {classes}?\n")
    classifier = load(provider, f"&question={tmp_path}/question.txt&temperature=default&connections=2&timeout=5")
    assert classifier.question == "One of red, green, blue?" and provider.temperatures == {None}
    assert classifier.fingerprint != load(provider).fingerprint and classifier.server.timeout == 5
    (tmp_path / "question.txt").write_text("What is it?")
    with pytest.raises(SettingError, match="list the answers"):
        load(provider, f"&question={tmp_path}/question.txt")
    with pytest.raises(SettingError, match="apart"):
        sb.load_classifier(provider.spec, labels=["cat", "Cat"])
    with pytest.raises(ClassifierError, match="names of the classes"):
        sb.load_classifier(provider.spec)
    for wrong in ("&connections=0", "&temperature=warm", "&timeout=-1", "&retries=9", "&model="):
        with pytest.raises(ClassifierError):
            load(provider, wrong)
