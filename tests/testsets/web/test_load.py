"""The load benchmark, short: many annotators at once, no answer lost, none doubled, nobody turned away."""

from __future__ import annotations

import pytest
from benchmarks.annotation_load import markdown, measure

from tests.testsets.conftest import PostgresServer


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_thirty_annotators(kind: str, request: pytest.FixtureRequest) -> None:
    url = "sqlite"
    if kind == "postgresql":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        url = postgres.new_database()
    found = measure(url, annotators=30, minutes=0.2, think=3, pictures=100)
    assert (found["lost"], found["doubled"], found["unacknowledged"], found["errors"]) == (0, 0, 0, {})
    assert found["answers"] >= 30 and found["latency"]["images"][0] >= 40 * found["answers"]
    assert f"| {kind} | answers |" in markdown([found])
