"""Images from the web, from a server on this machine: saved Flickr searches, iNaturalist exports, lists of URLs."""

from __future__ import annotations

import io
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sqlalchemy import select

from shiftbench.errors import BadImageError
from shiftbench.testsets.database import PoolEntry
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.pool import downloads
from shiftbench.testsets.pool.downloads import Downloader
from shiftbench.testsets.pool.entries import import_images
from shiftbench.testsets.project import Project
from tests.commands import output
from tests.raised import raises
from tests.testsets.helpers import PETS, small_configuration


def picture(number: int) -> bytes:
    buffer = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 256, (24, 32, 3), np.uint8)
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


@dataclass
class Host:
    """Serves /N.png; /busy/N.png is refused once, /gone/... is missing, /moved/... leads to Flickr's placeholder."""

    url: str
    asked: Counter[str] = field(default_factory=Counter)
    agents: set[str] = field(default_factory=set)
    at_once: int = 0
    most_at_once: int = 0


@pytest.fixture
def host() -> Iterator[Host]:  # noqa: C901 (one branch per address that it answers)
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            new_host.at_once += 1
            new_host.most_at_once = max(new_host.most_at_once, new_host.at_once)
            new_host.asked[self.path] += 1
            new_host.agents.add(self.headers["User-Agent"])
            status, headers, body = self.answer()
            new_host.at_once -= 1
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def answer(self) -> tuple[int, dict[str, str], bytes]:
            if self.path.startswith("/busy/") and new_host.asked[self.path] == 1:
                return 429, {"Retry-After": "7"}, b""
            if self.path.startswith("/date/") and new_host.asked[self.path] == 1:
                return 429, {"Retry-After": formatdate(time.time() + 90, usegmt=True)}, b""
            if self.path.startswith("/closed/"):
                return 503, {"Retry-After": "7200"}, b""
            if self.path.startswith("/away/"):
                return 302, {"Location": f"{new_host.url.replace('127.0.0.1', 'localhost')}/{self.path[6:]}"}, b""
            if self.path.startswith("/loop/"):
                return 302, {"Location": self.path}, b""
            if self.path.startswith("/broken/"):  # not HTTP at all
                self.wfile.write(b"SPAM\r\n\r\n")
            if self.path.startswith("/moved/"):
                return 302, {"Location": "/images/photo_unavailable.png"}, b""
            name = self.path.rpartition("/")[2].removesuffix(".png")
            if self.path.startswith("/gone/"):
                return 404, {}, b""
            return 200, {}, picture(int(name) if name.isdigit() else 0)

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    new_host = Host(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield new_host
    server.shutdown()
    server.server_close()
    thread.join(300)


@pytest.fixture
def pets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.setenv(downloads.PAUSE, "0")
    project = Project.create(tmp_path / "pets", small_configuration())
    yield project
    project.close()


def entries(project: Project) -> dict[str, PoolEntry]:
    with project.reading() as session:
        return {entry.source_id: entry for entry in session.scalars(select(PoolEntry))}


def photo(host: Host, number: int, day: str, licence: str = "4", **more: object) -> dict[str, object]:
    record = {
        "id": str(number),
        "owner": "12@N00",
        "ownername": "Ann",
        "license": licence,
        "datetaken": f"{day} 10:00:00",
    }
    return {**record, "dateupload": "1350000000", "url_l": f"{host.url}/{number}.png", **more}


def test_flickr_answers_keep_licence_author_and_date(pets: Project, host: Host, tmp_path: Path) -> None:
    answers = tmp_path / "answers" / "dog"
    answers.mkdir(parents=True)
    by_folder = {"photos": {"photo": [photo(host, 1, "2012-08-01"), photo(host, 2, "2011-08-01")]}, "query": "hound"}
    (answers / "page-1.json").write_text(f"jsonFlickrApi({json.dumps(by_folder)})")
    stated = {"photos": {"photo": [photo(host, 3, "2013-07-11", "99"), photo(host, 4, "unknown")]}, "class": "cat"}
    (tmp_path / "answers" / "cats.json").write_text(json.dumps([stated]))
    done = import_images(
        pets, f"flickr:{tmp_path / 'answers'}", since=date(2012, 7, 11), until=date(2013, 7, 11), workers=2
    )
    assert done.new == 2
    assert dict(done.refused) == {"2": "dated 2011-08-01, 2012-10-12", "4": "no date"}
    assert set(host.asked) == {"/1.png", "/3.png"}  # others are not even fetched
    by_id = entries(pets)
    first = by_id["1"]
    assert (first.class_key, first.licence, first.author, first.query) == ("dog", "CC BY 2.0", "Ann", "hound")
    assert first.url == "https://www.flickr.com/photos/12@N00/1" and first.date == "2012-08-01 10:00:00"
    assert first.extra["uploaded"].startswith("2012-10-12") and first.extra["image_url"] == f"{host.url}/1.png"
    assert (by_id["3"].class_key, by_id["3"].licence) == ("cat", "Flickr licence 99")


def test_inaturalist_species_are_classes(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(downloads.PAUSE, "0")
    from shiftbench.testsets.configuration import ClassDefinition, Configuration

    classes = (ClassDefinition("rana", "Rana temporaria"), ClassDefinition("bufo", "common toad"))
    project = Project.create(tmp_path / "frogs", Configuration("frogs", classes))
    export = tmp_path / "observations.csv"
    export.write_text(
        "id,observed_on,user_login,license,url,image_url,scientific_name,common_name\n"
        f"7,2020-05-01,bo,CC-BY,https://i.example/7,{host.url}/7.png,Rana temporaria,European Common Frog\n"
        f"8,2020-05-02,cem,,https://i.example/8,{host.url}/8.png,Bufo bufo,Common Toad\n"
        f"9,2020-05-03,dana,CC0,https://i.example/9,{host.url}/9.png,Passer domesticus,House Sparrow\n"
    )
    done = import_images(project, f"inaturalist:{export}")
    by_id = entries(project)
    assert {key: (entry.class_key, entry.licence, entry.keyword) for key, entry in by_id.items()} == {
        "7": ("rana", "CC-BY", "Rana temporaria"),
        "8": ("bufo", "All rights reserved", "Bufo bufo"),
    }
    assert done.refused == [("9", "no class")] and by_id["7"].url == "https://i.example/7"
    project.close()


def test_an_interrupted_download_continues_and_hosts_are_asked_politely(
    pets: Project, host: Host, tmp_path: Path
) -> None:
    listed = tmp_path / "list.csv"
    rows = [f"{host.url}/{i}.png,{PETS.keys[i % 3]}" for i in range(9)] + [f"{host.url}/gone/1.png,cat"]
    listed.write_text("\n".join(["url,class", *rows[:4]]) + "\n")
    assert import_images(pets, f"urls:{listed}", workers=4).new == 4
    listed.write_text("\n".join(["url,class", *rows]) + "\n")
    done = import_images(pets, f"urls:{listed}", workers=4)
    assert (done.new, done.known) == (5, 4)
    assert done.refused == [(f"{host.url}/gone/1.png", "HTTP 404")]
    assert set(host.asked.values()) == {1} and host.most_at_once == 1


def test_a_plain_list_needs_a_class(pets: Project, host: Host, tmp_path: Path) -> None:
    listed = tmp_path / "list.txt"
    listed.write_text(f"{host.url}/1.png\n\n{host.url}/2.png\nftp://x/3.png\n")
    output("testset", "import", pets.folder, f"urls:{listed}", "--class", "frog", "-q")
    assert {entry.class_key for entry in entries(pets).values()} == {"frog"} and len(entries(pets)) == 2
    assert import_images(pets, f"urls:{listed}", name="again").refused[0][1] == "no class"
    with pytest.raises(WorkshopError, match="cannot read"):
        import_images(pets, f"urls:{tmp_path / 'nothing.csv'}")
    (tmp_path / "x.xml").write_text("<x/>")
    with raises(WorkshopError, found=".xml"):
        import_images(pets, f"urls:{tmp_path / 'x.xml'}")


def test_waiting(host: Host) -> None:
    waits: list[float] = []
    fetch = Downloader(pause=50, contact="lab@example.org", sleep=waits.append)
    assert fetch(f"{host.url}/busy/1.png") == picture(1)
    assert waits[0] == 0 and 40 < waits[1] <= 50  # the pause is longer than Retry-After
    waits.clear()
    fetch = Downloader(pause=1, contact="lab@example.org", sleep=waits.append)
    assert fetch(f"{host.url}/busy/2.png") == picture(2) and 6 < waits[1] <= 7
    assert fetch(f"{host.url}/date/2.png") == picture(2) and 80 < waits[3] <= 90
    with pytest.raises(BadImageError) as error:
        fetch(f"{host.url}/moved/5.png")
    assert error.value.found == "no longer available"
    assert all("lab@example.org" in agent for agent in host.agents)
    with pytest.raises(BadImageError):
        fetch("file:///etc/hostname")


def test_redirects_wait_for_the_other_host_too(host: Host) -> None:
    waits: list[float] = []
    fetch = Downloader(pause=50, sleep=waits.append)
    assert [fetch(f"{host.url}/away/{i}.png") for i in (1, 2)] == [picture(1), picture(2)]
    assert waits[:2] == [0, 0] and all(40 < wait <= 50 for wait in waits[2:])
    with pytest.raises(BadImageError) as error:
        fetch(f"{host.url}/loop/1.png")
    assert error.value.found == "too many redirects" and host.asked["/loop/1.png"] == 5


def test_one_bad_answer_does_not_end_the_import(
    pets: Project, host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Malformed answers and addresses are refused; spaces and letters are quoted; a closed host is left alone."""
    monkeypatch.setattr(downloads, "_ATTEMPTS", 2)
    other_host = host.url.replace("127.0.0.1", "localhost")
    good = [f"{host.url}/a space/1.png", f"{host.url}/ä/2.png?x=ö"]
    bad = [f"{host.url}/broken/1.png", "http://[x/1.png", "http://127.0.0.1:99999/1.png"]
    closed = [f"{other_host}/closed/1.png", f"{other_host}/3.png"]
    listed = tmp_path / "list.txt"
    listed.write_text("\n".join([*good, *bad, *closed]), encoding="utf-8")
    done = import_images(pets, f"urls:{listed}", class_key="cat", workers=1)
    assert done.new == 2 and [url for url, _ in done.refused] == [*bad, *closed]
    assert all("wait" in reason for _, reason in done.refused[-2:])
    assert host.asked["/closed/1.png"] == 1 and "/3.png" not in host.asked
