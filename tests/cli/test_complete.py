"""Shell completion, as a shell asks for it: in a process of its own, without heavy imports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HEAVY = ("torch", "pyarrow", "scipy", "onnxruntime", "pandas")
CODE = f"""
import contextlib, io, json, os, sys
sys.argv = ["shiftbench"]
from shiftbench.cli import main
found = []
for words in json.loads(sys.stdin.read()):
    os.environ |= {{"_SHIFTBENCH_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(("shiftbench", *words))}}
    os.environ["COMP_CWORD"] = str(len(words))
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
        main()
    found.append(shown.getvalue().split())
    heavy = [name for name in {HEAVY} if name in sys.modules]
    assert not heavy, (words, heavy)
print(json.dumps(found))
"""


def test_names(tmp_path: Path) -> None:
    (tmp_path / "w" / "predictions" / "small" / "own-c.fog.3").mkdir(parents=True)
    expected = {
        ("ev",): "eval",
        ("eval", "model.onnx", "--suite", "clean,imagenet-c"): "clean,imagenet-c-extra",
        ("eval", "ti"): "timm:",
        ("table", "-w", "w", "--setting", "own-c.fog"): "own-c.fog.3",
    }
    done = subprocess.run(
        [sys.executable, "-c", CODE], cwd=tmp_path, input=json.dumps(list(expected)), capture_output=True, text=True
    )
    assert not done.stderr, done.stderr
    for name, found in zip(expected.values(), json.loads(done.stdout), strict=True):
        assert name in found
