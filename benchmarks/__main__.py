"""``python -m benchmarks``: all of them, one after the other; ``--page-only`` just writes the page."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.page import ORDER, write_page

if "--page-only" not in sys.argv:
    for name in ORDER:
        print(f"== {name}", flush=True)
        subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=True)
write_page()
