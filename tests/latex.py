"""LaTeX that is really compiled, where it is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

PREAMBLE = r"\documentclass{article}\usepackage{booktabs,longtable}\begin{document}"


def compile_latex(text: str, folder: Path) -> None:
    """Fail with LaTeX's errors, and skip without ``pdflatex`` (Debian: texlive-latex-recommended)."""
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed (texlive-latex-recommended)")
    (folder / "tables.tex").write_text(f"{PREAMBLE}\n{text}\n\\end{{document}}\n", encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "tables.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    log = done.stdout.decode(errors="replace")
    assert done.returncode == 0, re.findall(r"^! .*(?:\n.*){0,4}", log, re.MULTILINE)[:3] or log[-500:]
