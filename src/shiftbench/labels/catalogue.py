"""Look up label spaces by name, or load one from a file; look up classes by name, synonym or the nearest spelling."""

from __future__ import annotations

import csv
import difflib
import io
import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from shiftbench.errors import LabelError, argument, listed, raising
from shiftbench.grouping import by_key
from shiftbench.io.atomic import parse_json
from shiftbench.labels.space import LabelSpace
from shiftbench.registry import Registry

T = TypeVar("T")
#: As a file of classes or an object states them, see `_from_mapping`.
_Mapping = Mapping[Any, Any]
#: Instead of a label space: the classes are the folders of the dataset.
FOLDERS = "folders"
#: Each entry makes its space when asked for, so that nothing is read before it is needed.
label_spaces: Registry[Callable[[], LabelSpace]] = Registry("label space", builtin=("shiftbench.labels.builtin",))


def label_space(name: str) -> LabelSpace:
    """The label space ``name``; a path that ends in .txt, .csv or .json is loaded from the file.

    Args:
        name: A name (``shiftbench list spaces``), or the path of a .txt, .csv or .json file.

    Example:
        >>> label_space("imagenet-1k").names[285]
        'Egyptian cat'
        >>> len(label_space("imagenet-a-200"))
        200
    """
    if name not in label_spaces and Path(name).suffix.lower() in _READERS:
        return load_label_space(name)
    return label_spaces.get(name)()


def load_label_space(path: str | Path, name: str | None = None) -> LabelSpace:
    """Load a label space of the user's own, one class per entry, in order.

    * ``.txt``: one class per line;
    * ``.csv``: columns ``key`` and optionally ``index``, ``name`` and ``members`` (joined by ``|``);
    * ``.json``: a list of classes, or an object with ``keys`` and optionally ``name``, ``names`` and
      ``members``, or an object from index to class or back: ``{"0": "cat", "1": "dog"}``, ``{"cat": 0, "dog": 1}``;
    * ``.json``, ``.toml``: from each class to its members, such as ``cat = ["tabby", "n02124075", 283]``.

    Members are classes of a model, for data whose classes are not the model's: wnids, indices, names or synonyms of
    ImageNet's, or keys of another space. A class's score is the best of its members' scores. Every class of a file has
    members; `shiftbench data labels` writes a draft.

    Args:
        path: A .txt, .csv or .json file.
        name: Name of the space; default: the file's.
    """
    path = Path(path)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise LabelError(
            f"{path} is not a label space file", found=path.suffix or "no suffix", expected=".txt, .csv, .json or .toml"
        )
    with raising(LabelError, f"the label space {path} can't be read", OSError, UnicodeDecodeError):
        text = path.read_text(encoding="utf-8-sig")
    return _label_space(reader(text, path), path, name)


def _label_space(fields: Mapping[str, Any], source: Path, name: str | None = None) -> LabelSpace:
    keys = tuple(str(key) for key in fields["keys"])
    if not keys or not all(keys):
        raise LabelError(f"the label space {source} has no class, or one without a key")
    members = fields.get("members")
    return LabelSpace(
        name or str(fields.get("name") or source.stem),
        keys,
        tuple(str(n) for n in fields.get("names") or ()),
        None if members is None else _members(source, keys, [[str(m).strip() for m in group] for group in members]),
    )


def _members(path: Path, keys: Sequence[str], groups: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Members as keys of ImageNet's space, or as they are if no member is one of its classes."""
    empty = [key for key, group in zip(keys, groups, strict=True) if not group]
    if empty:
        raise LabelError(
            f"{len(empty)} of {len(keys)} classes of {path} have no members",
            found=listed(empty),
            expected="for each class one or several classes of the model",
            hint="fill them in, or remove these classes from the file and the data",
        )
    space = label_space("imagenet-1k")

    def indices(member: str) -> list[int]:
        if member.isdecimal() and int(member) < len(space):
            return [int(member)]
        return classes_named(member, space)

    found = {member: indices(member) for group in groups for member in group}
    wrong = [member for member, classes in found.items() if len(classes) != 1]
    if len(wrong) == len(found):
        return tuple(map(tuple, groups))
    if wrong:
        near = [space.keys[i] for i in found[wrong[0]]] or nearest_names(wrong[0], space)
        raise LabelError(
            f"{len(wrong)} members in {path} are not classes of 'imagenet-1k', or several",
            found=listed(wrong),
            expected="wnids, indices or names",
            hint=f"for {wrong[0]!r}: {' or '.join(near)}" if near else None,
        )
    return tuple(tuple(space.keys[found[member][0]] for member in group) for group in groups)


def _from_csv(text: str, path: Path) -> Mapping[str, object]:
    reader = csv.DictReader(io.StringIO(text, None))
    columns: Sequence[str] = list(reader.fieldnames or ())
    if len(columns) != len(set(columns)):
        raise LabelError(f"several columns of {path} have one name", found=f"columns {', '.join(columns)}")
    rows = list(reader)
    key = next((c for c in ("key", "wnid", "class") if c in columns), None)
    if key is None:
        found = f"columns {', '.join(map(str, columns)) or 'none'}"
        raise LabelError(f"{path} has no column of classes", found=found, expected="a column 'key'")
    indices = [(row.get("index") or "").strip() for row in rows]
    if "index" in columns and all(map(str.isdecimal, indices)):
        rows = _in_order(zip(map(int, indices), rows, strict=True), path)
    fields: dict[str, object] = {"keys": [(row[key] or "").strip() for row in rows]}
    if "name" in columns:
        fields["names"] = [(row["name"] or row[key]).strip() for row in rows]
    if "members" in columns:
        fields["members"] = [[m for m in (row["members"] or "").split("|") if m] for row in rows]
    return fields


def _from_json(text: str, path: Path) -> Mapping[str, object]:
    with raising(LabelError, f"{path} is not JSON", ValueError):
        value = parse_json(text)
    if isinstance(value, list):
        return {"keys": value}
    if isinstance(value, dict) and isinstance(value.get("keys"), list):
        return value
    if isinstance(value, dict):
        return _from_mapping(value, path)
    raise LabelError(f"{path} is not a label space", expected="a list of classes, or an object with 'keys'")


def _from_toml(text: str, path: Path) -> Mapping[str, object]:
    with raising(LabelError, f"{path} is not TOML", tomllib.TOMLDecodeError):
        return _from_mapping(tomllib.loads(text), path)


def _from_mapping(value: _Mapping, source: object) -> Mapping[str, object]:
    """From index to class, from class to index (``class_to_idx`` of torchvision), or from class to its members."""
    if all(str(key).isdecimal() for key in value):
        entries = _in_order(((int(key), entry) for key, entry in value.items()), source)
        if all(isinstance(e, list) and len(e) == 2 for e in entries):  # {"0": ["n01440764", "tench"], ...}
            return {"keys": [e[0] for e in entries], "names": [e[1] for e in entries]}
        return {"keys": entries}
    if all(type(index) is int for index in value.values()) and set(value.values()) == set(range(len(value))):
        return {"keys": _in_order(((index, key) for key, index in value.items()), source)}
    members = [list(group) if isinstance(group, list | tuple) else [group] for group in value.values()]
    return {"keys": list(value), "members": members}


def _in_order(entries: Iterable[tuple[int, T]], source: object) -> list[T]:
    """Entries by index: the numbers count, not the order of the file."""
    ordered = sorted(entries, key=lambda entry: entry[0])
    if [index for index, _ in ordered] != list(range(len(ordered))):
        raise LabelError(f"{source} skips or repeats an index", expected=f"0 to {len(ordered) - 1}")
    return [entry for _, entry in ordered]


_READERS: dict[str, Callable[[str, Path], Mapping[str, Any]]] = {
    ".txt": lambda text, path: {"keys": [line.strip() for line in text.split("\n") if line.strip()]},
    ".csv": _from_csv,
    ".json": _from_json,
    ".toml": _from_toml,
}


#: What a user may give for ``labels``: a registered name, "folders", a file, the classes in order, a mapping as in
#: a file, or a space.
LabelsArgument = str | Path | Sequence[str] | _Mapping | LabelSpace | None


def find_label_space(labels: LabelsArgument) -> LabelSpace | str | None:
    """By name, from a file of classes, or from their names in order; "folders" is kept: the dataset defines them."""
    if labels is None or isinstance(labels, LabelSpace):
        return labels
    if isinstance(labels, Set):
        raise LabelError("labels have no defined order", found=type(labels).__name__, expected="a list, in order")
    if isinstance(labels, Mapping):
        own = Path("own classes")
        return _label_space(_from_mapping(labels, own), own)
    if not isinstance(labels, str | Path):
        return LabelSpace("own classes", tuple(map(str, labels)))
    if labels == FOLDERS:
        return FOLDERS
    if Path(labels).is_file():
        return load_label_space(Path(labels))
    if "," in str(labels) or Path(labels).suffix:
        raise LabelError(
            f"no file {str(labels)!r}",
            expected="a name from `shiftbench list spaces`, or a file with one class per line, in the model's order",
            hint=f"{argument('labels', FOLDERS)} takes the classes of the dataset",
        )
    return label_space(str(labels))


#: Groups of ImageNet classes that other datasets have made, the most careful first.
_GROUPS = ("objectnet-113", "vid-robust-30", "ytbb-robust-24", "imagenet-22k-25")


def plain(name: str) -> str:
    """A name without what does not distinguish class names: case, spaces, underscores, hyphens, apostrophes."""
    return re.sub(r"[^\w]|_", "", unicodedata.normalize("NFC", name)).casefold()


@lru_cache(maxsize=16)
def classes_by_name(space: LabelSpace) -> dict[str, list[int]]:
    """Each plain name with the classes it may mean; "crane (bird)" is also found under "crane".

    Synonyms of ImageNet's classes count where no class has the name itself.
    """
    named = enumerate(zip(space.keys, space.names, strict=True))
    found = by_key((one, i) for i, (key, name) in named for one in {plain(key), plain(name), plain(name.split("(")[0])})
    from shiftbench.labels.builtin import imagenet_synonyms

    synonyms = [{plain(name) for name in imagenet_synonyms().get(key, ())} for key in space.keys]
    return by_key((one, i) for i, own in enumerate(synonyms) for one in own - found.keys()) | found


def classes_named(name: str, space: LabelSpace) -> list[int]:
    """The classes that a name may mean, none if it is unknown.

    "tench, Tinca tinca" is how full ImageNet synsets are often written: the first name counts.
    """
    known = classes_by_name(space)
    return known.get(plain(name)) or known.get(plain(name.split(",")[0])) or []


def nearest_names(name: str, space: LabelSpace, most: int = 3) -> list[str]:
    """Names of classes that are spelt similarly, or contain the name; none for names too short to tell."""
    wanted, known = plain(name), classes_by_name(space)
    if len(wanted) < 4:
        return []
    close = difflib.get_close_matches(wanted, known, n=most, cutoff=0.75)
    close += [one for one in known if wanted in one]
    found = dict.fromkeys(space.names[i] for one in close for i in known[one])
    return list(found)[:most]


@dataclass(frozen=True)
class Proposal:
    """The classes of a space that one of the user's own classes may be.

    Attributes:
        own: The user's class.
        members: Keys of the proposed classes; empty if none is certain enough to be used unseen.
        why: "name" or "synonym" (exact), "group" (classes that another dataset groups under that name), "ambiguous"
            or "similar" (to be decided by the user), or "" (nothing found).
        candidates: Names of the members, or of what the user may choose from.
    """

    own: str
    members: tuple[str, ...]
    why: str
    candidates: tuple[str, ...]


def propose_members(own: Iterable[str], space: LabelSpace) -> list[Proposal]:
    """For each of the user's classes the classes of ``space`` that it may be.

    Args:
        own: Names of the user's classes, such as folders.
        space: The classes of the model.

    Returns:
        One proposal per class, in order.
    """
    found = [_proposal(name, space) for name in own]
    # A group is without the classes that are classes of the user's own: `dog` beside `golden retriever`.
    exact = {one.members[0] for one in found if one.why in ("name", "synonym")}
    for i, one in enumerate(found):
        if one.why == "group":
            members = tuple(key for key in one.members if key not in exact)
            names = tuple(space.names[space.index(key)] for key in members)
            found[i] = replace(one, members=members, candidates=names)
    return found


def _proposal(own: str, space: LabelSpace) -> Proposal:
    found = classes_named(own, space)
    names = tuple(space.names[i] for i in found)
    if len(found) == 1:
        exact = plain(own) in (plain(names[0]), plain(space.keys[found[0]]))
        return Proposal(own, (space.keys[found[0]],), "name" if exact else "synonym", names)
    if found:
        return Proposal(own, (), "ambiguous", names)
    for groups in map(label_space, _GROUPS):
        for i in classes_by_name(groups).get(plain(own), []):
            if members := tuple(key for key in (groups.members or ())[i] if key in space):
                return Proposal(own, members, "group", tuple(space.names[space.index(key)] for key in members))
    near = tuple(nearest_names(own, space))
    return Proposal(own, (), "similar" if near else "", near)
