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
    measured = measure(url, annotators=30, minutes=0.2, think=3, pictures=100)
    assert (measured["lost"], measured["doubled"], measured["unacknowledged"], measured["errors"]) == (0, 0, 0, {})
    assert measured["answers"] >= 30 and measured["latency"]["images"][0] >= 40 * measured["answers"]
    assert f"| {kind} | answers |" in markdown([measured])
