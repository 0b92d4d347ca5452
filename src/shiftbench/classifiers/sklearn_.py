"""scikit-learn estimators, or anything with ``predict_proba`` or ``decision_function``."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.classifiers.base import BatchedClassifier, trial_scores
from shiftbench.classifiers.options import KnownInput, Options, settle
from shiftbench.classifiers.preprocessing import Normalisation, Preprocessing, in_colour_order
from shiftbench.errors import ClassifierError, LabelError
from shiftbench.io.code_state import value_digest
from shiftbench.io.hashing import digest
from shiftbench.labels.space import LabelSpace, Scores

#: The score of a class that the estimator never saw. Scores must be finite; the exponential of this one is zero.
_FAR_BELOW = -1e30
#: Pixels as they are, from 0 to 255, row by row.
_RAW = Normalisation(mean=(0, 0, 0), std=(1, 1, 1), scale=1, layout="nhwc")


class SklearnClassifier(BatchedClassifier):
    """An estimator on flattened pixels.

    The normalised pixels are flattened, after a conversion to grey (Pillow's "L") if the estimator has a third as
    many features. Classes the estimator never saw get probability 0, or a score far below all others.
    """

    def __init__(
        self,
        estimator: Any,
        *,
        name: str,
        space: LabelSpace,
        preprocessing: Preprocessing,
        batch_size: int | None = None,
    ) -> None:
        super().__init__()
        self.estimator = estimator
        self.name = name
        self.space = space
        self.preprocessing = preprocessing
        self.outputs = "probabilities" if hasattr(estimator, "predict_proba") else "logits"
        self.batch_size = batch_size or 32
        self.engine = "scikit-learn"
        self._columns = _columns(estimator, space)

    @property
    def fingerprint(self) -> str:
        """A hash of the pickled estimator and the preprocessing."""
        try:
            import joblib  # type: ignore[import-untyped]

            weights = str(joblib.hash(self.estimator))
        except ImportError:
            weights = digest(pickle.dumps(self.estimator, protocol=4))
        except pickle.PicklingError:  # The estimator may contain a function that is defined in a notebook.
            weights = value_digest(self.estimator)
        return digest("estimator", weights, None, self.preprocessing.describe())

    def rows(self) -> int:
        """All batches have the same number of rows, because matrix products of other shapes round differently."""
        return self.batch_size

    def forward(self, images: Pixels) -> Scores:
        features = self._features(images)
        with self._running:
            if self.outputs == "probabilities":
                values = np.array(self.estimator.predict_proba(features))
            else:
                values = np.array(self.estimator.decision_function(features))
        if values.ndim == 1:  # An estimator of two classes returns only the score of the second class.
            values = np.stack([np.zeros_like(values), values], axis=1)
        absent = 0.0 if self.outputs == "probabilities" else _FAR_BELOW
        scores = np.full((len(images), len(self.space)), absent, np.float32)
        scores[:, self._columns] = values
        return scores

    def _features(self, images: Pixels) -> NDArray[np.float64]:
        """The flattened pixels after normalisation."""
        normalisation = self.preprocessing.normalisation
        is_grey = getattr(self.estimator, "n_features_in_", None) == images.shape[1] * images.shape[2]
        images = in_colour_order(images, "grey" if is_grey else normalisation.colour_order)
        # This is computed in double precision and by division, as scripts write it, because the decision of a tree may
        # depend on the last bit.
        values: NDArray[np.float64] = (images / (1 / normalisation.scale) - normalisation.mean) / normalisation.std
        if is_grey:
            values = values[..., 0]
        elif normalisation.layout == "nchw":
            values = values.transpose(0, 3, 1, 2)
        return values.reshape(len(images), -1)


def from_estimator(estimator: object, options: Options) -> SklearnClassifier:
    """A classifier of an estimator, which takes pixel values from 0 to 255, row by row.

    Unless they are given, the classes are those of ``classes_``, and the input size follows from ``n_features_in_``.
    Raises ClassifierError if the estimator is not fitted.
    """
    name = options.name or type(estimator).__name__
    if not hasattr(estimator, "classes_"):
        raise ClassifierError(f"{name} is not fitted", found="no attribute classes_", hint="call fit first")
    space = options.labels
    if space is None:
        space = _space_of(estimator.classes_, name, options.default_labels)
    classifier = SklearnClassifier(
        estimator,
        name=name,
        space=space,
        preprocessing=options.preprocessing or Preprocessing(normalisation=_RAW),
        batch_size=options.batch_size,
    )

    def trial(preprocessing: Preprocessing) -> Scores:
        classifier.preprocessing = preprocessing
        return trial_scores(name, options.trial_images(preprocessing), classifier.padded_forward)

    known_input = _square_input(int(getattr(estimator, "n_features_in_", 0)))
    settled, _ = settle(name, options, known_input, trial)
    classifier.sources = {"labels": "file", "outputs": "file", **settled.sources}
    return classifier


def _space_of(classes: Any, name: str, default: LabelSpace | None) -> LabelSpace:
    """The label space of an estimator's classes.

    Numbers are indices into the classes of ``default``, if it has as many classes.
    """
    if default is not None and len(default) == len(classes) and not isinstance(classes[0], str):
        return default
    return LabelSpace(name, tuple(str(key) for key in classes))


def _square_input(features: int) -> KnownInput:
    """The square image that has this number of values, in colour or grey; of unknown size if there is none."""
    colour_facts = ("scale", "colour order", "layout")
    side = math.isqrt(features // 3)
    if side and side * side * 3 == features:
        return KnownInput((side, side), _RAW, colour_facts)
    side = math.isqrt(features)
    if side and side * side == features:
        return KnownInput((side, side), _RAW, ("scale",))
    return KnownInput(None, _RAW, colour_facts)


def _columns(estimator: Any, space: LabelSpace) -> NDArray[np.int64]:
    """For each of the estimator's classes its column in the space, found by key, by name or by number.

    Raises LabelError if the space does not have all of the estimator's classes.
    """
    classes = [cls.item() if isinstance(cls, np.generic) else cls for cls in estimator.classes_]
    if all(str(cls) in space for cls in classes):
        return np.array([space.index(str(cls)) for cls in classes])
    if all(space.names.count(cls) == 1 for cls in classes):
        return np.array([space.names.index(cls) for cls in classes])
    if all(isinstance(cls, int) and 0 <= cls < len(space) for cls in classes):
        return np.array(classes)
    raise LabelError(
        f"the estimator's classes are not those of {space.name!r}",
        found=", ".join(map(str, classes[:5])),
        expected=", ".join(space.keys[:5]) + ", ..., or their numbers",
    )
