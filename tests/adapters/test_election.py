"""Leader election by an advisory lock: one holder, and a successor as soon as its session ends."""

import asyncio

import asyncpg

from adapters.clocks.asyncio_clock import AsyncioClock
from adapters.database.election import AdvisoryLockElection


def candidate(url: str) -> AdvisoryLockElection:
    return AdvisoryLockElection(url, clock=AsyncioClock(), name="test", look_every_s=0.01)


async def test_a_second_candidate_wins_only_when_the_first_resigns(database_url: str) -> None:
    one, two = candidate(database_url), candidate(database_url)
    await one.won()
    waiting = asyncio.create_task(two.won())
    await asyncio.sleep(0.2)
    assert not waiting.done()

    await one.resign()

    await asyncio.wait_for(waiting, 10)
    await two.resign()
    await two.resign()


async def test_a_holder_whose_session_ends_learns_that_it_lost(database_url: str) -> None:
    one, two = candidate(database_url), candidate(database_url)
    await one.won()
    losing = asyncio.create_task(one.lost())
    await asyncio.sleep(0.1)
    assert not losing.done()
    admin = await asyncpg.connect(database_url)
    await admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'muster election'"
    )
    await admin.close()

    await asyncio.wait_for(losing, 10)
    await asyncio.wait_for(two.won(), 10)
    await two.resign()


async def test_a_server_that_is_away_is_tried_again() -> None:
    waiting = asyncio.create_task(candidate("postgresql://postgres@127.0.0.1:1/none").won())
    await asyncio.sleep(0.2)
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
