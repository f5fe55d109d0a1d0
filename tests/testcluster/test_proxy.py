"""The fault proxy before a little server of ours."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from deploy.testcluster.faults import Fault, Settings
from deploy.testcluster.proxy import Proxy


class Server:
    """Counts what reaches it; a second create of a name is refused, as Kubernetes does."""

    def __init__(self) -> None:
        self.created: list[str] = []
        self.asked = 0

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/pods/{name}", self._create)
        app.router.add_get("/pods", self._list)
        return app

    async def _create(self, request: web.Request) -> web.Response:
        self.asked += 1
        name = request.match_info["name"]
        status = 409 if name in self.created else 201
        self.created.append(name)
        return web.json_response({"name": name, "body": await request.json()}, status=status)

    async def _list(self, request: web.Request) -> web.StreamResponse:
        self.asked += 1
        if "watch" not in request.query:
            return web.json_response({"items": self.created})
        response = web.StreamResponse()
        await response.prepare(request)
        for index in range(200):
            change = {"type": "ADDED", "object": {"index": index}}
            await response.write(json.dumps(change).encode() + b"\n")
        return response


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, TestServer]]:
    ours = Server()
    async with TestServer(ours.app()) as running:
        yield ours, running


def proxy_of(running: TestServer, folder: Path, settings: Settings) -> Proxy:
    url = str(running.make_url("")).rstrip("/")
    config = {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (folder / "kubeconfig").write_text(json.dumps(config))
    return Proxy(folder / "kubeconfig", settings)


async def post(url: str) -> int | str:
    async with aiohttp.ClientSession() as session:
        try:
            async with session.post(url, json={"a": 1}) as answer:
                return answer.status
        except aiohttp.ClientError as error:
            return type(error).__name__


async def test_without_faults_everything_passes(
    server: tuple[Server, TestServer], tmp_path: Path
) -> None:
    async with proxy_of(server[1], tmp_path, Settings()) as proxy:
        assert await post(f"{proxy.url}/pods/a") == 201
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{proxy.url}/pods") as answer:
                assert await answer.json() == {"items": ["a"]}
            async with session.get(f"{proxy.url}/pods?watch=1") as answer:
                assert len((await answer.text()).splitlines()) == 200


@pytest.mark.parametrize(
    ("fault", "answer", "carried_out"),
    [
        (Fault.DELAY, 201, 1),
        (Fault.CUT_BEFORE, "ServerDisconnectedError", 0),
        (Fault.CUT_AFTER, "ServerDisconnectedError", 1),
        (Fault.TOO_MANY, 429, 0),
        (Fault.BROKEN, 500, 0),
        (Fault.TIMED_OUT, 504, 1),
        (Fault.TWICE, 409, 2),
    ],
)
async def test_each_fault_answers_and_acts_as_declared(
    server: tuple[Server, TestServer],
    tmp_path: Path,
    fault: Fault,
    answer: int | str,
    carried_out: int,
) -> None:
    settings = Settings(rate=1.0, only=(fault,), delay_s_max=0.01)
    async with proxy_of(server[1], tmp_path, settings) as proxy:
        assert await post(f"{proxy.url}/pods/a") == answer
        assert server[0].asked == carried_out
        assert proxy.judge.faults == {fault: 1}


async def test_changes_are_dropped_from_streams(
    server: tuple[Server, TestServer], tmp_path: Path
) -> None:
    settings = Settings(rate=0.3, only=(Fault.DROPPED,))
    async with proxy_of(server[1], tmp_path, settings) as proxy:
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{proxy.url}/pods?watch=1") as answer:
                lines = (await answer.text()).splitlines()
    assert len(lines) == 200 - proxy.judge.faults[Fault.DROPPED]
    assert 30 < proxy.judge.faults[Fault.DROPPED] < 90


async def test_a_stream_ends_with_gone(server: tuple[Server, TestServer], tmp_path: Path) -> None:
    settings = Settings(rate=0.1, only=(Fault.STREAM_GONE,))
    async with proxy_of(server[1], tmp_path, settings) as proxy:
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{proxy.url}/pods?watch=1") as answer:
                last = json.loads((await answer.text()).splitlines()[-1])
    assert (last["type"], last["object"]["code"]) == ("ERROR", 410)


async def test_the_settings_can_be_changed_while_it_runs(
    server: tuple[Server, TestServer], tmp_path: Path
) -> None:
    async with proxy_of(server[1], tmp_path, Settings()) as proxy:
        assert await post(f"{proxy.url}/pods/a") == 201
        async with aiohttp.ClientSession() as session:
            wanted = {"rate": 1.0, "only": ["500"]}
            await asyncio.wait_for(session.put(f"{proxy.url}/-/settings", json=wanted), 5)
        assert await post(f"{proxy.url}/pods/b") == 500
