"""Names, and families of names."""

from __future__ import annotations

import pickle

import pytest

from shiftbench.errors import UnknownNameError
from shiftbench.metrics.base import metrics
from shiftbench.registry import Registry
from shiftbench.settings.base import suites


def test_a_family_makes_what_is_asked_for_and_nothing_else() -> None:
    made: Registry[int] = Registry("square")
    made.add("sq3", -1)

    @made.family("sqK", r"sq(\d+)")
    def square(k: str) -> int:
        return int(k) ** 2

    assert made.get("sq12") == 144 and made.get("sq3") == -1, "a name of its own goes first"
    assert made.names() == ["sq3"] and [family.name for family in made.families()] == ["sqK"]
    for wrong in ("sq", "sqx", "xsq2", "sq2x"):
        with pytest.raises(UnknownNameError, match="sq3, sqK"):
            made.get(wrong)


def test_any_pm_k_is_a_metric() -> None:
    for name in ("pm0", "pm3", "pm10", "pm25"):
        assert metrics.get(name).name == name and not metrics.get(name).needs.scores
    for wrong in ("pm", "pm-1", "pm03", "pm1.5"):
        with pytest.raises(UnknownNameError):
            metrics.get(wrong)
    assert "pmK" in [family.name for family in metrics.families()]


def test_suites_are_not_built_from_a_family_unasked() -> None:
    assert not any(name.startswith("factors") for name in suites.names())
    assert "factors:PROTOCOL.toml" in [family.name for family in suites.families()]


def test_errors_are_pickled_whole_whatever_their_arguments() -> None:
    """A worker process sends them."""
    error = UnknownNameError("corruption", "fogg", ["fog"])
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is UnknownNameError and str(back) == str(error) and vars(back) == vars(error)


def test_names_of_other_libraries_are_metrics() -> None:
    for name in ("accuracy", "acc", "Top-1", "acc@1"):
        assert metrics.get(name) is metrics.get("top1")
    assert metrics.get("ECE") is metrics.get("ece") and metrics.get("err") is metrics.get("error")
    assert "accuracy" not in metrics.names()


def test_scores_that_are_no_metric_of_a_setting_name_their_command() -> None:
    for name, command in (("AUROC", "`shiftbench detect`"), ("mCE", "`shiftbench table --mce`")):
        with pytest.raises(UnknownNameError) as error:
            metrics.get(name)
        assert command in str(error.value.hint)


def test_every_alias_leads_to_a_metric() -> None:
    for alias in metrics._aliases:
        assert metrics.get(alias).name in metrics.names()
