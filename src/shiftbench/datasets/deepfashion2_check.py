"""Is a folder DeepFashion2, from which DeepFashion Remixed is made, and is it whole?"""

from __future__ import annotations

from pathlib import Path

from shiftbench.datasets.deepfashion2 import is_deepfashion2
from shiftbench.datasets.official import DataReport
from shiftbench.errors import listed

#: Annotated pictures of the released parts.
_EXPECTED = {"train": 191_961, "validation": 32_153}


def check_deepfashion2(path: Path) -> DataReport | None:
    """Every annotation file needs its picture, and both parts are needed."""
    if not path.is_dir() or not is_deepfashion2(path):
        return None
    report = DataReport(
        str(path), "DeepFashion2", "annotation files beside pictures", role="deepfashion-remixed",
        suite="deepfashion-remixed", images_expected=sum(_EXPECTED.values()), classes_expected=13,
        space="deepfashion2-13",
    )  # fmt: skip
    report.home = "GitHub, switchablenorms/DeepFashion2, which gives the password of the archives on request"
    for part, expected in _EXPECTED.items():
        annotated = {file.stem for file in (path / part / "annos").glob("*.json")}
        pictured = {file.stem for file in (path / part / "image").glob("*.jpg")}
        report.images += len(annotated & pictured)
        if without := sorted(annotated - pictured):
            report.missing.append(f"the pictures of {len(without):,} annotations of {part}: {listed(without, most=3)}")
        if len(annotated) < expected:
            report.missing.append(f"{expected - len(annotated):,} of {expected:,} annotation files of {part}")
    report.notes.append(f"shiftbench data factors {path} deepfashion-remixed says how many fall into each set")
    return report
