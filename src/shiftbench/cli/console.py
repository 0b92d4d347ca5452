"""Where commands write: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console

output = Console()
errors = Console(stderr=True)


def print_json(value: Any) -> None:
    """Machine-readable output, and nothing else, on stdout."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
