"""What a log teaches: what failed, where, by whose doing, and what it cost; and how work arrives.

The fits at the end are what a what-if study needs to make more of the same: arrivals, sizes, run
times, failures of jobs and of nodes.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from math import log
from statistics import fmean, median, pstdev, quantiles

from msgspec import Struct

from controlplane import events as e
from controlplane.codec import check_chain, from_row
from controlplane.ports import LogReader
from controlplane.replay import PAGE_ROWS, beginning
from controlplane.world import World
from studies.ledger import JobFacts, Ledger, Loss

OFFENDERS_MAX = 10
# A job that restarts this often within an hour flaps.
FLAPS_MIN = 3
FLAPS_WITHIN_S = 3_600.0
HOUR_S = 3_600.0
# What a person did on purpose is no failure.
_ON_PURPOSE = frozenset({"cancelled", "suspended", "scaled", "preemption"})


class Group(Struct, frozen=True):
    """Failed attempts that have something in common, and the GPU-hours they had held."""

    name: str
    attempts: int
    gpu_hours_lost: float
    jobs: int


class NodeRecord(Struct, frozen=True, kw_only=True):
    """How a node did. `failures_per_gpu_hour` counts failed attempts laid at its door."""

    node: str
    losses: int
    down_hours: float
    failed_attempts: int
    gpu_hours: float
    failures_per_gpu_hour: float | None
    mtbf_hours: float | None


class Flapping(Struct, frozen=True, kw_only=True):
    """A job that restarted again and again, where most of it happened, and why."""

    job: str
    restarts: int
    within_s: float
    node: str
    on_node: int
    cause: str


class Spread(Struct, frozen=True, kw_only=True):
    """A sample in a few numbers, and the lognormal with the same logarithms."""

    count: int
    mean: float
    median: float
    p90: float
    max: float
    lognormal_mu: float
    lognormal_sigma: float


class Fit(Struct, frozen=True, kw_only=True):
    """How work arrives and how long it takes, to feed a study with."""

    jobs_per_hour: float
    # 1 means that arrivals know nothing of each other; more means bursts.
    arrival_variation: float | None
    jobs_by_hour_of_day: list[int]
    run_s: Spread | None
    wait_s: Spread | None
    gpus: dict[int, float]
    failed_share_of_attempts: float
    node_mtbf_hours: float | None
    node_repair_hours: float | None


class Analysis(Struct, frozen=True, kw_only=True):
    since: float
    until: float
    jobs: int
    succeeded: int
    failed: int
    attempts_lost: int
    gpu_hours: float
    gpu_hours_lost: float
    by_cause: list[Group]
    by_node: list[Group]
    by_user: list[Group]
    by_image: list[Group]
    by_exit_code: list[Group]
    nodes: list[NodeRecord]
    flapping: list[Flapping]
    fit: Fit


async def analyse(
    log: LogReader, *, since: float | None = None, until: float | None = None
) -> Analysis:
    """Reads a whole log, or a bundle, and says what it teaches about a span of it."""
    world, digest = await beginning(log)
    position, witness = world.position, Witness(world)
    while rows := await log.read(position, PAGE_ROWS):
        for row in check_chain(rows, after=position, previous=digest):
            if until is not None and row[1] > until:
                return witness.analysis(since, until)
            witness.hear(from_row(row))
        position, digest = rows[-1][0], rows[-1][8]
    return witness.analysis(since, until)


class Witness:
    """Hears a history and remembers what the analysis needs."""

    def __init__(self, world: World) -> None:
        self.ledger = Ledger(world, world.at)
        self._until = self._since = world.at
        self._heard = False
        self._gpus = {n.name: n.info.gpus for n in world.nodes.values() if not n.removed}
        self._known_at = dict.fromkeys(self._gpus, world.at)
        self._down: dict[str, float] = {}
        self._losses: list[tuple[str, float]] = []
        self._repairs: list[tuple[str, float]] = []
        self._held = defaultdict[str, float](float)
        self._placed: dict[str, tuple[float, Counter[str]]] = {}

    def hear(self, recorded: e.Recorded) -> None:
        event, at = recorded.event, recorded.at
        if not self._heard:
            self._since, self._heard = at, True
        self._until = at
        self.ledger.hear(recorded)
        match event:
            case e.NodeReported(node=node, info=info):
                self._gpus[node] = info.gpus
                self._known_at.setdefault(node, at)
                if node in self._down:
                    self._repairs.append((node, at - self._down.pop(node)))
            case e.NodeLost(node=node):
                if node not in self._down:
                    self._down[node] = at
                    self._losses.append((node, at))
            case e.GangPlaced(job=job, placement=placement):
                gpus = Counter[str]()
                for slot in placement:
                    gpus[slot.node] += len(slot.devices)
                self._placed[job] = at, gpus
            case e.AttemptEnded(job=job):
                self._book(job, at)
            case _:
                pass

    def _book(self, job: str, at: float) -> None:
        placed = self._placed.pop(job, None)
        if placed is not None:
            for node, gpus in placed[1].items():
                self._held[node] += gpus * (at - placed[0])

    def analysis(self, since: float | None, until: float | None) -> Analysis:
        first = self._since if since is None else since
        last = self._until if until is None else until
        for job in list(self._placed):
            self._book(job, last)
        self.ledger.close(last)
        facts = [x for x in self.ledger.jobs.values() if _within(x, first, last)]
        lost = [(x, loss) for x in facts for loss in x.losses if first <= loss.at <= last]
        failures = [pair for pair in lost if pair[1].cause not in _ON_PURPOSE]
        return Analysis(
            since=first,
            until=last,
            jobs=len(facts),
            succeeded=sum(x.outcome == "Succeeded" for x in facts),
            failed=sum(x.outcome == "Failed" for x in facts),
            attempts_lost=len(failures),
            gpu_hours=sum(x.gpu_s for x in facts) / HOUR_S,
            gpu_hours_lost=sum(loss.gpu_s for _, loss in lost) / HOUR_S,
            by_cause=_groups(lost, lambda x, loss: loss.cause),
            by_node=_groups(failures, lambda x, loss: loss.node),
            by_user=_groups(failures, lambda x, loss: x.actor),
            by_image=_groups(failures, lambda x, loss: _image(x)),
            by_exit_code=_groups(failures, lambda x, loss: _code(loss)),
            nodes=self._nodes(failures, first, last),
            flapping=_flapping(facts, first, last),
            fit=self._fit(facts, failures, first, last),
        )

    def _nodes(
        self, failures: Sequence[tuple[JobFacts, Loss]], first: float, last: float
    ) -> list[NodeRecord]:
        """Every node that gave trouble, the worst first."""
        blamed = Counter(loss.node for _, loss in failures if loss.node)
        lost = Counter(node for node, at in self._losses if first <= at <= last)
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
        sizes = Counter(x.spec.gpus for x in facts)
        ended = sum(x.outcome == "Succeeded" for x in facts) + len(failures)
        node_s = sum(max(0.0, last - at) for at in self._known_at.values())
        down_s = sum(self._down_s(last).values())
        lost = len(self._losses)
        repairs = [seconds for _, seconds in self._repairs]
        return Fit(
            jobs_per_hour=len(arrivals) / max((last - first) / HOUR_S, 1e-9),
            arrival_variation=pstdev(gaps) / fmean(gaps) if gaps and fmean(gaps) else None,
            jobs_by_hour_of_day=[by_hour[hour] for hour in range(24)],
            run_s=_spread([x.run_s for x in facts if x.run_s is not None]),
            wait_s=_spread([x.wait_s for x in facts if x.wait_s is not None]),
            gpus={size: count / len(facts) for size, count in sorted(sizes.items())},
            failed_share_of_attempts=len(failures) / ended if ended else 0.0,
            node_mtbf_hours=(node_s - down_s) / lost / HOUR_S if lost else None,
            node_repair_hours=fmean(repairs) / HOUR_S if repairs else None,
        )


def _within(facts: JobFacts, first: float, last: float) -> bool:
    """Whether any of the job's life lies in the span."""
    over = facts.finished_at is not None and facts.finished_at < first
    return not over and facts.submitted_at <= last


def _groups(
    lost: Iterable[tuple[JobFacts, Loss]], name_of: Callable[[JobFacts, Loss], str]
) -> list[Group]:
    """The same losses by something they have in common; what has no name is left out."""
    found = defaultdict[str, list[tuple[JobFacts, Loss]]](list)
    for facts, loss in lost:
        name = name_of(facts, loss)
        if name:
            found[name].append((facts, loss))
    groups = [
        Group(
            name,
            len(pairs),
            sum(loss.gpu_s for _, loss in pairs) / HOUR_S,
            len({facts.id for facts, _ in pairs}),
        )
        for name, pairs in found.items()
    ]
    return sorted(groups, key=lambda g: (-g.attempts, -g.gpu_hours_lost, g.name))[:OFFENDERS_MAX]


def _image(facts: JobFacts) -> str:
    return next((role.image for role in facts.spec.roles if role.image), "")


def _code(loss: Loss) -> str:
    return "" if loss.exit_code is None else str(loss.exit_code)


def _flapping(facts: Iterable[JobFacts], first: float, last: float) -> list[Flapping]:
    found = []
    for job in facts:
        restarts = [r for r in job.restarts if first <= r.at <= last]
        most = _most_within(sorted(r.at for r in restarts))
        if most < FLAPS_MIN:
            continue
        nodes = Counter(r.node for r in restarts if r.node)
        causes = Counter(r.cause.value for r in restarts)
        node, on_node = nodes.most_common(1)[0] if nodes else ("", 0)
        found.append(
            Flapping(
                job=job.name,
                restarts=len(restarts),
                within_s=restarts[-1].at - restarts[0].at,
                node=node,
                on_node=on_node,
                cause=causes.most_common(1)[0][0],
            )
        )
    return sorted(found, key=lambda f: (-f.restarts, f.job))[:OFFENDERS_MAX]


def _most_within(times: Sequence[float]) -> int:
    """The most of these times that lie in any one window."""
    most = begin = 0
    for end, at in enumerate(times):
        while at - times[begin] > FLAPS_WITHIN_S:
            begin += 1
        most = max(most, end - begin + 1)
    return most


def _spread(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    logs = [log(max(value, 1e-3)) for value in values]
    return Spread(
        count=len(values),
        mean=fmean(values),
        median=median(values),
        p90=quantiles(values, n=10)[-1] if len(values) > 1 else values[0],
        max=max(values),
        lognormal_mu=fmean(logs),
        lognormal_sigma=pstdev(logs),
    )


def trace_lines(ledger: Ledger) -> Iterable[str]:
    """The jobs that ended well as a trace, for `muster whatif --trace`."""
    yield "id,submit,gpus,duration"
    for facts in sorted(ledger.jobs.values(), key=lambda x: (x.submitted_at, x.id)):
        if facts.run_s is not None:
            yield f"{facts.id},{facts.submitted_at:.3f},{facts.spec.gpus},{facts.run_s:.3f}"
