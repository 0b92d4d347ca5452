"""What a filtration leaves, on disk: pictures to import as candidates, and apart from them what models made of them.

DST/images/<class>/...   the shortlisted pictures as they came; this folder is imported, and knows no predictions
DST/funnel.json          how many each step left
DST/review.csv           what each picture was taken for, for the report; not for those who review
"""

from __future__ import annotations

import re
from pathlib import Path

from shiftbench.errors import ShiftbenchError
from shiftbench.io.atomic import write_atomically
from shiftbench.testsets.filtration.shortlist import Filtration
from shiftbench.testsets.pool.sources import Offer, dataset_offers

_NO_CLASS = "unlabelled"


def write_shortlist(filtration: Filtration, folder: str | Path) -> Path:
    """Returns the folder of pictures. An earlier shortlist is not mixed with this one."""
    folder = Path(folder)
    images = folder / "images"
    if images.exists():
        raise ShiftbenchError(f"{folder} holds a shortlist already", hint="name a new folder, or delete this one")
    images.mkdir(parents=True)
    for number, offer in enumerate(dataset_offers(filtration.subset())):
        _write(images / (offer.class_key or _NO_CLASS) / _file_name(number, offer), offer)
    filtration.review_list().write(folder / "review.csv")
    filtration.funnel.write(folder / "funnel.json")
    return images


def _write(path: Path, offer: Offer) -> None:
    data = offer.data() if callable(offer.data) else offer.data
    write_atomically(path, lambda temporary: temporary.write_bytes(data), durable=False)


def _file_name(number: int, offer: Offer) -> str:
    """The last part of the id, made safe; the number keeps two of the same name apart.

    >>> _file_name(7, Offer("cat/../my cat.jpg", b"", "cat"))
    '000007-my_cat.jpg'
    >>> _file_name(7, Offer("cifar/00012", b"", "cat"))
    '000007-00012.png'
    """
    last = re.sub(r"[^A-Za-z0-9._-]", "_", offer.id.rsplit("/", 1)[-1]).lstrip(".")
    return f"{number:06d}-{last}" if Path(last).suffix else f"{number:06d}-{last}.png"
