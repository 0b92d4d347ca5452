"""The built-in label spaces: ImageNet, its subsets and super-classes, CIFAR, Icons-50 and DeepFashion2.

The index of an ImageNet class is the position of its wnid among the sorted wnids. Three short names are shared by two
synsets each (crane, cardigan, maillot); here they carry a word in brackets.

A model's score of a super-class is the maximum over its members. The best super-class is then the one that holds the
best of all members, so that "the prediction is any class of the folder" (ObjectNet) and "the projected argmax is
correct" (the video datasets) are the same rule.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources

from shiftbench.labels.catalogue import label_spaces
from shiftbench.labels.space import LabelSpace

_CIFAR_10 = "airplane automobile bird cat deer dog frog horse ship truck"
_CIFAR_100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard
lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear
pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark
shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone
television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""
#: The 20 broad classes and the five fine ones of each, in the order in which paper 002's subtype experiment holds
#: them out.
_CIFAR_100_BROAD = """
aquatic_mammals: seal beaver whale dolphin otter
fish: shark flatfish ray trout aquarium_fish
flowers: tulip rose sunflower orchid poppy
food_containers: can plate bottle bowl cup
fruit_and_vegetables: mushroom apple orange pear sweet_pepper
household_electrical_devices: lamp keyboard clock television telephone
household_furniture: chair couch wardrobe table bed
insects: butterfly cockroach bee beetle caterpillar
large_carnivores: lion wolf leopard bear tiger
large_man-made_outdoor_things: house castle skyscraper bridge road
large_natural_outdoor_scenes: mountain forest sea cloud plain
large_omnivores_and_herbivores: camel chimpanzee cattle elephant kangaroo
medium_mammals: skunk porcupine raccoon possum fox
non-insect_invertebrates: snail crab lobster worm spider
people: boy baby girl man woman
reptiles: dinosaur turtle crocodile snake lizard
small_mammals: rabbit mouse shrew hamster squirrel
trees: palm_tree oak_tree maple_tree pine_tree willow_tree
vehicles_1: bicycle pickup_truck train bus motorcycle
vehicles_2: streetcar rocket lawn_mower tractor tank
"""
_ICONS = """
airplane arrow_directions ball biking bird blade boat books building bunny_ears cartwheeling clock cloud disk drinks
emotion_face envelope family fast_train feline flag flower footwear golfing hand hat heart holding_hands
japanese_ideograph kiss lock mailbox marine_animals medal money monkey moon mountain numbers phone prohibit_sign star
surfing tree umbrella vehicle water_polo worker wrestling writing_utensil
"""
#: Where the paper calls a class otherwise than its folder.
_ICON_NAMES = {"drinks": "drink", "marine_animals": "marine animal"}


@cache
def _table() -> list[dict[str, str]]:
    text = resources.files("shiftbench.labels").joinpath("data/imagenet_1k.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@label_spaces.register("imagenet-1k")
@cache
def imagenet_1k() -> LabelSpace:
    """The 1,000 classes of ImageNet (ILSVRC 2012); keys are wnids.

    >>> imagenet_1k().keys[0], imagenet_1k().names[999]
    ('n01440764', 'toilet tissue')
    """
    return LabelSpace("imagenet-1k", tuple(r["wnid"] for r in _table()), tuple(r["name"] for r in _table()))


@cache
def imagenet_synonyms() -> dict[str, tuple[str, ...]]:
    """The other names of each ImageNet class in WordNet, by wnid.

    >>> imagenet_synonyms()["n02123045"]
    ('tabby cat',)
    """
    return {row["wnid"]: tuple(row["synonyms"].split("|")) for row in _table() if row["synonyms"]}


def _subset(letter: str) -> LabelSpace:
    wnids = tuple(row["wnid"] for row in _table() if letter in row["subsets"])
    return imagenet_1k().subset(wnids, f"imagenet-{letter}-200")


@label_spaces.register("imagenet-a-200")
@cache
def imagenet_a_200() -> LabelSpace:
    """The 200 classes of ImageNet-A (natural adversarial examples)."""
    return _subset("a")


@label_spaces.register("imagenet-o-200")
@cache
def imagenet_o_200() -> LabelSpace:
    """The 200 classes of ImageNet-O, which its out-of-distribution images are mistaken for."""
    return _subset("o")


@label_spaces.register("imagenet-r-200")
@cache
def imagenet_r_200() -> LabelSpace:
    """The 200 classes of ImageNet-R (renditions)."""
    return _subset("r")


@label_spaces.register("imagenet-eighth-125")
@cache
def imagenet_eighth_125() -> LabelSpace:
    """The 125 classes of the ImageNet testbed's ``subsampled_class_1_8`` settings."""
    wnids = tuple(row["wnid"] for row in _table() if "e" in row["subsets"])
    return imagenet_1k().subset(wnids, "imagenet-eighth-125")


@cache
def _members(file: str) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """(key, name, wnids of the members) of each class, in order."""
    text = resources.files("shiftbench.labels").joinpath(f"data/{file}.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return tuple((row["key"], row["name"], tuple(m for m in row["members"].split("|") if m)) for row in rows)


def _space(name: str, rows: tuple[tuple[str, str, tuple[str, ...]], ...]) -> LabelSpace:
    keys, names, members = zip(*rows, strict=True)
    return LabelSpace(name, keys, names, members)


def objectnet_folders() -> tuple[str, ...]:
    """The class folders of ObjectNet, all 313.

    >>> len(objectnet_folders())
    313
    """
    return tuple(key for key, _, _ in _members("objectnet"))


@label_spaces.register("objectnet-113")
@cache
def objectnet_113() -> LabelSpace:
    """The 113 classes of ObjectNet that ImageNet has too, as 125 ImageNet classes; keys are its folders.

    >>> space = objectnet_113()
    >>> space.names[space.index("alarm_clock")], len(space.members[space.index("alarm_clock")])
    ('Alarm clock', 2)
    """
    return _space("objectnet-113", tuple(row for row in _members("objectnet") if row[2]))


@label_spaces.register("vid-robust-30")
@cache
def vid_robust_30() -> LabelSpace:
    """The 30 classes of ImageNet-Vid-Robust, as 288 ImageNet classes."""
    return _space("vid-robust-30", _members("vid_robust"))


@label_spaces.register("ytbb-robust-24")
@cache
def ytbb_robust_24() -> LabelSpace:
    """The 24 classes of YTBB-Robust, 19 of them as 231 ImageNet classes; ImageNet lacks the other five."""
    return _space("ytbb-robust-24", _members("ytbb_robust"))


@label_spaces.register("imagenet-22k-25")
@cache
def imagenet_22k_25() -> LabelSpace:
    """25 broad classes of ImageNet-22K; members are the synsets below each in WordNet 3.0, 543 of them in ImageNet-1K.

    >>> space = imagenet_22k_25()
    >>> space.names[space.index("n02131653")], len(space.members[space.index("n02131653")])
    ('bear', 12)
    """
    return _space("imagenet-22k-25", _members("imagenet_22k"))


@label_spaces.register("cifar-10")
@cache
def cifar_10() -> LabelSpace:
    """The 10 classes of CIFAR-10.

    >>> cifar_10().index("frog")
    6
    """
    return LabelSpace("cifar-10", tuple(_CIFAR_10.split()))


@label_spaces.register("cifar-100")
@cache
def cifar_100() -> LabelSpace:
    """The 100 fine classes of CIFAR-100, in alphabetical order."""
    keys = tuple(_CIFAR_100.split())
    return LabelSpace("cifar-100", keys, tuple(key.replace("_", " ") for key in keys))


@label_spaces.register("cifar-100-20")
@cache
def cifar_100_20() -> LabelSpace:
    """The 20 broad classes of CIFAR-100, each with its five fine ones.

    >>> space = cifar_100_20()
    >>> space.names[14], space.members[14]
    ('people', ('boy', 'baby', 'girl', 'man', 'woman'))
    """
    keys, members = zip(*(line.split(": ") for line in _CIFAR_100_BROAD.strip().splitlines()), strict=True)
    return LabelSpace(
        "cifar-100-20", keys, tuple(k.replace("_", " ") for k in keys), tuple(tuple(m.split()) for m in members)
    )


@label_spaces.register("icons-50")
@cache
def icons_50() -> LabelSpace:
    """The 50 broad classes of Icons-50; keys are its folders.

    >>> icons_50().names[icons_50().index("marine_animals")]
    'marine animal'
    """
    keys = tuple(_ICONS.split())
    return LabelSpace("icons-50", keys, tuple(_ICON_NAMES.get(key, key.replace("_", " ")) for key in keys))


@label_spaces.register("deepfashion2-13")
@cache
def deepfashion2() -> LabelSpace:
    """DeepFashion2's 13 categories of clothes, in the order of ``category_id``, which counts from 1."""
    return LabelSpace(
        "deepfashion2-13",
        (
            "short sleeve top",
            "long sleeve top",
            "short sleeve outwear",
            "long sleeve outwear",
            "vest",
            "sling",
            "shorts",
            "trousers",
            "skirt",
            "short sleeve dress",
            "long sleeve dress",
            "vest dress",
            "sling dress",
        ),
    )
