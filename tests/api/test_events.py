"""The event stream over HTTP: exact, resumable, and not held up by those who do not read."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from typing import Any

import aiohttp

from api.app import Limits
from api.history.sse_feed import FeedLimits
from tests.api.stand_in import Server, native, serving

STREAM = {"Accept": "text/event-stream"}


class Stream:
    """Server-Sent Events as a client sees them."""

    def __init__(self, content: Any) -> None:
        self._content = content

    async def next(self) -> dict[str, Any]:
        lines: list[bytes] = []
        while True:
            line = await asyncio.wait_for(self._content.readline(), 30)
            if not line:
                raise EOFError
            if line.strip():
                lines.append(line.strip())
            elif any(each.startswith(b"data:") for each in lines):
                break
            else:
                lines.clear()
        fields = dict(each.split(b": ", 1) for each in lines)
        event: dict[str, Any] = json.loads(fields[b"data"])
        assert int(fields[b"id"]) == event["position"]
        return event

    async def upto(self, position: int) -> list[dict[str, Any]]:
        events = [await self.next()]
        while events[-1]["position"] < position:
            events.append(await self.next())
        return events


@asynccontextmanager
async def watching(server: Server, query: str = "", **headers: str) -> AsyncIterator[Stream]:
    async with server.session.get(
        f"{server.url}/v1/events{query}", headers={**STREAM, **headers}
    ) as answer:
        assert answer.status == 200, await answer.text()
        assert answer.content_type == "text/event-stream"
        yield Stream(answer.content)


async def head(server: Server) -> int:
    return (await server.log.head()).position


async def test_a_stream_begins_behind_a_position_and_goes_on(server: Server) -> None:
    end = await head(server)
    async with watching(server, "?after=1") as stream:
        assert [e["position"] for e in await stream.upto(end)] == list(range(2, end + 1))
        await server.call("POST", "/v1/jobs", native("train"))
        event = await stream.next()
        assert (event["position"], event["type"]) == (end + 1, "JobSubmitted")


async def test_an_event_looks_the_same_live_from_the_ring_and_from_the_log(server: Server) -> None:
    async with watching(server, f"?after={await head(server)}") as live:
        await server.call("POST", "/v1/jobs", native("train"))
        await server.settled()
        end = await head(server)
        from_live = await live.upto(end)
        first = from_live[0]["position"]
        async with watching(server, f"?after={first - 1}") as behind:
            assert await behind.upto(end) == from_live
    async with watching(server, f"?after={first - 1}") as afterwards:
        assert await afterwards.upto(end) == from_live
    _, page = await server.call("GET", f"/v1/events?after={first - 1}")
    assert page["items"] == from_live


async def test_the_last_event_id_wins_over_the_address(server: Server) -> None:
    async with watching(server, "?after=0", **{"Last-Event-ID": "2"}) as stream:
        assert (await stream.next())["position"] == 3


async def test_a_stream_of_one_job_has_only_its_events(server: Server) -> None:
    _, detail = await server.call("POST", "/v1/jobs", native("train"))
    await server.call("POST", "/v1/jobs", native("other"))
    async with server.session.get(
        f"{server.url}/v1/jobs/default/train/events", headers=STREAM
    ) as answer:
        stream = Stream(answer.content)
        types = [(await stream.next())["type"] for _ in range(4)]
        assert types == ["JobSubmitted", "GangPlaced", "RanksStarted", "GangStarted"]
        await server.call("POST", "/v1/jobs/default/other/cancel")
        await server.call("POST", "/v1/jobs/default/train/cancel")
        event = await stream.next()
        assert (event["type"], event["stream"]) == ("JobCancelled", detail["job"]["id"])


async def test_nothing_is_missed_or_doubled_while_events_are_appended(server: Server) -> None:
    """Watchers come, go and resume at any moment while jobs are submitted."""
    jobs = 60
    last = asyncio.Event()

    async def submit() -> None:
        for i in range(jobs):
            await server.call("POST", "/v1/jobs", native(f"job-{i}", gpus=0))
            await asyncio.sleep(0.001)
        await server.settled()
        last.set()
        # A reader that has seen all of it and waits for more learns that this was all.
        await server.call("PUT", "/v1/queues/last", {})

    async def follow(hops: int) -> list[int]:
        seen: list[int] = []
        while not last.is_set() or len(seen) < await head(server):
            after = seen[-1] if seen else 0
            async with watching(server, f"?after={after}") as stream:
                for _ in range(hops):
                    if last.is_set() and len(seen) >= await head(server):
                        return seen
                    seen.append((await stream.next())["position"])
        return seen

    submitting = asyncio.create_task(submit())
    followed = await asyncio.gather(*(follow(hops) for hops in (1, 3, 7, 50, 10_000)))
    await submitting
    for seen in followed:
        assert seen == list(range(1, len(seen) + 1))
        assert len(seen) >= await head(server) - 1


async def test_a_new_engine_after_a_failure_leaves_no_gap(server: Server) -> None:
    async with watching(server) as stream:
        await stream.upto(await head(server))
        await server.stop_engine()
        await server.lead()
        end = await head(server)
        assert [e["position"] for e in await stream.upto(end)][-1] == end
        await server.call("POST", "/v1/jobs", native("train"))
        assert (await stream.next())["position"] == end + 1


async def test_a_stream_may_begin_before_an_engine_leads() -> None:
    async with serving(leads=False) as server:
        async with watching(server) as stream:
            await server.lead()
            assert (await stream.next())["type"] == "EngineStarted"


async def test_an_idle_stream_has_a_heartbeat() -> None:
    limits = Limits(feed=FeedLimits(heartbeat_s=0.02))
    async with serving(limits=limits) as server:
        address = f"{server.url}/v1/events?after={await head(server)}"
        async with server.session.get(address, headers=STREAM) as answer:
            lines = [await asyncio.wait_for(answer.content.readline(), 5) for _ in range(6)]
    assert lines == [b"retry: 2000\n", b"\n", b":\n", b"\n", b":\n", b"\n"]


async def test_a_watcher_that_left_is_noticed() -> None:
    async with serving(limits=Limits(feed=FeedLimits(heartbeat_s=0.02))) as server:
        async with watching(server) as stream:
            await stream.next()
            assert server.feed.watchers == 1
        for _ in range(100):
            await asyncio.sleep(0.02)
            if not server.feed.watchers:
                break
        assert server.feed.watchers == 0


async def test_no_more_watchers_are_taken_than_there_is_room_for() -> None:
    async with serving(limits=Limits(feed=FeedLimits(watchers_max=1))) as server:
        async with watching(server):
            status, problem = await server.call("GET", "/v1/events", headers=STREAM)
            assert (status, problem["code"]) == (503, "busy")


async def submit_large_jobs(server: Server, count: int) -> int:
    """Events of 100 kB each; returns where the log ends then."""
    notes = {f"note-{i}": "x" * 1000 for i in range(100)}
    for i in range(count):
        manifest = native(f"job-{i}", gpus=0)
        manifest["metadata"]["annotations"] = notes
        await server.call("POST", "/v1/jobs", manifest)
    await server.settled()
    return await head(server)


def watcher_that_never_reads(server: Server) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    stuck = socket.socket()
    stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stuck.connect((host, int(port)))
    stuck.sendall(
        b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n"
    )
    return stuck


async def read_resuming(server: Server, after: int, end: int) -> list[int]:
    """Positions up to the end; on a busy machine even this reader may be dropped on the way."""
    seen = [after]
    while seen[-1] < end:
        with suppress(aiohttp.ClientPayloadError):
            async with watching(server, f"?after={seen[-1]}") as stream:
                while seen[-1] < end:
                    seen.append((await stream.next())["position"])
    return seen[1:]


async def test_a_watcher_that_does_not_read_is_dropped_and_can_resume() -> None:
    async with serving(limits=Limits(feed=FeedLimits(stuck_s_max=0.1))) as server:
        with closing(watcher_that_never_reads(server)):
            end = await submit_large_jobs(server, 80)
            for _ in range(500):
                if server.feed.dropped:
                    break
                await asyncio.sleep(0.02)
            assert server.feed.dropped >= 1
        assert await read_resuming(server, 3, end) == list(range(4, end + 1))


async def test_a_watcher_that_does_not_read_blocks_no_other(server: Server) -> None:
    with closing(watcher_that_never_reads(server)):
        async with watching(server) as keen:
            submitting = asyncio.create_task(submit_large_jobs(server, 60))
            seen = [(await keen.next())["position"] for _ in range(60)]
            end = await submitting
            seen += [event["position"] for event in await keen.upto(end)]
            assert seen == list(range(1, end + 1))
    assert server.feed.dropped == 0


async def test_a_slow_reader_gets_everything_in_its_own_time(server: Server) -> None:
    async with watching(server) as slow:
        end = await submit_large_jobs(server, 40)
        positions: list[int] = []
        while not positions or positions[-1] < end:
            positions.append((await slow.next())["position"])
            await asyncio.sleep(0.001)
        assert positions == list(range(1, end + 1))


async def test_an_old_http_client_gets_a_stream_without_chunks(server: Server) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /v1/events HTTP/1.0\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
    head_lines = await reader.readuntil(b"\r\n\r\n")
    assert b"chunked" not in head_lines
    assert (await reader.readuntil(b"\n\n")).startswith(b"retry:")
    assert (await reader.readuntil(b"\n\n")).startswith(b"id: 1\ndata: {")
    writer.close()
    await writer.wait_closed()


async def test_the_server_stops_while_a_client_watches() -> None:
    async with serving() as server:
        answer = await server.session.get(f"{server.url}/v1/events", headers=STREAM)
    assert (await head(server)) > 0
    answer.close()
