"""What must stay light: modules that are imported without the heavy libraries behind them."""

from __future__ import annotations

import subprocess
import sys

LIGHT = {
    "shiftbench.shifts.corruptions.api": ("numba", "cv2", "scipy", "PIL"),
    "shiftbench.metrics": ("scipy", "rich", "pyarrow"),
    "shiftbench.metrics.corruption_scores": ("scipy", "rich", "pyarrow"),
    "shiftbench.metrics.flips": ("scipy", "rich", "pyarrow"),
    "shiftbench.reports": ("scipy", "rich", "pyarrow"),
    "shiftbench.studies": ("scipy", "rich", "pyarrow", "pandas"),
}


def run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_light_imports() -> None:
    """One after the other in one process: what none of them loads is not there at the end either."""
    run(
        f"import importlib, sys\nfor module, heavy in {LIGHT}.items():\n    importlib.import_module(module)\n"
        "    assert not (loaded := [name for name in heavy if name in sys.modules]), f'{module} loads {loaded}'"
    )


def test_evaluating_needs_no_database() -> None:
    """A frozen test set opens where SQLAlchemy is not installed, and listing suites does not import it."""
    run(
        "import sys\n"
        "sys.modules['sqlalchemy'] = sys.modules['alembic'] = None\n"
        "from shiftbench.settings.base import suites\n"
        "from shiftbench.datasets.catalogue import dataset_kinds\n"
        "assert 'testset' in dataset_kinds and suites.families()\n"
        "import shiftbench.testsets.frozen, shiftbench.testsets.export\n"
        "from shiftbench.errors import MissingExtraError\n"
        "try:\n"
        "    from shiftbench.testsets import Project\n"
        "except MissingExtraError as error:\n"
        "    sys.exit(0 if 'shiftbench[testsets]' in str(error) else 'no hint')\n"
        "sys.exit('no error')"
    )
