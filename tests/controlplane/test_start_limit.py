"""At most so many gangs start in one scheduling cycle; the others wait for the next, in order."""

from collections.abc import Sequence

import pytest
from hypothesis import assume, settings
from hypothesis import given as drawn
from hypothesis import strategies as st
from msgspec.structs import replace

from controlplane.audit.redecide import DecisionVerifier, Differs
from controlplane.decisions.autonomous import next_due, one_pass
from controlplane.disciplines.registry import DISCIPLINES
from controlplane.log import codec
from controlplane.log.fold import fold
from controlplane.log.replay import open_snapshot
from controlplane.log.snapshots import state_hash, take_snapshot
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo
from controlplane.model.policy import Policy, Preempt, WithinQueue
from controlplane.model.reasons import WaitReason
from controlplane.model.rows import GENESIS
from controlplane.model.spec import DoneWhen, JobSpec, Role, Scheduling
from controlplane.queries.queries import why
from controlplane.state.state import State
from controlplane.state.world import World
from tests.controlplane.instant_world import Arrival, job, run
from tests.controlplane.specification import T0, Given, node, on, submit

LOWER = Preempt(within_queue=WithinQueue.LOWER)


def one(gpus: int = 1, group: str = "", size: int = 0, **changes: object) -> JobSpec:
    role = Role(name="Worker", gpus=gpus)
    asks = Scheduling(group=group, group_size=size)
    return JobSpec(roles=(role,), done_when=DoneWhen("Worker"), scheduling=asks, **changes)


def limited(most: int | None = 2, **changes: object) -> Policy:
    return Policy(starts_per_cycle_max=most, **{"cycle_s": 10.0, **changes})


class Limited(Given):
    """A world with one node of eight GPUs, on which passes are taken as the engine takes them."""

    def __init__(self, policy: Policy, *jobs: tuple[str, JobSpec], gpus: int = 8) -> None:
        super().__init__(node(gpus=gpus), e.ClusterSurveyed(), e.PolicySet(policy))
        self.submit(*jobs)

    def submit(self, *jobs: tuple[str, JobSpec]) -> "Limited":
        self.when(*(submit(name, name, of) for name, of in jobs))
        return self

    def when_passed(self) -> "Limited":
        """What is due, then one pass."""
        self.decided = []
        while (due := next_due(self.world, self.now)).events:
            self._record(due.events)
        for decided in one_pass(self.world, self.now):
            self._record(decided.events)
        return self

    def _record(self, events: Sequence[e.Event]) -> None:
        self.happened(*events)
        self.decided += events

    @property
    def placed(self) -> list[str]:
        return [event.job for event in self.decided if isinstance(event, e.GangPlaced)]

    def gone(self, name: str) -> None:
        attempt = self.job(name).attempt
        assert attempt is not None
        ranks = tuple(range(len(attempt.ranks)))
        self.when(c.ReportRanks(job=name, attempt=attempt.number, gone=ranks))


def jobs(*names: str, **changes: object) -> list[tuple[str, JobSpec]]:
    return [(name, one(**changes)) for name in names]


def test_those_beyond_the_limit_start_in_the_next_cycle():
    given = Limited(limited(2), *jobs("a", "b", "c"))
    given.when_passed().then(
        e.GangPlaced("a", 1, on(("n1", (0,)))),
        e.GangPlaced("b", 1, on(("n1", (1,)))),
        e.StartsCounted(T0 + 10.0, 2, limited=True),
    )
    assert given.world.next_deadline() == T0 + 10.0
    given.later(9.9).when_passed().then()
    given.later(0.2).when_passed().then(
        e.CycleEnded(),
        e.GangPlaced("c", 1, on(("n1", (2,)))),
        e.StartsCounted(given.now + 10.0, 1),
    )
    # No gang is left over, so the end of the cycle is not waited for.
    deadline = given.world.next_deadline()
    assert deadline is None or deadline > given.now + 10.0


def test_without_a_limit_nothing_is_counted():
    given = Limited(Policy(), *jobs("a", "b", "c")).when_passed()
    given.then_kinds(e.GangPlaced, e.GangPlaced, e.GangPlaced)
    assert given.world.cycle is None


def test_passes_of_one_cycle_share_the_limit():
    """A burst that comes one by one is a burst."""
    given = Limited(limited(2))
    placed = []
    for number in range(4):
        given.submit((f"j{number}", one())).later(1.0).when_passed()
        placed += given.placed
    assert placed == ["j0", "j1"]
    assert given.world.next_deadline() == T0 + 11.0


def test_after_a_cycle_the_next_one_begins_with_a_start():
    given = Limited(limited(2), *jobs("a")).when_passed()
    given.later(25.0).submit(*jobs("b", "c", "d")).when_passed()
    assert given.placed == ["b", "c"]
    assert given.world.next_deadline() == T0 + 35.0


@pytest.mark.parametrize("discipline", DISCIPLINES.names)
def test_the_order_is_kept(discipline):
    """With the limit reached nothing overtakes, whatever the discipline lets past."""
    of = {"scheduling": Scheduling(estimate_s=60.0)}
    names = [f"j{number}" for number in range(5)]
    given = Limited(limited(2, discipline=discipline), *((n, replace(one(), **of)) for n in names))
    started = []
    for _ in range(3):
        given.when_passed().later(10.0)
        assert len(given.placed) <= 2
        started += given.placed
    assert started == names


def test_backfill_counts():
    policy = limited(2, discipline="easy")
    asks = Scheduling(estimate_s=60.0)
    small = [(f"s{n}", replace(one(), scheduling=asks)) for n in range(4)]
    given = Limited(policy, ("first", replace(one(6), scheduling=Scheduling(estimate_s=600.0))))
    given.when_passed().later(10.0)
    given.submit(("head", replace(one(8), scheduling=asks)), *small).when_passed()
    assert given.placed == ["s0", "s1"]
    assert given.world.cycle is not None
    # There is no room for the others, so the limit has left nothing over but them.
    assert given.world.cycle.admitted == 2


def group(name: str, size: int) -> list[tuple[str, JobSpec]]:
    return [(f"{name}{i}", one(group=name, size=size)) for i in range(size)]


def test_a_group_is_not_split():
    given = Limited(limited(3), *jobs("a"), *group("g", 3), *jobs("z")).when_passed()
    assert given.placed == ["a"]
    assert given.world.cycle is not None
    assert given.world.cycle.limited
    given.later(10.0).when_passed()
    assert given.placed == ["g0", "g1", "g2"]
    given.later(10.0).when_passed()
    assert given.placed == ["z"]


def test_a_group_within_the_limit_counts_one_by_one():
    given = Limited(limited(3), *group("g", 2), *jobs("y", "z")).when_passed()
    assert given.placed == ["g0", "g1", "y"]


def test_a_group_that_is_larger_than_the_limit_starts_alone():
    given = Limited(limited(2), *group("g", 4), *jobs("z")).when_passed()
    assert given.placed == ["g0", "g1", "g2", "g3"]
    given.later(10.0).when_passed()
    assert given.placed == ["z"]


def test_a_group_that_does_not_fit_holds_up_no_other_cycle():
    given = Limited(limited(3, discipline="fit"), ("a", one(6)), *group("g", 3))
    given.submit(*jobs("z")).when_passed()
    assert given.placed == ["a", "z"]


def evicting(most: int = 1) -> Limited:
    """Four gangs of a low priority fill the cluster, and more important ones come later."""
    given = Limited(limited(None, preempt=LOWER), *jobs("a", "b", "c", "d", gpus=2)).when_passed()
    given.happened(e.PolicySet(limited(most, preempt=LOWER, records_reasons=False)))
    return given


def test_no_more_are_evicted_than_may_start():
    given = evicting(1).submit(*jobs("x", "y", gpus=2, priority=5)).when_passed()
    stopped = [x.job for x in given.decided if isinstance(x, e.JobRestarting)]
    assert len(stopped) == 1
    assert [x.job for x in given.decided if isinstance(x, e.GangWaiting)] == ["x"]
    given.later(10.0).when_passed()
    assert len([x for x in given.decided if isinstance(x, e.JobRestarting)]) == 1


def test_a_claim_waits_for_the_next_cycle_and_is_kept():
    given = evicting(1).submit(*jobs("x", gpus=2, priority=5)).when_passed()
    victim = next(x.job for x in given.decided if isinstance(x, e.JobRestarting))
    given.later(5.0).gone(victim)
    given.submit(*jobs("y", gpus=2, priority=9)).when_passed()
    # The place of x is free, and stays free; y evicts no other gang meanwhile.
    assert not [x for x in given.decided if isinstance(x, e.GangPlaced | e.JobRestarting)]
    assert given.job("x").wait_reason == WaitReason.WAITING_FOR_VICTIMS
    given.later(5.0).when_passed()
    assert given.placed == ["x"]


def test_growth_and_repair_are_no_starts():
    role = Role(name="Worker", replicas=2, gpus=1, min_replicas=1, max_replicas=6)
    elastic = JobSpec(roles=(role,), done_when=DoneWhen("Worker"))
    given = Limited(limited(1), ("e", elastic)).when_passed()
    given.when(c.ReportRanks(job="e", attempt=1, started=(0, 1)))
    given.when(c.ScaleJob(namespace="default", name="e", role="Worker", replicas=5)).when_passed()
    given.then_kinds(e.RanksAdded)


def test_why_names_the_limit_and_the_next_cycle():
    given = Limited(limited(1), *jobs("a", "b", "c")).when_passed()
    for name in ("b", "c"):
        reason = why(given.world, given.job(name)).reasons[0]
        assert (reason.code, reason.limit, reason.until) == ("starts_limited", 1, T0 + 10.0)
        assert "at most 1 gang starts" in reason.message
    # It is no reason of the job's own, and is not recorded.
    assert given.job("b").wait_reason is None


def test_why_names_what_else_a_gang_lacks():
    given = Limited(limited(1), *jobs("a", "b"), ("large", one(8))).when_passed()
    codes = {
        name: [r.code for r in why(given.world, given.job(name)).reasons] for name in ("b", "large")
    }
    assert codes == {"b": ["starts_limited"], "large": ["starts_limited", "insufficient_capacity"]}


def test_another_limit_begins_another_cycle():
    given = Limited(limited(1, cycle_s=3600.0), *jobs("a", "b", "c", "d")).when_passed()
    given.when(c.SetPolicy(policy=limited(2, cycle_s=1.0))).when_passed()
    assert given.placed == ["b", "c"]
    given.when(c.SetPolicy(policy=Policy())).when_passed()
    assert given.placed == ["d"]
    assert given.world.cycle is None


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Policy(starts_per_cycle_max=0), "starts_per_cycle_max: with 0 nothing would ever start"),
        (Policy(starts_per_cycle_max=-1), "starts_per_cycle_max: -1 is not between"),
        (Policy(cycle_s=0.0), "cycle_s: 0.0 is less than 0.01"),
        (Policy(cycle_s=-1.0), "cycle_s: -1.0 is not between"),
        (Policy(cycle_s=float("nan")), "cycle_s: nan is not between"),
    ],
)
def test_what_cannot_be_a_limit_is_refused(policy, message):
    refusal = Given().refuses(c.SetPolicy(policy=policy))
    assert refusal.code == "invalid_policy"
    assert refusal.message.startswith(message)


def test_a_cycle_is_in_the_snapshot():
    given = Limited(limited(1), *jobs("a", "b")).when_passed()
    again = open_snapshot(take_snapshot(given.world, b"")).world
    assert again.cycle == given.world.cycle
    assert again.next_deadline() == T0 + 10.0
    assert state_hash(again) == state_hash(given.world)


# ---------------------------------------------------------------- properties

arrivals = st.lists(
    st.tuples(
        st.floats(0.0, 30.0),
        st.integers(1, 4),
        st.floats(0.1, 20.0),
        st.integers(0, 2),
        st.sampled_from(["", "", "", "g", "h"]),
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@drawn(
    arrivals,
    st.integers(1, 4),
    st.sampled_from([0.5, 1.0, 7.0]),
    st.sampled_from(DISCIPLINES.names),
    st.booleans(),
)
def test_any_load_keeps_the_limit_and_starts_in_the_end(came, most, cycle_s, discipline, evicts):
    policy = Policy(
        discipline=discipline,
        starts_per_cycle_max=most,
        cycle_s=cycle_s,
        preempt=LOWER if evicts else Preempt(),
    )
    sizes = {name: sum(each[4] == name for each in came) for name in ("g", "h")}
    # A group has eight members at most; one that comes after these have ended waits for others.
    assume(max(sizes.values()) <= 8)
    feed = [
        Arrival(
            at,
            f"j{number}",
            job(
                gpus=gpus if not name else 1,
                runs_s=runs_s,
                priority=priority,
                scheduling=Scheduling(group=name, group_size=sizes.get(name, 0)),
            ),
        )
        for number, (at, gpus, runs_s, priority, name) in enumerate(came)
    ]
    groups = {each.name: each.spec.scheduling.group for each in feed}
    nodes = [NodeInfo(f"n{i}", 4) for i in range(8)]
    events = run(nodes, policy, feed)

    check_cycles(events, groups, most, cycle_s)
    ended = {r.event.job for r in events if isinstance(r.event, e.JobSucceeded)}
    assert ended == set(groups)
    # What is decided again is the same, and the fold knows as much in every way to read a log.
    verifier = DecisionVerifier(World())
    verifier.take(events)
    verifier.finish()
    bare = State()
    fold(bare, codec.to_rows(events, GENESIS), GENESIS)
    assert state_hash(bare) == state_hash(verifier.world)


def check_cycles(
    events: Sequence[e.Recorded], groups: dict[str, str], most: int, cycle_s: float
) -> None:
    """At most so many start or have others evicted within a cycle, unless they are one group."""
    began, admitted, claimed = float("-inf"), list[str](), set[str]()
    for recorded in events:
        event = recorded.event
        if isinstance(event, e.GangWaiting):
            new = event.code == WaitReason.WAITING_FOR_VICTIMS and event.job not in claimed
            (claimed.add if event.code == WaitReason.WAITING_FOR_VICTIMS else claimed.discard)(
                event.job
            )
            if not new:
                continue
        elif isinstance(event, e.GangPlaced):
            claimed.discard(event.job)
        else:
            continue
        if recorded.at >= began + cycle_s:
            began, admitted = recorded.at, []
        admitted.append(groups[event.job])
        assert len(admitted) <= most or (admitted[0] and len(set(admitted)) == 1)


def test_a_log_that_starts_more_is_noticed():
    """Re-deciding is worth something only if it finds a start that the limit forbids."""
    feed = [Arrival(0.0, f"j{n}", job(gpus=1, runs_s=100.0)) for n in range(3)]
    events = run([NodeInfo("n1", 4)], limited(2), feed)
    wrong = [
        replace(r, event=e.PolicySet(limited(1))) if isinstance(r.event, e.PolicySet) else r
        for r in events
    ]
    verifier = DecisionVerifier(World())
    with pytest.raises(Differs):
        verifier.take(wrong)
