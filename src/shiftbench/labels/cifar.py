"""CIFAR-10 and CIFAR-100 and its 20 broad classes, in the order of their files."""

from __future__ import annotations

from functools import cache

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


@label_spaces.register("cifar-10")
@cache
def cifar_10() -> LabelSpace:
    """
    >>> cifar_10().index("frog")
    6
    """
    return LabelSpace("cifar-10", tuple(_CIFAR_10.split()))


@label_spaces.register("cifar-100")
@cache
def cifar_100() -> LabelSpace:
    """The 100 fine classes; they are in alphabetical order."""
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
