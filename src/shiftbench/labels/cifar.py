"""CIFAR-10 and CIFAR-100, in the order of their files."""

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
