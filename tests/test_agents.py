"""What programs read about the package is complete, and the image for CPUs installs what exists."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_llms_txt_lists_every_page_of_the_documentation() -> None:
    text = (ROOT / "docs" / "llms.txt").read_text(encoding="utf-8")
    listed = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)", text, flags=re.MULTILINE)
    pages = re.findall(r"([\w/.-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), flags=re.MULTILINE)
    missing = [page for page in pages if (ROOT / "docs" / page).exists() and page not in listed]
    assert missing == [] and text.startswith("# shiftbench\n\n> ")
    assert [page for page in listed if not (ROOT / "docs" / page).exists()] == []


def test_the_image_installs_extras_that_exist_and_runs_without_rights() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    instructions = [line.split(maxsplit=1) for line in lines if line.strip() and not line.startswith("#")]
    names = [name for name, _ in instructions]
    assert names[0] == "FROM" and {"USER", "WORKDIR", "ENTRYPOINT"} <= set(names) <= {*names, "RUN", "COPY", "CMD"}
    version = re.fullmatch(r"python:(\d+)\.(\d+)-slim", instructions[0][1])
    assert version is not None
    assert f"Programming Language :: Python :: {version[1]}.{version[2]}" in project["classifiers"]
    install = next(words for name, words in instructions if name == "RUN")
    extras = re.search(r"\[([a-z,-]+)\]", install)
    assert extras is not None and set(extras[1].split(",")) <= set(project["optional-dependencies"])
    assert dict(instructions)["USER"] != "root" and '"shiftbench"' in dict(instructions)["ENTRYPOINT"]
