"""The audit log: one entry for everything that affects what a set contains."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from shiftbench.testsets.database.tables import Account, AuditEntry
from shiftbench.testsets.project import Project

#: Shown for entries without an account: the command line, or a visitor whose request was refused.
LOCAL_LEAD = "lead at the command line"
VISITOR = "visitor"
#: Action of refused requests.
REFUSED = "refused"


@dataclass(frozen=True)
class AuditLine:
    at: datetime
    who: str
    action: str
    details: dict[str, Any]


def record(project: Project, session: Session, action: str, *, by: int | None = None, **details: object) -> None:
    """Add an entry within the transaction that it documents: both are committed, or neither."""
    session.add(AuditEntry(at=project.now(), account_id=by, action=action, details=details))


def note(project: Project, action: str, *, by: int | None = None, **details: object) -> None:
    """Add an entry in a transaction of its own, for requests that changed nothing."""
    with project.writing() as session:
        record(project, session, action, by=by, **details)


def audit_log(project: Project, *, last: int = 100) -> list[AuditLine]:
    """The newest entries first."""
    with project.reading() as session:
        query = select(AuditEntry, Account.name).outerjoin(Account, AuditEntry.account_id == Account.id)
        found = session.execute(query.order_by(AuditEntry.id.desc()).limit(last))
        return [AuditLine(row.at, name or _nameless(row), row.action, dict(row.details)) for row, name in found]


def _nameless(row: AuditEntry) -> str:
    return VISITOR if row.action == REFUSED else LOCAL_LEAD
