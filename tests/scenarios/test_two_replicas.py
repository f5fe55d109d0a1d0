"""Two real control planes on one PostgreSQL; the leader is killed with SIGKILL again and again.

What was acknowledged is there afterwards, once; a replica that is left answers reads all the time; and
every job comes to its end. The seed of what is random is printed.
"""

import asyncio
import signal
import sys
import time
from random import Random
from typing import Any

import aiohttp
import pytest

from adapters.database.event_log import DatabaseLog
from controlplane.log.codec import from_row
from controlplane.log.replay import rebuild
from controlplane.model import events as e
from controlplane.model.phases import FINISHED
from tests.scenarios.test_sigkill import all_ended, manifest

CLIENTS = 4
JOBS_PER_CLIENT_MAX = 60
# From the kill to the next leader. It takes about a second here; a busy machine takes longer.
TAKE_OVER_S_MAX = 30.0


class Replica:
    def __init__(self, database: str) -> None:
        self.database = database
        self.url = ""

    async def start(self) -> None:
        words = ["up", "--standby", "--port", "0", "--db", self.database, "--speed", "200"]
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "cli.main",
            *words,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert self.process.stdout is not None
        while line := (await self.process.stdout.readline()).decode():
            if line.startswith("  API"):
                self.url = line.split()[1]
            if line.startswith("Try: "):
                return
        raise AssertionError("the replica did not start")

    async def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


async def get(session: aiohttp.ClientSession, url: str) -> tuple[int, Any]:
    try:
        async with session.get(url) as answer:
            return answer.status, await answer.json(content_type=None)
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        return 0, repr(error)


async def leads(session: aiohttp.ClientSession, replica: Replica) -> bool:
    return (await get(session, f"{replica.url}/leaderz"))[0] == 200


async def until_led(session: aiohttp.ClientSession, replica: Replica) -> None:
    async with asyncio.timeout(TAKE_OVER_S_MAX):
        while not await leads(session, replica):  # noqa: ASYNC110 - it is in another process
            await asyncio.sleep(0.05)


async def insist(
    session: aiohttp.ClientSession, replicas: list[Replica], body: dict, key: str, dice: Random
) -> dict:
    """Submits with the same key to either replica, until one answers that the job is there."""
    while True:
        url = dice.choice(replicas).url
        try:
            async with session.post(
                f"{url}/v1/jobs", json=body, headers={"Idempotency-Key": key}
            ) as answer:
                if answer.status in (200, 201):
                    return await answer.json()
                assert answer.status == 503, await answer.text()
                assert (await answer.json())["code"] in ("standby", "unavailable")
        except (aiohttp.ClientError, OSError, TimeoutError):
            pass
        await asyncio.sleep(0.05)


async def client(
    session: aiohttp.ClientSession,
    replicas: list[Replica],
    number: int,
    done: asyncio.Event,
    seed: int,
) -> dict[str, str]:
    dice = Random(f"{seed}/{number}")
    acknowledged = {}
    for turn in range(JOBS_PER_CLIENT_MAX):
        if done.is_set():
            break
        name = f"job-{number}-{turn}"
        answer = await insist(session, replicas, manifest(name, dice), f"key-{name}", dice)
        acknowledged[name] = answer["job"]["id"]
        await asyncio.sleep(dice.random() * 0.2)
    return acknowledged


async def read_on(
    session: aiohttp.ClientSession, replica: Replica, over: asyncio.Event
) -> tuple[int, int]:
    """Reads at one that is not killed: how many were answered, and how many were not."""
    answered = refused = 0
    while not over.is_set():
        status, _ = await get(session, f"{replica.url}/v1/jobs?limit=5")
        answered, refused = answered + (status == 200), refused + (status != 200)
        await asyncio.sleep(0.02)
    return answered, refused


async def torment(database: str, kills: int, seed: int) -> dict[str, str]:
    dice = Random(seed)
    first, second = Replica(database), Replica(database)
    await first.start()
    await second.start()
    replicas, done = [first, second], asyncio.Event()
    timeout = aiohttp.ClientTimeout(total=20)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        await until_led(session, first)
        clients = [
            asyncio.create_task(client(session, replicas, n, done, seed)) for n in range(CLIENTS)
        ]
        leader, other = first, second
        for _ in range(kills):
            await asyncio.sleep(dice.random() * 0.6)
            over = asyncio.Event()
            reading = asyncio.create_task(read_on(session, other, over))
            await asyncio.sleep(0.1)
            killed_at = time.monotonic()
            await leader.kill()
            await until_led(session, other)
            took_s = time.monotonic() - killed_at
            over.set()
            answered, refused = await reading
            print(f"taken over in {took_s:.2f} s; {answered} reads answered, {refused} not")
            assert answered > 0
            assert refused == 0, "a standby stopped answering reads"
            await leader.start()
            leader, other = other, leader
        done.set()
        acknowledged = {k: v for one in await asyncio.gather(*clients) for k, v in one.items()}
        await all_ended(session, leader)  # type: ignore[arg-type]
    await leader.kill()
    await other.kill()
    return acknowledged


async def check(database: str, acknowledged: dict[str, str], leaders: int) -> None:
    log = await DatabaseLog.open(database)
    rebuilt = await rebuild(log, use_snapshot=False)
    rebuilt.world.check()
    recorded, after = [], 0
    while rows := await log.read(after, 10_000):
        recorded += [from_row(row) for row in rows]
        after = rows[-1].position
    await log.close()
    submitted = [r.event for r in recorded if isinstance(r.event, e.JobSubmitted)]
    assert len({event.name for event in submitted}) == len(submitted), "a job was doubled"
    ids = {event.name: event.job for event in submitted}
    assert acknowledged.items() <= ids.items(), "an acknowledged job was lost"
    assert all(job.phase in FINISHED for job in rebuilt.world.jobs.values())
    finals = (e.JobSucceeded, e.JobFailed, e.JobCancelled)
    ends = [r.event.job for r in recorded if isinstance(r.event, finals)]
    assert sorted(ends) == sorted(ids.values()), "a job ended twice, or never"
    starts = [r.event for r in recorded if isinstance(r.event, e.EngineStarted)]
    assert len(starts) == leaders, "the lead changed more often than leaders died"
    assert all(start.address for start in starts)


@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.slow)])
@pytest.mark.timeout(600)
async def test_the_survivor_takes_over_and_nothing_is_lost_or_doubled(
    database_url: str, kills: int
) -> None:
    seed = 2025
    print(f"seed {seed}")
    acknowledged = await torment(database_url, kills, seed)

    assert len(acknowledged) >= kills
    await check(database_url, acknowledged, leaders=kills + 1)
