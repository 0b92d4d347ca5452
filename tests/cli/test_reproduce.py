"""``shiftbench reproduce`` as a user types it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from shiftbench.errors import ShiftbenchError
from tests.commands import answer, output
from tests.commands import call as shiftbench
from tests.reports.recorded import record

call = partial(shiftbench, "reproduce")


def test_prints_published_beside_recomputed() -> None:
    result = output("reproduce", "002")
    assert "recomputed" in result and "published" in result
    assert "ResNet-50" in result and "76.7" in result and "not recomputed" in result


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


@pytest.mark.parametrize(("hits", "expected"), [(10_830, 0), (10_530, 1)])
def test_check_of_a_workspace_counts_its_own_numbers(tmp_path: Path, hits: int, expected: int) -> None:
    """36.1 % of ImageNet-R is right, as table 1 of 000 has it, or 35.1 %; the paper's own slips do not count."""
    space = {"space": "imagenet-r-200", "labels_of_model": "imagenet-1k", "model": "r50"}
    record(tmp_path / "w", "imagenet-r", 30_000, hits, **space)  # type: ignore[arg-type]
    record(tmp_path / "w", "val-on-imagenet-r-classes", 10_000, 9_210, **space)  # type: ignore[arg-type]
    (tmp_path / "map.csv").write_text("printed,model\nResNet-50,r50\n")
    own = ("--workspace", str(tmp_path / "w"), "--models", str(tmp_path / "map.csv"), "--check")
    found = call("000", *own)
    assert found.exit_code == expected
    assert ("ResNet-50, imagenet-r: error 0.649 instead of 0.639" in " ".join(found.output.split())) is bool(expected)
    assert call("001", *own).exit_code == 1  # nothing of it can be compared
