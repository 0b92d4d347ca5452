"""Label spaces: the classes that labels and scores are indices into, and the guard against wrong maps."""

from shiftbench.labels.catalogue import label_space, label_spaces, load_label_space
from shiftbench.labels.space import LabelSpace, Projection

__all__ = ["LabelSpace", "Projection", "label_space", "label_spaces", "load_label_space"]
