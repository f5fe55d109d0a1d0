"""The words of the tests of owners and dependencies: a command, and all that follows in its step."""

from collections.abc import Sequence

from controlplane.decisions.autonomous import next_due
from controlplane.lifecycle.owner import Owner
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.dependencies import After, Condition
from controlplane.model.failures import Exit
from controlplane.model.phases import Phase
from controlplane.model.spec import JobSpec
from tests.controlplane.specification import Given, on, spec, submit

NS = "default"


class Flow(Given):
    """A world in which dependencies and owners are decided after every command, as in the engine."""

    def when(self, *commands: c.AnyCommand) -> "Flow":
        decided: list[e.Event] = []
        for command in commands:
            super().when(command)
            decided += self.decided
            decided += self._follow()
        self.decided = decided
        return self

    def when_time_comes(self) -> "Flow":
        self.decided = self._follow()
        return self

    def _follow(self) -> list[e.Event]:
        followed: list[e.Event] = []
        while (decided := next_due(self.world, self.now)).events:
            self.happened(*decided.events)
            followed += decided.events
        return followed

    def array(self, owner: str = "a1") -> Owner:
        return self.world.owners[owner]

    def phases(self, *jobs: str) -> list[Phase]:
        return [self.job(job).phase for job in jobs]

    def placed(self, job: str) -> "Flow":
        """The job is placed and runs on one GPU of its own."""
        used = sum(j.live_attempt is not None for j in self.world.jobs.values())
        attempt = self.job(job).attempt
        number = 1 if attempt is None else attempt.number + 1
        self.happened(e.GangPlaced(job, number, on(("n1", [used]))))
        return self.when(c.ReportRanks(job=job, attempt=number, started=(0,)))

    def ends(self, *jobs: str, code: int = 0) -> "Flow":
        """Jobs run and end with an exit code."""
        decided: list[e.Event] = []
        for job in jobs:
            if self.job(job).live_attempt is None:
                self.placed(job)
            number = self.job(job).attempt.number
            self.when(c.ReportRanks(job=job, attempt=number, exited=(Exit(0, code),)))
            decided += self.decided
            self.when(c.ReportRanks(job=job, attempt=number, gone=(0,)))
            decided += self.decided
        self.decided = decided
        return self

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.decided]


def one(**changes: object) -> JobSpec:
    """A job of one rank with one GPU that is not restarted."""
    from controlplane.model.spec import RestartRule

    return spec(workers=1, gpus=1, **{"rule": RestartRule.NEVER, **changes})


def job(name: str, *after: After | str, **changes: object) -> c.SubmitJob:
    waits = tuple(each if isinstance(each, After) else After(each) for each in after)
    return submit(name, f"id-{name}", one(after=waits, **changes))


def after(name: str, condition: Condition) -> After:
    return After(name, condition)


def array(
    text: str,
    *waits: After | str,
    name: str = "sweep",
    owner: str = "a1",
    suspended: bool = False,
    **changes: object,
) -> c.SubmitJob:
    written = tuple(each if isinstance(each, After) else After(each) for each in waits)
    return c.SubmitJob(
        id=f"cmd-{owner}",
        job=owner,
        namespace=NS,
        name=name,
        spec=one(after=written, array=text, **changes),
        suspended=suspended,
    )


def asks(kind: type[c.JobRequest], name: str = "sweep", **more: object) -> c.JobRequest:
    return kind(id=f"{kind.__name__}-{name}-{len(more)}", namespace=NS, name=name, **more)


def names(events: Sequence[e.Event]) -> list[str]:
    return [event.name for event in events if isinstance(event, e.JobSubmitted)]
