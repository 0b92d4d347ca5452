"""Who may do what, where it is done: an account acts in its role, and the command line as the local lead."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

import shiftbench.testsets.web
from shiftbench.testsets import accounts, freeze, review, revisions
from shiftbench.testsets.accounts import Role, create_account
from shiftbench.testsets.database import LOCAL_LEAD, VISITOR
from shiftbench.testsets.errors import NotAllowedError
from shiftbench.testsets.pool.suspects import Suspicion, add_suspicions
from shiftbench.testsets.project import Project, audit_log, note
from shiftbench.testsets.review import suspicions
from shiftbench.testsets.revisions import revision_images, sample
from shiftbench.testsets.sampling import make_sampling

Deed = Callable[[Project, int | None], object]


def _candidate(project: Project) -> int:
    return revision_images(project, "top")[0].entry


def _somebody(project: Project) -> int:
    return create_account(project, f"annotator {len(accounts.people(project))}", "annotator").id


def _excluded(project: Project) -> int:
    somebody = _somebody(project)
    accounts.exclude(project, somebody, "a test")
    return somebody


def _readmit(project: Project, by: int | None) -> None:
    accounts.exclude(project, _excluded(project), "a mistake", by=by, back=True)


def _freeze(project: Project, by: int | None) -> None:
    sample(project, "top")
    freeze.freeze(project, "top", allow=freeze.DEFECTS, by=by)


def _judge(project: Project, by: int | None) -> None:
    entries = [image.entry for image in revision_images(project, "top")]
    add_suspicions(project, [Suspicion(entries[0], entries[1], {"l2": 1.0})])
    review.judge(project, suspicions(project)[0].id, duplicate=False, by=by)


def _withdraw(project: Project, by: int | None) -> None:
    review.withdraw_mark(project, review.mark(project, _candidate(project), "blacklist"), by=by)


def _revoke(project: Project, by: int | None) -> None:
    accounts.invite(project, "annotator")
    accounts.revoke_invitation(project, accounts.invitations(project)[-1].id, by=by)


#: What is done, who may, and the action in the log; in an order in which one person can do all.
DEEDS: dict[str, tuple[Deed, set[str], str]] = {
    "account": (lambda p, by: create_account(p, "new", "annotator", by=by), {"lead"}, "account"),
    "invite": (lambda p, by: accounts.invite(p, "lead", by=by), {"lead"}, "invite"),
    "revoke": (_revoke, {"lead"}, "revoke"),
    "exclude": (lambda p, by: accounts.exclude(p, _somebody(p), "a test", by=by), {"lead"}, "exclude"),
    "readmit": (_readmit, {"lead"}, "readmit"),
    "first sample": (
        lambda p, by: sample(p, "other", make_sampling("top-images", min_annotations=3), per_class=2, by=by),
        {"lead"},
        "sample",
    ),
    "another size": (lambda p, by: sample(p, "top", per_class=3, by=by), {"lead"}, "sample"),
    "another seed": (lambda p, by: sample(p, "top", seed=5, by=by), {"lead"}, "sample"),
    "mark": (lambda p, by: review.mark(p, _candidate(p), "blacklist", by=by), {"lead", "reviewer"}, "mark"),
    "withdraw": (_withdraw, {"lead", "reviewer"}, "withdraw mark"),
    "judge": (_judge, {"lead", "reviewer"}, "judge"),
    "freeze": (_freeze, {"lead"}, "freeze"),
}


@pytest.fixture
def sampled(annotated: Project) -> Project:
    sample(annotated, "top", make_sampling("top-images", min_annotations=3), per_class=4)
    return annotated


@pytest.mark.parametrize("role", ["annotator", "reviewer", "lead"])
def test_a_role_is_checked_where_the_deed_is_done(sampled: Project, role: Role) -> None:
    person = create_account(sampled, "somebody", role)
    for act, allowed, action in DEEDS.values():
        if role in allowed:
            act(sampled, person.id)
            assert (audit_log(sampled)[0].who, audit_log(sampled)[0].action) == ("somebody", action)
        else:
            with pytest.raises(NotAllowedError) as refused:
                act(sampled, person.id)
            assert refused.value.found == role
            assert audit_log(sampled)[0].who == LOCAL_LEAD, "of what went before; nothing was done"


def test_the_command_line_is_the_local_lead(sampled: Project) -> None:
    for act, _, action in DEEDS.values():
        act(sampled, None)
        assert (audit_log(sampled)[0].who, audit_log(sampled)[0].action) == (LOCAL_LEAD, action)


def test_excluded_and_unknown_accounts_do_nothing(sampled: Project) -> None:
    lead = create_account(sampled, "gone", "lead")
    accounts.exclude(sampled, lead.id, "left")
    for by, message in ((lead.id, "excluded"), (lead.id + 1000, "no such account")):
        for act, _, _ in DEEDS.values():
            with pytest.raises(NotAllowedError, match=message):
                act(sampled, by)


def test_reviewers_ask_for_the_next_revision_and_no_other(sampled: Project) -> None:
    reviewer = create_account(sampled, "rita", "reviewer").id
    review.mark(sampled, _candidate(sampled), "blacklist", by=reviewer)
    assert sample(sampled, "top", by=reviewer)[0].number == 2
    annotator = create_account(sampled, "anna", "annotator").id
    with pytest.raises(NotAllowedError):
        sample(sampled, "top", by=annotator)


def test_who_was_turned_away_is_nobody_at_the_command_line(sampled: Project) -> None:
    note(sampled, "refused", what="please sign in first")
    assert audit_log(sampled)[0].who == VISITOR


def test_no_page_acts_as_the_local_lead() -> None:
    """Every call from a page of a function that takes ``by`` says who it is."""
    takers = {
        name
        for module in (accounts, review, revisions, freeze)
        for name, value in vars(module).items()
        if callable(value) and "by" in getattr(value, "__annotations__", {}) and not name.startswith("_")
    } - {"record", "permit"}
    assert {"sample", "freeze", "mark", "judge", "exclude", "invite"} <= takers
    folder = Path(shiftbench.testsets.web.__file__).parent
    calls = []
    for path in sorted(folder.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if name in takers:
                    calls.append((path.name, name, any(keyword.arg == "by" for keyword in node.keywords)))
    # Links for whoever starts the server are made before any page is there; a failed qualification excludes by rule.
    nameless = {(file, name) for file, name, named in calls if not named}
    by_nobody = {("app.py", "invite"), ("app.py", "revoke_invitation"), ("annotation_pages.py", "exclude")}
    assert nameless == by_nobody and len(calls) > 10
