"""Who did what, when: one line for everything that changes what a set is made of."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from shiftbench.testsets.database.tables import Account, AuditEntry
from shiftbench.testsets.project import Project

#: Who acts without an account: somebody with the folder in their hands, or a visitor whom a page turned away.
LOCAL_LEAD = "lead at the command line"
VISITOR = "visitor"
#: What a page notes of somebody it turned away.
REFUSED = "refused"


@dataclass(frozen=True)
class AuditLine:
    at: datetime
    who: str
    action: str
    details: dict[str, Any]


def record(project: Project, session: Session, action: str, *, by: int | None = None, **details: Any) -> None:
    """Within the transaction of what is recorded: both happen, or neither."""
    session.add(AuditEntry(at=project.now(), account_id=by, action=action, details=details))


def note(project: Project, action: str, *, by: int | None = None, **details: Any) -> None:
    """A line of its own: for what was refused and so changed nothing."""
    with project.writing() as session:
        record(project, session, action, by=by, **details)


def audit_log(project: Project, *, last: int = 100) -> list[AuditLine]:
    """The newest lines first."""
    with project.reading() as session:
        query = select(AuditEntry, Account.name).outerjoin(Account, AuditEntry.account_id == Account.id)
        found = session.execute(query.order_by(AuditEntry.id.desc()).limit(last))
        return [AuditLine(row.at, name or _nameless(row), row.action, dict(row.details)) for row, name in found]


def _nameless(row: AuditEntry) -> str:
    return VISITOR if row.action == REFUSED else LOCAL_LEAD
