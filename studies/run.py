"""One run: the real engine, scheduler and state machines over a workload, in virtual time."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from adapters.memory_log import MemoryLog
from adapters.simpy_clock import SimpyClock, as_process, closing
from adapters.simulated_cluster import SimulatedCluster
from controlplane.collector import collecting_seldom
from controlplane.engine import Engine, EngineOptions
from controlplane.events import Recorded
from controlplane.ports import Cluster
from controlplane.queries import gpus_wanted
from controlplane.sharing import Queue
from simulator.virtual_time import VirtualTime
from studies.autoscaler import Autoscaler
from studies.checkpointing import Checkpointed
from studies.clusters import StudyCluster
from studies.forgetful_log import ForgetfulLog
from studies.hardware import Recorded as RecordedOn
from studies.people import People
from studies.policies import StudyPolicy, beginning
from studies.recorder import Recorder
from studies.scenario_parts import Autoscale, Checkpoints
from studies.submissions import Submissions, queue_names
from studies.workloads.shares import count_memory
from studies.workloads.trace import Trace

OPTIONS = EngineOptions(resync_s=None, snapshot_every=None)


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
    place_gpus: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What came of it, as arrays by the trace's rows; times are the trace's own."""

    trace: Trace
    cluster: StudyCluster
    policy: StudyPolicy
    checkpoints: Checkpoints
    started: NDArray[np.float64]
    finished: NDArray[np.float64]
    failed: NDArray[np.bool_]
    restarts: NDArray[np.int32]
    # Rows that were refused at the door, and why.
    refused: dict[int, str]
    # Rows that were set aside to the end, because they could not start on the cluster as it was.
    unschedulable: dict[int, str]
    attempts: Attempts
    # GPUs on nodes that take work, whenever that changes.
    capacity: Sequence[tuple[float, int]]
    # How often gangs had to start again, by cause.
    causes: dict[str, int]
    # Row -> seconds waited by reason, where reasons were asked for.
    reasons: dict[int, dict[str, float]]
    # What the nodes of each pool have cost, and the GPU-seconds for which they were there.
    spent: dict[str, float]
    pooled_gpu_s: dict[str, float]
    # When the study ended, and how many events the log would have.
    ended_at: float
    events: int
    # All of them, where they were asked for.
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
    """Runs until every job has ended, or for `until_s` seconds from the first submission.

    `queues` define those that they name; other queues of the trace have no quota. No event is kept
    unless asked for. `recorded_on` names the trace's machines, where jobs are to run at the speed of
    the studied ones.
    """
    if not len(trace):
        raise ValueError("a study needs at least one job")
    if reasons:
        policy = StudyPolicy(policy.name, policy.told, replace(policy.policy, records_reasons=True))
    places = places and not cluster.pooled
    plan = checkpoints or Checkpoints()
    world = _Life(trace, cluster, policy, queues, plan, keep_events=keep_events, places=places)
    world.recorded_on = RecordedOn(recorded_on) if recorded_on else None
    recorder = world.begin()
    if autoscale is not None:
        Autoscaler(world.env, world.engine, autoscale)
    world.let_people_come(recorder)
    with collecting_seldom():
        world.drive(recorder, until_s)
    return world.outcome(recorder)


class _Life:
    """A world in virtual time. Its time 0 is that of the first submission."""

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
        # What jobs ask for, and the same with what they ask for by memory counted in GPUs.
        self.asked, self.trace = trace, count_memory(trace, cluster.device_memory_mib)
        self.cluster, self.policy = cluster, policy
        self.checkpoints = checkpoints
        self.recorded_on: RecordedOn | None = None
        self.origin = float(trace.submit[0])
        self.env = VirtualTime()
        self.names = queue_names(trace)
        defined = {queue.name: queue for queue in queues}
        for name in self.names.values():
            defined.setdefault(name, Queue(name))
        past = beginning(policy, defined.values())
        self._log: MemoryLog | ForgetfulLog = ForgetfulLog(past=past, at=self.origin)
        if keep_events:
            self._log = MemoryLog(Recorded(i, self.origin, x) for i, x in enumerate(past, 1))
        self._simulated = SimulatedCluster(
            self.env, cluster.model, origin=self.origin, waiting_gpus=self._waiting_gpus
        )
        machine: Cluster = self._simulated
        self._checkpointed: Checkpointed | None = None
        if checkpoints.every_s:
            machine = self._checkpointed = Checkpointed(machine, checkpoints)
        # Happens when the last job has ended.
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
        """What autoscaled pools of a cluster file grow by."""
        return gpus_wanted(self.engine.world)

    def begin(self) -> Recorder:
        """Lets the engine take the lead and learn of every node, all at time 0."""
        while not self.engine.world.surveyed:
            self.env.step()
        self.recorder.begin(self.engine.world, self.origin)
        if self._checkpointed is not None:
            self._checkpointed.recorder = self.recorder
        return self.recorder

    def let_people_come(self, recorder: Recorder) -> None:
        """The first one comes at time 0, which is now."""
        submissions = Submissions(
            self.asked, self.cluster, self.names, self.recorded_on, self.checkpoints
        )
        times = (self.trace.submit - self.origin).tolist()
        vet = self._simulated.vet
        people = People(self.env.agenda, self.engine, recorder, submissions, times, vet)
        self.env.agenda.call_after(0.0, people.come)

    def drive(self, recorder: Recorder, until_s: float | None) -> None:
        """Runs until nothing is left to do. With faults there is always something yet to come."""
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
