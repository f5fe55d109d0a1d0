"""A cluster in virtual time that takes none: ranks start when requested and are gone when stopped.

A gang ends `workload.duration_s` after its last rank started. It is for questions about scheduling
alone; what machines, networks and images cost is the simulator's business.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from msgspec.structs import replace

from adapters.simulated_cluster.workload import workload_of
from controlplane.lifecycle.effects import Effect, LaunchGang, StopGang, Survey, Tidy
from controlplane.lifecycle.job import Job
from controlplane.lifecycle.runs import RankRun, RunTracker, by_report, desired_runs
from controlplane.model import commands as c
from controlplane.model.cluster import NodeInfo
from controlplane.model.failures import Exit
from controlplane.model.reasons import LossReason
from simulator.kernel.virtual_time import VirtualTime


class InstantCluster:
    def __init__(self, env: VirtualTime, nodes: Iterable[NodeInfo] = ()) -> None:
        self._env = env
        self.nodes = {node.name: node for node in nodes}
        self.down: set[str] = set()
        # Jobs whose ranks never come up.
        self.stuck: set[str] = set()
        self._report: Callable[[c.Report], None] = lambda report: None
        # The handle of a run is its node.
        self._tracker = RunTracker[str](lambda report: self._report(report))
        # How often the ranks of an attempt began to work together.
        self._turns: dict[tuple[str, int], int] = {}

    async def connect(self, report: Callable[[c.Report], None]) -> None:
        self._report = report

    async def logs(self, job: Job, rank: int, lines_max: int) -> list[str]:
        return []

    async def carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case LaunchGang():
                    self._launch(effect.job)
                case StopGang():
                    self._gone(self._tracker.stop(effect.job))
                case Survey():
                    up = tuple(n for n in self.nodes.values() if n.name not in self.down)
                    down = tuple(n for n in self.nodes.values() if n.name in self.down)
                    self._report(c.ReportCluster(up=up, down=down))
                case Tidy():
                    pass

    def _launch(self, job: Job) -> None:
        if job.id in self.stuck:
            return
        assert job.attempt is not None
        start, stop = self._tracker.launch(job)
        self._gone(stop)
        started = []
        for run in start:
            node = job.attempt.placement[run.rank].node
            if node not in self.down:
                self._tracker.begin([run], node)
                started.append(run)
        for about, ranks in by_report(started):
            self._tracker.report(replace(about, started=ranks))
        key = job.id, job.attempt.number
        runs = self._tracker.of_attempt(*key)
        complete = runs is not None and runs.alive == set(desired_runs(job))
        if complete and (started or key not in self._turns):
            # A gang that is complete again does its work from the start.
            turn = self._turns[key] = self._turns.get(key, 0) + 1
            self._env.call_after(workload_of(job.spec).duration_s, partial(self._ended, key, turn))

    def _ended(self, key: tuple[str, int], turn: int) -> None:
        if self._turns.get(key) == turn:
            self.finish(*key)

    def finish(self, job: str, attempt: int) -> None:
        """Every rank exits with 0."""
        runs = self._tracker.of_attempt(job, attempt)
        ended = [] if runs is None else sorted(runs.alive)
        for about, ranks in by_report(ended):
            self._tracker.report(replace(about, exited=tuple(Exit(rank, 0) for rank in ranks)))

    def finish_job(self, job: str) -> None:
        self.finish(job, self._tracker.attempts[job].attempt)

    def _gone(self, gone: Iterable[RankRun]) -> None:
        for about, ranks in by_report(gone):
            self._tracker.report(replace(about, gone=ranks))

    # -- what happens to it --------------------------------------------------------------------

    def lose(self, node: str) -> None:
        """The node goes silent, and what ran on it is gone."""
        self.down.add(node)
        self._report(c.ReportNodeLost(node=node, reason=LossReason.CRASHED))
        for runs in list(self._tracker.attempts.values()):
            self._gone(run for run in sorted(runs.alive) if runs.started[run] == node)

    def restore(self, node: str) -> None:
        self.down.discard(node)
        self._report(c.ReportNode(node=self.nodes[node]))
