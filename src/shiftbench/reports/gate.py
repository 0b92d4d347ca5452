"""The verdict of a gate: for the terminal, a pull request, a CI system's test report, and programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from xml.etree import ElementTree

from shiftbench.errors import listed
from shiftbench.reports import formatting
from shiftbench.reports.table import Name, Number, Table, columns_of
from shiftbench.reports.writers import plain
from shiftbench.studies.gate import Check, GateResult, ImagesNeeded, RuleResult

#: Newly wrong images that the Markdown and JUnit texts name.
_NAMED_IMAGES = 5
#: Settings whose newly wrong images the Markdown text names.
_NAMED_SETTINGS = 12
_MARKS = {"pass": "✅", "fail": "❌", "not enough images": "⚠️", "identical": "⚠️"}
#: What every text says of a candidate that is the baseline itself.
IDENTICAL = "identical to the baseline: nothing to compare"


def verdict_line(result: GateResult) -> str:
    return f"{headline(result)}: {_reason(result)}"


def headline(result: GateResult) -> str:
    """The verdict in capitals; a pass says how many rules it leaves undecided."""
    verdict = result.verdict.upper()
    if result.verdict == "not enough images" and result.in_passes:
        verdict = "NOT ENOUGH PASSES"
    count = len(result.undecided)
    if result.verdict != "pass" or not count:
        return verdict
    return f"{verdict} ({count} rule{'' if count == 1 else 's'} undecided)"


def _reason(result: GateResult) -> str:
    """The verdict in one sentence: on which models it is, and the rules that decided it."""
    if result.verdict == "identical":
        return _identity(result)
    models = f"{result.candidate} against {result.baseline}"
    if result.verdict == "fail":
        failed = [rule for rule in result.rules if rule.verdict == "fail"]
        worst = [f"{rule.worst.name} {_points(rule, rule.worst)}" for rule in failed]
        return f"{models}: worse than the margin in {listed(worst, 3)}"
    if result.verdict == "not enough images":
        blocking = listed(_titles([rule for rule in result.rules if rule.blocks]), 3)
        needed = _needed_text(result, result.needed)
        return f"{models}: {blocking} undecided; {needed}; there are {_extent(result)}"
    if result.undecided:
        within = listed(_titles([rule for rule in result.rules if not rule.undecided]), 3)
        not_shown = listed([_not_shown(rule) for rule in result.undecided], 3)
        return f"{models}: {within} within the margin, on {_extent(result)}; not shown: {not_shown}"
    return f"{models}: every drop is shown to be within its margin, on {_extent(result)}"


def _extent(result: GateResult) -> str:
    """What the verdict is based on."""
    text = f"{result.images:,} {result.counted}"
    return f"{text} on these {result.grid_images:,} images" if result.in_passes else text


def _not_shown(rule: RuleResult) -> str:
    """An undecided rule, with the largest loss that the images do not exclude."""
    return f"{rule.rule.title} (a loss of up to {100 * rule.possible_loss:.1f} points could hide)"


def _identity(result: GateResult) -> str:
    if result.candidate == result.baseline:
        return f"{result.candidate} is {IDENTICAL}"
    return f"{result.candidate} is {result.baseline} under another name, {IDENTICAL}"


def _titles(rules: Sequence[RuleResult]) -> list[str]:
    return [rule.rule.title for rule in rules]


def _needed_text(result: GateResult, needed: ImagesNeeded) -> str:
    """With how many images what is decided, with which probability, and on which assumption."""
    assumption = "if the candidate is as good as the baseline"
    if needed.if_as_observed:
        assumption = "if the true drops are those observed"
    power = f"{100 * result.policy.power:g} %"
    passes = f"{result.passes_needed(needed):,} forward passes"
    extent = passes if result.in_passes else f"{needed.images:,} images ({passes})"
    return f"about {extent} would pass with a probability of {power} {assumption}"


def _points(rule: RuleResult, check: Check) -> str:
    change, low, high = _change(rule, check)
    interval = formatting.interval(100 * low, 100 * high, 1, "", signed=True)
    return f"{formatting.number(100 * change, 1, '', signed=True)} {interval}"


class _Change(NamedTuple):
    """Candidate minus baseline, with its interval."""

    value: float
    low: float
    high: float


def _change(rule: RuleResult, check: Check) -> _Change:
    """Candidate minus baseline: of an accuracy a loss is negative, of the calibration error positive."""
    if rule.rule.of == "calibration":
        return _Change(check.drop.value, check.low, check.high)
    return _Change(-check.drop.value, -check.high, -check.low)


def gate_table(result: GateResult) -> Table:
    """One row per rule; JSON has every number of every rule."""
    title = verdict_line(result)
    data = gate_data(result)
    if result.verdict == "identical":
        return Table(columns_of("gate"), [], title=title, notes=[], data=data)
    rows = [_row(result, rule) for rule in result.rules]
    return Table(columns_of("gate"), rows, title=title, notes=_notes(result), data=data)


def _row(result: GateResult, rule: RuleResult) -> dict[str, object]:
    change, low, high = _change(rule, rule.worst)
    failed = rule.verdict == "fail"
    verdict: object = rule.verdict
    if rule.undecided:
        verdict = Name("undecided", "" if rule.blocks else "*")
    deciding = rule.failing if failed else [rule.worst]
    return {
        "rule": f"{rule.rule.title} ({rule.rule.margin:g})",
        "verdict": verdict,
        "worst": listed([check.name for check in deciding], 2),
        "change": Number(change, low, high, formatting.digits(rule.worst.drop.n), bold=failed),
        "images": rule.worst.drop.n,
        "needed": result.total_needed(rule) or "",
    }


def _notes(result: GateResult) -> list[str]:
    level = formatting.level_text(1 - 2 * result.policy.alpha)
    notes = [
        f"change: candidate minus baseline in points, {level} interval, of the number that decided the rule; "
        "a rule passes if the interval of each of its numbers is within the margin",
        f"a false alarm or a false pass has a probability of at most {result.policy.alpha:g}, however often the gate "
        f"is repeated with more {result.counted}",
    ]
    if result.undecided:
        notes += [_needed_note(result), _margins_note(result)]
    allowed = [rule for rule in result.undecided if not rule.blocks]
    if allowed:
        notes.append(f"* the policy allows these rules to be undecided: {listed(_titles(allowed))}")
    return [*notes, *result.notes]


def _needed_note(result: GateResult) -> str:
    """The caption of the column ``needed``."""
    power = f"{100 * result.policy.power:g} %"
    needed = {rule.rule.title: result.needed_by(rule) for rule in result.undecided}
    observed = [title for title, number in needed.items() if number.if_as_observed]
    note = f"needed: {result.counted} in all with which the rule passes with a probability of {power}, "
    if len(observed) == len(needed):
        note += f"if the true drops are those observed (for an equal candidate these {result.counted} are enough)"
    else:
        note += "if the candidate is as good as the baseline"
    if 0 < len(observed) < len(needed):
        note += f" ({listed(observed)}: if the true drops are those observed)"
    return f"{note}; docs/gate.md"


def _margins_note(result: GateResult) -> str:
    """What as many images or forward passes could decide."""
    margins = [f"{rule.rule.title} {100 * result.decidable_margin(rule):.1f}" for rule in result.undecided]
    text = f"the smallest margins, in points, that as many {result.counted} can show for an equal candidate"
    return f"{text}: {listed(margins, 8)}"


def gate_data(result: GateResult) -> dict[str, object]:
    """Everything, for programs; fractions, not points."""
    return {
        "verdict": result.verdict,
        "text": verdict_line(result),
        "candidate": result.candidate,
        "baseline": result.baseline,
        "images": result.images,
        "in_passes": result.in_passes,
        "grid_images": result.grid_images or None,
        "images_needed": _counted(result, result.images_needed),
        "passes_needed": result.passes_needed(result.needed) or None,
        "undecided": _titles(result.undecided),
        "alpha": result.policy.alpha,
        "power": result.policy.power,
        "rules": [_rule_data(result, rule) for rule in result.rules],
        "newly_wrong": {setting.name: setting.newly_wrong() for setting in result.settings},
        "notes": list(result.notes),
    }


def _rule_data(result: GateResult, rule: RuleResult) -> dict[str, object]:
    needed = result.needed_by(rule)
    to_fail = result.needed_to_fail(rule)
    data = {
        "rule": rule.rule.title,
        "of": rule.rule.of,
        "verdict": rule.verdict,
        "blocks": rule.blocks,
        "margin": rule.rule.margin / 100,
        "p_holm": rule.p_holm,
        "decided_by": rule.worst.name,
        "failing": [check.name for check in rule.failing],
        "images_needed": _counted(result, needed.images),
        "needed_if": _assumption(needed),
        "passes_needed": result.passes_needed(needed) or None,
        "images_needed_to_fail": _counted(result, to_fail),
        "passes_needed_to_fail": round(to_fail * result.passes_per_image) or None,
        "decidable_margin": result.decidable_margin(rule),
        "checks": [_check_data(rule, check) for check in rule.checks],
    }
    return plain(data)


def _counted(result: GateResult, images: int) -> int | None:
    """A number of images; None for no number, and where single cells are counted in their place."""
    return None if result.in_passes else images or None


def _assumption(needed: ImagesNeeded) -> str | None:
    """Which true drops the number of images assumes."""
    if not needed.images:
        return None
    return "drops as observed" if needed.if_as_observed else "no drop"


def _check_data(rule: RuleResult, check: Check) -> dict[str, object]:
    change, low, high = _change(rule, check)
    return plain(
        {
            "name": check.name,
            "change": change,
            "low": low,
            "high": high,
            "images": check.drop.n,
            "p_within": check.p_within,
            "p_beyond": check.p_beyond,
        }
    )


def gate_markdown(result: GateResult) -> str:
    """For a comment on a pull request. The first line lets a later run find and replace it."""
    mark = _MARKS[result.verdict]
    parts = [
        "<!-- shiftbench gate -->\n",
        f"### {mark} shiftbench gate: {headline(result)}\n",
        formatting.markdown(_reason(result)) + "\n",
    ]
    if result.verdict == "identical":
        return "\n".join(parts)
    table = gate_table(result)
    notes = table.notes
    table.title = ""
    table.notes = []
    parts.append(table.to_markdown())
    folded = {"Images that only the candidate gets wrong": _newly_wrong_lines(result), "How to read this": notes}
    for title, lines in folded.items():
        if lines:
            items = "".join(f"- {formatting.markdown(line)}\n" for line in lines)
            parts.append(f"<details><summary>{title}</summary>\n\n{items}\n</details>\n")
    return "\n".join(parts)


def _newly_wrong_lines(result: GateResult) -> list[str]:
    """A line per setting, those with the most newly wrong images first."""
    counted = [(setting, setting.newly_wrong()) for setting in result.settings]
    counted.sort(key=lambda entry: -len(entry[1]))
    lines = []
    for setting, wrong in counted[:_NAMED_SETTINGS]:
        won_back = int((setting.observations.is_right & ~setting.observations.was_right).sum())
        if wrong:
            images = listed(wrong, _NAMED_IMAGES)
            lines.append(f"{setting.name}: {len(wrong):,} ({won_back:,} newly right): {images}")
    return lines


def gate_junit(result: GateResult, *, strict: bool = False) -> str:
    """JUnit XML: a test case per rule. An undecided rule that blocks is an error, one that does not is skipped.

    If the candidate is the baseline itself, the only test case is skipped; with ``strict`` it is an error.
    """
    suite = ElementTree.Element("testsuite", {"name": "shiftbench gate"})
    properties = ElementTree.SubElement(suite, "properties")
    ElementTree.SubElement(properties, "property", {"name": "verdict", "value": _xml(headline(result))})
    if result.verdict == "identical":
        case = _test_case(suite, "the candidate differs from the baseline")
        ElementTree.SubElement(case, "error" if strict else "skipped", {"message": _xml(_reason(result))})
    for rule in result.rules:
        _add_rule(suite, result, rule)
    counted = {
        "tests": "testcase",
        "failures": "testcase/failure",
        "errors": "testcase/error",
        "skipped": "testcase/skipped",
    }
    for attribute, elements in counted.items():
        suite.set(attribute, str(len(suite.findall(elements))))
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _test_case(suite: ElementTree.Element, name: str) -> ElementTree.Element:
    return ElementTree.SubElement(suite, "testcase", {"classname": "shiftbench.gate", "name": _xml(name)})


def _add_rule(suite: ElementTree.Element, result: GateResult, rule: RuleResult) -> None:
    """Add a rule to a JUnit report as a test case. An undecided one is an error if it blocks, else skipped."""
    case = _test_case(suite, f"{rule.rule.title} (margin {rule.rule.margin:g} points)")
    text = _xml(f"{rule.worst.name}: {_points(rule, rule.worst)} points, n = {rule.worst.drop.n:,}")
    if rule.verdict == "fail":
        failing = "\n".join(f"{check.name}: {_points(rule, check)} points" for check in rule.failing)
        ElementTree.SubElement(case, "failure", {"message": text}).text = _xml(failing)
    elif rule.undecided:
        needed = _needed_text(result, result.needed_by(rule))
        tag = "error" if rule.blocks else "skipped"
        ElementTree.SubElement(case, tag, {"message": f"{text}; undecided; {needed}"})
    ElementTree.SubElement(case, "system-out").text = text


def _xml(text: str) -> str:
    """Without characters that XML does not allow: names of images and classes may have any."""
    readable = text.encode("utf-8", "replace").decode()
    return "".join(char if _is_allowed_in_xml(char) else "?" for char in readable)


def _is_allowed_in_xml(char: str) -> bool:
    return char in "\t\n" or (char >= " " and char not in "\ufffe\uffff")
