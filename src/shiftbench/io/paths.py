"""Where things lie: a path on this machine or a shared file system, or the URL of a place in an object store."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TypeGuard, cast

from shiftbench.errors import StoreError
from shiftbench.io.objects import SCHEMES, ObjectPath

_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def place(where: str | Path) -> Path:
    """A path, or for ``s3://bucket/folder`` and the like what is used in the same way.

    >>> place("photos/val"), place("s3://bucket/photos") / "val"
    (PosixPath('photos/val'), s3://bucket/photos/val)
    """
    if not isinstance(where, str):
        if isinstance(where, Path) and where.parts[:1] and where.parts[0] in {f"{scheme}:" for scheme in SCHEMES}:
            raise _flattened(where)
        return where
    if not _URL.match(where):
        return Path(where)
    # ObjectPath has those parts of Path's interface that are used on places; to make it a Path for the type checker
    # as well spares a union in every signature between here and the files.
    return cast(Path, ObjectPath.parse(where))


def _flattened(path: Path) -> StoreError:
    return StoreError(
        "a URL was made into a path, which has lost a slash",
        found=str(path),
        hint="give it as text: 's3://bucket/folder'",
    )


def is_object(path: object) -> TypeGuard[ObjectPath]:
    """Whether a place is in an object store: no locks there, no renaming, and every question a request."""
    return isinstance(path, ObjectPath)


def remove_tree(folder: Path) -> None:
    """Remove a folder and all that is in it; what is not there any more is no error."""
    if is_object(folder):
        folder.remove_tree()
    else:
        shutil.rmtree(folder, ignore_errors=True)
