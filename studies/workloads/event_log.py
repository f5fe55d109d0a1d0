"""Muster's own event log as `muster log export` writes it: one event per line, or a bundle.

The duration of a job is that of its last attempt, from the start of the last rank to the verdict,
so that a cluster with another start-up time can run it again. Jobs that have not ended are left
out.
"""

import zlib
from collections.abc import Iterable
from pathlib import Path

from controlplane.audit.bundle import MAGIC, read_head
from controlplane.lifecycle.job import Job
from controlplane.log.codec import from_line
from controlplane.log.fold import fold
from controlplane.log.snapshots import read_snapshot
from controlplane.model import events as e
from controlplane.model.errors import LogCorrupt
from controlplane.model.rows import GENESIS
from controlplane.model.values import in_gpus
from controlplane.state.devices import WHOLE
from controlplane.state.state import State
from studies.workloads.collecting import Collector
from studies.workloads.csv_trace import open_bytes
from studies.workloads.shares import Part, written
from studies.workloads.trace import BadTrace, Trace


def read_event_log(path: Path) -> Trace:
    """Return the jobs of an exported log or a bundle; raise BadTrace with the first bad line."""
    collector = Collector(path.name)
    state, digest = State(), GENESIS
    line = 0
    try:
        with open_bytes(path) as file:
            for text in file:
                line += 1
                if line == 1 and text.startswith(MAGIC):
                    image = read_snapshot(read_head(text, file.readline())[1])
                    state, digest = State(image), image.hash
                    line = 2
                elif text.strip():
                    row = from_line(text)
                    if row.type == e.JobRemoved.__name__ and row.stream in state.jobs:
                        # The fold removes the job, so it is added before.
                        _add(collector, state.jobs[row.stream])
                    digest = fold(state, [row], digest)
    except (OSError, EOFError, zlib.error) as error:
        message = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise BadTrace(str(path), None, f"cannot be read: {message}") from None
    except ValueError as error:
        raise BadTrace(path.name, line, f"is not an event: {error}") from None
    except LogCorrupt as error:
        message = f"does not follow from the lines before it ({error}); export the whole log again"
        raise BadTrace(path.name, line, message) from None
    return _finished(collector, state)


def trace_of_events(name: str, events: Iterable[e.Recorded]) -> Trace:
    """Return the jobs of events that are already decoded; the first must be at position 1."""
    collector, state = Collector(name), State()
    for recorded in events:
        if isinstance(recorded.event, e.JobRemoved):
            _add(collector, state.jobs[recorded.event.job])
        state.apply(recorded)
    return _finished(collector, state)


def _finished(collector: Collector, state: State) -> Trace:
    for job in state.jobs.values():
        if job.finished:
            _add(collector, job)
        else:
            collector.leave_out("had not ended")
    return collector.trace()


def _add(collector: Collector, job: Job) -> None:
    attempt = job.attempt
    began = None if attempt is None else attempt.running_at
    if job.finished_at is None or began is None:
        collector.leave_out("never ran")
        return
    spec = job.spec
    parts = tuple(
        Part(role.replicas, role.gpu_share, role.gpu_memory_mib)
        for role in spec.roles
        if role.shares_device
    )
    shared_milli = sum(part.ranks * part.share for part in parts)
    collector.add(
        job.id, job.submitted_at, in_gpus(spec.gpus * WHOLE + shared_milli), job.finished_at - began,
        shares=written(parts),
        priority=spec.priority,
        estimate=spec.active_deadline_s,
        queue=spec.queue, user=job.namespace, kind=spec.kind, status=job.phase.value,
    )  # fmt: skip
