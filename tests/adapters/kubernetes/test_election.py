"""Elections over HTTP, on an API server of our own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from adapters.clocks.asyncio_clock import AsyncioClock
from adapters.kubernetes.api.connection import Connection, Limits
from adapters.kubernetes.api.kubeconfig import Access
from adapters.kubernetes.leader_election.election import (
    LeaseElection,
    LeaseRefused,
    LeaseUnreachable,
)
from adapters.kubernetes.leader_election.lease import Terms, holder
from adapters.kubernetes.leader_election.lease_api import ApiLeases
from tests.fake_kubernetes import FakeKubernetes

QUICK = Terms(duration_s=1.0, renew_every_s=0.1, deadline_s=0.7)


@asynccontextmanager
async def candidate(api: FakeKubernetes, me: str) -> AsyncIterator[LeaseElection]:
    # A rate that would never let a second request pass: leases do not wait for their turn.
    limits = Limits(qps=0.001, burst=1)
    connection = await Connection.open(Access(kubeconfig=api.kubeconfig), limits)
    leases = ApiLeases(connection, "muster")
    try:
        yield LeaseElection(leases, "muster", me, clock=AsyncioClock(), terms=QUICK)
    finally:
        await connection.close()


async def test_one_wins_the_other_waits_and_follows_when_the_first_renews_no_more(tmp_path: Path):
    async with (
        FakeKubernetes(tmp_path) as api,
        candidate(api, "a") as a,
        candidate(api, "b") as b,
    ):
        await a.won()
        renewing = asyncio.create_task(a.lost())
        waiting = asyncio.create_task(b.won())
        await asyncio.sleep(2.0)
        assert not waiting.done(), "a lease that is renewed is not taken"
        assert not renewing.done()
        renewing.cancel()
        await asyncio.wait_for(waiting, 5)
        # Its answer shows the first one that the lease belongs to another now.
        await asyncio.wait_for(a.lost(), 5)
        await b.resign()
        await asyncio.wait_for(a.won(), 5)


async def test_a_server_that_is_gone_ends_the_reign_in_time(tmp_path: Path):
    async with candidate_of_a_dead_server(tmp_path) as a:
        await asyncio.wait_for(a.lost(), 5)
        await a.resign()


@asynccontextmanager
async def candidate_of_a_dead_server(tmp_path: Path) -> AsyncIterator[LeaseElection]:
    async with FakeKubernetes(tmp_path) as api:
        election = candidate(api, "a")
        a = await election.__aenter__()
        await a.won()
    yield a
    await election.__aexit__(None, None, None)


async def test_answers_of_the_server_are_classified(tmp_path: Path):
    async with FakeKubernetes(tmp_path) as api:
        connection = await Connection.open(Access(kubeconfig=api.kubeconfig))
        leases = ApiLeases(connection, "muster")
        assert await leases.get("muster") is None
        document = {"metadata": {"name": "muster"}, "spec": {"holderIdentity": "a"}}
        made = await leases.create(document)
        with pytest.raises(LeaseRefused):
            await leases.create(document)
        old = dict(made)
        await leases.replace({**made, "spec": {"holderIdentity": "b"}})
        with pytest.raises(LeaseRefused):
            await leases.replace(old)
        assert holder(await leases.get("muster")) == "b"
    with pytest.raises(LeaseUnreachable):
        await leases.get("muster")
    await connection.close()
