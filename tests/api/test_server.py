"""Below the router: what is no HTTP, comes too slowly, or is too much."""

import asyncio
import json
import re

import pytest

from api import server as limits_of_server
from api.app import Limits
from tests.api.stand_in import Server, native, serving


async def raw(server: Server, sent: bytes) -> tuple[int, dict[str, object]]:
    """Status and body of the answer to some bytes."""
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(sent)
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
    length = re.search(rb"Content-Length: (\d+)", head)
    assert length is not None
    body = await reader.readexactly(int(length[1]))
    writer.close()
    await writer.wait_closed()
    assert b"application/problem+json" in head
    return int(head.split()[1]), json.loads(body)


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"x" * 9_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 9_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nBad Header: x\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
    ids=lambda sent: repr(sent[:20]),
)
async def test_what_is_no_http_gets_a_problem_too(server: Server, sent: bytes) -> None:
    status, problem = await raw(server, sent)
    assert (status, problem["code"]) == (400, "bad_request")


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async with serving(limits=Limits(body_s_max=0.05)) as server:
        status, problem = await raw(
            server,
            b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 100\r\n\r\n{",
        )
    assert (status, problem["code"]) == (408, "body_too_slow")


async def test_headers_that_do_not_come_are_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits_of_server, "IDLE_S_MAX", 0.2)
    async with serving() as server:
        host, port = server.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET / HTTP/1.1\r\nHost: ")
        assert await asyncio.wait_for(reader.read(), 30) == b""
        writer.close()
        await writer.wait_closed()


async def test_too_many_requests_at_once_are_sent_away() -> None:
    async with serving(limits=Limits(requests_max=5)) as server:
        body = json.dumps(native("train")).encode()

        async def slow() -> int:
            async def pieces():
                yield body[:5]
                await asyncio.sleep(0.1)
                yield body[5:]

            headers = {"Content-Type": "application/json"}
            status, _ = await server.call("POST", "/v1/jobs", data=pieces(), headers=headers)
            return status

        statuses = await asyncio.gather(*(slow() for _ in range(12)))
    assert statuses.count(503) >= 5
    assert statuses.count(201) == 1


async def test_streams_do_not_count_as_requests() -> None:
    async with serving(limits=Limits(requests_max=2)) as server:
        headers = {"Accept": "text/event-stream"}
        open_streams = [
            await server.session.get(f"{server.url}/v1/events", headers=headers) for _ in range(5)
        ]
        assert (await server.call("GET", "/v1/jobs"))[0] == 200
        for each in open_streams:
            each.close()


async def test_a_body_sent_in_pieces_is_bounded_too(server: Server) -> None:
    async def pieces():
        for _ in range(40):
            yield b" " * 65_536

    headers = {"Content-Type": "application/json"}
    status, problem = await server.call("POST", "/v1/jobs", data=pieces(), headers=headers)
    assert (status, problem["code"]) == (413, "body_too_large")


async def test_a_body_whose_declared_length_is_too_large_is_not_read(server: Server) -> None:
    status, problem = await raw(
        server,
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 99999999999\r\n\r\n{",
    )
    assert (status, problem["code"]) == (413, "body_too_large")


async def test_a_client_that_disconnects_amid_a_body_is_no_error_of_the_server(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 50\r\n\r\n{"
    )
    await writer.drain()
    writer.close()
    counted = 'method="POST",route="/v1/jobs",status="400"'
    async with asyncio.timeout(30):
        while counted not in str((await server.call("GET", "/metrics"))[1]):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert "unexpected error" not in caplog.text
