"""Input defences: the transformations of images before classification of Hendrycks and Dietterich (2019).

A defended classifier is a classifier and can be used like any other; tables show both under their own names. The
paper found CLAHE to lower ResNet-50's mCE (76.7 to 74.5, after fine-tuning on equalised images), denoising to
raise it (to 82.1), and 10-crop to add accuracy but hardly robustness. Here nothing is fine-tuned.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.classifiers.base import Classifier, Outputs
from shiftbench.datasets.geometry import Geometry
from shiftbench.errors import ClassifierError, argument, required
from shiftbench.io.hashing import digest
from shiftbench.labels.space import Scores
from shiftbench.registry import Registry


class Defence(ABC):
    """A transformation of the uint8 input of a classifier; immutable and picklable."""

    name: str
    views: int = 1  #: How many images the classifier sees for each image.

    @abstractmethod
    def __call__(self, images: Pixels) -> Pixels:
        """Turn images (N, H, W, 3) into (N * views, h, w, 3), with the views of an image one after the other."""

    def geometry(self, geometry: Geometry) -> Geometry:
        """The geometry of the images that the runner must deliver, given the geometry of the classifier's input."""
        return geometry

    def describe(self) -> dict[str, object]:
        """Everything that decides the result, ready for JSON."""
        return {"defence": self.name, **asdict(self)}  # type: ignore[call-overload]  # every defence is a dataclass


#: Defences by the name that the command line takes.
defences: Registry[type[Defence]] = Registry("defence")


@defences.register("clahe")
@dataclass(frozen=True)
class Clahe(Defence):
    """Contrast-limited adaptive histogram equalisation (Pizer et al. 1987) of the lightness L of CIE Lab.

    ``tiles`` x ``tiles`` histograms, each clipped at ``clip_limit`` times its mean height, the excess spread
    evenly, and their mappings interpolated bilinearly: OpenCV's CLAHE. The paper names no parameters; these are
    the customary ones.
    """

    clip_limit: float = 2.0
    tiles: int = 8
    name = "clahe"

    def __call__(self, images: Pixels) -> Pixels:
        cv2 = required("cv2", "opencv", "the defence 'clahe'", "opencv-python-headless")
        # Each call makes an object of its own, because the object keeps state and is not safe in several threads.
        equaliser = cv2.createCLAHE(self.clip_limit, (self.tiles, self.tiles))
        out = np.empty_like(images)
        for i, image in enumerate(images):
            lab = cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2LAB)
            lab[..., 0] = equaliser.apply(np.ascontiguousarray(lab[..., 0]))
            out[i] = cv2.cvtColor(lab, cv2.COLOR_LAB2RGB)
        return out


@defences.register("denoise")
@dataclass(frozen=True)
class NonLocalMeans(Defence):
    """Non-local means (Buades et al. 2005), as strong as the noise that is found in the image.

    The noise of the lightness, and the mean of that of the two colour planes, is estimated by ``noise_level``;
    the filter parameters h of OpenCV's ``fastNlMeansDenoisingColored`` are ``strength`` times these (1.15, the
    customary factor for weights exp(-d^2 / h^2)), with patches of 7 x 7 and a search in 21 x 21. Both are
    measured in the Lab planes in which OpenCV filters. An image without noise is returned as it is.
    """

    strength: float = 1.15
    patch: int = 7
    search: int = 21
    name = "denoise"

    def __call__(self, images: Pixels) -> Pixels:
        cv2 = required("cv2", "opencv", "the defence 'denoise'", "opencv-python-headless")
        out = images.copy()
        for i, image in enumerate(images):
            bgr = np.ascontiguousarray(image[..., ::-1])
            planes = cv2.cvtColor(bgr, cv2.COLOR_LBGR2LAB)
            light, green, blue = (noise_level(planes[..., plane]) for plane in range(3))
            colour = (green + blue) / 2
            if max(light, colour) >= _NO_NOISE:
                # An h of zero would divide by zero; the smallest h leaves its plane as it is.
                h = [self.strength * max(level, _NO_NOISE) for level in (light, colour)]
                out[i] = cv2.fastNlMeansDenoisingColored(bgr, None, h[0], h[1], self.patch, self.search)[..., ::-1]
        return out


#: High-pass filter of Daubechies' orthonormal wavelet with two vanishing moments (4 taps).
_DB2 = np.array([1 - 3**0.5, -(3 - 3**0.5), 3 + 3**0.5, -(1 + 3**0.5)]) / (4 * 2**0.5)
#: Below this many grey levels, an image has no noise. Rounding errors of a flat image lie far below, a noise of one bit
#: lies far above.
_NO_NOISE = 0.01
#: The upper quartile of the standard normal distribution, so that median |x| = 0.674 sigma.
_QUARTILE = 0.6744897501960817


def noise_level(plane: NDArray[np.generic]) -> float:
    """The standard deviation of white noise in a grey image, by Donoho and Johnstone (1994).

    The finest diagonal wavelet coefficients (Daubechies, 2 vanishing moments, those that need no values beyond the
    border) hold hardly anything but noise; sigma = median |d| / 0.6745, which a few edges do not move.
    """
    values = np.asarray(plane, dtype=np.float64)
    if min(values.shape) < len(_DB2):
        return 0.0
    # The filter of a diagonal coefficient is that of the rows times that of the columns; every second one is kept.
    vertical = _filtered(values)
    diagonal = _filtered(vertical.T)
    return float(np.median(np.abs(diagonal)) / _QUARTILE)


def _filtered(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The wavelet coefficients along the first axis, of every second position where the filter fits in."""
    count = (len(values) - len(_DB2)) // 2 + 1
    coefficients = np.zeros((count, values.shape[1]))
    for i, tap in enumerate(_DB2):
        coefficients += tap * values[i : i + 2 * count : 2]
    return coefficients


class RoomForCrops(Geometry):
    """A geometry whose result is larger than the crops that are taken from it.

    Released corrupted files are as small as one crop. A run over them would drop the resize and fill the missing
    border with black; therefore this geometry raises an error if it has no resize.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resize is None:
            raise ClassifierError(
                "ten-crop takes its crops from a larger image",
                found="images that must not be resized, such as released ImageNet-C files",
                expected=f"images to be resized to {self.crop}",
                hint=f"corrupt in memory: {argument('source', 'in-memory')}",
            )


@defences.register("ten-crop")
@dataclass(frozen=True)
class TenCrop(Defence):
    """The mean class probabilities over the four corners, the middle, and their mirror images.

    The runner delivers the square that the classifier's own resize leaves (256 x 256 for resize 256, crop 224),
    as Krizhevsky et al. (2012) do, and the crops have the size of the classifier's input. Shifts act on that
    larger square. Where the classifier's resize leaves no room (none, or one not larger than the crop), the short
    side is resized to 8/7 of the crop, the proportion of 256 to 224.
    """

    height: int = 224
    width: int = 224
    name = "ten-crop"
    views = 10

    def __call__(self, images: Pixels) -> Pixels:
        count, tall, wide, _ = images.shape
        if tall < self.height or wide < self.width:
            raise ClassifierError(
                "the images are smaller than the crops",
                found=f"{tall} x {wide}",
                expected=f"at least {self.height} x {self.width}",
            )
        bottom = tall - self.height
        right = wide - self.width
        corners = [(0, 0), (0, right), (bottom, 0), (bottom, right), (round(bottom / 2), round(right / 2))]
        out = np.empty((count, self.views, self.height, self.width, 3), np.uint8)
        for view, (top, left) in enumerate(corners):
            crop = images[:, top : top + self.height, left : left + self.width]
            out[:, view] = crop
            out[:, view + len(corners)] = crop[:, :, ::-1]
        return out.reshape(-1, self.height, self.width, 3)

    def geometry(self, geometry: Geometry) -> Geometry:
        values = asdict(geometry)
        resize = geometry.resize
        if isinstance(resize, int):
            resize = (resize, resize)
        if resize is None or resize[0] <= self.height or resize[1] <= self.width:
            side = round(min(self.height, self.width) * 8 / 7)
            values |= {"resize": side, "resize_rule": "short"}
            resize = (round(self.height * 8 / 7), round(self.width * 8 / 7))
        return RoomForCrops(**{**values, "crop": resize})

    @classmethod
    def for_input(cls, classifier: Classifier) -> TenCrop:
        """A ten-crop whose crops have the size of a classifier's input."""
        output = classifier.preprocessing.geometry.output
        if output is None:
            raise ClassifierError(
                f"the input of {classifier.name} has no fixed size, so ten-crop does not know its crops",
                hint="pass TenCrop(height, width)",
            )
        return cls(*output)


class Defended(Classifier):
    """A classifier behind one or more defences, applied in the order given.

    ``Defended(resnet50, "clahe")`` is called ``resnet50+clahe``.
    """

    def __init__(self, classifier: Classifier, *names_or_defences: str | Defence) -> None:
        if not names_or_defences:
            raise ClassifierError(f"no defence was named for {classifier.name}", expected=", ".join(defences.names()))
        self.classifier = classifier
        self.defences = _defences_for(classifier, names_or_defences)
        self.views = int(np.prod([defence.views for defence in self.defences]))
        self.name = "+".join([classifier.name, *(defence.name for defence in self.defences)])
        self.space = classifier.space
        self.engine = classifier.engine
        self.sources = classifier.sources
        self.takes_pixels = classifier.takes_pixels
        self.stateful = classifier.stateful
        self.one_at_a_time = classifier.one_at_a_time
        # The code of a third party's defence may change without a change of the fingerprint.
        are_built_in = all(type(defence).__module__ == __name__ for defence in self.defences)
        self.self_contained = classifier.self_contained and are_built_in
        self.trained_on = classifier.trained_on
        self.trained_with = classifier.trained_with
        self.outputs: Outputs = classifier.outputs if self.views == 1 else "probabilities"
        self.batch_size = max(1, classifier.batch_size // self.views)
        geometry = classifier.preprocessing.geometry
        for defence in reversed(self.defences):  # The last defence delivers the classifier's input.
            geometry = defence.geometry(geometry)
        self.preprocessing = replace(classifier.preprocessing, geometry=geometry)

    @property
    def fingerprint(self) -> str:
        return digest("defended", self.classifier.fingerprint, [defence.describe() for defence in self.defences])

    def reset(self) -> None:
        self.classifier.reset()

    def scores(self, images: Pixels) -> Scores:
        views = images
        for defence in self.defences:
            views = defence(views)
        scores = self.classifier.scores(views)
        if self.views == 1:
            return scores
        probabilities = scores.astype(np.float64)
        if self.classifier.outputs == "logits":
            probabilities = np.exp(probabilities - scores.max(axis=1, keepdims=True))
            probabilities /= probabilities.sum(axis=1, keepdims=True)
        mean: Scores = probabilities.reshape(len(images), self.views, len(self.space)).mean(axis=1).astype(np.float32)
        return mean

    def describe(self) -> dict[str, object]:
        return {**super().describe(), "defences": [defence.describe() for defence in self.defences]}


def _defences_for(classifier: Classifier, names_or_defences: Sequence[str | Defence]) -> tuple[Defence, ...]:
    """The defences as objects; a ten-crop that is only named takes crops of the size of the classifier's input."""
    # All names are looked up first, so that an unknown name is reported before any other problem.
    kinds = [defence if isinstance(defence, Defence) else defences.get(defence) for defence in names_or_defences]
    ready: list[Defence] = []
    for kind in kinds:
        if isinstance(kind, Defence):
            ready.append(kind)
        elif issubclass(kind, TenCrop):
            ready.append(kind.for_input(classifier))
        else:
            ready.append(kind())
    return tuple(ready)


def with_defences(classifier: Classifier, names: str | Sequence[str | Defence]) -> Classifier:
    """The classifier behind the named defences ("clahe", "denoise", "ten-crop"), or itself if there are none.

    Names may be one text with commas, as ``--defence clahe,ten-crop`` gives it.
    """
    if isinstance(names, str):
        stripped_names = [name.strip() for name in names.split(",")]
        names = [name for name in stripped_names if name]
    return Defended(classifier, *names) if names else classifier
