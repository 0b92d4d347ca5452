"""Batches for every engine: checked, cut to what memory holds, and padded where the bits depend on the size."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable

import numpy as np

from shiftbench.arrays import Pixels
from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.preprocessing import Normalisation
from shiftbench.errors import ClassifierError, argument
from shiftbench.io.hashing import digest
from shiftbench.labels.space import Scores

# What allocators of torch, onnxruntime and C++ say; onnxruntime has no exception class of its own for it.
_MEMORY_WORDS = ("out of memory", "failed to allocate", "bad allocation", "bad_alloc", "not enough memory")


def out_of_memory(error: BaseException) -> bool:
    """Whether a smaller batch could help."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, Exception) and any(word in str(error).lower() for word in _MEMORY_WORDS)


class BatchedClassifier(Classifier):
    """Runs ``forward`` on pieces of at most ``batch_size`` images, halving it for good when memory runs out.

    Engines choose other kernels for other batch sizes, and then sum in another order. ``rows`` tells how many
    rows a piece must at least have for its bits not to depend on that; the rest is filled with black images.

    ``_running`` is a lock for engines that take one call at a time.
    """

    def __init__(self) -> None:
        self._shrinking, self._running = threading.Lock(), threading.Lock()

    @abstractmethod
    def forward(self, images: Pixels) -> Scores:
        """Scores of one piece; called from several threads at once."""

    def rows(self) -> int:
        return 1

    def scores(self, images: Pixels) -> Scores:
        self._check_images(images)
        parts: list[Scores] = []
        start = 0
        while start < len(images):
            size = self.batch_size
            try:
                piece = images[start : start + size]
                parts.append(self._check_scores(self.padded_forward(piece), len(piece)))
            except Exception as error:
                if size == 1 or not out_of_memory(error):
                    raise
                self._shrink(size // 2)
                continue
            start += size
        if not parts:
            return np.empty((0, len(self.space)), np.float32)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def padded_forward(self, images: Pixels) -> Scores:
        """``forward`` on as many rows as the engine needs, then without the added ones."""
        count, missing = len(images), min(self.rows(), self.batch_size) - len(images)
        if missing > 0:
            images = np.concatenate([images, np.zeros((missing, *images.shape[1:]), np.uint8)])
        return self.forward(images)[:count]

    def _shrink(self, size: int) -> None:
        with self._shrinking:
            self.batch_size = max(1, min(self.batch_size, size))

    def _check_images(self, images: Pixels) -> None:
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3:
            raise ClassifierError(
                f"{self.name}: expected a uint8 batch (N, H, W, 3)",
                found=f"{images.dtype} {images.shape}",
                expected="uint8 (N, height, width, 3)",
            )

    def _check_scores(self, scores: object, count: int) -> Scores:
        array = np.ascontiguousarray(scores, dtype=np.float32)
        if array.shape != (count, len(self.space)):
            raise ClassifierError(
                f"{self.name} gave scores of the wrong shape",
                found=array.shape,
                expected=f"{(count, len(self.space))}: one row per image, one column for each class of "
                f"{self.space.name!r}",
                hint=f"check the label space: {argument('labels')}",
            )
        return array

    def __getstate__(self) -> dict[str, object]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_shrinking", "_running")}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._shrinking, self._running = threading.Lock(), threading.Lock()


def trial_scores(name: str, images: Pixels, forward: Callable[[Pixels], Scores]) -> Scores:
    """Scores of a network that was never run before, to learn the number and the kind of its outputs."""
    try:
        scores = forward(images)
    except Exception as error:
        raise ClassifierError(
            f"{name} cannot be run on images of {images.shape[1]} x {images.shape[2]}",
            found=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
            hint=f"state the input it was trained with: {argument('preprocessing', 'size=32', flag='--preprocess')}; "
            "a network in half precision needs .float() first",
        ) from error
    if scores.ndim != 2 or len(scores) != len(images):
        raise ClassifierError(f"{name} gives no scores", found=scores.shape, expected="(N, classes)")
    return scores


def network_fingerprint(weights: str, normalisation: Normalisation, outputs: str) -> str:
    """Weights and architecture first; the normalisation counts too, because it happens inside ``scores``."""
    values = {
        "mean": normalisation.mean,
        "std": normalisation.std,
        "scale": normalisation.scale,
        "colour_order": normalisation.colour_order,
        "layout": normalisation.layout,
    }
    return digest(weights, values, outputs)
