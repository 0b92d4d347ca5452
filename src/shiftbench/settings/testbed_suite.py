"""The 213 settings of the ImageNet testbed (Taori et al. 2020) under their own names.

So that its published grid and our runs line up: released ImageNet-C files go through the model's own resize and crop,
as in the testbed and unlike in the suite ``imagenet-c``. Where we differ from the testbed, the setting's note says so.
"""

from __future__ import annotations

from dataclasses import replace

from shiftbench.settings import natural_suites as sets
from shiftbench.settings.base import Member, Setting, SuiteOptions, optional, suite
from shiftbench.shifts.base import Shift
from shiftbench.shifts.corruptions import Corruption, corruptions
from shiftbench.shifts.corruptions.greyscale import Greyscale

_SEVERITIES = (1, 2, 3, 4, 5)
_ON_DISK = (
    "released files go through the model's own resize and crop, as in the testbed; the suite imagenet-c crops them "
    "only, as ImageNet-C defines it, which gives higher accuracy (the testbed's AlexNet has mCE 102.3 and not 100)"
)
_IN_MEMORY = "the testbed's own variant of the corruption, rounded to 8 bits; its random numbers were not seeded"
_ATTACKED = "as the testbed ran it, away from the classifier's own prediction: a weaker attack than away from the label"
#: Names of ours that the testbed has not.
_OURS = ("imagenet-a.unmasked", "imagenet-r.unmasked")


@suite("testbed-213")
def testbed_213(options: SuiteOptions) -> list[Setting]:
    """The 213 settings of the ImageNet testbed: natural shifts, ImageNet-C on disk and in memory, style, attacks."""
    natural = sets.joined(
        (
            sets.imagenetv2,
            sets.imagenet_a,
            sets.imagenet_r,
            sets.imagenet_sketch,
            sets.objectnet,
            sets.imagenet_vid_robust,
            sets.ytbb_robust,
            sets.stylized_imagenet,
        ),
        options,
    )
    kept = [setting for setting in natural if setting.name not in _OURS]
    made = [*_eighth(), Setting("greyscale", "imagenet-val", Greyscale(), reference="val", source="in-memory")]
    return [*kept, *optional([*made, *_corrupted(options), *_attacked()])]


def _eighth() -> list[Setting]:
    """A fixed eighth of the classes, to see what fewer classes alone change."""
    clean = Setting("val_subsampled_class_1_8", "imagenet-val", space="imagenet-eighth-125")
    name = "imagenetv2-matched-frequency-format-val"
    shifted = replace(clean, name=f"{name}_subsampled_class_1_8", dataset=sets.IMAGENETV2[name], reference=clean.name)
    return [clean, shifted]


def _corrupted(options: SuiteOptions) -> list[Setting]:
    """95 on disk (19 corruptions), 90 in memory (without glass_blur)."""
    found = []
    for name in corruptions("all"):
        for severity in _SEVERITIES:
            title, place = f"imagenet-c.{name}.{severity}", f"imagenet-c/{name}/{severity}"
            on_disk = Setting(f"{title}_on-disk", place, reference="val", source="on-disk")
            found.append(replace(on_disk, note=_ON_DISK, member=Member("imagenet-c_on-disk", name, severity)))
            if name != "glass_blur":
                shift = _variant(name, severity, options)
                made = Setting(f"{title}_in-memory", "imagenet-val", shift, reference="val", source="in-memory")
                found.append(replace(made, note=_IN_MEMORY, member=Member("imagenet-c_in-memory", name, severity)))
    return found


def _variant(name: str, severity: int, options: SuiteOptions) -> Shift:
    textures = {"frost_textures": options.frost_textures} if name == "frost" and options.frost_textures else {}
    return Corruption(f"testbed_{name}", severity, textures)


def _attacked() -> list[Setting]:
    """Untargeted PGD of 100 steps, as the testbed ran it. Imported here, so that no other suite waits for it."""
    from shiftbench.shifts.attacks import published_attacks

    return [
        Setting(name, "imagenet-val", attack, reference="val", note=_ATTACKED)
        for name, attack in published_attacks().items()
    ]
