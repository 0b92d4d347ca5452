"""Shared by all tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# Two cores may be busy with other tests; a slow example says nothing about the code.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

REFERENCE = Path(__file__).resolve().parents[2] / "shared" / "reference" / "data"


@pytest.fixture(scope="session")
def reference_data() -> Path:
    """Public results and golden files that lie beside a development checkout, not inside it."""
    if not REFERENCE.is_dir():
        pytest.skip("the reference data is not beside this checkout")
    return REFERENCE
