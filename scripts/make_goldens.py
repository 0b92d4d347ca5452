#!/usr/bin/env python3
"""Write tests/shifts/goldens.npz: outputs of the published ImageNet-C code, for the parity tests.

    python3 scripts/make_goldens.py

The script creates a temporary environment, installs the published package ``imagenet-c`` with the versions of its
dependencies that it still works with, and runs the published functions there. ``imagenet-c`` calls ImageMagick: install
the library MagickWand 6 first (Debian and Ubuntu: ``libmagickwand-6.q16-6``), or set MAGICK_HOME to where it is.

The package is written for 224 x 224 images. CIFAR-10-C was made by the same functions with 32 in place of 224, smaller
severities and frost textures scaled by 0.2, so the 32 px goldens come from the package's own source with these
constants replaced. The frost textures are generated: the arithmetic is what is compared, not the photographs.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

REPOSITORY = Path(__file__).resolve().parents[1]
TARGET = REPOSITORY / "tests" / "shifts" / "goldens.npz"
PACKAGE = "imagenet-c==0.0.3"
# The last versions that still have `np.float_` and `pkg_resources`, which the package uses.
REQUIREMENTS = (
    "numpy==1.26.4",
    "scipy==1.11.4",
    "scikit-image==0.20.0",
    "pillow==10.4.0",
    "opencv-python-headless==4.9.0.80",
    "wand==0.6.13",
    "setuptools==70.3.0",
)
# Severities 1 to 5 of CIFAR-10-C, as published by the authors of the benchmark.
CIFAR = {
    "gaussian_noise": (0.04, 0.06, 0.08, 0.09, 0.10),
    "shot_noise": (500, 250, 100, 75, 50),
    "impulse_noise": (0.01, 0.02, 0.03, 0.05, 0.07),
    "speckle_noise": (0.06, 0.1, 0.12, 0.16, 0.2),
    "gaussian_blur": (0.4, 0.6, 0.7, 0.8, 1),
    "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    "zoom_blur": ((1, 1.06, 0.01), (1, 1.11, 0.01), (1, 1.16, 0.01), (1, 1.21, 0.01), (1, 1.26, 0.01)),
    "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    "frost": ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
    "snow": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    "spatter": (
        (0.62, 0.1, 0.7, 0.7, 0.5, 0),
        (0.65, 0.1, 0.8, 0.7, 0.5, 0),
        (0.65, 0.3, 1, 0.69, 0.5, 0),
        (0.65, 0.1, 0.7, 0.69, 0.6, 1),
        (0.65, 0.1, 0.5, 0.68, 0.6, 1),
    ),
    "contrast": (0.75, 0.5, 0.4, 0.3, 0.15),
    "brightness": (0.05, 0.1, 0.15, 0.2, 0.3),
    "saturate": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
    "jpeg_compression": (80, 65, 58, 50, 40),
    "pixelate": (0.95, 0.9, 0.85, 0.75, 0.65),
    # As shares of the side of the image, 32.
    "elastic_transform": (
        (32 * 0, 32 * 0, 32 * 0.08),
        (32 * 0.05, 32 * 0.2, 32 * 0.07),
        (32 * 0.08, 32 * 0.06, 32 * 0.06),
        (32 * 0.1, 32 * 0.04, 32 * 0.05),
        (32 * 0.1, 32 * 0.03, 32 * 0.03),
    ),
}


def main() -> None:
    """Create the environment, and run this script again inside it."""
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "environment"
        venv.create(environment, with_pip=True)
        python = environment / "bin" / "python"
        install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*install, *REQUIREMENTS], check=True)
        # Its own requirements (OpenCV 3) have no builds for this Python; the pinned ones are installed above.
        subprocess.run([*install, "--no-deps", PACKAGE], check=True)
        subprocess.run([str(python), __file__, "--inside", folder], check=True, env={**os.environ, "PYTHONPATH": ""})
    print(f"wrote {TARGET} ({TARGET.stat().st_size / 1e6:.1f} MB)")


def write_goldens(folder: Path) -> None:
    """Inside the environment: run every published corruption on every test image."""
    import numpy as np

    sys.path.insert(0, str(REPOSITORY))
    from tests.shifts import goldens, pictures

    textures = folder / "textures"
    textures.mkdir()
    pictures.write_frost_textures(textures)
    drawn = [make(32) for make in (pictures.landscape, pictures.cut_out, pictures.patches)]
    inputs = {224: _photograph(224)[None], 32: np.stack([_photograph(32), *drawn])}
    arrays = {f"input.{side}": images for side, images in inputs.items()}
    for side, images in inputs.items():
        functions = _published_functions(side, textures)
        for name in functions:
            for severity in range(1, 6):
                corrupted = []
                for i, image in enumerate(images):
                    seed = goldens.seed(name, severity, i)
                    corrupted.append(_run(functions[name], image, severity, seed))
                arrays[goldens.key(side, name, severity)] = np.stack(corrupted)[:, goldens.rows(side, severity)]
    np.savez_compressed(TARGET, **arrays)


def _run(function: Any, image: np.ndarray, severity: int, seed: int) -> np.ndarray:
    import numpy as np
    from PIL import Image

    # The published code draws from this generator.
    np.random.seed(seed)  # noqa: NPY002
    return np.uint8(function(Image.fromarray(image), severity))


def _photograph(side: int) -> np.ndarray:
    """A photograph in the public domain that scikit-image carries: the astronaut Eileen Collins, by NASA."""
    import numpy as np
    import skimage.data
    from PIL import Image

    return np.array(Image.fromarray(skimage.data.astronaut()[:448, :448]).resize((side, side), Image.BOX))


def _published_functions(side: int, textures: Path) -> dict[str, Any]:
    """The package's functions by name; for 32 px, compiled from its source with the constants of CIFAR-10-C."""
    import imagenet_c
    import imagenet_c.corruptions as published

    module: Any = published
    if side == 32:
        tree = ast.fix_missing_locations(_Small().visit(ast.parse(Path(published.__file__).read_text())))
        module = ModuleType("imagenet_c.corruptions_32")
        exec(compile(tree, published.__file__, "exec"), vars(module))
        vars(module)["CIFAR"] = {**CIFAR, "zoom_blur": [module.np.arange(*row) for row in CIFAR["zoom_blur"]]}
    module.gaussian = _gaussian
    module.resource_filename = lambda package, name: str(textures / Path(name).name)
    return {name: getattr(module, name) for name in imagenet_c.corruption_dict}


def _gaussian(image: np.ndarray, sigma: float, multichannel: bool = False, **options: Any) -> np.ndarray:
    """The filter of scikit-image, whose newer versions call the argument `channel_axis`."""
    from skimage.filters import gaussian

    return gaussian(image, sigma, channel_axis=-1 if multichannel else None, **options)


class _Small(ast.NodeTransformer):
    """Changes the code from 224 px to 32 px: sizes, the fog map's side, severities, and the scale of frost textures."""

    def __init__(self) -> None:
        self.function = ""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.function = node.name
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        # 224.0 == 224, but only whole numbers are sizes.
        if type(node.value) is int and node.value in (224, 256):
            return ast.Constant(32)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        source = ast.unparse(node)
        if source.startswith("c = [") and source.endswith("[severity - 1]") and self.function in CIFAR:
            return ast.parse(f"c = CIFAR[{self.function!r}][severity - 1]").body[0]
        if source == "frost = cv2.imread(filename)":
            return ast.parse("frost = cv2.resize(cv2.imread(filename), (0, 0), fx=0.2, fy=0.2)").body[0]
        return self.generic_visit(node)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        write_goldens(Path(sys.argv[2]))
    else:
        main()
