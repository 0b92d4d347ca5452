"""The 50 classes of Icons-50, in the order of its folders."""

from __future__ import annotations

from functools import cache

from shiftbench.labels.catalogue import label_spaces
from shiftbench.labels.space import LabelSpace

_FOLDERS = """
airplane arrow_directions ball biking bird blade boat books building bunny_ears cartwheeling clock cloud disk drinks
emotion_face envelope family fast_train feline flag flower footwear golfing hand hat heart holding_hands
japanese_ideograph kiss lock mailbox marine_animals medal money monkey moon mountain numbers phone prohibit_sign star
surfing tree umbrella vehicle water_polo worker wrestling writing_utensil
"""
#: Where the paper calls a class otherwise than its folder.
_NAMES = {"drinks": "drink", "marine_animals": "marine animal"}


@label_spaces.register("icons-50")
@cache
def icons_50() -> LabelSpace:
    """The 50 broad classes of Icons-50; keys are its folders.

    >>> icons_50().names[icons_50().index("marine_animals")]
    'marine animal'
    """
    keys = tuple(_FOLDERS.split())
    return LabelSpace("icons-50", keys, tuple(_NAMES.get(key, key.replace("_", " ")) for key in keys))
