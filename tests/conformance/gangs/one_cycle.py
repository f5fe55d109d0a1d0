"""Scenarios without a clock: one scheduling pass on the given state, or passes until nothing changes."""

from collections.abc import Sequence
from typing import Any

from controlplane.messages import wait_reason
from controlplane.model.cluster import Placement
from controlplane.model.reasons import Wait
from controlplane.scheduling.decisions import (
    Claim,
    Evict,
    GiveUp,
    KeepWaiting,
    Replace,
    SchedulingDecision,
    Shrink,
    Start,
)
from controlplane.scheduling.scheduling_pass import Pass
from controlplane.scheduling.snapshot import Snapshot
from tests.conformance.gangs.history import ELSEWHERE, History, counts


class Outcome:
    """What one pass decided, as scenarios ask about it."""

    def __init__(self, history: History, decisions: Sequence[SchedulingDecision]) -> None:
        world = history.world
        self.history = history
        self.starts = {d.job: d.fit for d in decisions if isinstance(d, Start)}
        self.claims = {d.job: d.fit for d in decisions if isinstance(d, Claim)}
        self.moves = {d.job: d.moves_to for d in decisions if isinstance(d, Evict) and d.moves_to}
        self.victims = [d.job for d in decisions if isinstance(d, Evict) and not d.moves_to]
        self.shrinks = {d.job: d.ranks for d in decisions if isinstance(d, Shrink)}
        self.gave_up = {d.job: d.reason for d in decisions if isinstance(d, GiveUp)}
        self.reasons: dict[str, Sequence[Wait]] = {
            d.job: d.reasons for d in decisions if isinstance(d, KeepWaiting)
        }
        self.reasons |= {job: (reason,) for job, reason in self.gave_up.items()}
        self.placements: dict[str, Placement] = {}
        for job in world.jobs.values():
            if job.attempt is not None:
                self.placements[job.id] = job.attempt.placement
        for d in decisions:
            if isinstance(d, Replace):
                slots = list(self.placements[d.job])
                for rank, slot in zip(d.ranks, d.slots, strict=True):
                    slots[rank] = slot
                self.placements[d.job] = tuple(slots)
        for job_id, fitted in {**self.starts, **self.claims, **self.moves}.items():
            self.placements[job_id] = fitted.placement

    def queue_of(self, job: str) -> str:
        return self.history.world.jobs[job].spec.queue


def run(scenario: dict[str, Any]) -> Outcome:
    history = History(scenario, has_come=True)
    history.world.check()
    for event in scenario.get("events", ()):
        happen(history, event)
    snapshot = Snapshot(history.world)
    return Outcome(history, Pass(snapshot, lambda job, code: True).run())


def happen(history: History, event: dict[str, Any]) -> None:
    """What a scenario lets happen before its one decision; often it is in the nodes' states already."""
    match event["kind"]:
        case "node_down":
            if history.world.nodes[event["node"]].ready:
                history.lose(event["node"])
        case "replica_failed":
            if history.world.nodes[ELSEWHERE].ready:
                history.lose(ELSEWHERE)
        case other:
            raise AssertionError(f"there is no reader for {other}")


def same_but_for_ids(scenario: dict[str, Any], one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two sets of victims differ only in the ids of jobs that are equal in all else."""

    def kind(name: str) -> str:
        named = [job for job in scenario["running"] if job["id"] in (name, name.split("#")[0])]
        assert named, f"no running job of the scenario is called {name}"
        given = named[0]
        fields = {k: v for k, v in given.items() if k not in ("id", "copies")}
        return repr(sorted(fields.items()))

    return sorted(map(kind, one)) == sorted(map(kind, other))


def check(scenario: dict[str, Any], outcome: Outcome) -> None:
    for key, value in scenario["expect"].items():
        CHECKS[key](scenario, outcome, value)


def _ids(outcome: Outcome, names: Sequence[str]) -> set[str]:
    """Copies are meant when their common name is."""
    known = outcome.history.world.jobs
    return {job for name in names for job in known if job == name or job.rpartition("#")[0] == name}


def _admitted(scenario: Any, outcome: Outcome, names: Sequence[str]) -> None:
    started = set(outcome.starts)
    if scenario["policy"].get("consolidate"):
        # Who waits for others to move aside has been let in, too.
        started |= set(outcome.claims)
    assert started == _ids(outcome, names)


def _admitted_later(scenario: Any, outcome: Outcome, names: Sequence[str]) -> None:
    assert set(outcome.claims) == _ids(outcome, names)


def _pending(scenario: Any, outcome: Outcome, codes: dict[str, str]) -> None:
    for job, code in codes.items():
        assert job not in outcome.starts, f"{job} starts"
        assert job not in outcome.claims, f"{job} was promised a place"
        reasons = [reason.code for reason in outcome.reasons.get(job, ())]
        assert code in reasons, f"{job} waits for {reasons}, not {code}"


def _victims(scenario: Any, outcome: Outcome, names: Sequence[str]) -> None:
    same = sorted(outcome.victims) == sorted(names)
    assert same or same_but_for_ids(scenario, outcome.victims, names), outcome.victims


def _evicted(scenario: Any, outcome: Outcome, names: Sequence[str]) -> None:
    assert sorted([*outcome.victims, *outcome.gave_up]) == sorted(names)


def _survives(scenario: Any, outcome: Outcome, names: Sequence[str]) -> None:
    touched = {*outcome.victims, *outcome.gave_up, *outcome.moves}
    assert not touched & _ids(outcome, names)


def _placement(scenario: Any, outcome: Outcome, wanted: dict[str, dict[str, int]]) -> None:
    for job, on in wanted.items():
        assert counts(outcome.placements[job]) == on


def _per_domain(scenario: Any, outcome: Outcome, wanted: dict[str, dict[str, int]]) -> None:
    path = {n["id"]: n.get("path", []) for n in scenario["nodes"]}
    for job, domains in wanted.items():
        by_domain: dict[str, int] = {}
        for node, count in counts(outcome.placements[job]).items():
            for domain in path[node]:
                by_domain[domain] = by_domain.get(domain, 0) + count
        assert {d: by_domain.get(d, 0) for d in domains} == domains
        assert sum(domains.values()) == len(outcome.placements[job])


def _explain(scenario: Any, outcome: Outcome, wanted: dict[str, str]) -> None:
    waits = [wait for waits in outcome.reasons.values() for wait in waits]
    explained = [wait_reason(wait).by_domain for wait in waits]
    assert wanted in explained, explained


def _flavor(scenario: Any, outcome: Outcome, wanted: dict[str, str]) -> None:
    fitted = {**outcome.starts, **outcome.claims}
    assert {job: fitted[job].flavor for job in wanted} == wanted


def _admitted_count(scenario: Any, outcome: Outcome, wanted: dict[str, int]) -> None:
    admitted = dict.fromkeys(wanted, 0)
    for job in outcome.starts:
        admitted[outcome.queue_of(job)] += 1
    assert admitted == wanted


def _jain(scenario: Any, outcome: Outcome, wanted: float) -> None:
    """Jain's index of what each queue got, by itself: (sum x)^2 / (n sum x^2)."""
    got = [
        sum(outcome.queue_of(job) == queue["id"] for job in outcome.starts)
        for queue in scenario["queues"]
    ]
    index = sum(got) ** 2 / (len(got) * sum(x * x for x in got))
    assert abs(index - wanted) < 0.05


def _victim_count(scenario: Any, outcome: Outcome, wanted: dict[str, int]) -> None:
    victims = dict.fromkeys(wanted, 0)
    for job in outcome.victims:
        victims[outcome.queue_of(job)] = victims.get(outcome.queue_of(job), 0) + 1
    assert victims == wanted


def _victims_on(scenario: Any, outcome: Outcome, wanted: Sequence[str]) -> None:
    before = outcome.history.world.jobs
    on = {slot.node for job in outcome.victims for slot in before[job].attempt.placement}
    assert on == set(wanted)


def _moved_count(scenario: Any, outcome: Outcome, wanted: int) -> None:
    assert len(outcome.moves) == wanted


def _moved(scenario: Any, outcome: Outcome, wanted: dict[str, dict[str, str]]) -> None:
    for job, way in wanted.items():
        before = outcome.history.world.jobs[job].attempt
        assert counts(before.placement).keys() == {way["from"]}
        assert counts(outcome.moves[job].placement).keys() == {way["to"]}
    assert set(outcome.moves) == set(wanted)


def _final_nodes(scenario: Any, outcome: Outcome, wanted: dict[str, str]) -> None:
    """'any, whole node': the job has all devices of the node it is on."""
    sizes = {n["id"]: n["gpus"] for n in scenario["nodes"]}
    for job, place in wanted.items():
        slots = outcome.placements[job]
        if place in sizes:
            assert counts(slots).keys() == {place}
        else:
            assert "whole node" in place
            assert len(counts(slots)) == 1
            assert sum(len(slot.devices) for slot in slots) == sizes[slots[0].node]


def _final_shape(scenario: Any, outcome: Outcome, wanted: dict[str, str]) -> None:
    """'3 replicas on one node', 'other node': who is whole on a node, and not on another's."""
    taken: set[str] = set()
    for job, shape in wanted.items():
        on = set(counts(outcome.placements[job]))
        assert len(on) == 1, f"{job} is on {on}, not: {shape}"
        assert not on & taken, f"{job} shares a node"
        taken |= on
        words = shape.split()
        if words[0].isdigit():
            assert len(outcome.placements[job]) == int(words[0])


def _still_running(scenario: Any, outcome: Outcome, names: Sequence[str]) -> None:
    assert not {*outcome.victims, *outcome.gave_up} & set(names)


def _invariant(scenario: Any, outcome: Outcome, text: str) -> None:
    """In every scenario: gangs are whole, and no device is given away twice."""
    world = outcome.history.world
    for job, fitted in {**outcome.starts, **outcome.claims}.items():
        spec = world.jobs[job].spec
        elastic = any(role.min_replicas is not None for role in spec.roles)
        assert elastic or len(fitted.placement) == spec.size
    taken: dict[tuple[str, int], str] = {}
    for job, fitted in outcome.starts.items():
        for slot in fitted.placement:
            for device in slot.devices:
                assert taken.setdefault((slot.node, device), job) == job or fitted.shares


def _not_admitted(scenario: Any, outcome: Outcome, names: Sequence[str]) -> None:
    assert not {*outcome.starts, *outcome.claims} & _ids(outcome, names)


def _admitted_any_of(scenario: Any, outcome: Outcome, sets: Sequence[Sequence[str]]) -> None:
    assert set(outcome.starts) in [_ids(outcome, names) for names in sets]


def _replicas(scenario: Any, outcome: Outcome, wanted: dict[str, int]) -> None:
    """How many ranks each gets that starts now."""
    fitted = {**outcome.starts, **outcome.claims}
    assert {job: len(fitted[job].placement) for job in wanted} == wanted


def _given_back(scenario: Any, outcome: Outcome, wanted: dict[str, int]) -> None:
    """How many ranks elastic gangs give back."""
    assert {job: len(ranks) for job, ranks in outcome.shrinks.items()} == wanted


def _devices(scenario: Any, outcome: Outcome, wanted: dict[str, dict[str, list[int]]]) -> None:
    for job, on in wanted.items():
        devices_of: dict[str, set[int]] = {}
        for slot in outcome.placements[job]:
            devices_of.setdefault(slot.node, set()).update(slot.devices)
        assert devices_of == {node: set(devices) for node, devices in on.items()}


def _nodes_used(scenario: Any, outcome: Outcome, wanted: dict[str, int]) -> None:
    used = {job: len(counts(outcome.placements[job])) for job in wanted}
    assert used == wanted


def _no_check(scenario: Any, outcome: Outcome, text: Any) -> None:
    """A remark for the reader."""


CHECKS = {
    "admitted": _admitted,
    "admitted_after_victims_gone": _admitted_later,
    "pending": _pending,
    "victims": _victims,
    "evicted": _evicted,
    "survives": _survives,
    "placement": _placement,
    "per_domain": _per_domain,
    "explain": _explain,
    "flavor": _flavor,
    "admitted_count": _admitted_count,
    "jain_index": _jain,
    "victim_count": _victim_count,
    "victims_on": _victims_on,
    "moved_count": _moved_count,
    "moved": _moved,
    "final_nodes": _final_nodes,
    "final_shape": _final_shape,
    "still_running": _still_running,
    "not_admitted": _not_admitted,
    "admitted_any_of": _admitted_any_of,
    "replicas": _replicas,
    "admitted_replicas": _replicas,
    "given_back": _given_back,
    "shrunk": _given_back,
    "devices": _devices,
    "nodes_used": _nodes_used,
    "invariant": _invariant,
    "note": _no_check,
}
