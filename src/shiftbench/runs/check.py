"""Conformance checks for suites: what runs, tables and stored results rely on, for authors to run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from shiftbench.conformance import CheckResult, require, require_own_randomness, requirement
from shiftbench.grouping import repeated
from shiftbench.labels.catalogue import LabelsArgument, find_label_space, label_space
from shiftbench.metrics.base import metrics
from shiftbench.settings.base import Setting, Suite, SuiteOptions, build_suite, suites
from shiftbench.settings.roles import open_data
from shiftbench.shifts.base import Shift, rebuild_shift
from shiftbench.store.spec import SettingRecord, canonical_json

if TYPE_CHECKING:
    from shiftbench.settings.roles import Data

#: A severity that the check asks for alone, to see whether the suite's options have an effect.
_SEVERITY = 2


def check_suite(
    suite: str | Suite,
    data: Data | None = None,
    *,
    labels: LabelsArgument = None,
    options: SuiteOptions | None = None,
) -> list[CheckResult]:
    """Run every check on a suite; a failing one explains itself, and none stops the others.

    Args:
        suite: The suite, or the name under which it is registered.
        data: A path, dataset, or a mapping from roles to them; with it the suite's datasets are opened.
        labels: Label space of the data, if it is not recognised; ``"folders"`` for its own classes.
        options: What the suite may depend on.

    Example:
        >>> all(result.ok for result in check_suite("imagenet-c"))
        True
    """
    options = options or SuiteOptions()
    results: list[CheckResult] = []
    settings: Sequence[Setting] = ()
    with requirement("gives settings", results) as notes:
        settings = _settings(suite, options)
        require(bool(settings), "the suite has no setting")
        strangers = [type(setting).__name__ for setting in settings if not isinstance(setting, Setting)]
        require(not strangers, "not all of it are settings", found=", ".join(strangers), expected="Setting(...)")
        notes.append(f"{len(settings)} settings")
    if not results[-1].ok:
        return results
    _check_names(settings, results)
    _check_references(settings, results)
    _check_shifts(settings, results)
    if isinstance(suite, str):
        _check_builder(suite, options, settings, results)
    if data is not None:
        _check_data(suite, data, labels, options, results)
    return results


def _settings(suite: str | Suite, options: SuiteOptions) -> Sequence[Setting]:
    """The settings as the suite gives them, before settings of one name are merged."""
    if isinstance(suite, Suite):
        return suite.settings
    return suites.get(suite)(options)


def _check_names(settings: Sequence[Setting], results: list[CheckResult]) -> None:
    with requirement("every setting has a name of its own", results):
        names = [setting.name for setting in settings]
        shared_names = sorted(repeated(names))
        hint = "end the name with what distinguishes the settings, such as .fog.3"
        require(
            not shared_names, f"{len(shared_names)} names occur twice", found=", ".join(shared_names[:4]), hint=hint
        )
        require(all(names), "a setting has no name")
    with requirement("metrics and label spaces exist", results):
        for setting in settings:
            metrics.get(setting.metric)
            if setting.space is not None:
                label_space(setting.space)
    with requirement("every setting says on which data it works", results) as notes:
        unnamed = [setting.name for setting in settings if not setting.dataset]
        require(not unnamed, "settings without a dataset", found=", ".join(unnamed[:4]), expected="the name of a role")
        notes.append(", ".join(Suite("", tuple(settings)).roles))


def _check_references(settings: Sequence[Setting], results: list[CheckResult]) -> None:
    """Check that what a setting is compared with is there, and is not itself compared with another."""
    by_name = {setting.name: setting for setting in settings}
    with requirement("references are settings of this suite or another", results) as notes:
        compared = [setting for setting in settings if setting.reference is not None]
        outside = {setting.reference for setting in compared} - set(by_name)
        absent = sorted(map(str, outside - _names_of_all_suites())) if outside else []
        hint = "put the reference setting into the suite; a gap to a number that nobody measures can't be shown"
        require(not absent, "no suite has the reference of a setting", found=", ".join(absent[:4]), hint=hint)
        notes.append(f"{len(compared)} settings are compared with another")
    with requirement("references are not shifted", results):
        for setting in compared:
            reference = by_name.get(str(setting.reference))
            if reference is not None:
                message = f"{setting.name!r} is compared with {reference.name!r}, which is shifted"
                require(not reference.shifted, message, hint="compare with the setting of the unchanged images")


def _names_of_all_suites() -> set[str]:
    """The names of the settings of all registered suites."""
    names: set[str] = set()
    for _, build in suites:
        names.update(setting.name for setting in build(SuiteOptions()))
    return names


def _check_shifts(settings: Sequence[Setting], results: list[CheckResult]) -> None:
    with requirement("every shift can be rebuilt from its record", results) as notes:
        shifts: dict[str, Shift] = {setting.shift.group: setting.shift for setting in settings}
        for shift in shifts.values():
            rebuilt = rebuild_shift(json.loads(json.dumps(shift.record(), default=str)))
            expected = json.dumps(shift.describe(), sort_keys=True, default=str)
            description = json.dumps(rebuilt.describe(), sort_keys=True, default=str)
            message = f"{shift.name!r} is rebuilt as another shift"
            require(description == expected, message, found=description, expected=expected)
        notes.append(f"{len(shifts)} shifts")
    with requirement("says where shifted images come from", results):
        members = [setting for setting in settings if setting.member is not None]
        silent = [setting.name for setting in members if setting.source is None]
        expected = '"in-memory", "jpeg-85" or "on-disk"'
        message = "members of a family of corruptions without a source"
        require(not silent, message, found=", ".join(silent[:4]), expected=expected, hint="pass source=options.source")


def _check_builder(name: str, options: SuiteOptions, settings: Sequence[Setting], results: list[CheckResult]) -> None:
    """Check what only a registered suite can do: be built again, and follow its options."""
    with requirement("is the same when it is built again", results):
        first = [_key(setting) for setting in settings]
        second = [_key(setting) for setting in _settings(name, options)]
        hint = "a suite may depend on its options alone: not on time, chance or the order of a set"
        require(second == first, "the settings changed, so that results would not be found again", hint=hint)
    with requirement("the global random numbers are left alone", results):
        require_own_randomness(lambda: _settings(name, options), "a generator of its own: random.Random(0)")
    with requirement("follows the severities of its options", results) as notes:
        at_severity = _settings(name, SuiteOptions(severities=(_SEVERITY,)))
        corruption_count = 0
        wrong_levels = []
        for setting in at_severity:
            if setting.member is None or setting.shift.kind != "corruption":
                continue
            corruption_count += 1
            if setting.member.level != _SEVERITY:
                wrong_levels.append(setting.name)
        if corruption_count == 0:
            notes.append("it has no corruptions")
            return
        message = f"asked for severity {_SEVERITY}, it gives others"
        require(
            not wrong_levels,
            message,
            found=", ".join(wrong_levels[:4]),
            hint="build settings for options.severities alone",
        )
    with requirement("can be joined with itself", results):
        build_suite([name, name], options)


def _check_data(
    suite: str | Suite, data: Data, labels: LabelsArgument, options: SuiteOptions, results: list[CheckResult]
) -> None:
    with requirement("its datasets can be opened", results) as notes:
        built = suite if isinstance(suite, Suite) else build_suite(suite, options)
        datasets, left_out = open_data(built, data, space=find_label_space(labels))
        empty = [role for role, dataset in datasets.items() if not len(dataset)]
        require(not empty, "datasets without an image", found=", ".join(empty[:4]))
        require(bool(datasets), "no setting has data", found=f"{len(left_out)} optional settings are left out")
        notes.append(f"{len(datasets)} datasets, {len(left_out)} optional settings left out")


def _key(setting: Setting) -> str:
    """All that decides which stored results belong to the setting."""
    decisive = [
        setting.name,
        setting.dataset,
        setting.shift.identity(),
        setting.source,
        setting.space,
        setting.reference,
        setting.metric,
        SettingRecord.of(setting).to_json(),
    ]
    return canonical_json(json.loads(json.dumps(decisive, default=str)))
