"""A store that can't be written or reached: nothing else could be done there either, and what is done is kept."""

from __future__ import annotations

from shiftbench.errors import StoreError


class UnwritableError(StoreError):
    """The disk is full, or closed to us. What was written before is whole."""

    hint_for_people = "make room or give write access, and do the same again: what is done is kept"

    def __init__(self, path: object, why: str = "") -> None:
        # Made anew from its one text when it comes out of another process.
        if isinstance(path, str):
            super().__init__(path)
            return
        super().__init__(self._message(path), found=why, hint=self.hint_for_people)

    def _message(self, path: object) -> str:
        return f"{path} can't be written"


class UnreachableError(UnwritableError):
    """An object store that does not answer, or not to us; no fault of the one file that was asked for."""

    hint_for_people = (
        "look at the address, the bucket and the credentials (docs/workspace.md), and do the same again: "
        "what is done is kept"
    )

    def _message(self, path: object) -> str:
        return f"{path} can't be reached"


class GoneError(UnwritableError):
    """The workspace of a run was deleted or replaced by another while the run went on."""

    hint_for_people = "rerun the same command; it starts in a new workspace"

    def _message(self, path: object) -> str:
        return f"{path} was deleted or replaced while this run used it; nothing more is written there"
