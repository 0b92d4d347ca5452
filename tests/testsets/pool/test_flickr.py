"""The search of Flickr, against a server on this machine that answers like its API."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.pool import downloads, flickr
from shiftbench.testsets.pool.downloads import _records
from shiftbench.testsets.pool.flickr import read_plan, search_flickr, search_table
from shiftbench.testsets.project import Project
from tests.testsets.helpers import small_configuration

RIGHT_KEY = "0123456789abcdef"
PLAN = (
    "class,name,step,query,images,taken_from,taken_until,uploaded_from,uploaded_until,sort\n"
    "cat,cat,0,house cat,700,2012-07-11,2013-07-11,2012-07-11,2013-07-11,date-posted-asc\n"
    "dog,dog,0,hound,5,,,,,\n"
)


class Service:
    """What the stand-in for Flickr has received; it has 620 photos for each query."""

    def __init__(self) -> None:
        self.received: list[dict[str, str]] = []
        self.address = ""
        #: Answers to send instead, first to last.
        self.instead: list[bytes] = []

    def answer(self, parameters: dict[str, str]) -> dict[str, Any]:
        if parameters["api_key"] != RIGHT_KEY:
            return {"stat": "fail", "code": 100, "message": f"Invalid API Key {parameters['api_key']}"}
        if parameters["method"] != "flickr.photos.search" or parameters["format"] != "json":
            return {"stat": "fail", "code": 112, "message": "Method not found"}
        size = int(parameters["per_page"])
        start = (int(parameters["page"]) - 1) * size
        photos = []
        for number in range(start, min(start + size, 620)):
            photos.append({"id": str(number), "owner": "12@N00", "server": "7", "secret": "s", "license": "4"})
        return {"stat": "ok", "photos": {"page": 1, "pages": -(-620 // size), "total": "620", "photo": photos}}


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    service = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parameters = dict(parse_qsl(urlsplit(self.path).query))
            service.received.append(parameters)
            body = service.instead.pop(0) if service.instead else json.dumps(service.answer(parameters)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv(downloads.PAUSE, "0")
    monkeypatch.setenv(flickr.KEY, RIGHT_KEY)
    monkeypatch.setenv(flickr.ADDRESS, f"http://127.0.0.1:{server.server_port}/services/rest/")
    yield service
    server.shutdown()
    server.server_close()
    thread.join(300)


@pytest.fixture
def pets(tmp_path: Path) -> Iterator[Project]:
    project = Project.create(tmp_path / "pets", small_configuration())
    (tmp_path / "plan.csv").write_text(PLAN)
    yield project
    project.close()


def test_a_plan_becomes_answers_that_import_reads(pets: Project, service: Service, tmp_path: Path) -> None:
    plan = read_plan(tmp_path / "plan.csv", pets)
    answers = tmp_path / "answers"
    outcomes = search_flickr(pets, plan, answers)
    assert [(outcome.photos, outcome.total) for outcome in outcomes] == [(620, 620), (5, 620)]
    first, second, third = service.received
    assert (first["text"], first["sort"], first["per_page"], first["page"]) == (
        "house cat", "date-posted-asc", "500", "1"
    )  # fmt: skip
    assert (first["min_taken_date"], first["max_upload_date"]) == ("2012-07-11 00:00:00", "2013-07-11 23:59:59")
    assert second["page"] == "2" and third["text"] == "hound" and "min_taken_date" not in third
    records = list(_records(answers, pets))
    assert len(records) == 625 and len({(record["class"], record["id"]) for record in records}) == 625
    assert {record["query"] for record in records} == {"house cat", "hound"}
    # A second time, everything is there; another number of images is another query.
    assert [outcome.saved_before for outcome in search_flickr(pets, plan, answers)] == [True, True]
    assert len(service.received) == 3
    (tmp_path / "plan.csv").write_text(PLAN.replace(",5,", ",6,"))
    outcomes = search_flickr(pets, read_plan(tmp_path / "plan.csv", pets), answers)
    assert [outcome.saved_before for outcome in outcomes] == [True, False]
    assert "625" not in search_table(outcomes).lead[0] and "626" in search_table(outcomes).lead[0]
    # The key is in no file.
    assert not any(RIGHT_KEY in path.read_text() for path in answers.rglob("*.json"))


def test_what_goes_wrong_is_named_without_the_key(
    pets: Project, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = read_plan(tmp_path / "plan.csv", pets)
    for wrong in (b"<html>busy</html>", b'{"stat": "ok", "photos": {}}', b"[]"):
        service.instead = [wrong]
        with pytest.raises(WorkshopError) as refused:
            search_flickr(pets, plan, tmp_path / "answers")
        assert RIGHT_KEY not in str(refused.value)
    monkeypatch.setenv(flickr.KEY, "a-wrong-key")
    with pytest.raises(WorkshopError) as refused:
        search_flickr(pets, plan, tmp_path / "answers")
    assert str(refused.value.found).startswith("100: ") and "a-wrong-key" not in str(refused.value)
    monkeypatch.setenv(flickr.ADDRESS, "http://flickr.example/services/rest/")
    with pytest.raises(WorkshopError):
        search_flickr(pets, plan, tmp_path / "answers")
    monkeypatch.setenv(flickr.ADDRESS, "http://127.0.0.1:9/")
    monkeypatch.setattr(downloads, "_ATTEMPTS", 1)
    with pytest.raises(WorkshopError) as refused:
        search_flickr(pets, plan, tmp_path / "answers")
    assert "a-wrong-key" not in str(refused.value)
    monkeypatch.delenv(flickr.KEY)
    with pytest.raises(WorkshopError) as refused:
        search_flickr(pets, plan, tmp_path / "answers")
    assert flickr.KEY in str(refused.value.hint)


@pytest.mark.parametrize(
    "text", ["", "class,query\ncat,hound\n", PLAN.replace("dog,", "bee,"), PLAN.replace("700", "x")]
)
def test_other_files_are_no_plans(pets: Project, tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.csv").write_text(text)
    with pytest.raises(WorkshopError):
        read_plan(tmp_path / "plan.csv", pets)
