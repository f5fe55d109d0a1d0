"""The words in which the core's tests are written: given, when, then. No mocks, no sleeps."""

from collections.abc import Sequence

from controlplane.decisions.decider import decide, unfold
from controlplane.decisions.scheduling_events import enact
from controlplane.lifecycle.job import Job
from controlplane.lifecycle.timers import fire_timers
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo, Placement, Slot
from controlplane.model.errors import Rejected
from controlplane.model.spec import DoneWhen, JobSpec, RestartPolicy, RestartRule, Role
from controlplane.scheduling.decisions import Grow, Start
from controlplane.scheduling.scheduling_pass import Pass
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.world import World

T0 = 1_000.0


def spec(workers: int = 2, gpus: int = 4, **changes: object) -> JobSpec:
    """A job of some workers that all must succeed; changes go to the JobSpec."""
    restart_rule = changes.pop("rule", RestartRule.ON_FAILURE)
    role = Role(name="Worker", replicas=workers, gpus=gpus, restart=restart_rule)
    fields = {
        "roles": (role,),
        "done_when": DoneWhen("Worker"),
        "restart": RestartPolicy(limit=2),
        **changes,
    }
    return JobSpec(**fields)


def submit(name: str = "train", job: str = "j1", of: JobSpec | None = None) -> c.SubmitJob:
    return c.SubmitJob(id=f"cmd-{job}", job=job, namespace="default", name=name, spec=of or spec())


class Given:
    """A world with a past. Time stands at the last event unless moved on."""

    def __init__(self, *past: e.Event, at: float = T0) -> None:
        self.world = World()
        self.now = at
        self.happened(*past)

    def happened(self, *events: e.Event, cause: str = "") -> "Given":
        for event in events:
            self.world.apply(e.Recorded(self.world.position + 1, self.now, event, cause))
            self.world.check()
        return self

    def later(self, seconds: float) -> "Given":
        self.now += seconds
        return self

    def when(self, *commands: c.AnyCommand) -> "Given":
        """Decides each command and lets its events happen."""
        self.decided: list[e.Event] = []
        for command in commands:
            for part in unfold(self.world, command):
                events = decide(self.world, part, self.now)
                self.happened(*events, cause=command.id)
                self.decided += events
        return self

    def when_time_comes(self) -> "Given":
        """Lets everything happen that is due by now."""
        self.decided = []
        while (job := self.world.next_due(self.now)) is not None:
            events = fire_timers(job, self.now, self.world.position)
            assert events
            self.happened(*events)
            self.decided += events
        return self

    def when_scheduled(self) -> "Given":
        starts = [d for d in Pass(Snapshot(self.world)).run() if isinstance(d, Start | Grow)]
        self.decided = [event for d in starts for event in enact(self.world, d, self.world.at)]
        self.happened(*self.decided)
        return self

    def then(self, *events: e.Event) -> "Given":
        assert self.decided == list(events)
        return self

    def then_kinds(self, *kinds: type[e.Event]) -> "Given":
        assert [type(event) for event in self.decided] == list(kinds)
        return self

    def refuses(self, command: c.AnyCommand) -> Rejected:
        """The refusal; a command that is taken is a failure."""
        before = self.world.position
        try:
            decided = decide(self.world, command, self.now)
        except Rejected as refusal:
            assert self.world.position == before
            return refusal
        raise AssertionError(f"taken, with {decided}")

    def job(self, job: str = "j1") -> Job:
        return self.world.jobs[job]


def node(name: str = "n1", gpus: int = 8) -> e.NodeReported:
    return e.NodeReported(name, NodeInfo(name, gpus))


def on(*slots: tuple[str, Sequence[int]]) -> Placement:
    return tuple(Slot(name, tuple(devices)) for name, devices in slots)


BOTH_ON_N1 = on(("n1", range(4)), ("n1", range(4, 8)))


def placed_job(of: JobSpec | None = None) -> Given:
    """A job of two workers, placed on one node of eight GPUs."""
    return Given(node()).when(submit(of=of)).happened(e.GangPlaced("j1", 1, BOTH_ON_N1))


def running_job(of: JobSpec | None = None) -> Given:
    return placed_job(of).when(c.ReportRanks(job="j1", attempt=1, started=(0, 1)))


def exited(rank: int, code: int | None = 0, **more: object) -> c.ReportRanks:
    from controlplane.model.failures import Exit

    return c.ReportRanks(job="j1", attempt=1, exited=(Exit(rank, code, **more),))
