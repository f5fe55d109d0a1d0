"""The events that lead to where a scenario begins: nodes, queues, and what runs already."""

from collections.abc import Iterator, Sequence
from typing import Any

from controlplane.decisions.decider import decide
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo, Slot
from controlplane.model.spec import grows
from controlplane.scheduling.cluster_view import ClusterView
from controlplane.scheduling.placement.fit import Fit, fit
from controlplane.state.world import World
from tests.conformance.gangs.reading import OneJob, jobs, nodes, policy, queues

# A rank that a scenario counts but does not place is on a node of its own.
ELSEWHERE = "elsewhere"


class History:
    """`has_come` means that all waiting jobs are there from the start, as without a clock."""

    def __init__(self, scenario: dict[str, Any], *, has_come: bool = False) -> None:
        self.scenario = scenario
        self.has_come = has_come
        self.world = World()
        self.events: list[e.Recorded] = []
        self.nodes = nodes(scenario)
        self.waiting = jobs(scenario, "pending")
        self._describe()
        self._run()
        self._break()

    def record(self, event: e.Event, at: float = 0.0) -> None:
        at = max(at, self.world.at)
        recorded = e.Recorded(self.world.position + 1, at, event)
        self.world.apply(recorded)
        self.events.append(recorded)

    def _describe(self) -> None:
        self.record(e.PolicySet(policy(self.scenario)))
        for queue in queues(self.scenario):
            self.record(e.QueueDefined(queue))
        missing = sum(_unplaced(job) for job in jobs(self.scenario, "running"))
        if missing:
            self.nodes.append(NodeInfo(ELSEWHERE, missing))
        for node in self.nodes:
            self.record(e.NodeReported(node.name, node))
        for given in self.scenario["nodes"]:
            if given.get("state") in ("cordoned", "drained", "draining"):
                self.record(e.NodeCordoned(given["id"]))

    def _run(self) -> None:
        """Submissions in order of arrival, so that the log has that order."""
        running = jobs(self.scenario, "running")
        there = [*running, *self.waiting] if self.has_come else running
        for job in sorted(there, key=lambda job: (job.arrival, job.id)):
            self.record(submitted(job), 0.0)
        places = {id(job.given): list(_places(job.given)) for job in running}
        for job in sorted(running, key=lambda j: j.given.get("admitted_at", j.arrival)):
            fitted = self._fit(job, places[id(job.given)])
            self.record(
                e.GangPlaced(
                    job.id, 1, fitted.placement, fitted.shares, job.given.get("flavor", "")
                ),
                job.given.get("admitted_at", job.arrival),
            )
            self.record(e.RanksStarted(job.id, 1, tuple(range(len(fitted.placement)))))
            self.record(e.GangStarted(job.id, 1))

    def _fit(self, job: OneJob, places: list[str]) -> Fit:
        """Where the scenario places it, on the lowest devices; anywhere if it names no place."""
        world = self.world
        if "placement" not in job.given:
            gang = ClusterView(world).gang(world.jobs[job.id])
            fitted = fit(ClusterView(world), world.devices.free, gang, job.given.get("flavor", ""))
            assert fitted is not None, f"{job.id} does not fit where the scenario begins"
            return fitted
        free = world.devices.free.copy()
        slots = []
        for rank in range(len(places) if _runs_small(job) else job.spec.size):
            role, _ = job.spec.role_of(rank)
            name = places.pop(0) if places else ELSEWHERE
            node = world.nodes[name]
            mask = free.masks[node.ordinal]
            devices = [i for i in range(node.info.gpus) if mask >> i & 1][: role.gpus]
            assert len(devices) == role.gpus, f"{job.id} does not fit on {name}"
            free.allocate(node.ordinal, sum(1 << i for i in devices))
            slots.append(Slot(name, tuple(devices)))
        if job.given.get("copies", 1) > 1:
            job.given.setdefault("_places", places)
        return Fit(tuple(slots))

    def _break(self) -> None:
        """Nodes that are down went down under what runs on them."""
        for node in self.scenario["nodes"]:
            if node.get("state") == "down":
                self.lose(node["id"])

    def lose(self, node: str) -> None:
        on_it = [
            (job.id, job.attempt.number, ranks) for job, ranks in self.world.devices.ranks_on(node)
        ]
        self._decide(c.ReportNodeLost(node=node))
        for job, attempt, ranks in on_it:
            self._decide(c.ReportRanks(job=job, attempt=attempt, gone=tuple(ranks)))

    def _decide(self, command: c.AnyCommand) -> None:
        for event in decide(self.world, command, self.world.at):
            self.record(event)


def submitted(job: OneJob) -> e.JobSubmitted:
    return e.JobSubmitted(job.id, "default", job.id, job.spec)


def _runs_small(job: OneJob) -> bool:
    """An elastic gang that runs with fewer ranks than it would like."""
    return grows(job.spec) and job.given.get("copies", 1) == 1


def _unplaced(job: OneJob) -> int:
    if "placement" not in job.given or job.given.get("copies", 1) > 1 or _runs_small(job):
        return 0
    placed = sum(job.given["placement"].values())
    return max(0, job.spec.size - placed) * job.spec.roles[0].gpus


def _places(given: dict[str, Any]) -> Iterator[str]:
    for node, count in given.get("placement", {}).items():
        yield from [node] * count


def counts(placement: Sequence[Slot]) -> dict[str, int]:
    """How many ranks are on which node."""
    by_node: dict[str, int] = {}
    for slot in placement:
        by_node[slot.node] = by_node.get(slot.node, 0) + 1
    return by_node
