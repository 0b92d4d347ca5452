"""What decides a result: the typed record behind its key, and the JSON that it is stored as.

The key of a result is the hash of its spec as canonical JSON. So the JSON of a stored spec never changes: keys that
this version does not know are kept, and keys that an older version did not write are not added.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec

from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS, EXTRA_CORRUPTIONS
from shiftbench.settings.base import DesignPart, Member, Setting, SettingMean

if TYPE_CHECKING:
    from shiftbench.datasets.geometry import Geometry

T = TypeVar("T")
Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
JsonObject = Mapping[str, Json]


def canonical_json(value: object) -> str:
    """JSON with sorted keys and no spaces: equal values have equal texts, and so equal hashes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def spec_key(text: str) -> str:
    """The name of a result's file: the hash of its spec as canonical JSON."""
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


@dataclass(frozen=True, eq=False)
class _Part:
    """A JSON object within a spec; its subclasses name the entries that code relies on."""

    values: JsonObject = field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        """As stored: JSON does not tell tuples from lists."""
        return type(other) is type(self) and canonical_json(other.values) == canonical_json(self.values)

    def __hash__(self) -> int:
        return hash(canonical_json(self.values))

    def _text(self, key: str) -> str:
        return str(self.values.get(key, ""))

    def _maybe_text(self, key: str) -> str | None:
        value = self.values.get(key)
        return None if value is None else str(value)

    def _number(self, key: str) -> float | None:
        value = self.values.get(key)
        return float(value) if isinstance(value, int | float) else None

    def _object(self, key: str) -> JsonObject:
        value = self.values.get(key)
        return value if isinstance(value, Mapping) else {}


class _Entry(Generic[T]):
    """A descriptor: the entry of a ``_Part`` under the attribute's name, read by one of the methods of ``_Part``."""

    def __init__(self, read: Callable[[_Part, str], T]) -> None:
        self._read = read

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, part: _Part, owner: type | None = None) -> T:
        return self._read(part, self._name)


class DatasetRef(_Part):
    """The images that were used: the name of a dataset and the hash of its content."""

    name = _Entry(_Part._text)
    fingerprint = _Entry(_Part._text)


def _short_hash(values: JsonObject) -> str:
    return hashlib.blake2b(canonical_json(values).encode(), digest_size=4).hexdigest()


class ClassifierRecord(_Part):
    """The model, its weights and its preprocessing: ``Classifier.describe()``."""

    fingerprint = _Entry(_Part._text)
    labels = _Entry(_Part._text)
    outputs = _Entry(_Part._text)
    engine = _Entry(_Part._text)
    #: "one image at a time" for a model that mixes the images of a batch; else empty.
    batch = _Entry(_Part._text)

    @property
    def decisive(self) -> JsonObject:
        """The entries that decide the scores.

        The classes and their order do; the name of their label space does not. Records of version 0.1 state the
        classes by that name alone, so it has to count there.
        """
        if "classes" in self.values or self.recorded:
            return {key: value for key, value in self.values.items() if key != "labels"}
        return self.values

    @cached_property
    def version(self) -> str:
        """A hash of everything that decides the scores: the second half of the id ``name@hash``."""
        return _short_hash(self.decisive)

    @cached_property
    def former_version(self) -> str:
        """The hash in ids of versions up to 0.2, whose files refer to a model by it.

        It also covered the name of the label space.
        """
        return _short_hash(self.values)

    @property
    def recorded(self) -> bool:
        """Whether only its predictions are known, which were made elsewhere."""
        return self.engine == "recorded"

    @property
    def geometry(self) -> GeometryRecord:
        return GeometryRecord(_Part(self._object("preprocessing"))._object("geometry"))

    @property
    def normalisation(self) -> JsonObject:
        return _Part(self._object("preprocessing"))._object("normalisation")

    @property
    def batch_size(self) -> int | None:
        """The batch size of a stateful model, which saw the images in an order shuffled by the seed; else None."""
        size = _Part(self._object("stateful"))._number("batch_size")
        return None if size is None else int(size)

    @property
    def defences(self) -> list[str]:
        """The names of the input defences, in the order in which they are applied."""
        entries = self.values.get("defences")
        if not isinstance(entries, list | tuple):
            return []
        return [str(entry["defence"]) for entry in entries if isinstance(entry, Mapping)]


class GeometryRecord(_Part):
    """Resize and crop before the shift, as stored."""

    def rebuild(self) -> Geometry:
        # Imported here because it brings an image library, which scores do not need.
        from shiftbench.classifiers.preprocessing import Preprocessing

        return Preprocessing.from_dict({"geometry": dict(self.values)}).geometry


class ShiftRecord(_Part):
    """What was done to the images: ``Shift.describe()``, and the seed of the run."""

    corruption = _Entry(_Part._maybe_text)
    severity = _Entry(_Part._number)
    perturbation = _Entry(_Part._maybe_text)
    attack = _Entry(_Part._maybe_text)
    eps = _Entry(_Part._number)

    @property
    def kind(self) -> str:
        """none, corruption, perturbation, attack, ..., as the shift calls itself."""
        return self._text("shift") or "none"

    @property
    def seed(self) -> int:
        return int(self._number("seed") or 0)

    @property
    def description(self) -> JsonObject:
        """Without the run's seed: what ``Shift.describe()`` gave."""
        return {key: value for key, value in self.values.items() if key != "seed"}

    @property
    def textures(self) -> str:
        """The images that frost is made of; empty for other shifts."""
        return str(self._object("frost").get("textures", ""))

    @property
    def designed(self) -> bool:
        """Whether a design chose which of the images meet it."""
        return "assignment" in self.values

    @property
    def passes(self) -> int:
        """Number of shifts that the design evaluated each image under."""
        return int(_Part(self._object("assignment"))._number("passes") or 1)

    @property
    def design(self) -> str:
        """A description of that design for people."""
        assignment = self._object("assignment")
        text = f"design {assignment.get('design')} {assignment.get('digest')}"
        if "shifts" in assignment:
            text += f", {assignment['passes']} of {assignment['shifts']} shifts per image"
        return text

    @property
    def frame(self) -> int | None:
        """Its number in a perturbation sequence; None for other shifts."""
        value = self._number("frame")
        return None if value is None else int(value)

    @property
    def difficulty(self) -> int:
        return int(self._number("difficulty") or 1)

    @property
    def noise(self) -> bool:
        """Whether the frames of the sequence are compared with the first one, not with the one before."""
        return bool(self.values.get("noise"))

    @property
    def name(self) -> str:
        """The corruption, perturbation or attack; for other kinds the kind itself."""
        return self.corruption or self.perturbation or self.attack or self.kind


@dataclass(frozen=True)
class SettingRecord:
    """What a run keeps of a setting beside what decides its results, for tables and reports."""

    note: str = ""
    member: Member | None = None
    shift: Mapping[str, Any] = field(default_factory=dict)  #: ``Shift.record()``, from which the shift is rebuilt.
    chosen_to_fool: bool = False
    parts: tuple[DesignPart, ...] = ()  #: Of a design: the settings that its images are shared among.
    mean: SettingMean | None = None  #: A mean over several settings that this one is a part of.

    @classmethod
    def of(cls, setting: Setting) -> SettingRecord:
        shift = setting.shift.record()
        return cls(setting.note, setting.member, shift, setting.chosen_to_fool, setting.parts, setting.mean)

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> SettingRecord:
        return msgspec.convert(value, cls)

    def to_json(self) -> JsonObject:
        content = asdict(self)
        for key in ("parts", "mean"):
            # Older versions had no designs and no means. Settings without them keep the bytes that they had then.
            if not content[key]:
                del content[key]
        return content


#: The entries of a spec as they are in its text.
_raw_entries = msgspec.json.Decoder(dict[str, msgspec.Raw])
#: The fields of a spec that are objects, and the class of each.
_PARTS = {"classifier": ClassifierRecord, "dataset": DatasetRef, "geometry": GeometryRecord, "shift": ShiftRecord}


@dataclass(frozen=True)
class ResultSpec:
    """Everything that decides the predictions of one model in one setting, and nothing else: no time and no path.

    >>> fog = {"shift": "corruption", "corruption": "fog", "severity": 3.0}
    >>> spec = ResultSpec.from_json({"shift": fog, "images": 7})
    >>> spec.shift.corruption, spec.shift.severity, spec.images
    ('fog', 3.0, 7)
    >>> canonical_json(spec.to_json())
    '{"images":7,"shift":{"corruption":"fog","severity":3.0,"shift":"corruption"}}'
    """

    classifier: ClassifierRecord = field(default_factory=ClassifierRecord)
    dataset: DatasetRef = field(default_factory=DatasetRef)
    images: int = 0
    geometry: GeometryRecord = field(default_factory=GeometryRecord)
    shift: ShiftRecord = field(default_factory=ShiftRecord)
    #: How shifted images were made: in-memory, jpeg-85 or on-disk; None where images are not shifted.
    source: str | None = None
    space: str = ""  #: ``Workspace.space`` finds the label space by it.
    reference: str | None = None
    metric: str = ""
    provenance: str = ""  #: Results that share this line may stand in one column.
    family: str | None = None  #: Results that share this line may be averaged over corruptions.
    answers: str | None = None  #: The content of imported predictions.
    made_by: str | None = None  #: Of imported predictions: who made the shifted images, if that was stated.
    others: JsonObject = field(default_factory=dict)  #: Entries that this version has no field for.
    #: Fields that the stored JSON did not have.
    absent: frozenset[str] = field(default_factory=lambda: frozenset({"answers", "made_by"}))

    @classmethod
    def from_json(cls, value: Mapping[str, Json | _Part]) -> ResultSpec:
        """The spec of stored JSON, whose parts may be objects already."""
        stored_fields = _stored_fields()
        arguments: dict[str, Any] = {}
        unknown_entries = {}
        for key, entry in value.items():
            if isinstance(entry, _Part):
                arguments[key] = entry
            elif key in _PARTS:
                arguments[key] = _PARTS[key](cast(JsonObject, entry))
            elif key in stored_fields:
                arguments[key] = entry
            else:
                unknown_entries[key] = entry
        return cls(**arguments, others=unknown_entries, absent=_absent_fields(tuple(value)))

    @classmethod
    def from_text(cls, text: str, key: str | None = None) -> ResultSpec:
        """The spec of a canonical JSON text, and its key if that was computed before.

        Thousands of results share a model, a dataset and a shift. Equal parts of their texts become one object, which
        saves memory and lets each hash be computed once.
        """
        value: dict[str, Json | _Part] = {}
        for name, raw in _raw_entries.decode(text).items():
            entry = bytes(raw)
            if name in _PARTS:
                value[name] = _shared_part(name, entry)
            elif entry[:1] in (b"{", b"["):
                value[name] = json.loads(entry)
            else:
                value[name] = _scalar(entry)
        spec = cls.from_json(value)
        # The text is at hand, and so is its hash: a cached property is an entry of the instance.
        spec.__dict__["key"] = spec_key(text) if key is None else key
        return spec

    def to_json(self) -> dict[str, Json]:
        """The spec as JSON; its canonical JSON is the one it was read from, byte for byte."""
        default = ResultSpec()
        entries: dict[str, Json] = dict(self.others)
        for name in _stored_fields():
            value = getattr(self, name)
            if name in self.absent and value == getattr(default, name):
                continue
            entries[name] = value.values if isinstance(value, _Part) else value
        return entries

    @property
    def judged_by_image(self) -> bool:
        """Whether each image has one label and one prediction, unlike in videos, sequences and multi-label datasets."""
        return self.shift.frame is None and self.metric in ("top1", "top5", "error")

    @property
    def classes(self) -> str:
        """The fingerprint of the label space: the same for the same classes in the same order, whatever its name."""
        return self.space.rpartition("-")[2]

    @cached_property
    def identity(self) -> str:
        """Equal for results with the same predictions: their keys may differ by the names of label spaces."""
        values = self.to_json()
        # Both lines are made of other entries, for people, and contain the name of the label space.
        for line in ("provenance", "family"):
            values.pop(line, None)
        values["classifier"] = self.classifier.decisive
        values["space"] = self.classes
        return canonical_json(values)

    def setting_key(self, setting: str) -> str:
        """The key of the setting's ``SettingRecord``: a hash of what the setting decides, without model and images."""
        return spec_key(
            canonical_json(
                [
                    setting,
                    self.dataset.name,
                    self.shift.description,
                    self.source,
                    self.space,
                    self.reference,
                    self.metric,
                ]
            )
        )

    def member(self, setting: str) -> Member | None:
        """The place in a family, for results of version 0.1, which kept no ``SettingRecord``; None without a family.

        The name of the family is what remains of the setting's name without corruption and severity, or without
        perturbation and frame.
        """
        shift = self.shift
        if shift.perturbation is not None and shift.frame is not None:
            suffix = f".{shift.perturbation}.frame{shift.frame:02d}"
            return self._family_member(setting, suffix, shift.perturbation, shift.frame)
        if shift.corruption is not None and shift.severity is not None:
            suffix = f".{shift.corruption}.{shift.severity:g}"
            return self._family_member(setting, suffix, shift.corruption, shift.severity)
        if self.source == "on-disk":
            return self._released_member(setting)
        return None

    def _released_member(self, setting: str) -> Member | None:
        """The place in a family by the folder of released images: ``.../<corruption>/<severity>``."""
        for corruption in BENCHMARK_CORRUPTIONS + EXTRA_CORRUPTIONS:
            for severity in range(1, 6):
                if self.dataset.name.endswith(f"/{corruption}/{severity}"):
                    return self._family_member(setting, f".{corruption}.{severity}", corruption, severity)
        return None

    def _family_member(self, setting: str, suffix: str, name: str, level: float) -> Member:
        family = f"{self.dataset.name} ({self.source})"
        if setting.endswith(suffix):
            family = setting.removesuffix(suffix)
        return Member(family, name, float(level))

    @property
    def text(self) -> str:
        """The canonical JSON of the spec."""
        return canonical_json(self.to_json())

    @cached_property
    def key(self) -> str:
        """The hash that names the result's file."""
        return spec_key(self.text)


@lru_cache(maxsize=4096)
def _shared_part(name: str, text: bytes) -> _Part:
    """One object for all parts with the same text."""
    return _PARTS[name](json.loads(text))


@lru_cache(maxsize=4096)
def _scalar(text: bytes) -> Json:
    """The text, number or null of a JSON text: few different ones occur in thousands of specs."""
    return cast(Json, json.loads(text))


@lru_cache(maxsize=256)
def _absent_fields(names: tuple[str, ...]) -> frozenset[str]:
    """The fields that stored JSON with these entries does not have."""
    return frozenset(_stored_fields()) - frozenset(names)


@cache
def _stored_fields() -> tuple[str, ...]:
    """The fields of a spec that are entries of its JSON."""
    return tuple(entry.name for entry in fields(ResultSpec) if entry.name not in ("others", "absent"))
