"""A missing extra is named, with how to get it; a fault of our own is not taken for one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from shiftbench.cli.console import extra
from shiftbench.errors import MissingExtraError

#: As on a machine without torch: no entry in sys.modules either, which SciPy would take for the module.
WITHOUT_TORCH = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from shiftbench.cli import main
for words in ("harden list", "harden train cifar-standard", "experiment size --scale tiny"):
    sys.argv = ["shiftbench", *words.split()]
    try:
        main()
    except SystemExit as end:
        assert end.code == 1, end.code
"""


def test_a_command_without_torch_says_how_to_get_it() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, timeout=300)
    assert done.stderr.count("pip install 'shiftbench[hardening]'") == 3 and "Traceback" not in done.stderr
    assert done.returncode == 0


def test_a_module_of_our_own_that_is_missing_is_a_fault() -> None:
    @extra("web", "this")
    def broken() -> None:
        import shiftbench.no_such_module  # type: ignore[import-not-found]  # noqa: F401

    @extra("web", "this")
    def lacking() -> None:
        import no_such_package  # type: ignore[import-not-found]  # noqa: F401

    with pytest.raises(ModuleNotFoundError):
        broken()
    with pytest.raises(MissingExtraError, match="no_such_package"):
        lacking()
