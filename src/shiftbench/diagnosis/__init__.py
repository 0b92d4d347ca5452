"""Does a model get the inputs that it was trained with, and is an export equivalent? ``shiftbench doctor``.

``search`` looks for the preprocessing and the order of classes that fit a model best; ``exports`` compares two models
stage by stage.
"""
