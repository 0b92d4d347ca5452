"""One number of a paper's table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PublishedValue:
    """``value`` is a fraction where ``unit`` is "%", else as printed; it lies within ``rounding`` of the true one."""

    paper: str
    table: str
    model: str
    setting: str
    metric: str
    value: float
    rounding: float
    #: The printed interval, where there is one, in the unit of ``value``.
    low: float | None = None
    high: float | None = None
    #: "%", "" (a plain number), "rank", "count" or "sign".
    unit: str = "%"

    def agrees(self, value: float) -> bool:
        """Whether a recomputed value prints as the paper's number.

        >>> PublishedValue("002", "1", "ResNet-50", "imagenet-c", "mCE", 0.767, 0.0005).agrees(0.7671)
        True
        """
        return abs(value - self.value) <= self.rounding * (1 + 1e-9)
