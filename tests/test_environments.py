"""``scripts/environments.py`` reads the pages and the requirements as they are; `make environments` runs it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scripts import environments

PAGE = """
Install it:

    pip install '.[onnx]'

    shiftbench eval model.onnx --data photos/ \\
      --suite corruptions    # in memory

Text that mentions `shiftbench table`.

```text
shiftbench report -o page.html
top1 90.0
```
"""


def test_commands_are_read_from_code_blocks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert environments.first_extra(page) == "onnx"
    evaluation, report = environments.steps_of(page)
    assert evaluation.command == "shiftbench eval model.onnx --data photos/ --suite corruptions"
    assert evaluation.codes == (0,) and re.search(evaluation.output, "accuracy  75.0 % [60.4, 86.4] on photos")
    assert report.file == "page.html"


def test_the_readme_installs_an_extra_and_has_every_kind_of_check() -> None:
    steps = environments.steps_of(environments.README)
    assert environments.first_extra(environments.README) == "onnx"
    assert {(3,), (0,), (0, 1, 2)} == {step.codes for step in steps}
    assert any(step.file for step in steps) and any(step.output for step in steps)


def test_the_oldest_versions_are_the_floors_of_all_requirements() -> None:
    floors = environments.oldest_versions()
    assert len(floors) >= 11
    assert all(re.fullmatch(r"[\w.-]+==[\d.]+", floor) for floor in floors), floors


def test_a_wrong_outcome_says_which_command_and_why(tmp_path: Path) -> None:
    right = environments.Step("echo 75.0 && touch report.html", output="75", file="report.html")
    environments._try_step(right, tmp_path, {})
    for step, reason in (
        (environments.Step("exit 2"), "exit code 2, expected 0"),
        (environments.Step("echo nothing", output=r"\\d"), "nothing in the output"),
        (environments.Step("echo Traceback"), "internal error"),
        (environments.Step("true", file="missing.html"), "missing.html"),
    ):
        with pytest.raises(environments.WrongOutcomeError, match=reason) as caught:
            environments._try_step(step, tmp_path, {})
        assert step.command in str(caught.value)


def test_every_extra_that_stands_alone_has_an_environment(tmp_path: Path) -> None:
    plan = list(environments.plan({"3.11": tmp_path, "3.13": tmp_path}, torch="2.13.0"))
    names = [environment.name for environment in plan]
    assert len(set(names)) == len(names)
    for extra in ("demo", "testsets", "torch", "hf", "hardening", "openvino", "litert", "keras", "open-clip", "mturk"):
        assert {f"newest-3.11-{extra}", f"newest-3.13-{extra}"} <= set(names)
    pinned = {environment.extra for environment in plan if environment.constraints == ("torch==2.13.0",)}
    assert pinned == set(environments.TORCH_EXTRAS)
    for environment in plan:
        compile(environment.preparation, environment.name, "exec")
        assert environment.steps and all(step.output or step.file for step in environment.steps[-1:])
