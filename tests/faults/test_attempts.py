"""How every attempt at a silently wrong number ends, compared with the outcomes that ``docs/attempts.md`` lists.

``python -m tests.faults.test_attempts`` writes the list anew.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest

from shiftbench.errors import ShiftbenchError
from tests.commands import call
from tests.faults import further_attempts
from tests.faults.attempts import ATTEMPTS, TRUTH, Attempt, start

PAGE = Path(__file__).parents[2] / "docs" / "attempts.md"
BEGIN = "<!-- attempts -->"
RIGHT = "the right number"
NOTED = "the right number, and a note"
REPORTED = "another number, and the cause is reported"
#: Images that are gone are another dataset, whose number is right; n shows it.
SMALLER = "the right number for the images that are there, with their n"
REFUSED = "refused"


def outcome(run: Attempt, folder: Path) -> str:
    """Runs an attempt in a good folder, which is the current one; a wrong number without a report is a failure."""
    result = call(*run(folder))
    if result.exit_code != 0:
        assert isinstance(result.exception, ShiftbenchError | SystemExit), repr(result.exception)
        return REFUSED
    answer = json.loads(result.stdout)
    (score,) = (score for score in answer["scores"] if score["metric"] == "top1")
    is_reported = any(answer.get(part) for part in ("problems", "warnings", "left_out", "missing", "unknown"))
    if score["n"] == 12 and score["value"] == pytest.approx(TRUTH):
        return NOTED if is_reported else RIGHT
    if is_reported:
        return REPORTED
    assert score["n"] == 11 and score["value"] == pytest.approx((12 * TRUTH - 1) / 11), f"silently {score}"
    return SMALLER


def listed_outcomes() -> dict[str, str]:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", PAGE.read_text(encoding="utf-8").partition(BEGIN)[2], re.MULTILINE)
    return dict(rows[1:])


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("attempts") / "good"
    start(folder)
    return folder


@pytest.mark.reliability("silent-wrong attempts")
@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", ATTEMPTS)
def test_no_number_is_silently_wrong(good: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = shutil.copytree(good, tmp_path / "here")
    monkeypatch.chdir(folder)
    assert outcome(ATTEMPTS[name], folder) == listed_outcomes()[name]


def test_the_page_lists_all_attempts() -> None:
    assert list(listed_outcomes()) == list(ATTEMPTS)
    assert further_attempts.__name__ and len(ATTEMPTS) >= 300


def main() -> None:
    rows = ["| attempt | outcome |", "|---|---|"]
    with tempfile.TemporaryDirectory() as root:
        start(Path(root) / "good")
        for number, (name, run) in enumerate(ATTEMPTS.items()):
            folder = shutil.copytree(Path(root) / "good", Path(root) / str(number))
            os.chdir(folder)
            rows.append(f"| {name} | {outcome(run, folder)} |")
    introduction = PAGE.read_text(encoding="utf-8").partition(BEGIN)[0]
    PAGE.write_text(introduction + BEGIN + "\n\n" + "\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
