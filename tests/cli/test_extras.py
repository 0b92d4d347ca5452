"""A missing extra is named, with how to get it; a fault of our own is not taken for one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from shiftbench.cli.console import needing
from shiftbench.errors import MissingExtraError

#: As on a machine without torch: no entry in sys.modules either, which SciPy would take for the module.
WITHOUT_TORCH = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
sys.argv[0] = "shiftbench"
from shiftbench.cli import main
main()
"""


@pytest.mark.parametrize(
    "words",
    [("harden", "list"), ("harden", "train", "cifar-standard"), ("experiment", "size", "--scale", "tiny")],
)
def test_a_command_without_torch_says_how_to_get_it(words: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH, *words], capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "pip install 'shiftbench[hardening]'" in done.stderr and "Traceback" not in done.stderr


def test_a_module_of_our_own_that_is_missing_is_a_fault() -> None:
    @needing("web", "this")
    def broken() -> None:
        import shiftbench.no_such_module  # type: ignore[import-not-found]  # noqa: F401

    @needing("web", "this")
    def lacking() -> None:
        import no_such_package  # type: ignore[import-not-found]  # noqa: F401

    with pytest.raises(ModuleNotFoundError):
        broken()
    with pytest.raises(MissingExtraError, match="no_such_package"):
        lacking()
