"""Muster's own event log, as `muster log export` writes it: one event a line, whole or as a bundle.

A job's length is what its last attempt ran, from when every rank was up to the verdict, so that
another cluster with another start-up cost can run it again. Jobs that have not ended are left out.
"""

import zlib
from collections.abc import Iterable
from pathlib import Path

from controlplane import events as e
from controlplane.bundle import MAGIC, read_head
from controlplane.codec import from_line, from_row
from controlplane.devices import WHOLE
from controlplane.errors import LogCorrupt
from controlplane.job import Job
from controlplane.model import in_gpus
from controlplane.replay import open_snapshot
from controlplane.state import State
from studies.workloads.collecting import Collector
from studies.workloads.csv_trace import open_bytes
from studies.workloads.shares import Part, written
from studies.workloads.trace import BadTrace, Trace


def read_event_log(path: Path) -> Trace:
    found = Collector(path.name)
    state = State()
    line = 0
    try:
        with open_bytes(path) as file:
            for text in file:
                line += 1
                if line == 1 and text.startswith(MAGIC):
                    state = open_snapshot(read_head(text, file.readline())[1]).world
                    line = 2
                    continue
                if text.strip():
                    _take(found, state, from_row(from_line(text)))
    except (OSError, EOFError, zlib.error) as error:
        told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise BadTrace(str(path), None, f"cannot be read: {told}") from None
    except (ValueError, LogCorrupt) as error:
        raise BadTrace(path.name, line, f"is not an event: {error}") from None
    except (AssertionError, KeyError):
        told = "does not follow from the lines before it; an export must begin at position 1"
        raise BadTrace(path.name, line, told) from None
    return _finished(found, state)


def trace_of_events(name: str, events: Iterable[e.Recorded]) -> Trace:
    """The same from events that have been read already, from the first one on."""
    found, state = Collector(name), State()
    for recorded in events:
        _take(found, state, recorded)
    return _finished(found, state)


def _finished(found: Collector, state: State) -> Trace:
    for job in state.jobs.values():
        if job.finished:
            _add(found, job)
        else:
            found.leave_out("had not ended")
    return found.trace()


def _take(found: Collector, state: State, recorded: e.Recorded) -> None:
    """Folds one event in; a job that is removed is noted while it is still there."""
    event = recorded.event
    if isinstance(event, e.JobRemoved):
        _add(found, state.jobs[event.job])
    state.apply(recorded)


def _add(found: Collector, job: Job) -> None:
    attempt = job.attempt
    began = None if attempt is None else attempt.running_at
    if job.finished_at is None or began is None:
        found.leave_out("never ran")
        return
    spec = job.spec
    parts = tuple(
        Part(role.replicas, role.gpu_share, role.gpu_memory_mib)
        for role in spec.roles
        if role.shares_device
    )
    shared_milli = sum(part.ranks * part.share for part in parts)
    found.add(
        job.id, job.submitted_at, in_gpus(spec.gpus * WHOLE + shared_milli), job.finished_at - began,
        shares=written(parts),
        priority=spec.priority,
        estimate=spec.active_deadline_s,
        queue=spec.queue, user=job.namespace, kind=spec.kind, status=job.phase.value,
    )  # fmt: skip
