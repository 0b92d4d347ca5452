from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.io.objects.server import Bucket, Server, credentials, running_server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("server")) as running, pytest.MonkeyPatch.context() as patch:
        for name, value in credentials(running.endpoint).items():
            patch.setenv(name, value)
        yield running


@pytest.fixture
def bucket(server: Server) -> Bucket:
    return server.new_bucket()
