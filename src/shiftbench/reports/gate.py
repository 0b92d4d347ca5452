"""The verdict of a gate: for the terminal, a pull request, a CI system's test report, and programs."""

from __future__ import annotations

from xml.etree import ElementTree

from shiftbench.errors import listed
from shiftbench.reports import formatting
from shiftbench.reports.table import Name, Number, Table, columns_of
from shiftbench.reports.writers import plain
from shiftbench.studies.gate import Check, GateResult, RuleResult

#: Newly wrong images that the Markdown and JUnit texts name.
_NAMED = 5
_MARKS = {"pass": "✅", "fail": "❌", "not enough images": "⚠️"}


def verdict_line(result: GateResult) -> str:
    return f"{result.verdict.upper()}: {_reason(result)}"


def _reason(result: GateResult) -> str:
    about = f"{result.candidate} against {result.baseline}"
    blocking = [one for one in result.rules if one.blocks]
    if result.verdict == "fail":
        failed = [one for one in blocking if one.verdict == "fail"]
        worst = [f"{one.worst.name} {_points(one, one.worst)}" for one in failed]
        return f"{about}: worse than the margin in {listed(worst, 3)}"
    if result.verdict == "pass":
        return f"{about}: no drop beyond the margins, on {result.images:,} images"
    rules = listed([one.rule.title for one in blocking], 3)
    need = f"about {result.images_needed:,} images are needed, there are {result.images:,}"
    return f"{about}: {rules} undecided; {need}"


def _points(rule: RuleResult, check: Check) -> str:
    change, low, high = _change(rule, check)
    shown = formatting.interval(100 * low, 100 * high, 1, "", signed=True)
    return f"{formatting.number(100 * change, 1, '', signed=True)} {shown}"


def _change(rule: RuleResult, check: Check) -> tuple[float, float, float]:
    """Candidate minus baseline: of an accuracy a loss is negative, of the calibration error positive."""
    drop = check.drop.value
    return (drop, check.low, check.high) if rule.rule.of == "calibration" else (-drop, -check.high, -check.low)


def gate_table(result: GateResult) -> Table:
    """One row per rule; JSON has every number of every rule."""
    rows = []
    for one in result.rules:
        change, low, high = _change(one, one.worst)
        failed = one.verdict == "fail"
        rows.append(
            {
                "rule": f"{one.rule.title} ({one.rule.margin:g})",
                "verdict": one.verdict
                if failed or one.verdict == "pass"
                else Name("undecided", "*" * (not one.blocks)),
                "worst": listed([check.name for check in one.failing] if failed else [one.worst.name], 2),
                "change": Number(change, low, high, formatting.digits(one.worst.drop.n), bold=failed),
                "images": one.worst.drop.n,
                "needed": result.total_needed(one) or "",
            }
        )
    level = formatting.level_text(1 - 2 * result.policy.alpha)
    allowed = [one.rule.title for one in result.rules if one.verdict == "not enough images" and not one.blocks]
    notes = [
        f"change: candidate minus baseline in points, {level} interval, of the number that decided the rule; "
        "a rule passes if the interval of each of its numbers is within the margin",
        f"a false alarm or a false pass has a probability of at most {result.policy.alpha:g}; needed: images in all "
        f"for a decision with power {result.policy.power:g} (docs/gate.md)",
        *([f"* the policy allows these rules to be undecided: {listed(allowed)}"] if allowed else []),
        *result.notes,
    ]
    return Table(columns_of("gate"), rows, title=verdict_line(result), notes=notes, data=gate_data(result))


def gate_data(result: GateResult) -> dict[str, object]:
    """Everything, for programs; fractions, not points."""
    rules = []
    for one in result.rules:
        checks = [
            plain({"name": check.name, **dict(zip(("change", "low", "high"), _change(one, check), strict=True)),
                   "images": check.drop.n, "p_within": check.p_within, "p_beyond": check.p_beyond})
            for check in one.checks
        ]  # fmt: skip
        rules.append(
            {"rule": one.rule.title, "of": one.rule.of, "verdict": one.verdict, "blocks": one.blocks,
             "margin": one.rule.margin / 100, "p_holm": one.p_holm, "decided_by": one.worst.name,
             "failing": [check.name for check in one.failing], "images_needed": result.total_needed(one) or None,
             "checks": checks}
        )  # fmt: skip
    return {
        "verdict": result.verdict,
        "text": verdict_line(result),
        "candidate": result.candidate,
        "baseline": result.baseline,
        "images": result.images,
        "images_needed": result.images_needed or None,
        "alpha": result.policy.alpha,
        "power": result.policy.power,
        "rules": rules,
        "newly_wrong": {one.name: one.newly_wrong() for one in result.settings},
        "notes": list(result.notes),
    }


def gate_markdown(result: GateResult) -> str:
    """For a comment on a pull request. The first line lets a later run find and replace it."""
    table = gate_table(result)
    table.title, table.notes, notes = "", [], table.notes
    newly_wrong = []
    counted = sorted(((one, one.newly_wrong()) for one in result.settings), key=lambda entry: -len(entry[1]))
    for one, wrong in counted[:12]:
        won_back = int((one.observations.is_right & ~one.observations.was_right).sum())
        if wrong:
            newly_wrong.append(f"{one.name}: {len(wrong):,} ({won_back:,} newly right): {listed(wrong, _NAMED)}")
    parts = [
        "<!-- shiftbench gate -->\n",
        f"### {_MARKS[result.verdict]} shiftbench gate: {result.verdict.upper()}\n",
        formatting.markdown(_reason(result)) + "\n",
        table.to_markdown(),
    ]
    folded = {"Images that only the candidate gets wrong": newly_wrong, "How to read this": notes}
    for title, lines in folded.items():
        items = "".join(f"- {formatting.markdown(line)}\n" for line in lines)
        parts += [f"<details><summary>{title}</summary>\n\n{items}\n</details>\n"] if lines else []
    return "\n".join(parts)


def gate_junit(result: GateResult) -> str:
    """JUnit XML: a test case per rule. An undecided rule that blocks is an error, one that does not is skipped."""
    counts = {
        "tests": len(result.rules),
        "failures": sum(one.verdict == "fail" for one in result.rules),
        "errors": sum(one.blocks and one.verdict != "fail" for one in result.rules),
        "skipped": sum(one.verdict == "not enough images" and not one.blocks for one in result.rules),
    }
    attributes = {"name": "shiftbench gate", **{key: str(value) for key, value in counts.items()}}
    suite = ElementTree.Element("testsuite", attributes)
    for one in result.rules:
        title = f"{one.rule.title} (margin {one.rule.margin:g} points)"
        case = ElementTree.SubElement(suite, "testcase", {"classname": "shiftbench.gate", "name": _xml(title)})
        text = _xml(f"{one.worst.name}: {_points(one, one.worst)} points, n = {one.worst.drop.n:,}")
        if one.verdict == "fail":
            failing = "\n".join(f"{check.name}: {_points(one, check)} points" for check in one.failing)
            ElementTree.SubElement(case, "failure", {"message": text}).text = _xml(failing)
        elif one.verdict != "pass":
            kind = "error" if one.blocks else "skipped"
            need = f"undecided; about {result.total_needed(one):,} images are needed"
            ElementTree.SubElement(case, kind, {"message": f"{text}; {need}"})
        ElementTree.SubElement(case, "system-out").text = text
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _xml(text: str) -> str:
    """Without characters that XML does not allow: names of images and classes may have any."""
    return "".join(char if char in "\t\n" or (char >= " " and char not in "\ufffe\uffff") else "?" for char in
                   text.encode("utf-8", "replace").decode())  # fmt: skip
