"""The live viewer: it follows a run, and lets nobody in who should not be."""

from __future__ import annotations

import asyncio
import builtins
import io
import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn
from fastapi.testclient import TestClient
from numpy.typing import NDArray
from PIL import Image

import shiftbench as sb
import shiftbench.reports.page
from shiftbench.api import IncompleteRunError
from shiftbench.cli.report import _address
from shiftbench.errors import MissingExtraError, ShiftbenchError
from shiftbench.io.paths import local
from shiftbench.reports.page import server
from shiftbench.reports.page.payload import Page, Progress
from shiftbench.reports.page.report_data import ReportOptions
from shiftbench.reports.page.sections import failures
from shiftbench.reports.page.server import bind, new_token, viewer_app
from shiftbench.reports.page.viewer import GrowingWorkspace, Snapshot, Viewer, workspace_stamp
from tests.commands import call
from tests.reports.page.making import SMALL, number, part_of, results_of, run_colours
from tests.runs.helpers import COLOURS, brightest_channel, colour_folder

LOCAL = "http://127.0.0.1:8765"


@pytest.fixture(scope="module")
def viewer(run: sb.Run, pictures: Path) -> Viewer:
    found = Viewer(run.workspace.root, None, ReportOptions("Colours", folders={"": [pictures]}))
    settled(found)
    return found


@pytest.fixture
def client(viewer: Viewer) -> TestClient:
    return TestClient(viewer_app(viewer), base_url=LOCAL)


def settled(viewer: Viewer, timeout: float = 300.0) -> Snapshot:
    """The snapshot once it is of the workspace as it is now."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        found = viewer.snapshot()
        if viewer._building is None and viewer._stamp == workspace_stamp(viewer.workspace):
            return viewer.snapshot()
        time.sleep(0.02)
    raise TimeoutError(found.body[:200])


def page_of(viewer: Viewer) -> Page:
    page: Page = json.loads(settled(viewer).body)
    return page


def progress_of(page: Page) -> Progress:
    assert page["progress"] is not None
    return page["progress"]


def test_the_page_and_its_data(client: TestClient, run: sb.Run) -> None:
    page = client.get("/")
    assert page.status_code == 200 and 'data-live="payload.json"' in page.text and "<title>Colours</title>" in page.text
    data = client.get("/payload.json").json()
    assert [model["name"] for model in results_of(data)["models"]] == run.classifiers and data["progress"] is None
    assert {"failures", "calibration", "corruptions"} <= set(data["sections"])


def test_unchanged_data_is_not_sent_again(client: TestClient) -> None:
    first = client.get("/payload.json")
    again = client.get("/payload.json", headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304 and again.content == b"" and again.headers["etag"] == first.headers["etag"]
    weak = client.get("/payload.json", headers={"If-None-Match": f'"other", W/{first.headers["etag"]}'})
    assert weak.status_code == 304
    assert client.get("/payload.json", headers={"If-None-Match": '"other"'}).status_code == 200


def test_pictures_are_made_when_asked_for(client: TestClient) -> None:
    urls = part_of(client.get("/payload.json").json(), failures.SECTION)["thumbnails"]
    assert urls and all(re.fullmatch(r"images/[0-9a-f]{24}\.webp", url) for url in urls)
    answer = client.get(f"/{urls[0]}")
    assert answer.headers["content-type"] == "image/webp" and Image.open(io.BytesIO(answer.content)).format == "WEBP"
    again = client.get(f"/{urls[0]}", headers={"If-None-Match": answer.headers["etag"]})
    assert again.status_code == 304
    for name in ("0" * 24, "..%2f..%2fetc%2fpasswd", "x"):
        assert client.get(f"/images/{name}.webp").status_code == 404


@pytest.mark.parametrize("path", ["/", "/payload.json", "/images/none.webp", "/elsewhere"])
def test_every_answer_is_guarded(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
    assert headers["x-frame-options"] == "DENY" and headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_but_get(client: TestClient, method: str) -> None:
    for path in ("/", "/payload.json"):
        assert client.request(method, path).status_code == 405
    for path in ("/docs", "/redoc", "/openapi.json"):
        assert client.get(path).status_code == 404


def test_readers_tag_images(pictures: Path, tmp_path: Path) -> None:
    run_colours(pictures, tmp_path / "w", suite="clean")
    viewer = Viewer(tmp_path / "w")
    client = TestClient(viewer_app(viewer), base_url="http://localhost")
    shown = part_of(page_of(viewer), failures.SECTION)
    mistakes = shown["lists"][0]
    change = {"dataset": mistakes["dataset"], "id": mistakes["images"][0]["id"], "tag": "texture", "on": True}
    viewer._rest_until = float("inf")  # a second reader, or a reload, sees tags before the page is built again
    assert client.post(f"/{shown['tagging']}", json=change).json() == ["texture"]
    at_once = part_of(client.get("/payload.json").json(), failures.SECTION)["lists"][0]["images"]
    assert [image["tags"] for image in at_once] == [["texture"]] + [[]] * (len(at_once) - 1)
    viewer._rest_until = 0.0
    again = part_of(page_of(viewer), failures.SECTION)["lists"][0]["images"]
    assert again[0]["tags"] == ["texture"] and not any(image["tags"] for image in again[1:])
    # Another site can send text without asking, but no JSON; and nobody can name other images or files.
    assert client.post("/tags", content=json.dumps(change), headers={"Content-Type": "text/plain"}).status_code == 415
    for wrong in ({"id": "../x"}, {"dataset": "0"}, {"tag": ""}, {"on": "yes"}, {"more": 1}):
        assert client.post("/tags", json={**change, **wrong}).status_code == 400
    closed = Viewer(tmp_path / "w", read_only=True)
    assert part_of(page_of(closed), failures.SECTION)["tagging"] == ""
    answer = TestClient(viewer_app(closed), base_url="http://localhost").post("/tags", json=change)
    assert answer.status_code == 400 and "read-only" in answer.text


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("localhost:8765", True),
        ("127.0.0.1:9000", True),
        ("[::1]:8765", True),
        ("LOCALHOST", True),
        ("attacker.example", False),
        ("attacker.example:8765", False),
        ("127.0.0.1.attacker.example", False),
        ("localhost.attacker.example", False),
        ("", False),
    ],
)
def test_other_names_for_this_machine_are_refused(client: TestClient, host: str, allowed: bool) -> None:
    """A page elsewhere whose name is made to point here (DNS rebinding) sends its own name."""
    assert (client.get("/payload.json", headers={"Host": host}).status_code == 200) is allowed


def test_slow_and_large_requests_are_closed(viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of requests, with short deadlines, and a tag without end; others are served meanwhile."""
    monkeypatch.setattr(server, "HEADER_SECONDS", 1.0)
    monkeypatch.setattr(server, "_BODY_SECONDS", 1.0)
    listener = bind("127.0.0.1", 0)
    address = listener.getsockname()
    tag = b"POST /tags HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    config = uvicorn.Config(viewer_app(viewer), http=server.DeadlineProtocol, lifespan="off", log_level="error")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, args=([listener],))
    thread.start()
    beginnings = {
        b"": b"",
        b"GET / HTTP/1.1\r\nHost": b"",
        tag + b"Content-Length: 900\r\n\r\n{": b" 408 ",
        tag + b"Content-Length: 20000\r\n\r\n" + bytes(12_000): b" 413 ",
        tag + b"Transfer-Encoding: chunked\r\n\r\n2ee0\r\n" + bytes(12_000): b" 413 ",
    }
    try:
        slow = [socket.create_connection(address, timeout=120) for _ in beginnings]
        for connection, sent in zip(slow, beginnings, strict=True):
            connection.sendall(sent)
        assert httpx.get(f"http://localhost:{address[1]}/", timeout=120).status_code == 200
        for connection, answer in zip(slow, beginnings.values(), strict=True):
            received = connection.recv(65536)  # nothing when it is closed; else the socket's timeout fails the test
            assert answer in received and bool(answer) == bool(received)
            connection.close()
    finally:
        running.should_exit = True
        thread.join()


def test_elsewhere_a_token_is_needed(viewer: Viewer) -> None:
    token = new_token()
    client = TestClient(viewer_app(viewer, token=token), base_url="http://machine:8765")
    for path in (
        "/",
        "/payload.json",
        "/images/x.webp",
        "/?token=wrong",
        f"/payload.json?token={token}",
        "/?token=é",
    ):
        assert client.get(path).status_code == 403
    let_in = client.get(f"/?token={token}")
    assert let_in.status_code == 200 and token not in let_in.text and 'content="0; url=./"' in let_in.text
    cookie = let_in.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    assert client.get("/").status_code == 200 and client.get("/payload.json").status_code == 200
    client.cookies.clear()
    client.cookies.set("shiftbench_viewer", token[:-1])
    assert client.get("/payload.json").status_code == 403
    assert len({new_token() for _ in range(100)}) == 100 and len(token) >= 32


def test_a_workspace_that_is_not_there_yet(pictures: Path, tmp_path: Path) -> None:
    """The page waits, and fills once a run has written."""
    viewer = Viewer(tmp_path / "w")
    waiting = page_of(viewer)
    assert not waiting["sections"] and str(tmp_path / "w") in progress_of(waiting)["text"]
    assert not (tmp_path / "w").exists()  # looking creates nothing
    sb.Workspace(tmp_path / "w")
    assert not page_of(viewer)["sections"] and progress_of(page_of(viewer))["results_total"] is None
    before = settled(viewer).etag
    run_colours(pictures, tmp_path / "w", suite="clean")
    filled = page_of(viewer)
    assert filled["sections"] and filled["progress"] is None and settled(viewer).etag != before


class _Stops:
    """Fails after nine calls on fixed images and two batches, until a file says go on: what a run leaves then is like
    one in progress.

    The batches are counted in a file. A counter in an attribute would be part of the model: two objects with different
    attributes are two versions, and the second run would start anew instead of resuming the first.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        with (self.folder / "batches").open("ab") as file:
            file.write(b".")
        if (self.folder / "batches").stat().st_size > 11 and not (self.folder / "go-on").exists():
            raise RuntimeError("stopped")
        return brightest_channel(images)


@pytest.fixture
def half_done(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A workspace in the middle of a run, and its pictures."""
    folder = colour_folder(tmp_path / "pictures", per_class=12)
    stops = sb.load_classifier(_Stops(tmp_path), labels=COLOURS, preprocessing=SMALL, name="bright")
    with pytest.raises(IncompleteRunError):
        run_colours(folder, tmp_path / "w", chosen=stops, corruptions=("contrast",), severities=(5,), workers=1)
    yield tmp_path / "w", folder


def test_a_run_that_goes_on_shows_what_is_done(half_done: tuple[Path, Path]) -> None:
    root, folder = half_done
    page = page_of(Viewer(root, options=ReportOptions(folders={"": [folder]})))
    workspace = GrowingWorkspace(root)
    cells = list(workspace.unfinished())
    done = {cell.setting: len(workspace.read(cell)) for cell in cells}
    assert cells and all(0 < n < 36 for n in done.values())
    assert progress_of(page)["results_done"] == 0 and progress_of(page)["results_total"] == len(cells)
    assert f"{sum(done.values())} of {36 * len(cells)} predictions" in progress_of(page)["text"]
    assert any("not complete" in note for note in results_of(page)["notes"])
    for cell in cells:
        p = workspace.read(cell)
        # Each block's rows must have met their own labels: the classifier is right on clean pictures.
        assert len(p) == done[cell.setting] and (cell.setting != "pictures" or p.correct.all())
        assert [COLOURS.keys[label] for label in p.labels] == [image_id.split("/")[0] for image_id in p.ids]
        assert number(results_of(page), "bright", cell.setting)[3] == len(p)


def test_parts_of_blocks_of_many_workers(tmp_path: Path) -> None:
    folder = colour_folder(tmp_path / "pictures", per_class=350)
    options: Any = {"labels": COLOURS, "preprocessing": SMALL, "progress": False, "workspace": tmp_path / "w"}
    for shard in ("1/40", "3/4"):
        sb.evaluate(brightest_channel, data=folder, shard=shard, **options)
    stems = [path.stem for path in (tmp_path / "w").rglob("shards/**/*.parquet")]
    assert any("-" in stem for stem in stems)
    workspace = GrowingWorkspace(tmp_path / "w")
    (result,) = workspace.unfinished()
    predictions = workspace.read(result)
    assert 0 < len(predictions) < 1050 and len(set(predictions.ids)) == len(predictions)
    assert predictions.correct.all()
    assert page_of(Viewer(tmp_path / "w", options=ReportOptions(folders={"": [folder]})))["progress"] is not None


def test_a_finished_run_gives_the_rows_it_had_before(half_done: tuple[Path, Path]) -> None:
    root, folder = half_done
    workspace = GrowingWorkspace(root)
    early = {cell.setting: workspace.read(cell) for cell in workspace.unfinished()}
    viewer = Viewer(root, options=ReportOptions(folders={"": [folder]}))
    assert page_of(viewer)["progress"] is not None
    (root.parent / "go-on").touch()
    bright = sb.load_classifier(_Stops(root.parent), labels=COLOURS, preprocessing=SMALL, name="bright")
    run = run_colours(folder, root, chosen=bright, corruptions=("contrast",), severities=(5,))
    for setting, before in early.items():
        after = run.predictions("bright", setting)
        rows = [list(after.ids).index(image_id) for image_id in before.ids]
        assert np.array_equal(after.top[rows], before.top) and np.array_equal(after.labels[rows], before.labels)
    assert page_of(viewer)["progress"] is None


def test_a_damaged_file_is_told_and_mended(pictures: Path, tmp_path: Path) -> None:
    run = run_colours(pictures, tmp_path / "w", suite="clean")
    file = local(run.workspace.predictions_path(run.results[0]))
    whole = file.read_bytes()
    file.unlink()
    file.write_bytes(whole[: len(whole) // 2])
    viewer = Viewer(tmp_path / "w")
    assert not page_of(viewer)["sections"] and page_of(viewer)["progress"] is not None
    file.unlink()
    file.write_bytes(whole)
    assert page_of(viewer)["sections"]


def test_one_build_at_a_time(run: sb.Run) -> None:
    viewer = Viewer(run.workspace.root)
    threads = [threading.Thread(target=viewer.snapshot) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    building = [thread for thread in threading.enumerate() if "_build" in thread.name]
    assert len(building) <= 1
    settled(viewer)


def test_small_answers_are_sent_at_once() -> None:
    """asyncio turns Nagle's algorithm off for sockets that name their protocol; else each answer waits for 40 ms."""

    async def answering() -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def accepted(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            option = writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            found.set_result(option)
            writer.close()

        async with await asyncio.start_server(accepted, sock=bind("127.0.0.1", 0)) as server:
            _, client = await asyncio.open_connection(*server.sockets[0].getsockname())
            option = await found
            client.close()
            return option

    assert asyncio.run(answering()) != 0


def test_the_command_answers_on_a_real_port(run: sb.Run) -> None:
    command = [sys.executable, "-c", "from shiftbench.cli import main; main()", "serve", "--port", "0"]
    command += ["--workspace", str(run.workspace.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[0]
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", address)
            answer = httpx.get(f"{address}payload.json")
            assert answer.status_code == 200 and answer.json()["format"] == 1
            port = int(address.rstrip("/").rpartition(":")[2])
            with pytest.raises(ShiftbenchError, match="port=0"):
                bind("127.0.0.1", port)
        finally:
            process.terminate()


def test_addresses() -> None:
    assert _address("127.0.0.1", 8765, None) == "http://127.0.0.1:8765/"
    assert _address("::1", 80, None) == "http://[::1]:80/"
    assert _address("0.0.0.0", 80, "abc").endswith(":80/?token=abc") and "0.0.0.0" not in _address("0.0.0.0", 80, "a")


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = builtins.__import__

    def without_fastapi(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "fastapi":
            raise ModuleNotFoundError("No module named 'fastapi'", name="fastapi")
        return real(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "shiftbench.reports.page.server")
    monkeypatch.delattr(shiftbench.reports.page, "server")
    monkeypatch.setattr(builtins, "__import__", without_fastapi)
    result = call("serve", "-w", tmp_path)
    assert isinstance(result.exception, MissingExtraError) and "shiftbench[web]" in str(result.exception)
