"""One run: the real engine, scheduler and state machines over a workload, in virtual time."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from adapters.simpy_clock import SimpyClock, as_process
from adapters.simulated_cluster import SimulatedCluster
from controlplane.engine import Engine, EngineOptions
from controlplane.model import Queue
from controlplane.ports import EventLog
from studies.clusters import StudyCluster
from studies.forgetful_log import ForgetfulLog
from studies.policies import StudyPolicy, beginning
from studies.recorder import Recorder
from studies.submissions import queue_names, submissions
from studies.workloads.trace import Trace

OPTIONS = EngineOptions(resync_s=None, snapshot_every=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What came of it, as arrays by the trace's rows; times are the trace's own."""

    trace: Trace
    cluster: StudyCluster
    policy: str
    started: NDArray[np.float64]
    finished: NDArray[np.float64]
    failed: NDArray[np.bool_]
    restarts: NDArray[np.int32]
    # Rows that were refused at the door, and why.
    refused: dict[int, str]
    attempts: "Attempts"
    # When the last thing happened, and how many events the log would have.
    ended_at: float
    events: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """One row an attempt, in the order of placement; and where each of them was."""

    job: NDArray[np.int64]
    placed_at: NDArray[np.float64]
    running_at: NDArray[np.float64]
    stopped_at: NDArray[np.float64]
    ended_at: NDArray[np.float64]
    outcome: NDArray[np.uint8]
    place_attempt: NDArray[np.int64]
    place_node: NDArray[np.int64]
    place_gpus: NDArray[np.int64]


def run(
    trace: Trace,
    cluster: StudyCluster,
    policy: StudyPolicy,
    *,
    log: EventLog | None = None,
    until_s: float | None = None,
    places: bool = True,
    progress: Callable[[int], None] | None = None,
) -> Run:
    """Runs until every job has ended, or for `until_s` seconds from the first submission.

    Without a `log` no event is kept. `progress` is told now and then how many jobs are left.
    """
    origin = float(trace.submit[0]) if len(trace) else 0.0
    env = simpy.Environment()
    clock = SimpyClock(env, origin=origin)
    machine = SimulatedCluster(env, cluster.model, origin=origin)
    recorder: Recorder | None = None

    def note(batch: Any) -> None:
        if recorder is not None:
            recorder(batch)

    queues = queue_names(trace)
    past = beginning(policy, [Queue(name) for name in queues.values()])
    engine = Engine(clock, log or ForgetfulLog(past=past, at=origin), machine, OPTIONS, note)
    leading = as_process(env, engine.run())
    while not engine.world.surveyed:
        env.step()
    recorder = Recorder(len(trace), engine.world, places=places and not cluster.pooled)
    submission = submissions(trace, cluster, queues, forget=True)
    env.process(_people(env, engine, trace, recorder, submission, origin))
    _drive(env, recorder, leading, until_s, progress)
    return _outcome(trace, cluster, policy, recorder, origin + env.now)


def _people(
    env: simpy.Environment,
    engine: Engine,
    trace: Trace,
    recorder: Recorder,
    submission: Callable[[int], Any],
    origin: float,
) -> Generator[simpy.Event, Any, None]:
    for row, at in enumerate(trace.submit.tolist()):
        wait_s = at - origin - env.now
        if wait_s > 0:
            yield env.timeout(wait_s)
        engine.submit(submission(row), partial(recorder.answered, row))


def _drive(
    env: simpy.Environment,
    recorder: Recorder,
    leading: simpy.Process,
    until_s: float | None,
    progress: Callable[[int], None] | None,
) -> None:
    """Steps until nothing is left to do. With faults there is always something yet to come."""
    step, limit = env.step, float("inf") if until_s is None else until_s
    count = 0
    while recorder.left and env.peek() <= limit:
        step()
        count += 1
        if progress is not None and not count & 0xFFFF:
            progress(recorder.left)
    assert not leading.triggered, "the engine stopped in the middle of a study"


def _outcome(
    trace: Trace, cluster: StudyCluster, policy: StudyPolicy, recorder: Recorder, ended_at: float
) -> Run:
    r = recorder
    return Run(
        trace=trace,
        cluster=cluster,
        policy=policy.name,
        started=np.frombuffer(r.started),
        finished=np.frombuffer(r.finished),
        failed=np.frombuffer(r.failed, dtype=np.bool_),
        restarts=np.frombuffer(r.restarts, dtype=np.int32),
        refused=r.refused,
        attempts=Attempts(
            job=np.frombuffer(r.attempt_job, dtype=np.int64),
            placed_at=np.frombuffer(r.placed_at),
            running_at=np.frombuffer(r.running_at),
            stopped_at=np.frombuffer(r.stopped_at),
            ended_at=np.frombuffer(r.ended_at),
            outcome=np.frombuffer(r.outcome, dtype=np.uint8),
            place_attempt=np.frombuffer(r.place_attempt, dtype=np.int64),
            place_node=np.frombuffer(r.place_node, dtype=np.int64),
            place_gpus=np.frombuffer(r.place_gpus, dtype=np.int64),
        ),
        ended_at=ended_at,
        events=r.events,
    )
