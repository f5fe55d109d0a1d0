"""Reclaim finds its victims wherever they run: against every set of victims, tried one by one."""

import os
from itertools import combinations, permutations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controlplane.model import events as e
from controlplane.model.cluster import Slot
from controlplane.model.phases import ACTIVE
from controlplane.model.policy import Policy, Preempt, Queue, Reclaim
from controlplane.model.spec import Role
from controlplane.scheduling.decisions import Claim, Evict, Shrink, Start
from tests.controlplane.scheduling_worlds import Sandbox
from tests.controlplane.specification import spec
from tests.controlplane.test_scheduling_properties import can_place

EXAMPLES = int(os.environ.get("MUSTER_EXAMPLES", "40"))
RECLAIMS = [
    "quota_classic",
    "quota_fair",
    "deserved_plus_weight",
    "fair_preempt",
]


def policy(model: str) -> Policy:
    rules = Preempt(reclaim=Reclaim.ANY)
    return Policy(discipline="fit", model=model, preempt=rules)


def cohort(model: str, *nominals: int) -> list[Queue]:
    """Queues below one cohort; shares of the whole cluster need none."""
    shared = model in ("quota_classic", "quota_fair")
    queues = [
        Queue(f"q{n}", nominal=gpus, parent="all" if shared else "")
        for n, gpus in enumerate(nominals)
    ]
    return [Queue("all"), *queues] if shared else queues


def run_on(box: Sandbox, name: str, queue: str, *slots: Slot) -> None:
    """A job of one rank on each of these slots that runs already."""
    box.submit(name, spec(workers=len(slots), gpus=len(slots[0].devices), queue=queue))
    box.record(e.GangPlaced(name, 1, slots))
    box._start([name])


@pytest.mark.parametrize("model", RECLAIMS)
@pytest.mark.parametrize("where", sorted(set(permutations("0011"))))
def test_reclaim_works_however_the_jobs_of_a_queue_lie(model, where):
    """2 nodes x 2 GPUs, four 1-GPU jobs of one queue on them, a 2-GPU job of the other waits."""
    box = Sandbox([(2, ""), (2, "")], cohort(model, 2, 2), policy(model))
    taken = {"0": 0, "1": 0}
    for number, node in enumerate(where):
        run_on(box, f"j{number}", "q0", Slot(f"n{node}", (taken[node],)))
        taken[node] += 1
    box.submit("waits", spec(workers=1, gpus=2, queue="q1"))
    decisions = box.look()
    victims = [d.job for d in decisions if isinstance(d, Evict)]
    assert [d.job for d in decisions if isinstance(d, Claim)] == ["waits"]
    assert len(victims) == 2
    assert len({where[int(job[1:])] for job in victims}) == 1


@pytest.mark.parametrize("model", RECLAIMS)
def test_reclaim_gathers_two_whole_nodes_of_many(model):
    """8 nodes x 2 GPUs; the jobs lie in turns, and the gang needs two nodes as a whole."""
    box = Sandbox([(2, "")] * 8, cohort(model, 12, 4), policy(model))
    for number in range(16):
        run_on(box, f"j{number:02}", "q0", Slot(f"n{number % 8}", (number // 8,)))
    box.submit("waits", spec(workers=2, gpus=2, queue="q1"))
    decisions = box.look()
    assert len([d for d in decisions if isinstance(d, Evict)]) == 4
    box.settle()
    assert box.world.jobs["waits"].phase in ACTIVE
    assert box.evictions == 4


def test_ranks_of_an_elastic_gang_are_given_where_room_is_needed():
    """The gang can do without its last three ranks; the last two of them are on different nodes."""
    box = Sandbox([(2, ""), (2, "")], cohort("quota_classic", 1, 2), policy("quota_classic"))
    role = Role(name="Worker", replicas=4, gpus=1, min_replicas=1)
    box.submit("elastic", spec(roles=(role,), queue="q0"))
    slots = (Slot("n0", (0,)), Slot("n1", (0,)), Slot("n0", (1,)), Slot("n1", (1,)))
    box.record(e.GangPlaced("elastic", 1, slots))
    box._start(["elastic"])
    box.submit("waits", spec(workers=1, gpus=2, queue="q1"))
    decisions = box.look()
    assert [(d.job, d.ranks) for d in decisions if isinstance(d, Shrink)] == [
        ("elastic", (1, 2, 3))
    ]
    assert not [d for d in decisions if isinstance(d, Evict)]


# ---------------------------------------------------------------- against every set of victims

small_jobs = st.lists(
    st.tuples(st.sampled_from([0, 0, 1]), st.integers(1, 2), st.integers(1, 3)),
    min_size=1, max_size=7,
)  # fmt: skip


@given(
    st.sampled_from(["quota_classic", "deserved_plus_weight"]),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    small_jobs,
    st.lists(st.integers(0, 3), min_size=3, max_size=3),
    st.tuples(st.integers(1, 2), st.integers(1, 3)),
    st.data(),
)
@settings(max_examples=15 * EXAMPLES, deadline=None)
@example("quota_classic", [3, 3], [(0, 1, 1), (0, 1, 2), (0, 1, 3)], [5, 0, 2], (1, 2), None)
def test_reclaim_finds_victims_if_there_are_any(model, nodes, jobs, nominals, wanted, data):
    box = Sandbox([(n, "") for n in nodes], cohort(model, *nominals), policy(model))
    left = {f"n{n}": list(range(gpus)) for n, gpus in enumerate(nodes)}
    for number, (queue, ranks, gpus) in enumerate(jobs):
        slots = []
        for rank in range(ranks):
            open_to_it = sorted(name for name, free in left.items() if len(free) >= gpus)
            if not open_to_it:
                break
            pick = (number + rank) % len(open_to_it)
            node = open_to_it[pick] if data is None else data.draw(st.sampled_from(open_to_it))
            slots.append(Slot(node, tuple(left[node].pop(0) for _ in range(gpus))))
        if slots:
            run_on(box, f"j{number}", f"q{queue}", *slots)
    box.submit("waits", spec(workers=wanted[0], gpus=wanted[1], queue="q2"))
    decisions = box.look()
    if any(isinstance(d, Start) for d in decisions):
        return
    victims = {d.job for d in decisions if isinstance(d, Evict)}
    reference = Reference(box, model, nominals, wanted)
    if victims:
        assert reference.is_enough(victims)
        assert reference.is_admissible(victims)
        assert not any(
            reference.is_enough(victims - {v}) and reference.is_admissible(victims - {v})
            for v in victims
        )
    else:
        assert not reference.any_set()


class Reference:
    """The rules of flat queues without borrowing limits, written once more and without any haste."""

    def __init__(self, box, model, nominals, wanted) -> None:
        self.model, self.wanted = model, wanted
        self.nominals = {f"q{n}": gpus for n, gpus in enumerate(nominals)}
        self.capacity = sum(node.info.gpus for node in box.world.nodes.values())
        self.sizes = {name: node.info.gpus for name, node in box.world.nodes.items()}
        running = [job for job in box.world.jobs.values() if job.phase in ACTIVE]
        self.slots = {job.id: job.attempt.placement for job in running}
        self.queue = {job.id: job.spec.queue for job in running}
        self.gpus = {job: sum(len(s.devices) for s in slots) for job, slots in self.slots.items()}
        self.needs = wanted[0] * wanted[1]
        self.shares = self.nominals if model == "quota_classic" else self._fair_shares()

    def _fair_shares(self) -> dict[str, int]:
        """Up to its quota each queue gets what it wants, then the rest one GPU after the other."""
        asks = {q: self._used(q, ()) + (self.needs if q == "q2" else 0) for q in self.nominals}
        given = {q: min(asks[q], self.nominals[q]) for q in self.nominals}
        left = self.capacity - sum(given.values())
        while left > 0 and any(given[q] < asks[q] for q in given):
            thirsty = [q for q in sorted(given) if given[q] < asks[q]]
            each = left // len(thirsty)
            for queue in thirsty:
                more = min(max(1, each), asks[queue] - given[queue], left)
                given[queue] += more
                left -= more
        return given

    def _used(self, queue: str, gone) -> int:
        return sum(
            g for job, g in self.gpus.items() if self.queue[job] == queue and job not in gone
        )

    def is_enough(self, gone) -> bool:
        free = dict(self.sizes)
        for job, slots in self.slots.items():
            if job not in gone:
                for slot in slots:
                    free[slot.node] -= len(slot.devices)
        if not can_place(sorted(free.values()), [self.wanted[1]] * self.wanted[0]):
            return False
        own = self._used("q2", gone) + self.needs
        if self.model == "quota_classic":
            # All that is used of the cohort, and the queue itself does not borrow.
            used = sum(self._used(q, gone) for q in self.nominals)
            within = used + self.needs <= sum(self.nominals.values())
            return within and own <= self.nominals["q2"]
        return own <= self.shares["q2"]

    def is_admissible(self, victims) -> bool:
        """Whether in some order each is taken from a queue that then has more than its own."""

        def ends(gone: frozenset[str]) -> bool:
            rest = [v for v in victims if v not in gone]
            return not rest or any(
                self._used(self.queue[v], gone) > self.shares[self.queue[v]] and ends(gone | {v})
                for v in rest
            )

        return all(self.queue[v] != "q2" for v in victims) and ends(frozenset())

    def any_set(self) -> bool:
        jobs = sorted(self.slots)
        return any(
            self.is_enough(set(gone)) and self.is_admissible(gone)
            for size in range(1, len(jobs) + 1)
            for gone in combinations(jobs, size)
        )


# ---------------------------------------------------------------- elastic gangs


def elastic(replicas: int, fewest: int, **changes):
    role = Role(name="Worker", replicas=replicas, gpus=1, min_replicas=fewest)
    return spec(roles=(role,), **changes)


def test_an_elastic_gang_reclaims_what_its_queue_deserves_beyond_its_fewest():
    """3 GPUs; q0 deserves 1 and holds 2; q1 deserves 2 and asks for 3 or, if need be, for 1."""
    queues = [Queue("q0", nominal=1, weight=0.0), Queue("q1", nominal=2)]
    box = Sandbox([(3, "")], queues, policy("deserved_plus_weight"))
    box.submit("runs", elastic(2, 1, queue="q0"))
    box.one_pass()
    box.submit("asks", elastic(3, 1, queue="q1"))
    decisions = box.look()
    assert [(d.job, d.ranks) for d in decisions if isinstance(d, Shrink)] == [("runs", (1,))]
    assert [len(d.fit.placement) for d in decisions if isinstance(d, Claim)] == [2]
    for _ in range(5):
        box.one_pass()
    assert len(box.world.jobs["asks"].attempt.placement) == 2
    assert box.world.devices.used == {"q0": 1, "q1": 2}


def test_an_elastic_gang_starts_at_once_where_waiting_brings_no_more():
    queues = [Queue("q0", nominal=2, weight=0.0), Queue("q1", nominal=1)]
    box = Sandbox([(3, "")], queues, policy("deserved_plus_weight"))
    box.submit("runs", elastic(2, 1, queue="q0"))
    box.one_pass()
    box.submit("asks", elastic(3, 1, queue="q1"))
    decisions = box.look()
    assert [(d.job, len(d.fit.placement)) for d in decisions if isinstance(d, Start)] == [
        ("asks", 1)
    ]
    assert not [d for d in decisions if isinstance(d, Shrink | Evict)]


@pytest.mark.parametrize("model", RECLAIMS)
def test_an_elastic_gang_takes_whole_gangs_only_up_to_its_share(model):
    box = Sandbox([(4, "")], cohort(model, 1, 3), policy(model))
    for number in range(3):
        run_on(box, f"j{number}", "q0", Slot("n0", (number,)))
    box.submit("asks", elastic(4, 1, queue="q1"))
    box.settle()
    held = box.world.devices.used
    # By weight alone each of two queues has half of the cluster.
    assert held == ({"q0": 2, "q1": 2} if model == "fair_preempt" else {"q0": 1, "q1": 3})
