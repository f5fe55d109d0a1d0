"""The real server, killed with SIGKILL again and again while people submit over HTTP.

What was acknowledged is there afterwards, once; what was not may be there or not, but never twice;
and every job comes to its end. The seed of what is random is printed.
"""

import asyncio
import itertools
import signal
import sys
from pathlib import Path
from random import Random

import aiohttp
import pytest

from adapters.database.event_log import DatabaseLog
from controlplane.log.codec import from_row
from controlplane.log.replay import rebuild
from controlplane.model import events as e
from controlplane.model.phases import FINISHED

CLIENTS = 6
PATIENCE_S = 120
# So many jobs in all, or the cluster would still be busy with them long after the last kill.
JOBS_PER_CLIENT_MAX = 150


def manifest(name: str, dice: Random) -> dict:
    return {
        "apiVersion": "muster.dev/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "roles": [{"name": "worker", "replicas": dice.randint(1, 3), "gpus": dice.randint(0, 8)}],
            "restart": {"limit": 1, "backoff_s_first": 5},
            "workload": {
                "duration_s": dice.uniform(0, 60),
                "exit_code": dice.choice([0, 0, 0, 1]),
                "failing_attempts": dice.choice([None, 1]),
            },
        },
    }  # fmt: skip


class Server:
    """A `muster up` that is started again whenever it was killed."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.url = ""
        self.starts = 0

    async def start(self) -> None:
        words = ["up", "--port", "0", "--db", str(self.log), "--speed", "200"]
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "cli.main",
            *words,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        self.starts += 1
        assert self.process.stdout is not None
        while line := (await self.process.stdout.readline()).decode():
            if line.startswith("  API"):
                self.url = line.split()[1]
            if line.startswith("Try: "):
                return
        raise AssertionError("the server did not start")

    async def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


async def insist(session: aiohttp.ClientSession, server: Server, body: dict, key: str) -> dict:
    """Submits with the same key until the server answers that it has the job."""
    while True:
        try:
            async with session.post(
                f"{server.url}/v1/jobs", json=body, headers={"Idempotency-Key": key}
            ) as answer:
                if answer.status in (200, 201):
                    return await answer.json()
                assert answer.status == 503, await answer.text()
        except (aiohttp.ClientError, OSError, TimeoutError):
            pass
        await asyncio.sleep(0.02)


async def client(
    session: aiohttp.ClientSession,
    server: Server,
    number: int,
    done: asyncio.Event,
    seed: int,
    pause_s: float,
) -> dict[str, str]:
    """Submits one job after the other; returns name -> id of what was acknowledged."""
    dice = Random(f"{seed}/{number}")
    acknowledged = {}
    for turn in itertools.count():
        if done.is_set():
            return acknowledged
        if turn >= JOBS_PER_CLIENT_MAX:
            await done.wait()
            continue
        name = f"job-{number}-{turn}"
        answer = await insist(session, server, manifest(name, dice), f"key-{name}")
        acknowledged[name] = answer["job"]["id"]
        await asyncio.sleep(dice.random() * pause_s)
    raise AssertionError


async def all_ended(session: aiohttp.ClientSession, server: Server) -> None:
    for _ in range(PATIENCE_S * 5):
        phases = "&".join(f"phase={p}" for p in ("Queued", "Starting", "Running", "Restarting"))
        async with session.get(f"{server.url}/v1/jobs?limit=1&{phases}") as answer:
            if answer.status == 200 and not (await answer.json())["items"]:
                return
        await asyncio.sleep(0.2)
    raise AssertionError("not every job came to its end")


async def torment(log: Path, kills: int, seed: int) -> dict[str, str]:
    dice = Random(seed)
    server, done = Server(log), asyncio.Event()
    await server.start()
    timeout = aiohttp.ClientTimeout(total=5)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        clients = [
            asyncio.create_task(client(session, server, n, done, seed, pause_s=0.02 * kills))
            for n in range(CLIENTS)
        ]
        for _ in range(kills):
            await asyncio.sleep(dice.random() * 0.4)
            await server.kill()
            await server.start()
        done.set()
        acknowledged = {k: v for one in await asyncio.gather(*clients) for k, v in one.items()}
        await all_ended(session, server)
    await server.kill()
    return acknowledged


async def check(path: Path, acknowledged: dict[str, str]) -> None:
    log = await DatabaseLog.open(path)
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


@pytest.mark.parametrize("kills", [8, pytest.param(150, marks=pytest.mark.slow)])
@pytest.mark.timeout(900)
async def test_nothing_acknowledged_is_lost_and_nothing_is_doubled(tmp_path: Path, kills: int):
    seed = 2024
    print(f"seed {seed}")
    acknowledged = await torment(tmp_path / "m.db", kills, seed)

    assert len(acknowledged) >= kills
    await check(tmp_path / "m.db", acknowledged)
