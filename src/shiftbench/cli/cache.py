"""``shiftbench cache``: what the cache folder holds, and clearing it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from shiftbench.cli.console import confirm_removal, errors, show
from shiftbench.cli.options import Commands, Json
from shiftbench.io.cache import CacheEntry, cache_entries, cache_folder, cache_limit, remove_entry

app = Commands("The cache of unpacked arrays and archives, downloads and converted models: list it, clear it.")
_SECONDS_PER_DAY = 86_400


@app.command("list")
def list_command(json: Json = False) -> None:
    """List what the cache holds, the largest first: size, last use, kind and name.

    Everything in it can be made or fetched again. It is kept below a limit, 100 GB unless the environment variable
    SHIFTBENCH_CACHE_LIMIT states another number of GB: what was not used for the longest time goes first, and what was
    used on the last day stays. SHIFTBENCH_CACHE names another folder.

    \b
    Example:
      shiftbench cache list
    """
    entries = sorted(cache_entries(), key=lambda entry: -entry.bytes)
    lines = [_line(entry) for entry in entries]
    total = sum(entry.bytes for entry in entries)
    lines.append(f"{_size(total)} of at most {_size(cache_limit())} in {cache_folder()}")
    value = {
        "folder": str(cache_folder()),
        "bytes": total,
        "limit": cache_limit(),
        "entries": [_described(entry) for entry in entries],
    }
    show(value, "\n".join(lines), as_json=json)


@app.command("clear")
def clear_command(
    older_than: Annotated[int, {"min": 0}, "Only what was not used for this many days."] = 0,
    yes: Annotated[bool, "-y", "Do not ask."] = False,
    json: Json = False,
) -> None:
    """Remove what the cache holds; it is made or fetched again when it is needed.

    Asks first; without a terminal it needs --yes. Do not clear the cache while a run uses it: with --older-than 1 only
    what no recent run has used is removed.

    \b
    Examples:
      everything
        shiftbench cache clear
      what was not used for a month, in a script
        shiftbench cache clear --older-than 30 --yes
    """
    before = datetime.now(UTC).timestamp() - older_than * _SECONDS_PER_DAY
    entries = [entry for entry in cache_entries() if entry.last_used <= before]
    size = _size(sum(entry.bytes for entry in entries))
    summary = f"{len(entries):,} entries, {size}"
    if entries and not yes:
        for entry in entries:
            errors.print(_line(entry), soft_wrap=True)
        confirm_removal(f"Remove {summary}?")
    for entry in entries:
        remove_entry(entry)
    value = {"removed": [_described(entry) for entry in entries], "bytes": sum(entry.bytes for entry in entries)}
    show(value, f"removed: {summary}", as_json=json)


def _described(entry: CacheEntry) -> dict[str, object]:
    """An entry as values that JSON can write."""
    return {"kind": entry.kind, "name": entry.name, "bytes": entry.bytes, "last_used": _moment(entry)}


def _line(entry: CacheEntry) -> str:
    return f"{_size(entry.bytes):>10}  {_moment(entry)[:10]}  {entry.kind}/{entry.name}"


def _moment(entry: CacheEntry) -> str:
    return datetime.fromtimestamp(entry.last_used, UTC).isoformat(timespec="seconds")


def _size(count: int) -> str:
    """A number of bytes for people."""
    if count < 1_000_000:
        return f"{count / 1e3:,.1f} kB"
    if count < 1_000_000_000:
        return f"{count / 1e6:,.1f} MB"
    return f"{count / 1e9:,.1f} GB"
