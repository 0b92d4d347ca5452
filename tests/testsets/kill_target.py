"""One annotator as a process of its own, so that tests can kill it: FOLDER ACCOUNT.

Writes a line for each answer after it was acknowledged.
"""

from __future__ import annotations

import sys

from shiftbench.testsets import Project, annotation

if __name__ == "__main__":
    project = Project.open(sys.argv[1])
    person = int(sys.argv[2])
    while (grid := annotation.next_task(project, person)) is not None:
        receipt = annotation.submit(project, person, grid.task, grid.images[::3])
        print(receipt.task, receipt.selected, flush=True)
