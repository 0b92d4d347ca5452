"""Small payloads, whole and broken, for the browser tests."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence

import numpy as np
from PIL import Image

from shiftbench.metrics.calibration import ReliabilityBin
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.reports.page.payload import Estimate, ModelEntry, Page, ResultGrid, SettingEntry
from shiftbench.reports.page.report_data import empty_page
from shiftbench.reports.page.sections.calibration import CalibrationEntry
from shiftbench.reports.page.sections.corruptions import CorruptionFamily
from shiftbench.reports.page.sections.failures import FailureList

SECTIONS = ["robustness", "results", "corruptions", "calibration", "failures", "training", "methods", "warnings"]
CORRUPTIONS = ["gaussian_noise", "fog", "pixelate"]
GROUPS = ["noise", "weather", "digital"]


def share(hits: float, n: int) -> Estimate:
    """An accuracy with its Clopper-Pearson interval."""
    low, high = clopper_pearson(np.array([hits]), np.array([n]), 0.95)
    return (hits / n, float(low[0]), float(high[0]), n)


def setting(name: str, reference: str | None = None, *, metric: str = "top1", unit: str = "%") -> SettingEntry:
    return {
        "name": name,
        "reference": reference,
        "metric": metric,
        "unit": unit,
        "higher_is_better": True,
        "source": "own",
        "note": "",
        "provenance": "made for a test",
        "detail": False,
    }


def model(
    name: str, category: str = "standard", *, own: bool = False, fitted: bool = True, base: str = ""
) -> ModelEntry:
    about: ModelEntry = {
        "name": name,
        "id": "",
        "assumed": [],
        "training_images": [],
        "category": category,
        "base_model": base,
        "own": own,
        "fitted": fitted,
    }
    return about


#: The estimates of a model, one per setting.
Row = Sequence[Estimate | None]


def grid(rows: Mapping[str, Row], settings: Sequence[SettingEntry], **models: ModelEntry) -> ResultGrid:
    """A grid of models by settings; all models are standard ones unless given by name."""
    return {
        "settings": list(settings),
        "models": [models.get(name, model(name)) for name in rows],
        "estimates": [[*cells, *[None] * (len(settings) - len(cells))] for cells in rows.values()],
        "shifts": [
            {"name": one["name"], "x": one["reference"], "y": one["name"], "min_x": None, "pivot": None, "scale": None}
            for one in settings
            if one["reference"]
        ],
        "notes": [],
        "baseline": "standard",
        "least_line_models": 8,
        "level": 0.95,
    }


def page_of(results: ResultGrid | None, title: str = "a test") -> Page:
    page = empty_page(title)
    if results is not None:
        page["sections"]["results"] = results
    return page


def small_results() -> ResultGrid:
    """Eight standard models, one with more data that descends from one of them, and one of the reader's own."""
    hits = {
        "a": (620, 480),
        "b": (660, 521),
        "c": (701, 571),
        "d": (735, 610),
        "e": (762, 655),
        "f": (798, 690),
        "g": (820, 716),
        "h": (850, 752),
    }
    rows: dict[str, Row] = {name: [share(x, 1000), share(y, 1000)] for name, (x, y) in hits.items()}
    rows["data"] = [share(770, 1000), share(702, 1000)]
    rows["mine"] = [share(86, 114), share(79, 114)]
    return grid(
        rows,
        [setting("val"), setting("v2", "val")],
        data=model("data", "more_data", fitted=False, base="e"),
        mine=model("mine", "", own=True, fitted=False),
    )


def whole_page() -> Page:
    """Something in every section."""
    page = page_of(small_results())
    page["sections"] |= {
        "corruptions": [corruption_family()],
        "calibration": [calibration(name, where) for name in ("a", "mine") for where in ("val", "v2")],
        "failures": {
            "lists": [failures("a", "val", 5), failures("mine", "v2", 3)],
            "thumbnails": [thumbnail(i) for i in range(6)],
            "tagging": "",
        },
        "training": [
            {"name": "first", "steps": [0, 10, 20], "series": {"loss": [2.0, 1.2, 0.9], "accuracy": [0.1, 0.4, None]}},
            {"name": "second", "steps": [0, 10], "series": {"loss": [2.1, 1.0]}},
        ],
        "methods": [{"heading": "Datasets", "paragraphs": ["A thousand images."], "items": ["val: 1,000"]}],
    }
    page["warnings"] = ["one image was skipped", "another was converted"]
    return page


def corruption_family() -> CorruptionFamily:
    """Two models; the second lacks one corruption."""
    rng = np.random.default_rng(0)

    def curves(level: float) -> list[list[Estimate | None]]:
        hits = [[int(100 * level * (1 - 0.15 * s * (1 + 0.1 * c))) for s in (1, 2, 3)] for c in range(3)]
        return [[share(k, 100) for k in row] for row in hits]

    def errors(level: float) -> list[Estimate | None]:
        values = level + rng.uniform(-0.2, 0.2, 3)
        return [(float(v), float(v - 0.05), float(v + 0.05), 300) for v in values]

    missing = errors(1.1)
    missing[1] = None
    return {
        "prefix": "test-c", "corruptions": CORRUPTIONS, "groups": GROUPS, "severities": [1, 2, 3],
        "baseline": "AlexNet (published)", "mean": "mCE", "relative_mean": "relative mCE",
        "notes": ["three severities only"], "settings": [], "clean": "",
        "rows": [
            {"model": "a", "mce": (0.612, 0.59, 0.64, 300), "relative_mce": (0.7, 0.6, 0.8, 300), "ce": errors(0.6),
             "accuracy": curves(0.8), "clean": share(80, 100)},
            {"model": "mine", "mce": (1.083, 1.0, 1.2, 300), "relative_mce": None, "ce": missing,
             "accuracy": curves(0.6), "clean": share(60, 100)},
        ],
    }  # fmt: skip


def calibration(name: str, where: str) -> CalibrationEntry:
    hits = [(0.15, 1, 10), (0.45, 6, 12), (0.85, 55, 60), (0.99, 18, 18)]
    rates = np.linspace(0.05, 1, 20)
    bins = [(confidence, share(k, n)) for confidence, k, n in hits]
    return {
        "model": name, "setting": where, "n": 100, "rms": (0.061, 0.02, 0.11, 100), "ece": (0.043, 0.01, 0.09, 100),
        "aurra": (0.91, 0.86, 0.95, 100) if where == "val" else None,
        "bins": [
            ReliabilityBin(
                confidence - 0.01, confidence + 0.01, int(cell[3] or 0), confidence, cell[0], float(cell[1] or 0),
                float(cell[2] or 0),
            )
            for confidence, cell in bins
        ],
        "curve": [(float(rate), float(1 - 0.2 * rate**2)) for rate in rates],
    }  # fmt: skip


def failures(name: str, where: str, n: int) -> FailureList:
    return {
        "model": name,
        "setting": where,
        "dataset": "0123",
        "total": 40,
        "images": [
            {
                "id": f"images/{i}.png",
                "label": "jeep",
                "prediction": f"wrong {i}",
                "confidence": 0.99 - i / 10,
                "original": i,
                "shifted": None if i == 2 else i + 1,
                "wrong": 2,
                "of": 3,
                "tags": ["texture"] if i == 0 else [],
            }
            for i in range(n)
        ],
    }


def thumbnail(shade: int) -> str:
    stream = io.BytesIO()
    Image.new("RGB", (24, 24), (40 * shade, 90, 200 - 30 * shade)).save(stream, "PNG")
    return f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode()}"
