"""The state and its indexes: what decisions and the scheduler read.

`World` is composed of one `State`, the fold of the log, and indexes over it:

    names          namespace and name -> job                     job_indexes.py
    phases         phase -> jobs                                 job_indexes.py
    timers         deadlines of jobs                             job_indexes.py
    devices        free devices, holders, usage by queue         device_index.py
    run_lengths    learned run lengths                           planning.py
    waiting        the order of every queue                      queue_order.py
    planned_ends   when running gangs are planned to end         planning.py
    feasibility    what changed for waiting jobs, and when       feasibility.py
    workflows      owners, their members, and dependencies       workflows.py

`World.apply` is the only writer, and only the engine and replay call it. It applies an event to the state and
then hands the job or node before and after the event to every index. An index knows nothing that the state does
not say: `rebuild` computes it anew, and `check` compares. Nothing else is stored here: what the scheduler works
out from a world it keeps in a cache of its own, keyed by `node_version` and `policy_version`.
"""

from collections.abc import Mapping, Sequence

from controlplane.disciplines.discipline import Discipline
from controlplane.lifecycle.job import Job
from controlplane.lifecycle.owner import Owner
from controlplane.model import events as e
from controlplane.model.policy import Policy, Queue
from controlplane.state.device_index import DeviceIndex
from controlplane.state.feasibility import FeasibilityIndex
from controlplane.state.image import Cycle, Node, Receipt, StateImage
from controlplane.state.invariants import check_job
from controlplane.state.job_indexes import NameIndex, PhaseIndex, TimerIndex
from controlplane.state.planning import PlannedEnds, RunLengthIndex
from controlplane.state.queue_order import WaitingIndex
from controlplane.state.run_lengths import Estimate
from controlplane.state.state import State
from controlplane.state.workflows import WorkflowIndex


class World:
    def __init__(self, image: StateImage | None = None, *, state: State | None = None) -> None:
        """Index `state`, which belongs to the world from here on; or the state of an image."""
        self.state = state = State(image) if state is None else state
        self.names = NameIndex(state)
        self.phases = PhaseIndex(state)
        self.timers = TimerIndex(state)
        self.devices = DeviceIndex(state)
        self.run_lengths = RunLengthIndex(state)
        self.waiting = WaitingIndex(state, self.run_lengths)
        self.planned_ends = PlannedEnds(state, self.run_lengths)
        self.feasibility = FeasibilityIndex(state)
        self.workflows = WorkflowIndex(state)
        # The positions at which the nodes, and the queues or the policy, changed last.
        self.node_version = state.position
        self.policy_version = state.position

    # -- change ------------------------------------------------------------------------------

    def apply(self, recorded: e.Recorded) -> None:
        """Apply one event to the state, and update the indexes."""
        state, event = self.state, recorded.event
        match event:
            case e.JobEvent():
                before = state.jobs.get(event.job)
                state.apply(recorded)
                self._update_job(before, state.jobs.get(event.job))
            case e.OwnerEvent():
                owner = state.owners.get(event.owner)
                state.apply(recorded)
                self.workflows.update_owner(owner, state.owners.get(event.owner))
            case e.NodeEvent():
                node = state.nodes.get(event.node)
                state.apply(recorded)
                self._update_node(node, state.nodes[event.node])
            case e.QueueDefined() | e.QueueRemoved() | e.PolicySet():
                state.apply(recorded)
                self._update_policy()
            case e.ClusterSurveyed() | e.EngineStarted():
                state.apply(recorded)
                self.feasibility.change_all()
            case _:
                state.apply(recorded)

    def apply_together(self, batch: Sequence[e.Recorded], outcome: Job | None = None) -> None:
        """Apply events that were decided together.

        `outcome` is what they make of the one job that they are about, if the decision has folded them
        already; then the indexes are updated once.
        """
        if outcome is None:
            for recorded in batch:
                self.apply(recorded)
        else:
            before = self.state.jobs[outcome.id]
            self.state.apply_folded(batch, outcome)
            self._update_job(before, outcome)

    def _update_job(self, before: Job | None, after: Job | None) -> None:
        self.names.update(before, after)
        self.phases.update(before, after)
        self.timers.update(before, after)
        self.devices.update(before, after)
        self.waiting.update(before, after)
        self.planned_ends.update(before, after)
        self.feasibility.update(before, after)
        self.workflows.update(before, after)
        if self.run_lengths.update(before, after):
            self.waiting.reorder()
            self.planned_ends.replan()

    def _update_node(self, before: Node | None, after: Node) -> None:
        if self.devices.update_node(before, after):
            self.node_version = self.state.position
            self.feasibility.change_all()

    def _update_policy(self) -> None:
        """Queues or the policy changed: disciplines, and with them every order, may be others."""
        self.policy_version = self.state.position
        self.run_lengths.rebuild(self.state)
        self.waiting.rebuild(self.state)
        self.planned_ends.rebuild(self.state)
        self.feasibility.change_all()

    # -- the state ---------------------------------------------------------------------------

    @property
    def position(self) -> int:
        return self.state.position

    @property
    def step(self) -> int:
        return self.state.step

    @property
    def at(self) -> float:
        return self.state.at

    @property
    def jobs(self) -> Mapping[str, Job]:
        return self.state.jobs

    @property
    def owners(self) -> Mapping[str, Owner]:
        return self.state.owners

    @property
    def nodes(self) -> Mapping[str, Node]:
        return self.state.nodes

    @property
    def queues(self) -> Mapping[str, Queue]:
        return self.state.queues

    @property
    def policy(self) -> Policy:
        return self.state.policy

    @property
    def receipts(self) -> Mapping[str, Receipt]:
        return self.state.receipts

    @property
    def usage(self) -> Mapping[str, tuple[float, float]]:
        return self.state.usage

    @property
    def cycle(self) -> Cycle | None:
        return self.state.cycle

    @property
    def surveyed(self) -> bool:
        return self.state.surveyed

    @property
    def leader(self) -> str:
        return self.state.leader

    def image(self, hash: bytes = b"", *, with_receipts: bool = True) -> StateImage:
        return self.state.image(hash, with_receipts=with_receipts)

    # -- queries -----------------------------------------------------------------------------

    def job(self, namespace: str, name: str) -> Job | None:
        job_id = self.names.ids.get((namespace, name))
        return None if job_id is None else self.jobs[job_id]

    def discipline(self, queue: str) -> Discipline:
        return self.state.discipline(queue)

    def estimate(self, job: Job) -> Estimate:
        """How long an attempt of the job is planned to run, and where the number comes from."""
        return self.run_lengths.estimate(job)

    def next_deadline(self) -> float | None:
        """When the next timer fires: a job's deadline, the time to live of an owner, or the end of a
        cycle that left gangs over; now, if something follows from dependencies or owners.
        """
        if self.workflows.is_pending:
            return self.at
        due_at, cycle = self.timers.next_deadline(), self.cycle
        expiry = self.workflows.next_expiry()
        if expiry is not None:
            due_at = expiry if due_at is None else min(due_at, expiry)
        if cycle is None or not cycle.limited:
            return due_at
        return cycle.ends_at if due_at is None else min(due_at, cycle.ends_at)

    def next_due(self, now: float) -> Job | None:
        """The job whose deadline passed longest ago, or None."""
        job_id = self.timers.next_due(now)
        return None if job_id is None else self.jobs[job_id]

    def cycle_is_over(self, now: float) -> bool:
        """Whether the next scheduling cycle is due, for gangs that the present one left over."""
        return self.cycle is not None and self.cycle.limited and self.cycle.ends_at <= now

    # -- invariants --------------------------------------------------------------------------

    def check(self) -> None:
        """Assert every invariant: of each job, and that each index is what the state says."""
        state = self.state
        self.names.check(state)
        self.phases.check(state)
        self.timers.check(state)
        self.devices.check(state)
        self.run_lengths.check(state)
        self.waiting.check(state)
        self.planned_ends.check(state)
        self.feasibility.check(state)
        self.workflows.check(state)
        for job in state.jobs.values():
            check_job(job)
