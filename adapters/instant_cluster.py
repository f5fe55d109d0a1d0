"""A cluster in virtual time that takes none: ranks start when asked and are gone when told to stop.

A gang ends `workload.duration_s` after its last rank started. It is for questions about scheduling
alone; what machines, networks and images cost is the simulator's business.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from controlplane import commands as c
from controlplane.attempt import RankState
from controlplane.effects import Effect, LaunchGang, StopGang, Survey, Tidy, ranks_to_run
from controlplane.job import Job
from controlplane.model import Cause, Exit, NodeInfo
from simulator.virtual_time import VirtualTime

Running = tuple[str, int]
# Ranks of which something is there that can be stopped.
_STOPPED = (RankState.PENDING, RankState.RUNNING, RankState.LOST)


class InstantCluster:
    def __init__(self, env: VirtualTime, nodes: Iterable[NodeInfo] = ()) -> None:
        self._agenda = env.agenda
        self.nodes = {node.name: node for node in nodes}
        self.down: set[str] = set()
        # Jobs whose ranks never come up.
        self.stuck: set[str] = set()
        self._report: Callable[[c.Report], None] = lambda report: None
        # Attempts that run, with the runs of their ranks, and on which node each rank is.
        self._ranks: dict[Running, dict[int, tuple[int, str]]] = {}
        self._ends: dict[Running, int] = {}

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
                    self._stop(effect.job)
                case Survey():
                    up = tuple(n for n in self.nodes.values() if n.name not in self.down)
                    down = tuple(n for n in self.nodes.values() if n.name in self.down)
                    self._report(c.ReportCluster(up=up, down=down))
                case Tidy():
                    pass

    def _launch(self, job: Job) -> None:
        attempt = job.attempt
        assert attempt is not None
        key = job.id, attempt.number
        if job.id in self.stuck:
            return
        known = self._ranks.setdefault(key, {})
        wanted = set(ranks_to_run(job))
        for index in [i for i in known if i not in wanted]:
            # The gang was made smaller.
            run, _ = known.pop(index)
            gone = (index,)
            report = c.ReportRanks(job=job.id, attempt=attempt.number, gone=gone, incarnation=run)
            self._report(report)
        for index, rank in enumerate(attempt.ranks):
            node = attempt.placement[index].node
            if index in wanted and node not in self.down:
                known[index] = (rank.incarnation, node)
        started_any = False
        for run, ranks in attempt.runs(RankState.PENDING).items():
            started = tuple([index for index in ranks if index in known])
            if started:
                started_any = True
                report = c.ReportRanks(
                    job=job.id, attempt=attempt.number, started=started, incarnation=run
                )
                self._report(report)
        if known.keys() == wanted and (started_any or key not in self._ends):
            # Whoever is made whole again does its work from the start.
            self._ends[key] = self._ends.get(key, 0) + 1
            ended = partial(self._ended, key, self._ends[key])
            self._agenda.call_after(job.spec.workload.duration_s, ended)

    def _ended(self, key: Running, turn: int) -> None:
        if self._ends.get(key) == turn and key in self._ranks:
            self.finish(*key)

    def finish(self, job: str, attempt: int) -> None:
        """Every rank exits with 0."""
        ranks = self._ranks.pop((job, attempt), {})
        runs: dict[int, list[int]] = {}
        for rank, (run, _) in ranks.items():
            runs.setdefault(run, []).append(rank)
        for run, ended in runs.items():
            exits = tuple(Exit(rank, 0) for rank in ended)
            report = c.ReportRanks(job=job, attempt=attempt, exited=exits, incarnation=run)
            self._report(report)

    def finish_job(self, job: str) -> None:
        for key in [key for key in self._ranks if key[0] == job]:
            self.finish(*key)

    def _stop(self, job: Job) -> None:
        attempt = job.attempt
        assert attempt is not None
        self._ranks.pop((job.id, attempt.number), None)
        for run, gone in attempt.runs(*_STOPPED).items():
            report = c.ReportRanks(
                job=job.id, attempt=attempt.number, gone=tuple(gone), incarnation=run
            )
            self._report(report)

    # -- what happens to it --------------------------------------------------------------------

    def lose(self, node: str) -> None:
        """The node goes silent, and what ran on it is gone."""
        self.down.add(node)
        self._report(c.ReportNodeLost(node=node, message="it went down"))
        for (job, attempt), ranks in sorted(self._ranks.items()):
            for rank, (run, where) in sorted(ranks.items()):
                if where == node:
                    gone = (rank,)
                    self._report(
                        c.ReportRanks(job=job, attempt=attempt, gone=gone, incarnation=run)
                    )
                    del ranks[rank]

    def restore(self, node: str) -> None:
        self.down.discard(node)
        self._report(c.ReportNode(node=self.nodes[node]))

    def fail_rank(self, job: str, rank: int) -> None:
        """One rank is evicted, and its device with it."""
        for (name, attempt), ranks in self._ranks.items():
            if name == job and rank in ranks:
                run, _ = ranks.pop(rank)
                exits = (Exit(rank, None, Cause.EVICTION),)
                self._report(c.ReportRanks(job=job, attempt=attempt, exited=exits, incarnation=run))
                return
