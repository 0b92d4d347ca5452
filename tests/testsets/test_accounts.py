"""People: links, passwords, sessions, exclusion; only hashes are kept."""

from __future__ import annotations

import pytest
from argon2 import PasswordHasher
from sqlalchemy import select, text, update

from shiftbench.testsets import accounts, annotation
from shiftbench.testsets.database import Account, Invitation, SignIn, Task
from shiftbench.testsets.errors import NotAllowedError, WorkshopError
from shiftbench.testsets.frequencies import selection_frequencies
from shiftbench.testsets.project import Project, audit_log
from tests.raised import raises
from tests.testsets.conftest import NewProject
from tests.testsets.helpers import Clock, annotators, work

PASSWORD = "correct horse battery"


@pytest.fixture
def cheap_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "_HASHER", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))


def test_a_link_is_a_person(new_project: NewProject) -> None:
    project = new_project()
    link = accounts.invite(project, "annotator", "Anna")
    person, first = accounts.enter_by_link(project, link.token)
    again, second = accounts.enter_by_link(project, link.token)
    assert (person.name, person.role) == ("Anna", "annotator") and again == person and first != second
    assert accounts.person_of_session(project, first) == accounts.person_of_session(project, second) == person
    accounts.leave(project, first)
    assert accounts.person_of_session(project, first) is None
    assert accounts.person_of_session(project, second) == person
    assert [invitation.account and invitation.account.name for invitation in accounts.invitations(project)] == ["Anna"]


def test_two_links_of_one_name_are_two_people(new_project: NewProject) -> None:
    project = new_project()
    tokens = [accounts.invite(project, "annotator", name).token for name in ("Anna", "Anna", "", "")]
    people = [accounts.enter_by_link(project, token)[0] for token in tokens]
    assert [person.name for person in people] == ["Anna", "Anna-2", "annotator-3", "annotator-4"]
    assert len({person.id for person in people}) == 4


def test_links_end(new_project: NewProject) -> None:
    project = new_project()
    clock = Clock()
    project.now = clock
    link = accounts.invite(project, "reviewer", days=2)
    revoked = accounts.invite(project, "reviewer")
    accounts.enter_by_link(project, link.token)
    accounts.revoke_invitation(project, 2)
    with pytest.raises(NotAllowedError, match="invitation"):
        accounts.enter_by_link(project, revoked.token)
    clock.pass_minutes(2 * 24 * 60)
    for token in (link.token, "forged", ""):
        with pytest.raises(NotAllowedError, match="invitation"):
            accounts.enter_by_link(project, token)
    assert [invitation.valid(clock()) for invitation in accounts.invitations(project)] == [False, False]


def test_only_hashes_are_kept(new_project: NewProject, cheap_hashes: None) -> None:
    project = new_project()
    accounts.create_account(project, "Lea", "lead", PASSWORD)
    link = accounts.invite(project, "annotator")
    _, token = accounts.enter_by_link(project, link.token)
    with project.reading() as session:
        stored = [
            *session.scalars(select(Account.password)),
            *session.scalars(select(Invitation.token_hash)),
            *session.scalars(select(SignIn.token_hash)),
            *map(str, session.execute(text("SELECT details FROM audit_log")).scalars()),
        ]
    for secret in (PASSWORD, link.token, token):
        assert not any(secret in str(value) for value in stored)


def test_passwords(new_project: NewProject, cheap_hashes: None) -> None:
    project = new_project()
    lead = accounts.create_account(project, "Lea", "lead", PASSWORD)
    person, token = accounts.enter_by_password(project, "Lea", PASSWORD)
    assert person == lead and accounts.person_of_session(project, token) == lead
    link_only = accounts.create_account(project, "Ben", "annotator")
    for name, password in (("Lea", PASSWORD + "x"), ("Lea", ""), ("Leo", PASSWORD), (link_only.name, ""), ("", "")):
        with pytest.raises(NotAllowedError, match="wrong name or password"):
            accounts.enter_by_password(project, name, password)
    for old in ("", "another good one"):
        with pytest.raises(NotAllowedError):
            accounts.change_password(project, lead.id, "another good one", old=old)
    assert accounts.person_of_session(project, token) == lead
    accounts.change_password(project, lead.id, "another good one", old=PASSWORD)
    accounts.change_password(project, link_only.id, "the first password")
    assert accounts.has_password(project, link_only.id)
    assert accounts.person_of_session(project, token) is None
    with pytest.raises(NotAllowedError):
        accounts.enter_by_password(project, "Lea", PASSWORD)
    accounts.enter_by_password(project, "Lea", "another good one")


def test_hashes_are_salted() -> None:
    first = accounts.hash_password(PASSWORD)
    second = accounts.hash_password(PASSWORD)
    assert first.startswith("$argon2id$") and first != second
    assert accounts.verify_password(PASSWORD, first) and not accounts.verify_password("x" * 12, first)


def test_scrypt_hashes_are_upgraded_at_the_next_login(new_project: NewProject, cheap_hashes: None) -> None:
    """A hash of ``PASSWORD`` made by version 0.1."""
    old = (
        "scrypt$15$8$3$2d80c06d6c97abd6964a7f71992490c5"
        "$26d4354e3933317289352b10d51e377e700f87cd82a04a7bc6841491624c2883"
    )
    project = new_project()
    lead = accounts.create_account(project, "Lea", "lead", "another good one")

    def stored() -> str | None:
        with project.reading() as session:
            return session.scalars(select(Account.password).where(Account.id == lead.id)).one()

    with project.writing() as session:
        session.execute(update(Account).values(password=old))
    with pytest.raises(NotAllowedError):
        accounts.enter_by_password(project, "Lea", PASSWORD + "x")
    assert stored() == old
    for _ in range(2):
        assert accounts.enter_by_password(project, "Lea", PASSWORD)[0] == lead
        assert str(stored()).startswith("$argon2id$")
    upgraded = stored()
    accounts.enter_by_password(project, "Lea", PASSWORD)
    assert stored() == upgraded


@pytest.mark.parametrize("password", ["short", "x" * 2000])
def test_bad_passwords(password: str) -> None:
    with pytest.raises(WorkshopError, match="password too"):
        accounts.hash_password(password)


def test_sessions_expire(new_project: NewProject) -> None:
    project = new_project()
    clock = Clock()
    project.now = clock
    _, token = accounts.enter_by_link(project, accounts.invite(project, "annotator").token)
    clock.pass_minutes(accounts.SESSION_DAYS * 24 * 60 - 1)
    assert accounts.person_of_session(project, token) is not None
    clock.pass_minutes(1)
    assert accounts.person_of_session(project, token) is None
    assert accounts.person_of_session(project, "forged") is None
    accounts.leave(project, "another")
    with project.reading() as session:
        assert session.scalars(select(SignIn)).all() == []


def test_bad_names(new_project: NewProject) -> None:
    project = new_project()
    for name in ("", "  ", "x" * 81, "a\x00b", "a\u202eb"):
        with pytest.raises(WorkshopError) as refused:
            accounts.create_account(project, name, "annotator")
        assert refused.value.found == repr(name)


def test_roles_and_names_are_checked(new_project: NewProject) -> None:
    project = new_project()
    accounts.create_account(project, "Anna", "annotator")
    with pytest.raises(WorkshopError, match="already"):
        accounts.create_account(project, "Anna", "annotator")
    with pytest.raises(WorkshopError, match="king"):
        accounts.invite(project, "king")  # type: ignore[arg-type]
    with pytest.raises(WorkshopError, match="Anna"):
        accounts.find_person(project, "Ann")


def test_exclusion_keeps_answers_and_returns_their_places(project: Project) -> None:
    good, bad = annotators(project, 2)
    work(project, [good, bad])
    held = accounts.create_account(project, "holder", "annotator")
    assert annotation.next_task(project, held.id) is not None

    def state() -> tuple[list[int], int]:
        with project.reading() as session:
            places = session.scalars(select(Task.places_left).order_by(Task.id)).all()
        return list(places), sum(row.annotations for row in selection_frequencies(project))

    places, answers = state()
    tasks = len(places)
    assert sum(places) == tasks * 3 - 2 * tasks - 1
    with raises(NotAllowedError, found="annotator"):
        accounts.exclude(project, bad, "a rival", by=good)
    lead = accounts.create_account(project, "boss", "lead").id
    assert accounts.exclude(project, bad, "selects everything", by=lead) == tasks
    assert state() == ([places_left + 1 for places_left in places], answers // 2)
    assert accounts.exclude(project, bad, "again") == 0
    with pytest.raises(NotAllowedError, match="excluded"):
        annotation.next_task(project, bad)
    assert accounts.exclude(project, bad, "a misunderstanding", back=True) == tasks
    assert state() == (places, answers)
    assert accounts.exclude(project, held.id, "left us") == 1
    assert sum(state()[0]) == sum(places) + 1
    log = [(line.action, line.details.get("because")) for line in audit_log(project)][:3]
    assert log == [("exclude", "left us"), ("readmit", "a misunderstanding"), ("exclude", "selects everything")]
