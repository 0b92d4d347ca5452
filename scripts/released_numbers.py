"""Write released_numbers.csv: what untouched public files give for the claims of the papers, in full digits.

    .venv/bin/python scripts/released_numbers.py shared/reference/data

`shiftbench reproduce --check` compares with them, so that it notices a change that rounding would hide. The folder has
the testbed's release (imagenet-testbed) and released predictions on ImageNetV2 and CIFAR-10.1.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from shiftbench.published.reproduce import reproduce
from shiftbench.published.reproduce.base import PREDICTIONS, PUBLIC, weighted_mean

TARGET = Path(__file__).resolve().parents[1] / "src" / "shiftbench" / "published" / "data" / "released_numbers.csv"


def main() -> None:
    folder = Path(sys.argv[1])
    with TARGET.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("claim", "numbers", "weighted_mean"))
        for checked in reproduce("all", testbed=folder / "imagenet-testbed", predictions=folder):
            values = [row.found.value for row in checked.rows if row.found is not None]
            if values and checked.claim.kind in (PUBLIC, PREDICTIONS):
                writer.writerow((checked.claim.name, len(values), f"{weighted_mean(values):.12f}"))


if __name__ == "__main__":
    main()
