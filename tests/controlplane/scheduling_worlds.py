"""Small random worlds for the scheduler, and a driver that lets its decisions happen at once."""

from hypothesis import strategies as st
from msgspec.structs import replace

from controlplane.decisions.decider import decide
from controlplane.decisions.scheduling_events import enact
from controlplane.disciplines.registry import DISCIPLINES
from controlplane.lifecycle.attempt import leaving
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo
from controlplane.model.phases import AttemptState
from controlplane.model.policy import (
    Policy,
    Preempt,
    Queue,
    Reclaim,
    WithinQueue,
)
from controlplane.model.spec import DoneWhen, JobSpec, Role, Scheduling, TopologyAsk
from controlplane.scheduling.cache import SchedulerCache
from controlplane.scheduling.decisions import Evict, SchedulingDecision, Start
from controlplane.scheduling.precheck import could_decide
from controlplane.scheduling.quota_models.quota_model import QUOTA_MODELS
from controlplane.scheduling.scheduling_pass import Pass
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.world import World
from tests.controlplane.held_waits import held_waits

QUEUES = ("default", "left", "right", "inner")

preempts = st.builds(
    Preempt,
    within_queue=st.sampled_from(WithinQueue),
    reclaim=st.sampled_from(Reclaim),
    borrow_below=st.sampled_from([None, 0]),
)
small = st.integers(0, 8)
maybe = st.none() | small


@st.composite
def policies(draw, models=QUOTA_MODELS.names, disciplines=DISCIPLINES.names):
    return Policy(
        model=draw(st.sampled_from(models)),
        discipline=draw(st.sampled_from(disciplines)),
        strategies=draw(st.sampled_from([("final",), ("final", "initial"), ("initial",)])),
        preempt=draw(preempts),
        consolidate=draw(st.booleans()),
        packing=draw(st.sampled_from(["pack", "spread"])),
        ageing_per_hour=draw(st.sampled_from([0.0, 10.0])),
        # Mostly without a second chance: it is the rules alone that must let passes come to rest.
        second_chance_s_max=draw(st.sampled_from([0.0, 0.0, 600.0])),
    )


@st.composite
def trees(draw):
    """A cohort with a queue and another cohort below it, and one queue by itself."""
    return [
        Queue("lab", nominal=draw(st.sampled_from([None, 2]))),
        Queue("left", parent="lab", nominal=draw(small), borrow_max=draw(maybe),
              lend_max=draw(maybe), weight=draw(st.sampled_from([0.5, 1.0, 2.0]))),
        Queue("floor", parent="lab"),
        Queue("inner", parent="floor", nominal=draw(small), gpus_max=draw(maybe)),
        Queue("right", parent="lab", nominal=draw(small)),
        Queue("default", gpus_max=draw(maybe), nominal=draw(maybe)),
    ]  # fmt: skip


@st.composite
def specs(draw):
    ask = draw(st.sampled_from([
        TopologyAsk(), TopologyAsk(), TopologyAsk(required="rack"), TopologyAsk(preferred="rack"),
        TopologyAsk(slice_level="rack", slice_size=2),
        TopologyAsk(required="rack", exclusive=True),
    ]))  # fmt: skip
    shared = draw(st.integers(0, 9)) == 0
    roles = [
        Role(name="worker", replicas=draw(st.integers(1, 4)), gpus=0 if shared else draw(st.integers(0, 4)),
             gpu_share=draw(st.sampled_from([250, 500, 700])) if shared else 0)
    ]  # fmt: skip
    if draw(st.integers(0, 4)) == 0:
        roles.append(Role(name="extra", gpus=draw(st.integers(0, 3))))
    elif not shared and draw(st.integers(0, 3)) == 0 and ask.slice_size == 0:
        roles = [replace(roles[0], min_replicas=1, max_replicas=4)]
    return JobSpec(
        roles=tuple(roles),
        done_when=DoneWhen("worker"),
        queue=draw(st.sampled_from(QUEUES)),
        priority=draw(st.integers(-1, 2)),
        scheduling=Scheduling(
            topology=ask,
            preemptible=draw(st.integers(0, 5)) > 0,
            estimate_s=draw(st.sampled_from([None, 5.0, 50.0])),
        ),
    )


clusters = st.lists(st.tuples(st.integers(1, 8), st.sampled_from("abc")), min_size=1, max_size=5)


class Sandbox:
    """A world whose scheduler decides pass after pass; a stopped gang is gone at once."""

    def __init__(self, nodes, queues, policy) -> None:
        self.world = World()
        self.cache = SchedulerCache()
        self.evictions = 0
        self.record(e.PolicySet(policy))
        for queue in queues:
            self.record(e.QueueDefined(queue))
        for number, (gpus, rack) in enumerate(nodes):
            info = NodeInfo(f"n{number}", gpus, rack=rack)
            self.record(e.NodeReported(info.name, info))

    def record(self, event: e.Event) -> None:
        world = self.world
        world.apply(e.Recorded(world.position + 1, world.at + 1.0, event))

    def submit(self, name: str, spec: JobSpec) -> None:
        self.record(e.JobSubmitted(name, "default", name, spec))

    def look(self) -> list[SchedulingDecision]:
        could_decide_some = could_decide(Snapshot(self.world))
        free = self.world.devices.free.copy()
        decisions = Pass(Snapshot(self.world, cache=self.cache)).run()
        # What the scheduler remembers of earlier passes changes no decision.
        assert decisions == Pass(Snapshot(self.world)).run()
        # And a pass leaves the world alone.
        assert free.masks == self.world.devices.free.masks
        assert free.allocated == self.world.devices.free.allocated
        # Where counting alone shows that a pass is in vain, the engine makes none.
        assert could_decide_some or not decisions, decisions
        return decisions

    def one_pass(self) -> list[SchedulingDecision]:
        decisions = self.look()
        for decision in decisions:
            for event in enact(self.world, decision, self.world.at):
                self.record(event)
            self.evictions += isinstance(decision, Evict)
        self.world.check()
        self._start([d.job for d in decisions if isinstance(d, Start)])
        self._clear_away()
        return decisions

    def _start(self, jobs: list[str]) -> None:
        for job in jobs:
            attempt = self.world.jobs[job].attempt
            if attempt.state is AttemptState.STARTING:
                ranks = tuple(range(len(attempt.ranks)))
                self._do(c.ReportRanks(job=job, attempt=attempt.number, started=ranks))

    def _clear_away(self) -> None:
        for job in [*self.world.devices.stopping, *self.world.devices.shrinking]:
            attempt = self.world.jobs[job].attempt
            ranks = range(len(attempt.ranks))
            if job in self.world.devices.shrinking:
                ranks = leaving(attempt)
            runs = {attempt.ranks[rank].incarnation for rank in ranks}
            for run in runs:
                gone = tuple(r for r in ranks if attempt.ranks[r].incarnation == run)
                report = c.ReportRanks(job=job, attempt=attempt.number, gone=gone, incarnation=run)
                self._do(report)
        held_waits(self.world)

    def finish(self, job: str) -> None:
        attempt = self.world.jobs[job].attempt
        for run in {rank.incarnation for rank in attempt.ranks}:
            ranks = [i for i, rank in enumerate(attempt.ranks) if rank.incarnation == run]
            exits = tuple(c.Exit(rank, 0) for rank in ranks)
            report = c.ReportRanks(job=job, attempt=attempt.number, exited=exits, incarnation=run)
            self._do(report)

    def _do(self, command: c.AnyCommand) -> None:
        for event in decide(self.world, command, self.world.at):
            self.record(event)

    def settle(self, passes_max: int = 60) -> int:
        """Passes until one decides nothing new; the number of them."""
        for number in range(passes_max):
            decisions = self.one_pass()
            if not any(isinstance(d, Start | Evict) for d in decisions):
                return number
        raise AssertionError(f"{passes_max} passes and {self.evictions} evictions, and no rest")
