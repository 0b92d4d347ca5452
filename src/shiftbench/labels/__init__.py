"""Label spaces: the classes that labels and scores are indices into, and the guard against wrong maps.

``space`` defines label spaces, and how scores over one become scores over another; ``catalogue`` finds them by name or
in a file; ``builtin`` registers those of ImageNet, CIFAR and other benchmarks; ``guard`` recognises the classes of
folders and warns of results that look like permuted labels. The package knows NumPy arrays, names and files of classes,
but neither datasets nor models.
"""

from shiftbench.labels.catalogue import label_space, label_spaces, load_label_space
from shiftbench.labels.space import LabelSpace, Projection

__all__ = ["LabelSpace", "Projection", "label_space", "label_spaces", "load_label_space"]
