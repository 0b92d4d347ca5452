"""Accounts with roles, personal invitation links, passwords, sessions, exclusion.

Functions that change a project take ``by``, the account that makes the change, and check its role there, so that no
page can forget to. ``by=None`` is the command line, whose user has access to the folder and the database anyway and
appears in the audit log as the local lead.

Links, sessions and passwords are stored as hashes only. A link stands for one person: opening it the first time
creates an account, opening it again signs in to that account, so that nobody annotates an image twice.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Literal, TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import VerifyMismatchError
from sqlalchemy import delete, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, joinedload

from shiftbench.testsets.database import (
    EXPIRED,
    LEASED,
    SUBMITTED,
    Account,
    Assignment,
    Base,
    Invitation,
    SignIn,
    Task,
    repeated_after_deadlock,
)
from shiftbench.testsets.errors import NotAllowedError, WorkshopError
from shiftbench.testsets.frequencies import recount
from shiftbench.testsets.project import Project, record

R = TypeVar("R", bound=Base)
Role = Literal["lead", "annotator", "reviewer"]
#: All roles that an account can have.
ROLES: tuple[Role, ...] = ("lead", "annotator", "reviewer")
#: Roles that may act as leads, reviewers and annotators. Leads may do everything.
LEADS: tuple[Role, ...] = ("lead",)
REVIEWERS: tuple[Role, ...] = ("reviewer", "lead")
ANNOTATORS: tuple[Role, ...] = ("annotator", "lead")
#: Days until a session ends.
SESSION_DAYS = 14
#: Days until an unused link expires.
INVITATION_DAYS = 30
#: Characters of a password.
SHORTEST_PASSWORD = 10
_LONGEST_PASSWORD = 1024
#: Argon2id with the library's recommended costs (RFC 9106).
_HASHER = PasswordHasher()
#: Hashes of versions before 0.2: "scrypt$cost$block$parallel$salt$digest".
_SCRYPT = "scrypt$"


@dataclass(frozen=True)
class Person:
    """An account, without its password."""

    id: int
    name: str
    #: One of ``ROLES``.
    role: str
    #: Whether their answers no longer count, and why.
    excluded: bool = False
    excluded_because: str | None = None

    @classmethod
    def of(cls, account: Account) -> Person:
        return cls(account.id, account.name, account.role, account.excluded_at is not None, account.excluded_because)


@dataclass(frozen=True)
class InvitationLink:
    """A new invitation. Its token is not stored and cannot be shown again."""

    #: The secret part of the link.
    token: str
    #: The name of the account to be; "" if it is named by role and number.
    name: str
    role: str
    expires_at: datetime


def create_account(
    project: Project, name: str, role: Role, password: str | None = None, *, by: int | None = None
) -> Person:
    """With ``password=None``, sign-in is possible by invitation link only."""
    _check_role(role)
    hashed = None if password is None else hash_password(password)
    with project.writing() as session:
        permit(session, by, LEADS)
        account = new_account(project, session, [name], role, hashed)
        record(project, session, "account", by=by, account=account.id, role=role)
        return Person.of(account)


def invite(
    project: Project, role: Role, name: str = "", *, days: float = INVITATION_DAYS, by: int | None = None
) -> InvitationLink:
    """Create a personal link. Without a ``name``, the account is named by role and number."""
    _check_role(role)
    token = secrets.token_urlsafe(24)
    now = project.now()
    with project.writing() as session:
        permit(session, by, LEADS)
        invitation = Invitation(
            token_hash=_hash_token(token),
            role=role,
            name=_checked_name(name) if name else "",
            made_at=now,
            expires_at=now + timedelta(days=days),
        )
        session.add(invitation)
        session.flush()
        record(project, session, "invite", by=by, invitation=invitation.id, role=role, name=invitation.name)
        return InvitationLink(token, invitation.name, role, invitation.expires_at)


def enter_by_link(project: Project, token: str) -> tuple[Person, str]:
    """(account, token of a new session). The first use of a link creates the account."""
    with project.writing() as session:
        query = select(Invitation).where(Invitation.token_hash == _hash_token(token)).with_for_update()
        invitation = session.scalars(query).first()
        if invitation is None or not invitation.valid(project.now()):
            raise NotAllowedError("invalid or expired invitation", hint="ask for a new one")
        if invitation.account_id is None:
            names = [f"{invitation.name or invitation.role}-{invitation.id}"]
            if invitation.name:
                names.insert(0, invitation.name)
            invitation.account_id = new_account(project, session, names, invitation.role).id
            record(project, session, "join", by=invitation.account_id, invitation=invitation.id)
        return start_session(project, session, invitation.account_id)


def new_account(
    project: Project, session: Session, names: Sequence[str], role: str, password: str | None = None
) -> Account:
    """An account with the first of these names that no other account has; raises WorkshopError if all are taken."""
    for name in map(_checked_name, names):
        account = Account(name=name, role=role, password=password, made_at=project.now())
        # A nested transaction waits for another account of this name, and for no other.
        with suppress(IntegrityError), session.begin_nested():
            session.add(account)
            session.flush()
            return account
    raise WorkshopError(f"account {name!r} already exists")


def start_session(project: Project, session: Session, account_id: int) -> tuple[Person, str]:
    """Sign an account in; returns it, and the token of the session, which is stored as a hash only."""
    token = secrets.token_urlsafe(32)
    now = project.now()
    expires_at = now + timedelta(days=SESSION_DAYS)
    session.add(SignIn(token_hash=_hash_token(token), account_id=account_id, made_at=now, expires_at=expires_at))
    return Person.of(session.get_one(Account, account_id)), token


def revoke_invitation(project: Project, invitation: int, *, by: int | None = None) -> None:
    """Make a link invalid; an account that it created stays."""
    with project.writing() as session:
        permit(session, by, LEADS)
        row = find_by_id(session, Invitation, invitation, "invitation")
        row.revoked_at = row.revoked_at or project.now()
        record(project, session, "revoke", by=by, invitation=invitation)


def invitations(project: Project) -> list[Invitation]:
    """All invitations in order of creation, with the accounts that were created by them."""
    query = select(Invitation).options(joinedload(Invitation.account)).order_by(Invitation.id)
    with project.reading() as session:
        return list(session.scalars(query))


def enter_by_password(project: Project, name: str, password: str) -> tuple[Person, str]:
    """(account, token of a new session). An outdated password hash is replaced."""
    with project.reading() as session:
        account = session.scalars(select(Account).where(Account.name == name)).first()
    # An unknown name takes as long as a wrong password, so that names cannot be guessed from response times.
    if account is not None and account.password is not None:
        stored = account.password
    else:
        stored = _dummy_hash()
    right = verify_password(password, stored)
    if account is None or account.password is None or not right:
        raise NotAllowedError("wrong name or password")
    rehashed = None
    if stored.startswith(_SCRYPT) or _HASHER.check_needs_rehash(stored):
        rehashed = _HASHER.hash(_encoded(password))
    with project.writing() as session:
        if rehashed is not None:
            # Only the hash that was verified is replaced: the password may have been changed in the meantime.
            is_current = (Account.id == account.id) & (Account.password == stored)
            session.execute(update(Account).where(is_current).values(password=rehashed))
        return start_session(project, session, account.id)


def person_of_session(project: Project, token: str) -> Person | None:
    """The account of a session; None if the token is forged, expired or signed out."""
    query = select(Account).join(SignIn, SignIn.account_id == Account.id)
    query = query.where(SignIn.token_hash == _hash_token(token), SignIn.expires_at > project.now())
    with project.reading() as session:
        account = session.scalars(query).first()
        return None if account is None else Person.of(account)


def leave(project: Project, token: str) -> None:
    """Sign out; expired sessions are deleted, too."""
    with project.writing() as session:
        ended = (SignIn.token_hash == _hash_token(token)) | (SignIn.expires_at <= project.now())
        session.execute(delete(SignIn).where(ended))


def has_password(project: Project, account_id: int) -> bool:
    """Whether an account can be entered by a password; those who came by a link have none until they set one."""
    with project.reading() as session:
        return find_by_id(session, Account, account_id, "account").password is not None


def change_password(project: Project, account_id: int, password: str, *, old: str = "") -> None:
    """Set a password, and sign the account out everywhere.

    Raises NotAllowedError if the account has a password already and ``old`` is not that: whoever finds a browser
    signed in must not be able to take the account over.
    """
    hashed = hash_password(password)
    with project.reading() as session:
        stored = find_by_id(session, Account, account_id, "account").password
    if stored is not None and not verify_password(old, stored):
        raise NotAllowedError("the old password is wrong")
    with project.writing() as session:
        account = find_by_id(session, Account, account_id, "account", lock=True)
        if account.password != stored:
            raise NotAllowedError("the password was changed at the same time elsewhere")
        account.password = hashed
        session.execute(delete(SignIn).where(SignIn.account_id == account_id))
        record(project, session, "password", by=account_id)


@repeated_after_deadlock
def exclude(
    project: Project, account_id: int, because: str, *, by: int | None = None, back: bool = False, action: str = ""
) -> int:
    """Stop counting an annotator's answers (they are kept). Returns the number of tasks put back in the queue.

    ``back`` undoes an exclusion: the answers count again, even beyond the required number. ``action`` names it in the
    audit log.
    """
    with project.writing() as session:
        # Both accounts in the order of their ids, or two leads who exclude each other could deadlock.
        both = select(Account.id).where(Account.id.in_({by or account_id, account_id})).order_by(Account.id)
        session.execute(both.with_for_update(key_share=True))
        permit(session, by, LEADS)
        account = find_by_id(session, Account, account_id, "account")
        if (account.excluded_at is None) == back:
            return 0  # The account is already in the wanted state.
        if back:
            account.excluded_at = None
            account.excluded_because = None
            tasks = _move_places(session, account_id, (SUBMITTED,), places=-1)
        else:
            account.excluded_at = project.now()
            account.excluded_because = because
            tasks = _move_places(session, account_id, (SUBMITTED, LEASED), places=1)
        recount(session, tasks)
        action = action or ("readmit" if back else "exclude")
        record(project, session, action, by=by, account=account_id, because=because, tasks=len(tasks))
        return len(tasks)


def _move_places(session: Session, account_id: int, states: Collection[str], *, places: int) -> list[int]:
    """Add ``places`` to each task that the account has in one of these states; returns the tasks. Leases end."""
    query = select(Assignment).where(Assignment.account_id == account_id, Assignment.state.in_(states))
    # Ordered by task, like everywhere that several are locked, to rule out deadlocks.
    assignments = session.scalars(query.order_by(Assignment.task_id).with_for_update(key_share=True)).all()
    tasks = [assignment.task_id for assignment in assignments]
    session.execute(select(Task.id).where(Task.id.in_(tasks)).order_by(Task.id).with_for_update(key_share=True))
    session.execute(update(Task).where(Task.id.in_(tasks)).values(places_left=Task.places_left + places))
    for assignment in assignments:
        if assignment.state == LEASED:
            assignment.state = EXPIRED
    return tasks


def people(project: Project) -> list[Person]:
    """All accounts in the order in which they were created."""
    with project.reading() as session:
        return [Person.of(account) for account in session.scalars(select(Account).order_by(Account.id))]


def exclusion_reasons(project: Project) -> dict[int, str]:
    """Why accounts are excluded, by account; only those that are."""
    query = select(Account.id, Account.excluded_because).where(Account.excluded_at.is_not(None))
    with project.reading() as session:
        return {account: because or "" for account, because in session.execute(query)}


def account_name(project: Project, account_id: int) -> str:
    """The name of an account; raises WorkshopError if there is none."""
    with project.reading() as session:
        return find_by_id(session, Account, account_id, "account").name


def find_person(project: Project, name: str) -> Person:
    """The account with that name; raises WorkshopError if there is none."""
    with project.reading() as session:
        account = session.scalars(select(Account).where(Account.name == name)).first()
        if account is not None:
            return Person.of(account)
        names = session.scalars(select(Account.name).order_by(Account.name).limit(8)).all()
    raise WorkshopError(f"unknown account {name!r}", expected=f"one of {', '.join(names)}" if names else None)


def find_by_id(session: Session, table: type[R], number: int, what: str, *, lock: bool = False) -> R:
    """A row of the database; an error that names it if there is none."""
    row = session.get(table, number, with_for_update=lock)
    if row is None:
        raise WorkshopError(f"unknown {what} {number}")
    return row


def require(session: Session, account_id: int, roles: Collection[str], *, lock: bool = False) -> Account:
    """The account, if it has one of ``roles``. ``lock`` blocks its other transactions until this one ends."""
    query = select(Account).where(Account.id == account_id)
    if lock:
        query = query.with_for_update(key_share=True)
    account = session.scalars(query).first()
    if account is None or account.role not in roles:
        actual_role = "no such account" if account is None else account.role
        raise NotAllowedError("permission denied", found=actual_role, expected=" or ".join(roles))
    if account.excluded_at is not None:
        raise NotAllowedError("this account is excluded", hint="contact the project lead")
    return account


def permit(session: Session, by: int | None, roles: Collection[str]) -> None:
    """Like ``require`` with a lock; ``by=None`` is the command line, which may do everything."""
    if by is not None:
        require(session, by, roles, lock=True)


def hash_password(password: str) -> str:
    """An Argon2id hash; raises WorkshopError if the password is too short or too long."""
    if len(password) < SHORTEST_PASSWORD:
        raise WorkshopError("password too short", expected=f"at least {SHORTEST_PASSWORD} characters")
    if len(password) > _LONGEST_PASSWORD:
        raise WorkshopError("password too long", expected=f"at most {_LONGEST_PASSWORD:,} characters")
    return _HASHER.hash(_encoded(password))


def verify_password(password: str, stored: str) -> bool:
    """Whether a password has this hash, by Argon2id or by the scrypt of old versions."""
    data = _encoded(password[:_LONGEST_PASSWORD])
    if stored.startswith(_SCRYPT):
        return _verify_scrypt(data, stored)
    try:
        return _HASHER.verify(stored, data)
    except VerifyMismatchError:
        return False


def _verify_scrypt(data: bytes, stored: str) -> bool:
    cost, block, parallel, salt, digest = stored.removeprefix(_SCRYPT).split("$")
    n = 1 << int(cost)
    r = int(block)
    memory = 130 * r * n + (1 << 20)  # scrypt needs 128 r n bytes; the rest is room for its overhead.
    computed = hashlib.scrypt(data, salt=bytes.fromhex(salt), n=n, r=r, p=int(parallel), maxmem=memory, dklen=32)
    return hmac.compare_digest(computed, bytes.fromhex(digest))


def _encoded(text: str) -> bytes:
    """Forms may contain lone surrogates, which plain UTF-8 refuses."""
    return text.encode("utf-8", "surrogatepass")


@cache
def _dummy_hash() -> str:
    """The hash of a password that nobody knows."""
    return _HASHER.hash(secrets.token_urlsafe(24))


def _hash_token(token: str) -> str:
    """Tokens are long and random, so a plain hash is enough."""
    return hashlib.sha256(_encoded(token)).hexdigest()


def _checked_name(name: str) -> str:
    cleaned = " ".join(name.split())
    if not 0 < len(cleaned) <= 80 or not cleaned.isprintable():
        raise WorkshopError("invalid name", found=repr(name[:90]), expected="1 to 80 printable characters")
    return cleaned


def _check_role(role: str) -> None:
    if role not in ROLES:
        raise WorkshopError(f"unknown role {role!r}", expected=", ".join(ROLES))
