"""People: accounts with a role, personal invitation links, passwords, sessions, exclusion.

Whatever changes a project is done by somebody. ``by`` is their account, whose role is checked where the change is
made, so that no page can forget to. ``by`` None is the local lead: whoever sits at the command line has the folder
and its database in their hands, and the audit log says so.

Links, sessions and passwords are stored as hashes only. A link is a person: whoever opens it the first time
becomes an account, and the same link leads back to that account, so that nobody annotates an image twice by
opening a link again.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from sqlalchemy import delete, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from shiftbench.testsets.audit import record
from shiftbench.testsets.database.tables import (
    EXPIRED,
    LEASED,
    SUBMITTED,
    Account,
    Assignment,
    Invitation,
    SignIn,
    Task,
)
from shiftbench.testsets.errors import NotAllowedError, WorkshopError
from shiftbench.testsets.project import Project

Role = Literal["lead", "annotator", "reviewer"]
ROLES: tuple[Role, ...] = ("lead", "annotator", "reviewer")
#: Who may do what. Whoever leads a project may join in everywhere.
LEADS: tuple[Role, ...] = ("lead",)
REVIEWERS: tuple[Role, ...] = ("reviewer", "lead")
ANNOTATORS: tuple[Role, ...] = ("annotator", "lead")
SESSION_DAYS = 14
INVITATION_DAYS = 30
SHORTEST_PASSWORD = 10
#: scrypt: 2^15 blocks of 1 KiB, three times: about 0.2 s and 32 MiB a guess.
_COST, _BLOCK, _PARALLEL = 15, 8, 3


@dataclass(frozen=True)
class Person:
    """An account as others see it."""

    id: int
    name: str
    role: str
    excluded: bool = False
    excluded_because: str | None = None


@dataclass(frozen=True)
class Link:
    """A new invitation; the only moment when its token is known."""

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
    #: The account that came by it.
    account: str | None


def create_account(
    project: Project, name: str, role: Role, password: str | None = None, *, by: int | None = None
) -> Person:
    """``password`` None: the account can be entered by an invitation link only."""
    _check_role(role)
    hashed = None if password is None else hash_password(password)
    with project.writing() as session:
        permit(session, by, LEADS)
        account = _add_account(project, session, _checked_name(name), role, hashed)
        record(project, session, "account", by=by, account=account.id, role=role)
        return _person(account)


def invite(
    project: Project, role: Role, name: str = "", *, days: float = INVITATION_DAYS, by: int | None = None
) -> Link:
    """A personal link. ``name`` is for whom it is; without one the person is called by role and number."""
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
        return Link(token, invitation.name, role, invitation.expires_at)


def enter_by_link(project: Project, token: str) -> tuple[Person, str]:
    """(who it is, the token of a new session). The first time makes the account."""
    try:
        return _enter_by_link(project, token)
    except IntegrityError:  # another of the same name has just come in; the second try knows
        return _enter_by_link(project, token)


def _enter_by_link(project: Project, token: str) -> tuple[Person, str]:
    with project.writing() as session:
        query = select(Invitation).where(Invitation.token_hash == _hash_token(token)).with_for_update()
        invitation = session.scalars(query).first()
        if invitation is None or invitation.revoked_at is not None or invitation.expires_at <= project.now():
            raise NotAllowedError("this invitation is not valid (any more)", hint="ask who invited you for a new one")
        if invitation.account_id is None:
            name = _free_name(session, invitation)
            account = _add_account(project, session, name, invitation.role, None)
            invitation.account_id = account.id
            record(project, session, "join", by=account.id, invitation=invitation.id)
        account = session.get_one(Account, invitation.account_id)
        return _person(account), _start(project, session, account)


def revoke_invitation(project: Project, invitation: int, *, by: int | None = None) -> None:
    """The link leads nowhere from now on; the account that came by it stays."""
    with project.writing() as session:
        permit(session, by, LEADS)
        row = session.get(Invitation, invitation)
        if row is None:
            raise WorkshopError(f"there is no invitation {invitation}")
        row.revoked_at = row.revoked_at or project.now()
        record(project, session, "revoke", by=by, invitation=invitation)


def invitations(project: Project) -> list[InvitationInfo]:
    """All that were made, in order; never their tokens."""
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
    """(who it is, the token of a new session)."""
    with project.reading() as session:
        account = session.scalars(select(Account).where(Account.name == name)).first()
    # An unknown name takes as long as a wrong password, so that names can't be found out.
    stored = account.password if account is not None and account.password is not None else _nobodys_password()
    right = verify_password(password, stored)
    if account is None or account.password is None or not right:
        raise NotAllowedError("name or password is wrong")
    with project.writing() as session:
        return _person(account), _start(project, session, account)


def person_of_session(project: Project, token: str) -> Person | None:
    """Who is signed in under this token; None for a forged, expired or ended session."""
    with project.reading() as session:
        query = select(Account).join(SignIn, SignIn.account_id == Account.id)
        query = query.where(SignIn.token_hash == _hash_token(token), SignIn.expires_at > project.now())
        account = session.scalars(query).first()
        return None if account is None else _person(account)


def leave(project: Project, token: str) -> None:
    """End a session, and clear away those that are long over."""
    with project.writing() as session:
        ended = (SignIn.token_hash == _hash_token(token)) | (SignIn.expires_at <= project.now())
        session.execute(delete(SignIn).where(ended))


def change_password(project: Project, account_id: int, password: str) -> None:
    """Set it anew; all sessions of the account end."""
    hashed = hash_password(password)
    with project.writing() as session:
        account = _get(session, account_id)
        account.password = hashed
        session.execute(delete(SignIn).where(SignIn.account_id == account_id))
        record(project, session, "password", by=account_id)


def exclude(project: Project, account_id: int, because: str, *, by: int | None = None) -> int:
    """An annotator's answers do not count any more; they are kept. How many tasks went back is returned."""
    return _set_excluded(project, account_id, because, by)


def readmit(project: Project, account_id: int, because: str, *, by: int | None = None) -> int:
    """Take an exclusion back: the answers count again, also beyond the wished number."""
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
    raise WorkshopError(f"there is no account {name!r}", expected=f"one of {', '.join(known)}" if known else None)


def require(session: Session, account_id: int, roles: Collection[str], *, lock: bool = False) -> Account:
    """The account, if it may act in one of ``roles``. ``lock`` holds back its other transactions till this one ends."""
    query = select(Account).where(Account.id == account_id)
    account = session.scalars(query.with_for_update() if lock else query).first()
    if account is None or account.role not in roles:
        raise NotAllowedError(
            "this account may not do that",
            found="no such account" if account is None else f"a {account.role}",
            expected=f"a {' or '.join(roles)}",
        )
    if account.excluded_at is not None:
        raise NotAllowedError("this account has been excluded", hint="ask who leads the project")
    return account


def permit(session: Session, by: int | None, roles: Collection[str]) -> None:
    """Refuse an account that may not act in one of ``roles``; None is the local lead, who may."""
    if by is not None:
        require(session, by, roles)


def hash_password(password: str) -> str:
    """scrypt with a salt of its own, and its costs, in one text."""
    if len(password) < SHORTEST_PASSWORD:
        raise WorkshopError("the password is too short", expected=f"at least {SHORTEST_PASSWORD} characters")
    if len(password) > 1024:
        raise WorkshopError("the password is too long", expected="at most 1,024 characters")
    salt = secrets.token_bytes(16)
    digest = _scrypt(password, salt, _COST, _BLOCK, _PARALLEL)
    return f"scrypt${_COST}${_BLOCK}${_PARALLEL}${salt.hex()}${digest.hex()}"


def verify_password(password: str, stored: str) -> bool:
    _, cost, block, parallel, salt, digest = stored.split("$")
    found = _scrypt(password[:1024], bytes.fromhex(salt), int(cost), int(block), int(parallel))
    return hmac.compare_digest(found, bytes.fromhex(digest))


def _scrypt(password: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    data = password.encode("utf-8", "surrogatepass")
    memory = 130 * block * (1 << cost) + (1 << 20)
    return hashlib.scrypt(data, salt=salt, n=1 << cost, r=block, p=parallel, maxmem=memory, dklen=32)


def _nobodys_password() -> str:
    """What a wrong name is checked against: no password has this hash."""
    return f"scrypt${_COST}${_BLOCK}${_PARALLEL}${'00' * 16}${'00' * 32}"


def _hash_token(token: str) -> str:
    """Tokens are long and random: a plain hash can't be guessed backwards."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _start(project: Project, session: Session, account: Account) -> str:
    token = secrets.token_urlsafe(32)
    now = project.now()
    expires = now + timedelta(days=SESSION_DAYS)
    session.add(SignIn(token_hash=_hash_token(token), account_id=account.id, made_at=now, expires_at=expires))
    return token


def _add_account(project: Project, session: Session, name: str, role: str, password: str | None) -> Account:
    if session.scalars(select(Account.id).where(Account.name == name)).first() is not None:
        raise WorkshopError(f"there is an account {name!r} already")
    account = Account(name=name, role=role, password=password, made_at=project.now())
    session.add(account)
    session.flush()
    return account


def _free_name(session: Session, invitation: Invitation) -> str:
    """The name on the invitation; with the invitation's number if there is none, or somebody else has it."""
    name = invitation.name
    if name and session.scalars(select(Account.id).where(Account.name == name)).first() is None:
        return name
    return f"{name or invitation.role}-{invitation.id}"


def _checked_name(name: str) -> str:
    cleaned = " ".join(name.split())
    if not 0 < len(cleaned) <= 80 or not cleaned.isprintable():
        raise WorkshopError("a name has 1 to 80 printable characters", found=repr(name[:90]))
    return cleaned


def _check_role(role: str) -> None:
    if role not in ROLES:
        raise WorkshopError(f"there is no role {role!r}", expected=", ".join(ROLES))


def _get(session: Session, account_id: int) -> Account:
    account = session.scalars(select(Account).where(Account.id == account_id).with_for_update()).first()
    if account is None:
        raise WorkshopError(f"there is no account {account_id}")
    return account


def _person(account: Account) -> Person:
    return Person(account.id, account.name, account.role, account.excluded_at is not None, account.excluded_because)


def _set_excluded(project: Project, account_id: int, because: str, by: int | None, *, back: bool = False) -> int:
    with project.writing() as session:
        permit(session, by, LEADS)
        account = _get(session, account_id)
        if (account.excluded_at is None) == back:
            return 0  # as wished already
        account.excluded_at = None if back else project.now()
        account.excluded_because = None if back else because
        counted = (SUBMITTED,) if back else (SUBMITTED, LEASED)
        query = select(Assignment).where(Assignment.account_id == account_id, Assignment.state.in_(counted))
        # In the order of tasks, as everybody who changes several: two can't wait for each other.
        held = session.scalars(query.order_by(Assignment.task_id).with_for_update()).all()
        for assignment in held:
            task = session.scalars(select(Task).where(Task.id == assignment.task_id).with_for_update()).one()
            task.places_left += -1 if back else 1
            if assignment.state == LEASED:
                assignment.state = EXPIRED
            session.flush()
        action = "readmit" if back else "exclude"
        record(project, session, action, by=by, account=account_id, because=because, tasks=len(held))
        return len(held)
