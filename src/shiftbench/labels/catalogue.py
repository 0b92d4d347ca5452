"""Look up label spaces by name, or load one from a file; look up classes by name, synonym or the nearest spelling."""

from __future__ import annotations

import csv
import difflib
import io
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from shiftbench.errors import LabelError, argument, listed, raising
from shiftbench.io.atomic import parse_json
from shiftbench.io.schema import parse_toml
from shiftbench.labels.space import LabelSpace
from shiftbench.registry import Registry

T = TypeVar("T")
#: Classes as a JSON or TOML file, or a dictionary in Python, states them: see `_from_mapping`.
_Mapping = Mapping[Any, Any]
#: What a user gives instead of a label space if the classes are the folders of the dataset.
FOLDERS = "folders"
#: Functions that make a label space, so that nothing is read before it is needed.
label_spaces: Registry[Callable[[], LabelSpace]] = Registry(
    "label space",
    builtin=("shiftbench.labels.builtin",),
    elsewhere={"folder": f"did you mean {FOLDERS!r}, the classes of the dataset itself?"},
)


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
    """Make a label space of the fields ``keys`` and, if present, ``name``, ``names`` and ``members``."""
    keys = tuple(map(str, fields["keys"]))
    if not keys or not all(keys):
        raise LabelError(f"the label space {source} has no class, or one without a key")
    members = None
    if fields.get("members") is not None:
        groups = [_stripped_texts(group) for group in fields["members"]]
        members = _members(source, keys, groups)
    names = tuple(map(str, fields.get("names") or ()))
    return LabelSpace(name or str(fields.get("name") or source.stem), keys, names, members)


def _stripped_texts(values: Iterable[Any]) -> list[str]:
    return [str(value).strip() for value in values]


def _members(path: Path, keys: Sequence[str], groups: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """The members of each class as keys of ImageNet's space, or as they are if no member is one of its classes."""
    empty = [key for key, group in zip(keys, groups, strict=True) if not group]
    if empty:
        raise LabelError(
            f"{len(empty)} of {len(keys)} classes of {path} have no members",
            found=listed(empty),
            expected="for each class one or several classes of the model",
            hint="fill them in, or remove these classes from the file and the data",
        )
    space = label_space("imagenet-1k")
    classes = {member: _imagenet_classes(member, space) for member in chain.from_iterable(groups)}
    unclear = [member for member, indices in classes.items() if len(indices) != 1]
    if len(unclear) == len(classes):
        return tuple(map(tuple, groups))
    if unclear:
        first = unclear[0]
        candidates = [space.keys[i] for i in classes[first]]
        if not candidates:
            candidates = nearest_names(first, space)
        hint = None
        if candidates:
            hint = f"for {first!r}: {' or '.join(candidates)}"
        raise LabelError(
            f"{len(unclear)} members in {path} are not classes of 'imagenet-1k', or several",
            found=listed(unclear),
            expected="wnids, indices or names",
            hint=hint,
        )
    member_keys = {member: space.keys[indices[0]] for member, indices in classes.items()}
    members = []
    for group in groups:
        members.append(tuple(member_keys[member] for member in group))
    return tuple(members)


def _imagenet_classes(member: str, space: LabelSpace) -> list[int]:
    """The indices of the ImageNet classes that a member may mean: an index, a wnid, a name or a synonym."""
    if member.isdecimal() and int(member) < len(space):
        return [int(member)]
    return classes_named(member, space)


def _from_csv(text: str, path: Path) -> Mapping[str, object]:
    """The classes of a table, in the order of its column ``index`` if that holds numbers, else of its lines."""
    reader = csv.DictReader(io.StringIO(text, None))
    columns: Sequence[str] = list(reader.fieldnames or ())
    if len(columns) != len(set(columns)):
        raise LabelError(f"several columns of {path} have one name", found=f"columns {', '.join(columns)}")
    rows = list(reader)
    key = _key_column(columns, path)
    if "index" in columns:
        indices = [(row["index"] or "").strip() for row in rows]
        if all(map(str.isdecimal, indices)):
            rows = _in_order(zip(map(int, indices), rows, strict=True), path)
    fields: dict[str, object] = {"keys": [(row[key] or "").strip() for row in rows]}
    if "name" in columns:
        # A class without a name in its cell is called by its key.
        fields["names"] = [(row["name"] or row[key]).strip() for row in rows]
    if "members" in columns:
        fields["members"] = [_split_members(row["members"]) for row in rows]
    return fields


def _split_members(text: str | None) -> list[str]:
    """The members in a cell; none if it is empty, or if the line has too few cells."""
    if not text:
        return []
    return [member for member in text.split("|") if member]


def _key_column(columns: Sequence[str], path: Path) -> str:
    for column in ("key", "wnid", "class"):
        if column in columns:
            return column
    raise LabelError(
        f"{path} has no column of classes",
        found=f"columns {', '.join(map(str, columns)) or 'none'}",
        expected="a column 'key'",
    )


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
    return _from_mapping(parse_toml(text, path, LabelError), path)


def _from_mapping(value: _Mapping, source: object) -> Mapping[str, object]:
    """The fields of a label space that a mapping states.

    It may be from index to class, from class to index (as ``class_to_idx`` of torchvision), or from class to members.
    """
    if all(str(key).isdecimal() for key in value):
        entries = _in_order(((int(key), entry) for key, entry in value.items()), source)
        if all(isinstance(entry, list) and len(entry) == 2 for entry in entries):
            # Both key and name are given: {"0": ["n01440764", "tench"], ...}
            return {"keys": [key for key, _ in entries], "names": [name for _, name in entries]}
        return {"keys": entries}
    if all(type(index) is int for index in value.values()) and set(value.values()) == set(range(len(value))):
        return {"keys": _in_order(((index, key) for key, index in value.items()), source)}
    members = []
    for group in value.values():
        if isinstance(group, list | tuple):
            members.append(list(group))
        else:
            # A class with a single member need not be written as a list.
            members.append([group])
    return {"keys": list(value), "members": members}


def _in_order(entries: Iterable[tuple[int, T]], source: object) -> list[T]:
    """Sort entries by their index, which counts, not the order of the file; every index must occur once."""
    ordered = sorted(entries, key=lambda entry: entry[0])
    if [index for index, _ in ordered] != list(range(len(ordered))):
        raise LabelError(f"{source} skips or repeats an index", expected=f"0 to {len(ordered) - 1}")
    return [entry for _, entry in ordered]


def _from_txt(text: str, path: Path) -> Mapping[str, object]:
    # Only line feeds end a line: splitlines() would also split at characters that names may have.
    lines = [line.strip() for line in text.split("\n")]
    return {"keys": [line for line in lines if line]}


_READERS: dict[str, Callable[[str, Path], Mapping[str, Any]]] = {
    ".txt": _from_txt,
    ".csv": _from_csv,
    ".json": _from_json,
    ".toml": _from_toml,
}


#: What a user may give for ``labels``: a registered name, "folders", a file, the classes in order, a mapping as in
#: a file, or a space.
LabelsArgument = str | Path | Sequence[str] | _Mapping | LabelSpace | None


def find_label_space(labels: LabelsArgument) -> LabelSpace | str | None:
    """Find a label space by its name, or make it of a file of classes or of their names in order.

    "folders" is returned as it is: the dataset defines the classes.
    """
    if labels is None or isinstance(labels, LabelSpace):
        return labels
    if isinstance(labels, Set):
        raise LabelError("labels have no defined order", found=type(labels).__name__, expected="a list, in order")
    if isinstance(labels, Mapping):
        source = Path("own classes")
        return _label_space(_from_mapping(labels, source), source)
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
    """Reduce a name to what distinguishes class names: no case, spaces, underscores, hyphens or apostrophes.

    The point in a number stays, since 1.0 is not 10.
    """
    return re.sub(r"(?<!\d)\.|\.(?!\d)|[^\w.]|_", "", unicodedata.normalize("NFC", name)).casefold()


@lru_cache(maxsize=16)
def classes_by_name(space: LabelSpace) -> dict[str, list[int]]:
    """Each plain name with the classes it may mean; "crane (bird)" is also found under "crane".

    Synonyms of ImageNet's classes count where no class has the name itself.
    """
    from shiftbench.labels.builtin import imagenet_synonyms

    by_name: dict[str, list[int]] = {}
    for i, (key, name) in enumerate(zip(space.keys, space.names, strict=True)):
        for plain_name in {plain(key), plain(name), plain(name.split("(")[0])}:
            by_name.setdefault(plain_name, []).append(i)
    by_synonym: dict[str, list[int]] = {}
    for i, key in enumerate(space.keys):
        for plain_name in {plain(synonym) for synonym in imagenet_synonyms().get(key, ())}:
            if plain_name not in by_name:
                by_synonym.setdefault(plain_name, []).append(i)
    return by_synonym | by_name


def classes_named(name: str, space: LabelSpace) -> list[int]:
    """The classes that a name may mean, none if it is unknown.

    "tench, Tinca tinca" is how full ImageNet synsets are often written: the first name counts. Tables with gaps write
    the class 1 as "1.0".
    """
    classes = classes_by_name(space)
    whole_number = re.sub(r"^(\d+)\.0+$", r"\1", name)
    for spelling in (name, name.split(",")[0], whole_number):
        if plain(spelling) in classes:
            return classes[plain(spelling)]
    return []


def similarly_spelt(name: str, space: LabelSpace, most: int = 3) -> list[str]:
    """Names of classes of which this may be a misspelling; none for names too short to tell.

    >>> similarly_spelt("teapod", label_space("imagenet-1k")), similarly_spelt("blue", label_space("imagenet-1k"))
    (['teapot'], [])
    """
    plain_name = plain(name)
    if len(plain_name) < 4:
        return []
    classes = classes_by_name(space)
    names: list[str] = []
    for candidate in difflib.get_close_matches(plain_name, classes, n=most, cutoff=0.75):
        names += [space.names[i] for i in classes[candidate]]
    # A dictionary keeps the order of its keys, without repetitions.
    return list(dict.fromkeys(names))[:most]


def nearest_names(name: str, space: LabelSpace, most: int = 3) -> list[str]:
    """Names of classes that are spelt similarly, or have the name among their words, to choose from.

    Words of synonyms do not count: a coho is also called blue jack, but nobody means it by "blue".
    """
    names = similarly_spelt(name, space, most)
    words = _words(name)
    if max(map(len, words), default=0) >= 4:
        names += [class_name for class_name in space.names if words <= _words(class_name)]
    return list(dict.fromkeys(names))[:most]


def _words(name: str) -> set[str]:
    return set(re.findall(r"[^\W_]+", name.casefold()))


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
    proposals = [_proposal(name, space) for name in own]
    # A group is without the classes that are classes of the user's own: `dog` beside `golden retriever`.
    exact = {proposal.members[0] for proposal in proposals if proposal.why in ("name", "synonym")}
    for i, proposal in enumerate(proposals):
        if proposal.why == "group":
            members = tuple(key for key in proposal.members if key not in exact)
            proposals[i] = replace(proposal, members=members, candidates=_names_of(members, space))
    return proposals


def _proposal(own: str, space: LabelSpace) -> Proposal:
    """The proposal for one of the user's classes, without regard to the others."""
    classes = classes_named(own, space)
    names = tuple(space.names[i] for i in classes)
    if len(classes) == 1:
        key = space.keys[classes[0]]
        is_name = plain(own) in (plain(names[0]), plain(key))
        return Proposal(own, (key,), "name" if is_name else "synonym", names)
    if classes:
        return Proposal(own, (), "ambiguous", names)
    members = _grouped_members(own, space)
    if members:
        return Proposal(own, members, "group", _names_of(members, space))
    similar = tuple(nearest_names(own, space))
    return Proposal(own, (), "similar" if similar else "", similar)


def _grouped_members(class_name: str, space: LabelSpace) -> tuple[str, ...]:
    """The classes of ``space`` that another dataset groups under this name; none if no dataset has it."""
    for name in _GROUPS:
        group_space = label_space(name)
        assert group_space.members is not None
        for i in classes_by_name(group_space).get(plain(class_name), []):
            members = tuple(key for key in group_space.members[i] if key in space)
            if members:
                return members
    return ()


def _names_of(keys: Iterable[str], space: LabelSpace) -> tuple[str, ...]:
    return tuple(space.names[space.index(key)] for key in keys)
