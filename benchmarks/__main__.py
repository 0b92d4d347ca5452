"""``python -m benchmarks``: all of them, one after the other, and docs/performance.md from their results."""

from __future__ import annotations

import argparse
import subprocess
import sys

from benchmarks.page import ORDER, write_page

parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
parser.add_argument("names", nargs="*", help=f"run only these: {', '.join(ORDER)}")
parser.add_argument("--page-only", action="store_true", help="only write the page, from the stored results")
options = parser.parse_args()
if unknown := set(options.names) - set(ORDER):
    parser.error(f"unknown benchmarks: {', '.join(sorted(unknown))}")
for name in [] if options.page_only else options.names or ORDER:
    print(f"== {name}", flush=True)
    subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=True)
write_page()
