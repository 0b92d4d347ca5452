"""Digests of values and of files."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path


def digest(*parts: object) -> str:
    """16 hex digits over the parts, in order; anything that JSON can write, or bytes."""
    state = hashlib.blake2b(digest_size=8)
    for value in parts:
        data = value if isinstance(value, bytes) else json.dumps(value, sort_keys=True).encode()
        # The length comes first, so that the same bytes split in another way have another digest.
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


def seeded_rank(*parts: object) -> bytes:
    """A sort key: a random order that depends on the parts alone, such as a seed and an image's id."""
    text = "/".join(map(str, parts))
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).digest()


def file_digest(path: str | Path, *, size: int | None = None) -> str:
    """A digest of a file, or of all files below a folder with their relative names.

    Args:
        path: The file or folder.
        size: Of a file, the number of bytes from its beginning; default: all.
    """
    path = Path(path)
    if path.is_dir():
        names_and_digests: list[str] = []
        for file in sorted(file for file in path.rglob("*") if file.is_file()):
            names_and_digests += [file.relative_to(path).as_posix(), file_digest(file)]
        return digest(*names_and_digests)
    state = hashlib.blake2b(digest_size=16)
    remaining = path.stat().st_size if size is None else size
    with path.open("rb") as stream:
        while chunk := stream.read(min(1 << 20, remaining) if size is not None else 1 << 20):
            state.update(chunk)
            remaining -= len(chunk)
    return state.hexdigest()
