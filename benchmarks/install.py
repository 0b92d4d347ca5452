"""What ``pip install shiftbench`` brings: size on disk, and the first use in a fresh environment from the wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from benchmarks.page import save, table

ROOT = Path(__file__).parents[1]
EXTRAS = ("", "onnx", "demo")
GOAL_MB = 500
#: Load average that the installation itself leaves.
_OWN_LOAD = 1.5
#: Come with every environment.
_NOT_OURS = ("pip", "setuptools", "_distutils_hack")
_FIRST_USES = {
    "`shiftbench --help`": "import sys, shiftbench.cli\nsys.argv = ['shiftbench', '--help']\nshiftbench.cli.main()",
    "all 15 corruptions of one image": "import numpy as np, shiftbench as sb\n"
    "image = np.full((224, 224, 3), 99, np.uint8)\n"
    "for name in sb.corruptions(): sb.corrupt(image, name, 3, image_id='x')",
}


def environment(folder: Path, wheel: Path, extra: str) -> Path:
    """The interpreter of a fresh environment with the wheel."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    wanted = f"shiftbench[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
    install: list[str | Path] = [python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", wanted]
    subprocess.run(install, check=True, stderr=subprocess.DEVNULL)
    return python


def installed_mb(folder: Path) -> float:
    (packages,) = folder.glob("lib/python*/site-packages")
    own = [one for one in packages.iterdir() if not one.name.startswith(_NOT_OURS)]
    files = (file for one in own for file in ([one] if one.is_file() else one.rglob("*")) if file.is_file())
    return sum(file.stat().st_size for file in files) / 1e6


def seconds(python: Path, code: str, home: Path) -> float:
    """Of a new process with an empty home folder, and so without anything that an earlier one may have kept."""
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "XDG_CACHE_HOME")}
    begin = time.perf_counter()
    subprocess.run([python, "-c", code], check=True, stdout=subprocess.DEVNULL, env={**clean, "HOME": str(home)})
    return time.perf_counter() - begin


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT], check=True)
        wheel = next(folder.glob("shiftbench-*.whl"))
        pythons = {extra: environment(folder / f"env-{extra}", wheel, extra) for extra in EXTRAS}
        (folder / "home").mkdir()
        load = os.getloadavg()[0]
        first, second = (
            {what: seconds(pythons[""], code, folder / "home") for what, code in _FIRST_USES.items()} for _ in range(2)
        )
        sizes = {extra: installed_mb(folder / f"env-{extra}") for extra in EXTRAS}
    titles = {extra: f"`shiftbench[{extra}]`" if extra else "`shiftbench`" for extra in EXTRAS}
    markdown = (
        f"Fresh environments from the wheel. The goal is less than {GOAL_MB} MB for the core; the environment itself "
        "(pip, setuptools) is not counted.\n\n"
        + table(("", "MB installed"), [(titles[extra], f"{size:.0f}") for extra, size in sizes.items()])
        + "\n\nSeconds of the first two processes in the fresh environment, imports included; nothing is compiled:\n\n"
        + table(("", "first", "second"), [(what, f"{first[what]:.1f}", f"{second[what]:.1f}") for what in _FIRST_USES])
    )
    if load > _OWN_LOAD:
        markdown += f"\n\n**The machine was busy with other work meanwhile (load {load:.1f}): the times are too long.**"
    save("install", "Installation", {"mb": sizes, "first_s": first, "second_s": second, "load": load}, markdown)
    print(markdown)


if __name__ == "__main__":
    main()
