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
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Literal, TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import VerifyMismatchError
from sqlalchemy import delete, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from shiftbench.testsets.audit import record
from shiftbench.testsets.database.tables import (
    EXPIRED,
    LEASED,
    SUBMITTED,
    Account,
    Assignment,
    Base,
    Invitation,
    SignIn,
    Task,
)
from shiftbench.testsets.errors import NotAllowedError, WorkshopError
from shiftbench.testsets.frequencies import recount
from shiftbench.testsets.project import Project

R = TypeVar("R", bound=Base)
Role = Literal["lead", "annotator", "reviewer"]
ROLES: tuple[Role, ...] = ("lead", "annotator", "reviewer")
#: Roles that may act as leads, reviewers and annotators. Leads may do everything.
LEADS: tuple[Role, ...] = ("lead",)
REVIEWERS: tuple[Role, ...] = ("reviewer", "lead")
ANNOTATORS: tuple[Role, ...] = ("annotator", "lead")
SESSION_DAYS = 14
INVITATION_DAYS = 30
SHORTEST_PASSWORD = 10
_LONGEST_PASSWORD = 1024
#: Argon2id with the library's recommended costs (RFC 9106).
_HASHER = PasswordHasher()
#: Hashes of versions before 0.2: "scrypt$cost$block$parallel$salt$digest".
_SCRYPT = "scrypt$"


@dataclass(frozen=True)
class Person:
    """The public part of an account."""

    id: int
    name: str
    role: str
    excluded: bool = False
    excluded_because: str | None = None


@dataclass(frozen=True)
class InvitationLink:
    """A new invitation. Its token is not stored and cannot be shown again."""

    token: str
    name: str
    role: str
    expires_at: datetime


@dataclass(frozen=True)
class InvitationInfo:
    id: int
    name: str
    role: str
    expires_at: datetime
    valid: bool
    #: Name of the account created with it, if any.
    account: str | None


def create_account(
    project: Project, name: str, role: Role, password: str | None = None, *, by: int | None = None
) -> Person:
    """With ``password=None``, sign-in is possible by invitation link only."""
    _check_role(role)
    hashed = None if password is None else hash_password(password)
    with project.writing() as session:
        permit(session, by, LEADS)
        checked = _checked_name(name)
        if session.scalars(select(Account.id).where(Account.name == checked)).first() is not None:
            raise WorkshopError(f"account {checked!r} already exists")
        account = _add_account(project, session, checked, role, hashed)
        record(project, session, "account", by=by, account=account.id, role=role)
        return _person(account)


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
            token_hash=_hash_token(token), role=role, name=_checked_name(name) if name else "", made_at=now,
            expires_at=now + timedelta(days=days),
        )  # fmt: skip
        session.add(invitation)
        session.flush()
        record(project, session, "invite", by=by, invitation=invitation.id, role=role, name=invitation.name)
        return InvitationLink(token, invitation.name, role, invitation.expires_at)


def enter_by_link(project: Project, token: str) -> tuple[Person, str]:
    """(account, token of a new session). The first use of a link creates the account."""
    try:
        return _enter_by_link(project, token)
    except IntegrityError:  # somebody else has just taken the name; the retry sees that
        return _enter_by_link(project, token)


def _enter_by_link(project: Project, token: str) -> tuple[Person, str]:
    with project.writing() as session:
        query = select(Invitation).where(Invitation.token_hash == _hash_token(token)).with_for_update()
        invitation = session.scalars(query).first()
        if invitation is None or invitation.revoked_at is not None or invitation.expires_at <= project.now():
            raise NotAllowedError("invalid or expired invitation", hint="ask for a new one")
        if invitation.account_id is None:
            name = _free_name(session, invitation)
            account = _add_account(project, session, name, invitation.role, None)
            invitation.account_id = account.id
            record(project, session, "join", by=account.id, invitation=invitation.id)
        account = session.get_one(Account, invitation.account_id)
        return _person(account), _start(project, session, account)


def find_or_create(project: Project, session: Session, name: str, role: Role) -> Account:
    """The account of that name, which is added if it is new."""
    checked = _checked_name(name)
    found = session.scalars(select(Account).where(Account.name == checked)).first()
    return found or _add_account(project, session, checked, role, None)


def start_session(project: Project, session: Session, account_id: int) -> tuple[Person, str]:
    account = session.get_one(Account, account_id)
    return _person(account), _start(project, session, account)


def revoke_invitation(project: Project, invitation: int, *, by: int | None = None) -> None:
    """Invalidate the link; the account created with it stays."""
    with project.writing() as session:
        permit(session, by, LEADS)
        row = find_by_id(session, Invitation, invitation, "invitation")
        row.revoked_at = row.revoked_at or project.now()
        record(project, session, "revoke", by=by, invitation=invitation)


def invitations(project: Project) -> list[InvitationInfo]:
    """All invitations in order of creation, without their tokens."""
    with project.reading() as session:
        query = select(Invitation, Account.name).outerjoin(Account, Account.id == Invitation.account_id)
        now = project.now()
        return [
            InvitationInfo(
                row.id, row.name, row.role, row.expires_at, row.revoked_at is None and row.expires_at > now, account
            )
            for row, account in session.execute(query.order_by(Invitation.id))
        ]


def enter_by_password(project: Project, name: str, password: str) -> tuple[Person, str]:
    """(account, token of a new session). An outdated password hash is replaced."""
    with project.reading() as session:
        account = session.scalars(select(Account).where(Account.name == name)).first()
    # An unknown name takes as long as a wrong password, so that names cannot be guessed from response times.
    stored = account.password if account is not None and account.password is not None else _dummy_hash()
    right = verify_password(password, stored)
    if account is None or account.password is None or not right:
        raise NotAllowedError("wrong name or password")
    rehashed = _hash(password) if _is_outdated(stored) else None
    with project.writing() as session:
        if rehashed is not None:  # unless the password has just been changed
            current = (Account.id == account.id) & (Account.password == stored)
            session.execute(update(Account).where(current).values(password=rehashed))
        return _person(account), _start(project, session, account)


def person_of_session(project: Project, token: str) -> Person | None:
    """The account of a session; None if the token is forged, expired or signed out."""
    with project.reading() as session:
        query = select(Account).join(SignIn, SignIn.account_id == Account.id)
        query = query.where(SignIn.token_hash == _hash_token(token), SignIn.expires_at > project.now())
        account = session.scalars(query).first()
        return None if account is None else _person(account)


def leave(project: Project, token: str) -> None:
    """End a session, and delete expired ones."""
    with project.writing() as session:
        ended = (SignIn.token_hash == _hash_token(token)) | (SignIn.expires_at <= project.now())
        session.execute(delete(SignIn).where(ended))


def change_password(project: Project, account_id: int, password: str) -> None:
    """Set a new password and end all sessions of the account."""
    hashed = hash_password(password)
    with project.writing() as session:
        account = find_by_id(session, Account, account_id, "account", lock=True)
        account.password = hashed
        session.execute(delete(SignIn).where(SignIn.account_id == account_id))
        record(project, session, "password", by=account_id)


def exclude(project: Project, account_id: int, because: str, *, by: int | None = None) -> int:
    """Stop counting an annotator's answers (they are kept). Returns the number of tasks put back in the queue."""
    return _set_excluded(project, account_id, because, by)


def readmit(project: Project, account_id: int, because: str, *, by: int | None = None) -> int:
    """Undo an exclusion: the answers count again, even beyond the required number."""
    return _set_excluded(project, account_id, because, by, back=True)


def people(project: Project) -> list[Person]:
    with project.reading() as session:
        return [_person(account) for account in session.scalars(select(Account).order_by(Account.id))]


def find_person(project: Project, name: str) -> Person:
    with project.reading() as session:
        account = session.scalars(select(Account).where(Account.name == name)).first()
        if account is not None:
            return _person(account)
        known = session.scalars(select(Account.name).order_by(Account.name).limit(8)).all()
    raise WorkshopError(f"unknown account {name!r}", expected=f"one of {', '.join(known)}" if known else None)


def name_of(project: Project, account_id: int) -> str:
    with project.reading() as session:
        return find_by_id(session, Account, account_id, "account").name


def find_by_id(session: Session, table: type[R], number: int, what: str, *, lock: bool = False) -> R:
    """A row of the database; an error that names it if there is none."""
    row = session.get(table, number, with_for_update=lock)
    if row is None:
        raise WorkshopError(f"unknown {what} {number}")
    return row


def require(session: Session, account_id: int, roles: Collection[str], *, lock: bool = False) -> Account:
    """The account, if it has one of ``roles``. ``lock`` blocks its other transactions until this one ends."""
    query = select(Account).where(Account.id == account_id)
    account = session.scalars(query.with_for_update() if lock else query).first()
    if account is None or account.role not in roles:
        raise NotAllowedError(
            "permission denied",
            found="no such account" if account is None else account.role,
            expected=" or ".join(roles),
        )
    if account.excluded_at is not None:
        raise NotAllowedError("this account is excluded", hint="contact the project lead")
    return account


def permit(session: Session, by: int | None, roles: Collection[str]) -> None:
    """Like ``require``; ``by=None`` is the command line, which may do everything."""
    if by is not None:
        require(session, by, roles)


def hash_password(password: str) -> str:
    if len(password) < SHORTEST_PASSWORD:
        raise WorkshopError("password too short", expected=f"at least {SHORTEST_PASSWORD} characters")
    if len(password) > _LONGEST_PASSWORD:
        raise WorkshopError("password too long", expected=f"at most {_LONGEST_PASSWORD:,} characters")
    return _hash(password)


def verify_password(password: str, stored: str) -> bool:
    data = _encoded(password[:_LONGEST_PASSWORD])
    if stored.startswith(_SCRYPT):
        return _verify_scrypt(data, stored)
    try:
        return _HASHER.verify(stored, data)
    except VerifyMismatchError:
        return False


def _hash(password: str) -> str:
    return _HASHER.hash(_encoded(password))


def _encoded(password: str) -> bytes:
    return password.encode("utf-8", "surrogatepass")


def _is_outdated(stored: str) -> bool:
    return stored.startswith(_SCRYPT) or _HASHER.check_needs_rehash(stored)


def _verify_scrypt(data: bytes, stored: str) -> bool:
    cost, block, parallel, salt, digest = stored.removeprefix(_SCRYPT).split("$")
    n, r = 1 << int(cost), int(block)
    memory = 130 * r * n + (1 << 20)
    found = hashlib.scrypt(data, salt=bytes.fromhex(salt), n=n, r=r, p=int(parallel), maxmem=memory, dklen=32)
    return hmac.compare_digest(found, bytes.fromhex(digest))


@cache
def _dummy_hash() -> str:
    """The hash of a password that nobody knows."""
    return _hash(secrets.token_urlsafe(24))


def _hash_token(token: str) -> str:
    """Tokens are long and random, so a plain hash is enough."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _start(project: Project, session: Session, account: Account) -> str:
    token = secrets.token_urlsafe(32)
    now = project.now()
    expires = now + timedelta(days=SESSION_DAYS)
    session.add(SignIn(token_hash=_hash_token(token), account_id=account.id, made_at=now, expires_at=expires))
    return token


def _add_account(project: Project, session: Session, name: str, role: str, password: str | None) -> Account:
    account = Account(name=name, role=role, password=password, made_at=project.now())
    session.add(account)
    session.flush()
    return account


def _free_name(session: Session, invitation: Invitation) -> str:
    """The name on the invitation, with the invitation's number if it is empty or taken."""
    name = invitation.name
    if name and session.scalars(select(Account.id).where(Account.name == name)).first() is None:
        return name
    return f"{name or invitation.role}-{invitation.id}"


def _checked_name(name: str) -> str:
    cleaned = " ".join(name.split())
    if not 0 < len(cleaned) <= 80 or not cleaned.isprintable():
        raise WorkshopError("invalid name", found=repr(name[:90]), expected="1 to 80 printable characters")
    return cleaned


def _check_role(role: str) -> None:
    if role not in ROLES:
        raise WorkshopError(f"unknown role {role!r}", expected=", ".join(ROLES))


def _person(account: Account) -> Person:
    return Person(account.id, account.name, account.role, account.excluded_at is not None, account.excluded_because)


def _set_excluded(project: Project, account_id: int, because: str, by: int | None, *, back: bool = False) -> int:
    with project.writing() as session:
        permit(session, by, LEADS)
        account = find_by_id(session, Account, account_id, "account", lock=True)
        if (account.excluded_at is None) == back:
            return 0  # nothing to do
        account.excluded_at = None if back else project.now()
        account.excluded_because = None if back else because
        counted = (SUBMITTED,) if back else (SUBMITTED, LEASED)
        query = select(Assignment).where(Assignment.account_id == account_id, Assignment.state.in_(counted))
        # Ordered by task, like everywhere that several are locked, to rule out deadlocks.
        held = session.scalars(query.order_by(Assignment.task_id).with_for_update()).all()
        for assignment in held:
            task = session.scalars(select(Task).where(Task.id == assignment.task_id).with_for_update()).one()
            task.places_left += -1 if back else 1
            if assignment.state == LEASED:
                assignment.state = EXPIRED
            session.flush()
        recount(session, [assignment.task_id for assignment in held])
        action = "readmit" if back else "exclude"
        record(project, session, action, by=by, account=account_id, because=because, tasks=len(held))
        return len(held)
