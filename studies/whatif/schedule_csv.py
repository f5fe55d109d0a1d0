"""The schedule of one run as `id,start,end` lines, and the SHA-256 of these lines."""

import hashlib
from collections.abc import Iterator

import numpy as np

from studies.simulation.run import Run
from studies.workloads.csv_trace import number_text
from studies.workloads.trace import id_keys


def schedule_lines(run: Run) -> Iterator[str]:
    """Yield one line for each job that ended, in the order of ids."""
    ids = run.trace.ids
    keys = id_keys(ids)
    if isinstance(keys, np.ndarray):
        order = np.argsort(keys, kind="stable").tolist()
    else:
        order = sorted(range(len(ids)), key=keys.__getitem__)
    started, finished = run.started.tolist(), run.finished.tolist()
    for row in order:
        if finished[row] == finished[row]:
            yield f"{ids[row]},{number_text(started[row])},{number_text(finished[row])}\n"


def fingerprint(run: Run) -> str:
    """Return the SHA-256 of the lines in hexadecimal."""
    digest = hashlib.sha256()
    for line in schedule_lines(run):
        digest.update(line.encode())
    return digest.hexdigest()
