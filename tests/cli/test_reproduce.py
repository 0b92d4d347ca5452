"""``shiftbench reproduce`` as a user types it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from shiftbench.errors import ShiftbenchError
from tests.commands import answer, output
from tests.commands import call as shiftbench

call = partial(shiftbench, "reproduce")


def test_prints_published_beside_recomputed() -> None:
    result = output("reproduce", "002")
    assert "recomputed" in result and "published" in result
    assert "ResNet-50" in result and "76.7" in result and "not at hand" in result


def test_json_and_nothing_else() -> None:
    data = answer("reproduce", "002", "003")
    assert [one["paper"] for one in data["papers"]] == ["002", "003"]
    assert data["counts"]["same"] > 0 and set(data["papers"][0]) == {"paper", "title", "counts", "claims"}


def test_writes_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    assert call("003", "-f", "md", "-o", page).exit_code == 0
    assert page.read_text().startswith("# Published numbers, recomputed\n\n    shiftbench reproduce 003 -f md\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("005",), "unknown paper '005'"),
        (("001", "--testbed", "/no/such/folder"), "--testbed: no file or folder"),
        (("004", "--predictions", "/no/such/folder"), "--predictions: no folder"),
    ],
)
def test_errors_say_what_is_wrong(arguments: tuple[str, ...], message: str) -> None:
    result = call(*arguments)
    assert result.exit_code != 0 and isinstance(result.exception, ShiftbenchError)
    assert message in str(result.exception)


def test_a_paper_must_be_named() -> None:
    assert call().exit_code == 2


def test_check_exits_with_1_if_a_number_differs() -> None:
    assert call("001", "--check").exit_code == 0  # 3 + 1 numbers compared, none differs
    assert call("000", "--check").exit_code == 1  # the text's 37.5 % is 33.3 by its own table
    assert call("000").exit_code == 0
