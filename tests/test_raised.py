"""The check of errors that tests use can fail itself."""

from __future__ import annotations

import pytest

from shiftbench.errors import SettingError, ShiftbenchError, StoreError
from tests.raised import raises


def test_an_error_with_these_fields_passes() -> None:
    with raises(ShiftbenchError, found=7, expected="1 to 5") as caught:
        raise SettingError("bad severity", found=7, expected="1 to 5", hint="pass 5")
    assert isinstance(caught.value, SettingError)


@pytest.mark.parametrize(
    "error",
    [
        SettingError("bad severity", found=8, expected="1 to 5"),
        SettingError("bad severity", found=7),
    ],
)
def test_an_error_with_other_fields_fails(error: SettingError) -> None:
    with pytest.raises(AssertionError), raises(SettingError, found=7, expected="1 to 5"):
        raise error


def test_an_error_of_another_class_fails() -> None:
    with pytest.raises(StoreError), raises(SettingError, found=7):
        raise StoreError("bad severity", found=7)
