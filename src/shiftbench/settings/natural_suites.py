"""Settings on images as they are: your own data, ImageNet and CIFAR test sets, videos, and the papers' groups of them.

Each shifted set names its reference: val, or val restricted to its classes. The restricted ones read the same dataset
with the same (no) shift as val, so that a run computes all of them in one pass over val.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from shiftbench.settings.base import Setting, SuiteBuilder, SuiteOptions, optional, suite
from shiftbench.settings.synthetic_suites import imagenet_c

VAL = Setting("val", "imagenet-val")
#: Setting, and the folder that the official archive (or a re-packing in wnid folders) unpacks to.
IMAGENETV2 = {
    "imagenetv2-matched-frequency": "imagenetv2-matched-frequency",
    "imagenetv2-threshold0.7": "imagenetv2-threshold0.7",
    "imagenetv2-topimages": "imagenetv2-top-images",
    "imagenetv2-matched-frequency-format-val": "imagenetv2-matched-frequency-format-val",
    "imagenetv2-threshold-0.7-format-val": "imagenetv2-threshold0.7-format-val",
    "imagenetv2-top-images-format-val": "imagenetv2-top-images-format-val",
}
_PACKINGS = (
    "the published numbers of the two packings of ImageNetV2 (with and without -format-val) differ by up to 0.55 "
    "points; the dataset's name and fingerprint say which files were used"
)


def val_on(name: str, space: str) -> Setting:
    """Val restricted to the classes of a shifted set, scores included."""
    return Setting(f"val-on-{name}-classes", "imagenet-val", space=space, optional=True)


@suite("clean")
def own_data(options: SuiteOptions) -> list[Setting]:
    """Your own dataset as it is."""
    return [Setting(options.data_name, "data")]


@suite("imagenet")
def imagenet(options: SuiteOptions) -> list[Setting]:
    """ImageNet val, all 1,000 classes."""
    return [VAL]


@suite("imagenet-a")
def imagenet_a(options: SuiteOptions) -> list[Setting]:
    """ImageNet-A over its 200 classes and over all 1,000, against val on the same classes."""
    val, *shifted = _two_hundred("imagenet-a")
    return [val, *(replace(setting, chosen_to_fool=True) for setting in shifted)]


@suite("imagenet-r")
def imagenet_r(options: SuiteOptions) -> list[Setting]:
    """ImageNet-R over its 200 classes and over all 1,000, against val on the same classes."""
    return _two_hundred("imagenet-r")


@suite("imagenet-o")
def imagenet_o(options: SuiteOptions) -> list[Setting]:
    """ImageNet-O, whose images are of no ImageNet class, and val on the 200 classes it is confused with."""
    reference = val_on("imagenet-o", "imagenet-o-200")
    shifted = Setting(
        "imagenet-o",
        "imagenet-o",
        space="imagenet-o-200",
        reference=reference.name,
        chosen_to_fool=True,
        note="for detection: no prediction is right, and top-1 is the share taken for the class of the folder",
    )
    return [reference, shifted]


@suite("imagenetv2")
def imagenetv2(options: SuiteOptions) -> list[Setting]:
    """ImageNetV2: MatchedFrequency, Threshold0.7 and TopImages in both packings, against val."""
    v2 = [
        Setting(name, role, space="imagenet-1k", reference="val", optional=True, note=_PACKINGS)
        for name, role in IMAGENETV2.items()
    ]
    return [VAL, *v2]


@suite("imagenet-sketch")
def imagenet_sketch(options: SuiteOptions) -> list[Setting]:
    """ImageNet-Sketch: 50,889 drawings of the 1,000 classes, against val."""
    return [Setting("imagenet-sketch", "imagenet-sketch", space="imagenet-1k", reference="val")]


@suite("objectnet")
def objectnet(options: SuiteOptions) -> list[Setting]:
    """ObjectNet: 113 classes over 125 of ImageNet's, 2-pixel border cropped, against val on the same classes."""
    reference = val_on("objectnet", "objectnet-113")
    shifted = Setting(
        "objectnet-1.0-beta",
        "objectnet",
        space="objectnet-113",
        reference=reference.name,
        note="right if the best of the 125 ImageNet classes is one of the folder's, as in the testbed",
    )
    return [reference, shifted]


@suite("real-blurry-images")
def real_blurry_images(options: SuiteOptions) -> list[Setting]:
    """Real Blurry Images: 1,000 blurred photographs of 100 ImageNet classes, over all 1,000, against val."""
    return [Setting("real-blurry-images", "real-blurry-images", space="imagenet-1k", reference="val")]


@suite("stylized-imagenet")
def stylized_imagenet(options: SuiteOptions) -> list[Setting]:
    """Stylized-ImageNet: val painted in the styles of paintings, shape without texture, against val."""
    note = "through the classifier's own resize and crop, as published, though the files are 224 px already"
    return [Setting("stylized_imagenet", "stylized-imagenet", space="imagenet-1k", reference="val", note=note)]


def _two_hundred(name: str) -> list[Setting]:
    """Masked: scores restricted to the 200 classes first, as published. Unmasked: all 1,000 compete."""
    reference = val_on(name, f"{name}-200")
    return [
        reference,
        Setting(name, name, space=f"{name}-200", reference=reference.name),
        Setting(f"{name}.unmasked", name, space="imagenet-1k", reference="val"),
    ]


def _video(name: str, reference: str, space: str) -> list[Setting]:
    """Both numbers come from one pass: the anchors are among the frames."""
    note = "scores projected onto the set's classes by the maximum over their ImageNet classes, for every classifier"
    clean = val_on(reference, space)
    frames = Setting(f"{name}_pm0", name, space=space, metric="pm0", reference=clean.name, note=note)
    near = Setting(f"{name}_pm10", name, space=space, metric="pm10", reference=f"{name}_pm0", note=note)
    return [clean, frames, near]


@suite("imagenet-vid-robust")
def imagenet_vid_robust(options: SuiteOptions) -> list[Setting]:
    """ImageNet-Vid-Robust: anchor frames (pm-0) and all frames up to 10 away (pm-10), against val on its 30 classes."""
    return _video("imagenet-vid-robust", "vid-robust", "vid-robust-30")


@suite("ytbb-robust")
def ytbb_robust(options: SuiteOptions) -> list[Setting]:
    """YTBB-Robust: anchor frames (pm-0) and all frames up to 10 away (pm-10), against val on its classes."""
    return _video("ytbb-robust", "ytbb-robust", "ytbb-robust-24")


#: Setting, and where its file lies below the folder that fills the role.
_NEW_TEST_SETS = {
    "cifar-10.1-v4": "cifar-10.1/cifar10.1_v4_data.npy",
    "cifar-10.1-v6": "cifar-10.1/cifar10.1_v6_data.npy",
    "cifar-10.2": "cifar-10.2/cifar102_test.npz",
}


@suite("cifar")
def cifar(options: SuiteOptions) -> list[Setting]:
    """The CIFAR-10 test set, CIFAR-10.1 v4 and v6, and CIFAR-10.2, for classifiers of CIFAR-10."""
    new = [Setting(name, place, reference="cifar-10", optional=True) for name, place in _NEW_TEST_SETS.items()]
    return [Setting("cifar-10", "cifar-10"), *new]


@suite("cifar-100")
def cifar_100(options: SuiteOptions) -> list[Setting]:
    """The CIFAR-100 test set."""
    return [Setting("cifar-100", "cifar-100")]


def joined(builders: Iterable[SuiteBuilder], options: SuiteOptions) -> list[Setting]:
    """Val, then the settings of these suites, each once."""
    found = {"val": VAL}
    for builder in builders:
        for setting in optional(builder(options)):
            found.setdefault(setting.name, setting)
    return list(found.values())


@suite("natural")
def natural(options: SuiteOptions) -> list[Setting]:
    """Every natural shift of ImageNet: V2, A, R, Sketch, ObjectNet, blurry images and the two video"""
    builders = (
        imagenetv2,
        imagenet_a,
        imagenet_r,
        imagenet_sketch,
        objectnet,
        real_blurry_images,
        imagenet_vid_robust,
        ytbb_robust,
    )
    return joined(builders, options)


@suite("many-faces")
def many_faces(options: SuiteOptions) -> list[Setting]:
    """The Many Faces of Robustness on ImageNet: ImageNet-R, Real Blurry Images and ImageNet-C, against val."""
    return joined((imagenet_r, real_blurry_images, imagenet_c), options)


@suite("natural-adversarial")
def natural_adversarial(options: SuiteOptions) -> list[Setting]:
    """Natural Adversarial Examples: ImageNet-A (accuracy, calibration) and ImageNet-O (detection), against val."""
    return joined((imagenet_a, imagenet_o), options)
