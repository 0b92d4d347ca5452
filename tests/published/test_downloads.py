"""Public tables from a server on this machine: whole, interrupted and resumed, altered, and offline."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from shiftbench.errors import ShiftbenchError, UnknownNameError
from shiftbench.published import downloads
from shiftbench.published.downloads import Source, download
from tests.commands import call
from tests.raised import raises

CONTENT = b"model,val\n" + b"".join(b"net%d,%d\n" % (i, i % 90) for i in range(20_000))


class Server(ThreadingHTTPServer):
    #: Bytes after which the connection breaks, once.
    breaks_after: int | None = None
    ranges: list[str]
    content: bytes = CONTENT
    #: Whether it sends a range of whatever version it has, as some mirrors do.
    ignores_if_range: bool = False


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range", "")
        etag = f'"{hashlib.md5(self.server.content).hexdigest()}"'
        self.server.ranges.append(asked)
        same = self.server.ignores_if_range or self.headers.get("If-Range") == etag
        start = int(re.findall(r"\d+", asked)[0]) if asked and same else 0
        body = self.server.content[start:]
        if start and not body:
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", etag)
        self.end_headers()
        cut = self.server.breaks_after
        self.server.breaks_after = None
        self.wfile.write(body[:cut])

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("SHIFTBENCH_CACHE", str(tmp_path / "cache"))
    one = Server(("127.0.0.1", 0), Handler)
    one.ranges = []
    thread = threading.Thread(target=one.serve_forever, daemon=True)
    thread.start()
    known = {"table.csv": hashlib.sha256(CONTENT).hexdigest(), "other.csv": "0" * 64, "unknown.csv": ""}
    source = Source(f"http://127.0.0.1:{one.server_address[1]}/results", known)
    monkeypatch.setattr(downloads, "sources", lambda: {"testbed": source})
    yield one
    one.shutdown()
    one.server_close()


def test_files_are_fetched_once_and_verified(server: Server) -> None:
    found = download("testbed")
    assert [one.verified for one in found] == [True, False, None] and not any(one.already for one in found)
    assert all(one.path.read_bytes() == CONTENT for one in found)
    assert all(one.already for one in download("testbed")) and len(server.ranges) == 3
    download("testbed", again=True)
    assert len(server.ranges) == 6


def test_a_fixed_version_must_match_its_hash(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    source = replace(downloads.sources()["testbed"], files={"table.csv": "0" * 64}, fixed=True)
    monkeypatch.setattr(downloads, "sources", lambda: {"testbed": source})
    for again in (False, True):
        with pytest.raises(ShiftbenchError) as raised:
            download("testbed", again=again)
        assert (raised.value.found, raised.value.expected) == (hashlib.sha256(CONTENT).hexdigest(), "0" * 64)


def test_an_interrupted_download_resumes(server: Server) -> None:
    server.breaks_after = 70_000
    with pytest.raises(ShiftbenchError, match=r"table\.csv could not be downloaded") as raised:
        download("testbed")
    assert "resumes" in str(raised.value.hint)
    found = download("testbed")
    assert server.ranges[1] == "bytes=70000-" and found[0].path.read_bytes() == CONTENT and found[0].verified


@pytest.mark.parametrize("left", [CONTENT, CONTENT + b"x", b"model,other\n"])
@pytest.mark.parametrize("tag", [f'"{hashlib.md5(CONTENT).hexdigest()}"', '"another"', None])
def test_what_is_not_the_start_of_the_file_is_replaced(server: Server, left: bytes, tag: str | None) -> None:
    """A whole file that was never renamed (the server has no rest of it), and files without their ETag."""
    folder = download("testbed")[0].path.parent
    (folder / "unknown.csv").unlink()
    if tag != '"another"' and left == b"model,other\n":
        tag = None  # would be the start of the server's own file
    (folder / "unknown.csv.part").write_bytes(left)
    if tag is not None:
        (folder / "unknown.csv.etag").write_text(tag)
    assert download("testbed")[2].path.read_bytes() == CONTENT
    assert not [path for path in folder.iterdir() if path.suffix in (".part", ".etag")]


@pytest.mark.parametrize("ignores_if_range", [False, True])
def test_two_versions_are_never_joined(server: Server, ignores_if_range: bool) -> None:
    """The file changes between an interrupted download and the next; no hash of it is known."""
    folder = download("testbed")[2].path.parent
    (folder / "unknown.csv").unlink()
    server.breaks_after = 70_000
    with pytest.raises(ShiftbenchError, match=r"unknown\.csv could not be downloaded"):
        download("testbed")
    server.content = CONTENT.replace(b"net", b"NET")
    server.ignores_if_range = ignores_if_range
    assert download("testbed")[2].path.read_bytes() == server.content


def test_offline_names_the_address_and_what_to_do(server: Server) -> None:
    server.shutdown()
    server.server_close()
    with pytest.raises(ShiftbenchError, match="could not be downloaded") as raised:
        download("testbed")
    assert "127.0.0.1" in str(raised.value.found) and "when online" in str(raised.value.hint)
    with raises(ShiftbenchError, found="file:///etc/table.csv: not a web address"):
        download("testbed", url="file:///etc")
    with pytest.raises(UnknownNameError):
        download("nothing")


def test_the_command_prints_the_folder(server: Server) -> None:
    result = call("baselines", "get", "testbed")
    assert result.exit_code == 0 and (Path(result.stdout.strip()) / "table.csv").is_file()
    assert "another version than the tested one" in result.stderr


def test_the_known_sources() -> None:
    known = downloads.sources()
    assert set(known) == {"testbed", "testbed-204", "timm"}
    assert all(one.url.startswith("https://") for one in known.values())
    assert all(re.fullmatch("[0-9a-f]{64}|", digest) for one in known.values() for digest in one.files.values())


def test_hashes_are_those_of_the_tables_that_tests_read(reference_data: Path) -> None:
    for file, digest in downloads.sources()["timm"].files.items():
        assert hashlib.sha256((reference_data / "timm_results" / file).read_bytes()).hexdigest() == digest
    table = (reference_data / "imagenet-testbed" / "results_204x213.csv").read_bytes()
    assert downloads.sources()["testbed-204"].files == {"robustness_top1s.csv": hashlib.sha256(table).hexdigest()}
    assert downloads.sources()["testbed"].files == {"robustness_top1s.csv": ""}  # it changes
