"""Is a model fed as it was trained, and is an export still the model? ``shiftbench doctor``.

``search`` looks for the preprocessing and the order of classes that fit a model best; ``exports`` compares two models
stage by stage.
"""
