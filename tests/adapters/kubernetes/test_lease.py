"""Elections by a Lease: the rules one by one, and whole elections in virtual time under faults."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.clocks.simpy_clock import SimpyClock, as_process
from adapters.kubernetes.leader_election.election import (
    LeaseElection,
    LeaseRefused,
    LeaseUnreachable,
)
from adapters.kubernetes.leader_election.lease import (
    ObservedLease,
    Terms,
    Wait,
    Write,
    holder,
    look,
    move,
    released,
    renewed,
    rfc3339,
)
from simulator.kernel.virtual_time import VirtualTime

TERMS = Terms(duration_s=10.0, renew_every_s=3.0, deadline_s=7.0)
# The longest that a request takes, as `lease_api` bounds it.
REQUEST_S_MAX = 2.0


def lease(holder: str, renewed_at: float = 100.0, *, duration_s: int = 10, transitions: int = 0):
    return {
        "metadata": {"name": "muster", "resourceVersion": "7"},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": duration_s,
            "acquireTime": rfc3339(90.0),
            "renewTime": rfc3339(renewed_at),
            "leaseTransitions": transitions,
        },
    }


def moved(seen: ObservedLease, now: float):
    return move(seen, "b", "muster", now, TERMS)


# ---------------------------------------------------------------- the rules


def test_a_lease_that_is_not_there_is_made():
    todo = moved(ObservedLease(None, 100.0), 100.0)
    assert isinstance(todo, Write)
    assert todo.is_new
    assert todo.lease["metadata"] == {"name": "muster"}
    assert todo.lease["spec"] == {
        "holderIdentity": "b",
        "leaseDurationSeconds": 10,
        "acquireTime": "1970-01-01T00:01:40.000000Z",
        "renewTime": "1970-01-01T00:01:40.000000Z",
        "leaseTransitions": 0,
    }


def test_another_one_s_lease_is_left_alone_until_it_was_not_renewed_for_its_duration():
    seen = look(None, lease("a"), 500.0)
    assert moved(seen, 500.0) == Wait(503.0)
    # The last wait ends exactly when the lease is over, and not at the next look after it.
    assert moved(look(seen, lease("a"), 509.0), 509.0) == Wait(510.0)
    todo = moved(look(seen, lease("a", transitions=0), 510.0), 510.0)
    assert isinstance(todo, Write)
    assert holder(todo.lease) == "b"
    assert todo.lease["spec"]["leaseTransitions"] == 1
    assert todo.lease["metadata"]["resourceVersion"] == "7", "only this version is replaced"


def test_a_renewal_restarts_the_term_regardless_of_the_holder_s_clock():
    seen = look(None, lease("a", 100.0), 500.0)
    seen = look(seen, lease("a", 3.0), 509.0)
    assert moved(seen, 515.0) == Wait(518.0)
    assert isinstance(moved(look(seen, lease("a", 3.0), 519.0), 519.0), Write)


def test_the_duration_is_the_holder_s():
    seen = look(None, lease("a", duration_s=60), 500.0)
    assert isinstance(moved(seen, 559.0), Wait)
    assert isinstance(moved(seen, 560.0), Write)


def test_a_lease_that_was_given_back_is_taken_at_once():
    seen = look(None, released(lease("a"), 500.0), 500.0)
    todo = moved(seen, 500.0)
    assert isinstance(todo, Write)
    assert not todo.is_new


def test_a_renewal_keeps_the_holder_and_the_time_of_acquisition():
    before = lease("a", transitions=4)
    after = renewed(before, 130.0, TERMS)
    assert after["spec"] == before["spec"] | {"renewTime": rfc3339(130.0)}


@pytest.mark.parametrize("document", [{}, {"spec": None}, {"spec": {"leaseDurationSeconds": None}}])
def test_an_empty_lease_is_free(document: dict):
    assert isinstance(moved(look(None, {"metadata": {}} | document, 5.0), 5.0), Write)


# ---------------------------------------------------------------- whole elections


class Server:
    """Leases with resource versions; requests take their time, get lost, or their answers do."""

    def __init__(self, env: VirtualTime, dice: Random, trouble: float) -> None:
        self.env = env
        self.dice = dice
        self.trouble = trouble
        self.lease: dict | None = None
        self.version = 0
        # Candidates that cannot reach it at the moment.
        self.away: set[str] = set()

    def of(self, who: str) -> "Client":
        return Client(self, who)

    def store(self, document: dict) -> dict:
        self.version += 1
        metadata = document["metadata"] | {"resourceVersion": str(self.version)}
        self.lease = document | {"metadata": metadata}
        return self.lease


class Client:
    def __init__(self, server: Server, who: str) -> None:
        self._server = server
        self._who = who

    async def _travel(self, took_s: float) -> float:
        """Some of the time that a request has; what is left of it."""
        spent = self._server.dice.uniform(0.0, took_s)
        clock = SimpyClock(self._server.env)
        await clock.wait(clock.now() + spent)
        return took_s - spent

    async def _asked(self, do):
        server = self._server
        if self._who in server.away:
            await self._travel(REQUEST_S_MAX)
            raise LeaseUnreachable
        slow = server.dice.random() < server.trouble
        left = await self._travel(REQUEST_S_MAX if slow else 0.05)
        if server.dice.random() < server.trouble / 2:
            raise LeaseUnreachable
        try:
            return do()
        finally:
            await self._travel(left)
            if server.dice.random() < server.trouble / 2:
                raise LeaseUnreachable

    async def get(self, name):
        return await self._asked(lambda: self._server.lease)

    async def create(self, document):
        def do():
            if self._server.lease is not None:
                raise LeaseRefused
            return self._server.store(document)

        return await self._asked(do)

    async def replace(self, document):
        def do():
            current = self._server.lease
            version = document["metadata"].get("resourceVersion")
            if current is None or current["metadata"]["resourceVersion"] != version:
                raise LeaseRefused
            return self._server.store(document)

        return await self._asked(do)


class World:
    """Some candidates, each with a clock of its own that is wrong by minutes."""

    def __init__(self, seed: int, trouble: float, count: int = 3) -> None:
        self.env = VirtualTime()
        self.dice = Random(seed)
        self.server = Server(self.env, self.dice, trouble)
        self.leaders: dict[str, float] = {}
        # (from, to, who)
        self.reigns: list[tuple[float, float, str]] = []
        for who in [f"c{number}" for number in range(count)]:
            as_process(self.env, self._candidate(who))

    async def _candidate(self, who: str) -> None:
        clock = SimpyClock(self.env, origin=self.dice.uniform(-300.0, 300.0) + 1e9)
        election = LeaseElection(self.server.of(who), "muster", who, clock=clock, terms=TERMS)
        while True:
            await election.won()
            assert not self.leaders, f"{who} leads together with {self.leaders} at {self.env.now}"
            self.leaders[who] = self.env.now
            await election.lost()
            self.reigns.append((self.leaders.pop(who), self.env.now, who))
            await election.resign()

    def run(self, seconds: float) -> None:
        self.env.run(until=self.env.now + seconds)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**9), st.sampled_from([0.0, 0.05, 0.3, 0.6]))
def test_there_are_never_two_leaders(seed: int, trouble: float):
    world = World(seed, trouble)
    for _ in range(10):
        world.server.away = {c for c in ("c0", "c1", "c2") if world.dice.random() < 0.3}
        world.run(world.dice.uniform(1.0, 40.0))


@pytest.mark.parametrize("seed", range(20))
def test_when_a_leader_is_cut_off_the_next_one_leads_within_the_lease_and_a_little(seed: int):
    world = World(seed, trouble=0.0)
    world.run(5.0)
    (first,) = world.leaders
    cut_at = world.env.now
    world.server.away = {first}
    while not world.leaders or first in world.leaders:
        world.env.step()
    # The lease was renewed at most three seconds before the cut.
    assert TERMS.duration_s - 3.2 <= world.env.now - cut_at <= TERMS.duration_s + 0.3
    (_, ended, who) = world.reigns[-1]
    assert who == first
    assert ended - cut_at <= TERMS.deadline_s + REQUEST_S_MAX


@pytest.mark.parametrize("seed", range(10))
def test_a_short_outage_of_the_server_deposes_no_leader(seed: int):
    world = World(seed, trouble=0.0)
    world.run(30.0)
    before = dict(world.leaders)
    world.server.away = {"c0", "c1", "c2"}
    world.run(1.5)
    world.server.away = set()
    world.run(60.0)
    assert world.leaders == before


def test_a_leader_that_resigns_is_succeeded_within_a_renewal():
    env = VirtualTime()
    server = Server(env, Random(1), 0.0)
    story: list[tuple[str, float]] = []

    def candidate(who: str) -> LeaseElection:
        clock = SimpyClock(env, origin=1e9)
        return LeaseElection(server.of(who), "muster", who, clock=clock, terms=TERMS)

    async def first() -> None:
        election, clock = candidate("first"), SimpyClock(env)
        await election.won()
        await clock.wait(2.0)
        await election.resign()
        story.append(("resigned", env.now))

    async def second() -> None:
        await SimpyClock(env).wait(1.0)
        await candidate("second").won()
        story.append(("won", env.now))

    as_process(env, first())
    as_process(env, second())
    env.run(until=20.0)
    (_, resigned), (_, won) = story
    assert resigned <= won <= resigned + TERMS.renew_every_s + 0.2


def test_the_holder_of_a_deleted_lease_notices_at_its_next_renewal():
    world = World(4, trouble=0.0, count=1)
    world.run(5.0)
    world.server.lease = None
    world.run(TERMS.renew_every_s + 0.2)
    assert len(world.reigns) == 1
