"""One run: the real engine, scheduler and state machines over a workload, in virtual time."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from adapters.clocks.simpy_clock import SimpyClock, as_process, closing
from adapters.logs.memory_log import MemoryLog
from adapters.simulated_cluster.cluster import SimulatedCluster
from adapters.simulated_cluster.workload import SCHEMA
from controlplane.engine import Engine, EngineOptions
from controlplane.kinds.registry import register_hint
from controlplane.model.events import Recorded
from controlplane.model.policy import Queue
from controlplane.ports import Cluster
from controlplane.queries.queries import gpus_wanted
from simulator.kernel.virtual_time import VirtualTime
from studies.simulation.arrivals import Arrivals
from studies.simulation.autoscaler import Autoscaler
from studies.simulation.checkpointing import Checkpointed
from studies.simulation.hardware import TraceHardware
from studies.simulation.null_log import NullLog
from studies.simulation.recorder import Recorder
from studies.simulation.trace_jobs import Submissions, queue_names
from studies.whatif.clusters import StudyCluster
from studies.whatif.policies import StudyPolicy, beginning
from studies.whatif.scenario_parts import Autoscale, Checkpoints
from studies.workloads.shares import count_memory
from studies.workloads.trace import Trace

OPTIONS = EngineOptions(resync_s=None, snapshot_every=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """One row for each attempt in the order of placement, and the places of the attempts."""

    job: NDArray[np.int64]
    placed_at: NDArray[np.float64]
    running_at: NDArray[np.float64]
    stopped_at: NDArray[np.float64]
    ended_at: NDArray[np.float64]
    outcome: NDArray[np.uint8]
    place_attempt: NDArray[np.int64]
    place_node: NDArray[np.int64]
    place_gpus: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The outcome of a run, as arrays by row of the trace; times are those of the trace."""

    trace: Trace
    cluster: StudyCluster
    policy: StudyPolicy
    checkpoints: Checkpoints
    started: NDArray[np.float64]
    finished: NDArray[np.float64]
    failed: NDArray[np.bool_]
    restarts: NDArray[np.int32]
    # Rows whose submission was refused, and why.
    refused: dict[int, str]
    # Rows that were unschedulable to the end, because they could not start on the cluster as it
    # was.
    unschedulable: dict[int, str]
    attempts: Attempts
    # The GPUs on nodes that accept work, as (time, GPUs) at every change.
    capacity: Sequence[tuple[float, int]]
    # The number of restarts by cause.
    causes: dict[str, int]
    # By row, the seconds waited for each reason, if reasons were requested.
    reasons: dict[int, dict[str, float]]
    # By pool, the cost of its nodes and the GPU-seconds for which they existed.
    spent: dict[str, float]
    pooled_gpu_s: dict[str, float]
    # When the study ended, and the number of events recorded.
    ended_at: float
    events: int
    # All events, if they were requested.
    log: Sequence[Recorded] | None


def run(
    trace: Trace,
    cluster: StudyCluster,
    policy: StudyPolicy,
    *,
    queues: Sequence[Queue] = (),
    checkpoints: Checkpoints | None = None,
    autoscale: Autoscale | None = None,
    keep_events: bool = False,
    recorded_on: str = "",
    until_s: float | None = None,
    reasons: bool = False,
    places: bool = True,
) -> Run:
    """Run until every job has ended, or for `until_s` seconds from the first submission.

    `queues` defines the queues that it names; other queues of the trace have no quota. Events are
    kept only with `keep_events`. `recorded_on` names the hardware of the trace if jobs should run
    at the speed of the studied cluster. Raise ValueError for a trace without jobs.
    """
    if not len(trace):
        raise ValueError("a study needs at least one job")
    # Admission checks the durations of jobs with it.
    register_hint(SCHEMA)
    if reasons:
        policy = StudyPolicy(
            policy.name, policy.description, replace(policy.policy, records_reasons=True)
        )
    places = places and not cluster.pooled
    plan = checkpoints or Checkpoints()
    world = _Simulation(
        trace, cluster, policy, queues, plan, keep_events=keep_events, places=places
    )
    world.recorded_on = TraceHardware(recorded_on) if recorded_on else None
    recorder = world.begin()
    if autoscale is not None:
        Autoscaler(world.env, world.engine, autoscale)
    world.let_people_come(recorder)
    world.drive(recorder, until_s)
    return world.outcome(recorder)


class _Simulation:
    """One simulation. Its time 0 is that of the first submission."""

    def __init__(
        self,
        trace: Trace,
        cluster: StudyCluster,
        policy: StudyPolicy,
        queues: Sequence[Queue],
        checkpoints: Checkpoints,
        *,
        keep_events: bool,
        places: bool,
    ) -> None:
        # The demands of jobs as written, and the same with demands in memory converted to GPUs.
        self.asked, self.trace = trace, count_memory(trace, cluster.device_memory_mib)
        self.cluster, self.policy = cluster, policy
        self.checkpoints = checkpoints
        self.recorded_on: TraceHardware | None = None
        self.origin = float(trace.submit[0])
        self.env = VirtualTime()
        self.names = queue_names(trace)
        defined = {queue.name: queue for queue in queues}
        for name in self.names.values():
            defined.setdefault(name, Queue(name))
        past = beginning(policy, defined.values(), at=self.origin)
        self._log: MemoryLog | NullLog = MemoryLog(past) if keep_events else NullLog(past=past)
        self._simulated = SimulatedCluster(
            self.env, cluster.model, origin=self.origin, waiting_gpus=self._waiting_gpus
        )
        machine: Cluster = self._simulated
        self._checkpointed: Checkpointed | None = None
        if checkpoints.every_s:
            machine = self._checkpointed = Checkpointed(machine, checkpoints)
        # Succeeds when the last job has ended.
        self._done = self.env.event()
        self.recorder = Recorder(len(trace), self._done.succeed, places=places)
        self.engine = Engine(
            SimpyClock(self.env, origin=self.origin),
            self._log,
            machine,
            OPTIONS,
            self.recorder,
        )
        self._leading = as_process(self.env, self.engine.run())

    def _waiting_gpus(self) -> int:
        """Return the GPUs that jobs wait for, by which autoscaled pools of a cluster file grow."""
        return gpus_wanted(self.engine.world)

    def begin(self) -> Recorder:
        """Run until the engine leads and knows every node, all at time 0."""
        while not self.engine.world.surveyed:
            self.env.step()
        self.recorder.begin(self.engine.world, self.origin)
        if self._checkpointed is not None:
            self._checkpointed.recorder = self.recorder
        return self.recorder

    def let_people_come(self, recorder: Recorder) -> None:
        """Start the arrival process; the first job arrives at time 0, which is now."""
        submissions = Submissions(
            self.asked, self.cluster, self.names, self.recorded_on, self.checkpoints
        )
        times = (self.trace.submit - self.origin).tolist()
        vet = self._simulated.vet
        arrivals = Arrivals(self.env, self.engine, recorder, submissions, times, vet)
        self.env.call_after(0.0, arrivals.submit_due)

    def drive(self, recorder: Recorder, until_s: float | None) -> None:
        """Run until every job has ended or `until_s` has passed.

        With faults the event queue never empties, so the end is an event of its own.
        """
        if recorder.left:
            ends = [self._done] if until_s is None else [self._done, closing(self.env, until_s)]
            self.env.run(self.env.any_of(ends))
        assert not self._leading.triggered, "the engine stopped in the middle of a study"

    def outcome(self, recorder: Recorder) -> Run:
        r = recorder
        rows = slice(r.attempts)
        return Run(
            trace=self.trace,
            cluster=self.cluster,
            policy=self.policy,
            checkpoints=self.checkpoints,
            started=np.frombuffer(r.started),
            finished=np.frombuffer(r.finished),
            failed=np.frombuffer(r.failed, dtype=np.bool_),
            restarts=np.frombuffer(r.restarts, dtype=np.int32),
            refused=r.refused,
            unschedulable=r.unschedulable,
            attempts=Attempts(
                job=np.frombuffer(r.attempt_job, dtype=np.int64)[rows],
                placed_at=np.frombuffer(r.placed_at)[rows],
                running_at=np.frombuffer(r.running_at)[rows],
                stopped_at=np.frombuffer(r.stopped_at)[rows],
                ended_at=np.frombuffer(r.ended_at)[rows],
                outcome=np.frombuffer(r.outcome, dtype=np.uint8)[rows],
                place_attempt=np.frombuffer(r.place_attempt, dtype=np.int64),
                place_node=np.frombuffer(r.place_node, dtype=np.int64),
                place_gpus=np.frombuffer(r.place_gpus, dtype=np.float64),
            ),
            capacity=r.capacity,
            causes=dict(sorted(r.causes.items())),
            reasons=r.reasons,
            spent=self._simulated.spent,
            pooled_gpu_s=self._simulated.pooled_gpu_s,
            ended_at=self.origin + self.env.now,
            events=r.events,
            log=self._log.events if isinstance(self._log, MemoryLog) else None,
        )
