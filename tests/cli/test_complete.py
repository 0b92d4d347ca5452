"""Shell completion, as a shell asks for it: in a process of its own, without heavy imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "pyarrow", "scipy", "onnxruntime", "pandas")
CODE = f"""
import sys
sys.argv[0] = "shiftbench"
from shiftbench.cli import main
try:
    main()
finally:
    found = [name for name in {HEAVY} if name in sys.modules]
    assert not found, found
"""


def complete(*words: str, cwd: Path) -> list[str]:
    shell = {"_SHIFTBENCH_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(("shiftbench", *words))}
    environment = {**os.environ, **shell, "COMP_CWORD": str(len(words))}
    done = subprocess.run([sys.executable, "-c", CODE], cwd=cwd, env=environment, capture_output=True, text=True)
    assert not done.stderr, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("ev",), "eval"),
        (("eval", "model.onnx", "--suite", "clean,imagenet-c"), "clean,imagenet-c-extra"),
        (("eval", "ti"), "timm:"),
        (("table", "-w", "w", "--setting", "own-c.fog"), "own-c.fog.3"),
    ],
)
def test_names(tmp_path: Path, words: tuple[str, ...], expected: str) -> None:
    (tmp_path / "w" / "predictions" / "small" / "own-c.fog.3").mkdir(parents=True)
    assert expected in complete(*words, cwd=tmp_path)
