"""The analysis of a history, event by event."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean, pstdev

from controlplane.lifecycle.attempt import asked_gpus
from controlplane.model import events as e
from controlplane.model.cluster import Placement
from controlplane.model.reasons import LossReason
from controlplane.state.devices import WHOLE
from controlplane.state.world import World
from studies.analysis.counting import (
    HOUR_S,
    exit_code,
    flapping_jobs,
    grouped,
    image_of,
    spread_of,
)
from studies.analysis.job_history import JobFacts, JobHistories, Loss
from studies.analysis.values import Analysis, Fit, NodeRecord

# Causes that are intended; they do not count as failures.
ON_PURPOSE = frozenset({"cancelled", "suspended", "scaled", "preemption"})


class IncidentAnalyser:
    """Accumulate what the analysis needs about the span from `first` to `last`.

    What was held and lost before the span is discarded when it begins; attempts that go on count
    from there.
    """

    def __init__(self, world: World, *, first: float, last: float) -> None:
        self.histories = JobHistories(world, world.at)
        self._first, self._last, self._begun = first, last, False
        nodes = [node for node in world.nodes.values() if not node.removed]
        self._gpus = {node.name: node.info.gpus for node in nodes}
        self._known_at = dict.fromkeys(self._gpus, world.at)
        self._down = {node.name: world.at for node in nodes if not node.ready}
        self._losses = Counter[str]()
        self._repairs: list[tuple[str, float]] = []
        self._held = defaultdict[str, float](float)
        self._placed: dict[str, tuple[float, Mapping[str, float]]] = {}
        for job in world.jobs.values():
            if job.live_attempt is not None:
                attempt = job.live_attempt
                self._place(job.id, attempt.placement, attempt.shares, world.at)

    def hear(self, recorded: e.Recorded) -> None:
        """Process the next event."""
        event, at = recorded.event, recorded.at
        if not self._begun and at >= self._first:
            self._begin()
        self.histories.hear(recorded)
        match event:
            case e.NodeReported(node=node, info=info):
                self._gpus[node] = info.gpus
                self._known_at.setdefault(node, at)
                if node in self._down:
                    self._repairs.append((node, at - self._down.pop(node)))
            case e.NodeLost(node=node, reason=reason):
                if node not in self._down:
                    self._down[node] = at
                    self._losses[node] += reason is not LossReason.GIVEN_BACK
            case e.GangPlaced(job=job, placement=placement, shares=shares):
                self._place(job, placement, shares, at)
            case e.AttemptEnded(job=job):
                self._book(job, at)
            case _:
                pass

    def _begin(self) -> None:
        first, self._begun = self._first, True
        self.histories.forget(first)
        self._losses.clear()
        self._repairs.clear()
        self._held.clear()
        self._known_at = {node: max(at, first) for node, at in self._known_at.items()}
        self._down = {node: max(at, first) for node, at in self._down.items()}
        self._placed = {job: (max(at, first), gpus) for job, (at, gpus) in self._placed.items()}

    def _place(self, job: str, placement: Placement, shares: Sequence[int], at: float) -> None:
        gpus = defaultdict[str, float](float)
        for rank, slot in enumerate(placement):
            share = shares[rank] if rank < len(shares) else 0
            gpus[slot.node] += share / WHOLE if share else len(slot.devices)
        self._placed[job] = at, gpus

    def _book(self, job: str, at: float) -> None:
        placed = self._placed.pop(job, None)
        if placed is not None:
            for node, gpus in placed[1].items():
                self._held[node] += gpus * (at - placed[0])

    def analysis(self) -> Analysis:
        """Return the analysis of the span; call it once, after the last event."""
        first, last = self._first, self._last
        for job in list(self._placed):
            self._book(job, last)
        self.histories.close(last)
        facts = [x for x in self.histories.jobs.values() if _within(x, first, last)]
        lost = [(x, loss) for x in facts for loss in x.losses if first <= loss.at <= last]
        failures = [pair for pair in lost if pair[1].cause not in ON_PURPOSE]
        return Analysis(
            since=first,
            until=last,
            jobs=len(facts),
            succeeded=sum(x.outcome == "Succeeded" for x in facts),
            failed=sum(x.outcome == "Failed" for x in facts),
            attempts_lost=len(failures),
            gpu_hours=sum(x.gpu_s for x in facts) / HOUR_S,
            gpu_hours_lost=sum(loss.gpu_s for _, loss in lost) / HOUR_S,
            by_cause=grouped(lost, lambda x, loss: loss.cause),
            by_node=grouped(failures, lambda x, loss: loss.node),
            by_user=grouped(failures, lambda x, loss: x.actor),
            by_image=grouped(failures, lambda x, loss: image_of(x)),
            by_exit_code=grouped(failures, lambda x, loss: exit_code(loss)),
            nodes=self._nodes(failures, last),
            flapping=flapping_jobs(facts, first, last),
            fit=self._fit(facts, failures, first, last),
        )

    def _nodes(self, failures: Sequence[tuple[JobFacts, Loss]], last: float) -> list[NodeRecord]:
        """Return every node with losses or failed attempts, the worst first."""
        blamed = Counter(loss.node for _, loss in failures if loss.node)
        lost = self._losses
        down = self._down_s(last)
        names = [name for name in self._gpus if blamed[name] or lost[name]]
        records = [self._record(name, blamed[name], lost[name], down[name], last) for name in names]
        return sorted(records, key=lambda r: (-r.failed_attempts, -r.losses, r.node))

    def _record(self, name: str, blamed: int, lost: int, down_s: float, last: float) -> NodeRecord:
        hours = self._held[name] / HOUR_S
        up_s = max(0.0, last - self._known_at[name] - down_s)
        return NodeRecord(
            node=name,
            losses=lost,
            down_hours=down_s / HOUR_S,
            failed_attempts=blamed,
            gpu_hours=hours,
            failures_per_gpu_hour=blamed / hours if hours else None,
            mtbf_hours=up_s / lost / HOUR_S if lost else None,
        )

    def _down_s(self, last: float) -> defaultdict[str, float]:
        down = defaultdict[str, float](float)
        for node, seconds in self._repairs:
            down[node] += seconds
        for node, at in self._down.items():
            down[node] += last - at
        return down

    def _fit(
        self,
        facts: Sequence[JobFacts],
        failures: Sequence[tuple[JobFacts, Loss]],
        first: float,
        last: float,
    ) -> Fit:
        arrivals = sorted(x.submitted_at for x in facts if first <= x.submitted_at <= last)
        gaps = [b - a for a, b in pairwise(arrivals)]
        by_hour = Counter(int(at // HOUR_S) % 24 for at in arrivals)
        sizes = Counter(asked_gpus(x.spec) for x in facts)
        ended = sum(x.outcome == "Succeeded" for x in facts) + len(failures)
        node_s = sum(max(0.0, last - at) for at in self._known_at.values())
        down_s = sum(self._down_s(last).values())
        lost = self._losses.total()
        repairs = [seconds for _, seconds in self._repairs]
        return Fit(
            jobs_per_hour=len(arrivals) / max((last - first) / HOUR_S, 1e-9),
            arrival_variation=pstdev(gaps) / fmean(gaps) if gaps and fmean(gaps) else None,
            jobs_by_hour_of_day=[by_hour[hour] for hour in range(24)],
            run_s=spread_of([x.run_s for x in facts if x.run_s is not None]),
            wait_s=spread_of([x.wait_s for x in facts if x.wait_s is not None]),
            gpus={size: count / len(facts) for size, count in sorted(sizes.items())},
            failed_share_of_attempts=len(failures) / ended if ended else 0.0,
            node_mtbf_hours=(node_s - down_s) / lost / HOUR_S if lost else None,
            node_repair_hours=fmean(repairs) / HOUR_S if repairs else None,
        )


def _within(facts: JobFacts, first: float, last: float) -> bool:
    """Whether any part of the job's life lies in the span."""
    over = facts.finished_at is not None and facts.finished_at < first
    return not over and facts.submitted_at <= last
