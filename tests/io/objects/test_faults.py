"""A store that is not there, says no, goes away or is cut off: a clear word, nothing lost, and no secret told."""

from __future__ import annotations

import gc
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from shiftbench.datasets.catalogue import open_dataset
from shiftbench.errors import BadImageError, DatasetError, StoreError
from shiftbench.io.atomic import write_atomically, write_json
from shiftbench.io.paths import UnreachableError, UnwritableError, place
from shiftbench.store.maintenance import verify
from shiftbench.store.prediction_files import PredictionBlock, read_block, write_block
from shiftbench.store.spec import ResultSpec
from shiftbench.store.workspace import Workspace
from tests.io.objects.server import Bucket, Server, Wire, credentials, running_server
from tests.raised import raises
from tests.runs.helpers import COLOURS, brightest_channel, colour_folder
from tests.runs.test_evaluate import run_small, stored


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return colour_folder(tmp_path_factory.mktemp("data") / "pictures")


@pytest.fixture
def wire(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    """All that is new goes this way; buckets that were asked before keep theirs."""
    made = Wire(server)
    monkeypatch.setenv("AWS_ENDPOINT_URL", made.endpoint)
    yield made
    made.close()


def test_a_bucket_that_does_not_exist(server: Server, pictures: Path) -> None:
    with pytest.raises(UnwritableError, match="bucket does not exist"):
        run_small(pictures, place("s3://nobody-made-this-bucket/w"))
    with pytest.raises(StoreError, match="is not a workspace"):
        Workspace("s3://nobody-made-this-bucket/w", create=False)
    with raises(DatasetError, found="no bucket 'nobody-made-this-bucket'"):
        open_dataset("s3://nobody-made-this-bucket/photos")


class _Refusing(BaseHTTPRequestHandler):
    """As S3 answers to the wrong credentials."""

    def _refuse(self) -> None:
        body = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(403)
        self.send_header("Content-Length", str(0 if self.command == "HEAD" else len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = do_POST = _refuse  # noqa: N815  # names of the standard library

    def log_message(self, *_: Any) -> None:
        pass


def test_access_denied(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Refusing) as refusing:
        threading.Thread(target=refusing.serve_forever, daemon=True).start()
        for name, value in credentials(f"http://127.0.0.1:{refusing.server_port}").items():
            monkeypatch.setenv(name, value)
        for ask in (
            lambda: run_small(pictures, place("s3://closed-bucket/w")),
            lambda: Workspace("s3://closed-bucket/w", create=False),
            lambda: open_dataset("s3://closed-bucket/photos"),
            lambda: write_json(place("s3://closed-bucket/a.json"), 1),
        ):
            with pytest.raises(UnreachableError, match="ACCESS_DENIED") as caught:
                ask()
            assert "credentials" in str(caught.value) and "not-to-be-told" not in str(caught.value)
        refusing.shutdown()


def test_nobody_at_the_address_and_no_secret_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in credentials("http://me:hunter2@127.0.0.1:9").items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UnreachableError, match="can't be reached") as caught:
        Workspace("s3://some-bucket/w", create=False)
    assert "hunter2" not in str(caught.value) and "not-to-be-told" not in str(caught.value)


#: Told of every batch. Not a part of the classifier, which must be the same before and after.
_watching: list[Callable[[int], None]] = []


def watched(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    for watch in _watching:
        watch(len(images))
    return brightest_channel(images)


def test_a_server_that_stops_in_the_middle_loses_nothing(pictures: Path, tmp_path: Path, server: Server) -> None:
    """Its own server, so that it can be killed; what it had is copied to the other, and the run goes on there."""
    kept: dict[str, bytes] = {}
    with pytest.MonkeyPatch.context() as patch, running_server(tmp_path) as mortal:
        for name, value in credentials(mortal.endpoint).items():
            patch.setenv(name, value)
        bucket = mortal.new_bucket()
        seen: list[int] = []

        def kill(count: int) -> None:
            seen.append(count)
            if sum(seen) > 120 and not kept:
                kept.update(bucket.files("w"))
                mortal.stop()

        _watching[:] = [kill]
        with pytest.raises(UnwritableError) as caught:
            run_small(pictures, place(f"{bucket.url}/w"), functions={"bright": watched}, workers=1)
        assert "finished work is kept" in str(caught.value)
    assert any(name.startswith("shards/") for name in kept)
    new = server.new_bucket()
    for name, data in kept.items():
        new.put(f"w/{name}", data)
    counted: list[int] = []
    _watching[:] = [counted.append]
    run_small(pictures, place(f"{new.url}/w"), functions={"bright": watched})
    assert 0 < sum(counted) < 300, "what was done is not done again"
    _watching.clear()
    run_small(pictures, tmp_path / "whole", functions={"bright": watched})
    assert new.files("w/predictions") == stored(tmp_path / "whole")


def test_files_are_not_called_damaged_because_the_store_is_away(bucket: Bucket, wire: Wire, pictures: Path) -> None:
    run_small(pictures, place(f"{bucket.url}/w"), suite="clean")
    workspace = Workspace(f"{bucket.url}/w")
    files = verify(workspace)
    rng = np.random.default_rng(0)
    block = PredictionBlock(np.zeros((600_000, 5), np.int32), rng.random(600_000, np.float32))
    large = place(f"{bucket.url}/large.parquet")
    write_block(large, block, ResultSpec(), "x")
    with large.open("rb") as opened:
        wire.left = 0
        with pytest.raises(UnreachableError):
            list(files)
        with pytest.raises(UnreachableError):
            pq.read_table(opened)
        wire.left = None
    assert list(verify(workspace)) == []
    np.testing.assert_array_equal(read_block(large).top, block.top)


def test_an_upload_that_is_cut_off_is_never_seen(bucket: Bucket, wire: Wire) -> None:
    size = 100_000
    path = place(f"{bucket.url}/w/a.bin")

    def write(temporary: Path) -> None:
        temporary.write_bytes(b"x" * size)

    wire.left = size // 2
    with pytest.raises(UnreachableError):
        write_atomically(path, write)
    assert bucket.listed() == []
    wire.left = None
    write_atomically(path, write)
    assert bucket.files("w") == {"a.bin": b"x" * size}
    wire.left = size // 2
    with pytest.raises(UnreachableError):
        write_atomically(path, lambda temporary: write_other(temporary, size))
    assert bucket.files("w") == {"a.bin": b"x" * size}, "the old one is whole"


@pytest.mark.parametrize("part", [pytest.param(1, marks=pytest.mark.soak), 2])
def test_a_large_file_of_which_a_part_is_lost_is_never_seen(bucket: Bucket, wire: Wire, part: int) -> None:
    """One part of several fails for good while all else goes through: the rest must not be taken for the whole."""
    path = place(f"{bucket.url}/w/a.bin")
    data = os.urandom(25_000_000)

    def write(temporary: Path) -> None:
        temporary.write_bytes(data)

    wire.breaks_at = f"partNumber={part}&".encode()
    with pytest.raises(UnreachableError):
        write_atomically(path, write)
    gc.collect()  # a client that is thrown away must not end the upload either
    assert bucket.listed() == []
    wire.breaks_at = None
    write_atomically(path, write)
    assert bucket.files("w") == {"a.bin": data}


def write_other(path: Path, size: int) -> None:
    path.write_bytes(b"y" * size)


def test_a_picture_is_not_bad_because_the_store_is_away(bucket: Bucket, wire: Wire, pictures: Path) -> None:
    """Otherwise a run would skip it for good. A picture that is gone is bad."""
    dataset = open_dataset(bucket.put_folder(pictures, "pictures"), space=COLOURS)
    bucket.server.client().delete_object(Bucket=bucket.name, Key=f"pictures/{dataset.ids[1]}")
    with pytest.raises(BadImageError, match="can't be read"):
        dataset.read(1)
    wire.left = 0
    with pytest.raises(UnreachableError):
        dataset.read(2)
    wire.left = None
    assert dataset.read(2).pixels.shape[2] == 3


def test_the_error_comes_out_of_another_process_as_it_is() -> None:
    error = UnreachableError(place("s3://bucket/x"), "no answer")
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, UnreachableError) and str(again) == str(error)
