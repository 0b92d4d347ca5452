"""Models and datasets by their name on a hub that speaks the protocol of Hugging Face, through ``huggingface_hub``.

The library's cache, its offline mode (``HF_HUB_OFFLINE``), endpoint (``HF_ENDPOINT``) and token (``HF_TOKEN``) are
respected. Only named kinds of files are fetched, and nothing that is fetched is run.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shiftbench.errors import ShiftbenchError, required

_NAME = re.compile(r"(?P<name>[\w][\w.-]*/[\w][\w.-]*)(?:@(?P<revision>[\w./-]+))?")
_DATASETS = "hf://datasets/"
# The files of a dataset that hold data; no code.
_TABLES = ("*.parquet", "*.arrow", "*.csv", "*.tsv", "*.json", "*.jsonl")
_ARCHIVES = ("*.tar", "*.zip", "*.npy", "*.npz")
_IMAGES = ("*.png", "*.jpg", "*.jpeg", "*.JPEG", "*.webp")
RepositoryKind = Literal["model", "dataset"]


@dataclass(frozen=True)
class HubRepository:
    """The name of a repository on a hub: ``org/name`` or ``org/name@revision``."""

    name: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> HubRepository | None:
        """The repository that a text names; None if it names none."""
        match = _NAME.fullmatch(text)
        if match is None:
            return None
        return cls(match["name"], match["revision"])


@dataclass(frozen=True)
class HubSnapshot:
    """The files of a repository at one commit, in the cache of the library."""

    repository: HubRepository
    commit: str
    folder: Path

    def __str__(self) -> str:
        return f"hf:{self.repository.name}@{self.commit}"


def is_hub_address(text: object) -> bool:
    """Whether a text is the address of a dataset on a hub: ``hf://datasets/org/name[@revision][/folder]``."""
    return isinstance(text, str) and text.startswith(_DATASETS)


def hub_dataset(address: str, error: type[ShiftbenchError]) -> Path:
    """The folder with the data files of a dataset on a hub; its path names the commit."""
    parts = address.removeprefix(_DATASETS).strip("/").split("/")
    repository = HubRepository.parse("/".join(parts[:2]))
    if repository is None:
        raise error("invalid address of a dataset", found=address, expected=f"{_DATASETS}ORG/NAME[@REVISION][/FOLDER]")
    folder = fetch_snapshot(repository, "dataset", (*_TABLES, *_ARCHIVES, *_IMAGES), error).folder
    return folder.joinpath(*parts[2:])


def fetch_snapshot(
    repository: HubRepository, kind: RepositoryKind, patterns: Sequence[str], error: type[ShiftbenchError]
) -> HubSnapshot:
    """Fetch the files of a repository that match one of the patterns; those in the cache are used again.

    Raises an ``error`` if it is not in the cache and cannot be fetched.
    """
    library = required("huggingface_hub", "hf", "a repository on a hub", package="huggingface_hub")
    try:
        with without_vain_retries():
            folder = library.snapshot_download(
                repository.name, repo_type=kind, revision=repository.revision, allow_patterns=list(patterns)
            )
    except Exception as problem:
        lines = str(problem).strip().splitlines() or [""]
        at_revision = f" at the revision {repository.revision!r}" if repository.revision else ""
        raise error(
            f"the {kind} {repository.name}{at_revision} cannot be fetched",
            found=f"{type(problem).__name__}: {lines[0][:200]}",
            expected="a repository in the cache of huggingface_hub, or a network connection; private ones need a token "
            "in the environment variable HF_TOKEN",
        ) from problem
    # The library keeps each commit in a folder of its name.
    return HubSnapshot(repository, Path(folder).name, Path(folder))


@contextlib.contextmanager
def without_vain_retries() -> Iterator[None]:
    """Use only the cache while there is no network: the hub would retry a dozen times, for most of a minute."""
    try:
        from huggingface_hub import constants
    except ImportError:
        yield
        return
    was_offline = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = was_offline or not _is_reachable(constants.ENDPOINT)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = was_offline


def _is_reachable(url: str) -> bool:
    """Whether the host's name can be resolved; a proxy would resolve it, and is taken to reach every host."""
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return True
    parts = urllib.parse.urlsplit(url)
    try:
        socket.getaddrinfo(parts.hostname, parts.port or 443)
    except OSError:
        return False
    return True
