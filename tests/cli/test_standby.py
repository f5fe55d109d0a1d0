"""Two control planes on one log in one process: who leads, who stands by, and what each answers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from adapters.clocks.asyncio_clock import AsyncioClock
from adapters.logs.memory_log import MemoryLog
from api.access import Access, Token, token_hash
from api.app import make_app
from api.engine.engine_client import EngineClient, ReplicaRole, Unavailable
from api.server import Runner
from cli.server.elections import FileElection
from cli.server.supervisor import Supervisor
from controlplane.engine import EngineOptions
from controlplane.log.replay import rebuild
from controlplane.log.snapshots import state_hash
from controlplane.model.errors import LogUnavailable, Rejected
from tests.api.stand_in import ObedientCluster, native


class Turn:
    """An election that a test decides."""

    def __init__(self) -> None:
        self.may = asyncio.Event()
        self.gone = asyncio.Event()
        self.resigned = 0

    async def won(self) -> None:
        await self.may.wait()

    async def lost(self) -> None:
        await self.gone.wait()

    async def resign(self) -> None:
        self.resigned += 1
        self.may.clear()
        self.gone.clear()


class FragileLog(MemoryLog):
    """Cannot be read while `broken`."""

    broken = False

    async def read(self, after: int, limit: int) -> Any:
        if self.broken:
            raise LogUnavailable("the network is down")
        return await super().read(after, limit)


@dataclass
class Replica:
    control: EngineClient
    turn: Turn
    cluster: ObedientCluster
    supervisor: Supervisor
    session: aiohttp.ClientSession
    task: asyncio.Task[None]
    headers: dict[str, str] = field(default_factory=dict)

    async def call(
        self, method: str, path: str, body: Any = None, **options: Any
    ) -> tuple[int, Any]:
        headers = self.headers | options.pop("headers", {})
        if body is not None:
            options["json"] = body
        url = self.control.address + path
        async with self.session.request(method, url, headers=headers, **options) as answer:
            if "json" not in answer.content_type:
                return answer.status, await answer.text()
            return answer.status, await answer.json(content_type=None)


@asynccontextmanager
async def replica(log: MemoryLog, token: str = "") -> AsyncIterator[Replica]:
    control, turn, cluster = EngineClient(log), Turn(), ObedientCluster()
    tokens = [Token("operator", token_hash(token))] if token else []
    runner = Runner(make_app(control, cluster, Access(tokens)))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    control.address = f"http://{host}:{port}"
    supervisor = Supervisor(
        control,
        cluster,
        AsyncioClock(),
        EngineOptions(resync_s=None),
        election=turn,
        again_s_first=0.01,
        guard_every_s=0.05,
    )
    task = asyncio.create_task(supervisor.run())
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession() as session:
        try:
            yield Replica(control, turn, cluster, supervisor, session, task, headers)
        finally:
            await runner.cleanup()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def pair(log: MemoryLog | None = None, token: str = "") -> AsyncIterator[tuple[Any, Any]]:
    """One that leads, and one that stands by."""
    log = log or MemoryLog()
    async with replica(log, token) as first, replica(log, token) as second:
        first.turn.may.set()
        await until(lambda: first.control.role is ReplicaRole.LEADER)
        await until(lambda: second.control.leader == first.control.address)
        yield first, second


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the condition gives no signal
            await asyncio.sleep(0.005)


async def test_a_standby_answers_reads_and_hands_changes_on():
    async with pair() as (first, second):
        status, made = await second.call("POST", "/v1/jobs", native("one"))
        assert status == 201
        # What was changed through it is seen through it at once.
        assert (await second.call("GET", "/v1/jobs/default/one"))[1]["job"]["id"] == made["job"][
            "id"
        ]
        assert [r.event.name for r in first.control.log.events if hasattr(r.event, "spec")] == [
            "one"
        ]
        status, body = await second.call("DELETE", "/v1/jobs/default/none")
        assert (status, body["code"]) == (404, "no_such_job")
        # Lines of ranks are only where the ranks are.
        assert (await second.call("GET", "/v1/jobs/default/one/logs"))[1]["lines"]


async def test_readyz_names_the_role_of_each_server():
    async with pair() as (first, second):
        leader = first.control.address
        assert (await first.call("GET", "/readyz"))[1]["role"] == "leader"
        ready = await second.call("GET", "/readyz")
        assert ready[0] == 200
        assert ready[1] | {"position": 0} == {
            "status": "ready",
            "role": "standby",
            "leader": leader,
            "position": 0,
        }
        assert (await first.call("GET", "/leaderz"))[0] == 200
        status, body = await second.call("GET", "/leaderz")
        assert (status, body["code"]) == (503, "unavailable")
        assert leader in body["detail"]
        assert "muster_engine_leads 1.0" in (await first.call("GET", "/metrics"))[1]
        numbers = (await second.call("GET", "/metrics"))[1]
        assert "muster_engine_leads 0.0" in numbers
        assert 'muster_nodes{state="ready"} 2.0' in numbers


async def test_a_stream_at_a_standby_shows_what_the_leader_records_also_across_a_take_over():
    async with pair() as (first, second):
        url = f"{second.control.address}/v1/events?after=0"
        headers = {"Accept": "text/event-stream"}
        async with second.session.get(url, headers=headers) as answer:
            assert await ids(answer, upto=1) == [1]
            await first.call("POST", "/v1/jobs", native("one"))
            upto = (await first.control.log.head()).position
            seen = await ids(answer, upto)
            first.turn.gone.set()
            second.turn.may.set()
            await until(lambda: second.control.role is ReplicaRole.LEADER)
            upto = (await first.control.log.head()).position
            seen += await ids(answer, upto)
        assert seen == list(range(2, upto + 1))


async def ids(answer: aiohttp.ClientResponse, upto: int) -> list[int]:
    seen: list[int] = []
    async with asyncio.timeout(10):
        while not seen or seen[-1] < upto:
            line = (await answer.content.readline()).decode()
            if line.startswith("id:"):
                seen.append(int(line[3:]))
    return seen


async def test_the_next_one_goes_on_where_the_log_ends_and_the_first_one_stands_by():
    log = MemoryLog()
    async with pair(log) as (first, second):
        await first.call("POST", "/v1/jobs", native("one"))
        first.turn.gone.set()
        await until(lambda: first.control.role is ReplicaRole.STANDBY)
        assert first.turn.resigned == 1
        assert (await first.call("GET", "/v1/jobs/default/one"))[0] == 200
        status, body = await first.call("POST", "/v1/jobs", native("two"))
        assert (status, body["code"]) == (503, "standby")

        second.turn.may.set()
        await until(lambda: second.control.role is ReplicaRole.LEADER)
        await until(lambda: first.control.leader == second.control.address)
        assert (await first.call("POST", "/v1/jobs", native("two")))[0] == 201
        whole = await rebuild(log, use_snapshot=False)
        for control in (first.control, second.control):
            await until(lambda c=control: _position(c) == whole.world.position)
            assert await control.ask(state_hash) == state_hash(whole.world)


def _position(control: EngineClient) -> int:
    world = control.followed or (control.engine.world if control.engine else None)
    return world.position if world else 0


async def test_one_that_was_fenced_out_goes_back_to_standing_by():
    async with pair() as (first, _):
        await first.control.log.lead()
        await until(lambda: first.control.role is ReplicaRole.STANDBY)
        assert first.turn.resigned == 1
        first.turn.may.set()
        await until(lambda: first.control.role is ReplicaRole.LEADER)


async def test_a_server_that_cannot_read_the_log_does_not_stand_for_election_and_is_not_ready():
    log = FragileLog()
    async with replica(log) as only:
        await until(lambda: only.control.role is ReplicaRole.STANDBY)
        log.broken = True
        await until(lambda: only.control.role is ReplicaRole.NEITHER)
        only.turn.may.set()
        await asyncio.sleep(0.1)
        assert only.control.role is ReplicaRole.NEITHER
        assert (await only.call("GET", "/readyz"))[0] == 503
        assert (await only.call("GET", "/healthz"))[0] == 200
        assert (await only.call("GET", "/v1/jobs"))[0] == 503
        log.broken = False
        only.turn.may.set()
        await until(lambda: only.control.role is ReplicaRole.LEADER)


async def test_a_leader_that_is_gone_is_named_and_nothing_goes_round_in_circles():
    log = MemoryLog()
    async with replica(log) as second:
        async with replica(log) as first:
            first.turn.may.set()
            await until(lambda: second.control.leader == first.control.address)
            gone = first.control.address
        status, body = await second.call("POST", "/v1/jobs", native("one"))
        assert (status, body["code"]) == (503, "standby")
        assert gone in body["detail"]
        assert "nothing was done" in body["detail"]
        status, body = await second.call(
            "POST", "/v1/jobs", native("one"), headers={"Muster-Forwarded": "1"}
        )
        assert (status, body["code"]) == (503, "standby")
        assert "does not lead either" in body["detail"]
        with pytest.raises(Rejected) as refusal:
            await second.control.submit_then(None, lambda world, receipt: None)  # type: ignore[arg-type]
        assert refusal.value.code == "standby"


async def test_a_standby_refuses_every_caller_that_the_leader_would_refuse():
    async with pair(token="secret") as (first, second):
        status, body = await second.call(
            "POST", "/v1/jobs", native("one"), headers={"Authorization": "Bearer wrong"}
        )
        assert (status, body["code"]) == (401, "token_needed")
        status, body = await second.call(
            "POST", "/v1/jobs", native("one"), headers={"Origin": "http://elsewhere.example"}
        )
        assert (status, body["code"]) == (403, "cross_origin")
        own = {"Origin": second.control.address, "Idempotency-Key": "k"}
        assert (await second.call("POST", "/v1/jobs", native("one"), headers=own))[0] == 201
        assert (await first.call("POST", "/v1/jobs", native("one"), headers={"Idempotency-Key": "k"}))[0] == 200  # fmt: skip


async def test_questions_wait_for_the_one_that_takes_over(monkeypatch: pytest.MonkeyPatch):
    log = MemoryLog()
    async with replica(log) as only:
        held = asyncio.Event()
        connect = only.cluster.connect

        async def slow(report: Any) -> None:
            await held.wait()
            await connect(report)

        monkeypatch.setattr(only.cluster, "connect", slow)
        only.turn.may.set()
        await until(lambda: only.control.takes_over_from is not None)
        assert (await only.call("GET", "/readyz"))[1]["role"] == "taking over"
        asked = asyncio.create_task(only.control.ask(lambda world: world.position))
        await asyncio.sleep(0.05)
        assert not asked.done()
        held.set()
        assert await asked >= 1
        monkeypatch.setattr("api.engine.engine_client.TAKE_OVER_S_MAX", 0.05)
        only.turn.gone.set()
        await until(lambda: only.control.role is ReplicaRole.STANDBY)
        held.clear()
        only.turn.may.set()
        await until(lambda: only.control.takes_over_from is not None)
        with pytest.raises(Unavailable, match="taking over"):
            await only.control.ask(lambda world: world.position)
        held.set()


async def test_the_holder_of_the_lock_leads_a_file(tmp_path: Path):
    one = FileElection(tmp_path / "m.db", look_every_s=0.01)
    two = FileElection(tmp_path / "m.db", look_every_s=0.01)
    await one.won()
    waiting = asyncio.create_task(two.won())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await one.resign()
    await asyncio.wait_for(waiting, 5)
    await two.resign()
