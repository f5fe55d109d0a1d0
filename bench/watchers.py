"""Watchers of the event stream: every event to every one of them, how late, and at what cost.

Delay is from the event's time in the log, taken before the append, to the line read by the client;
server and clients share the machine and its clock.
"""

import asyncio
import json
from statistics import quantiles
from time import time
from typing import Any
from urllib.parse import urlsplit

import msgspec

from bench.append import in_our_loop
from bench.http import answered, manifest, posted
from bench.server import Server, muster_up

WATCHERS = 1_000
JOBS = 50


def run(quick: bool) -> list[dict[str, Any]]:
    with muster_up("--speed", "1") as server:
        return [in_our_loop(watch(server))]


async def watch(server: Server) -> dict[str, Any]:
    before = server.resident_kib()
    watchers = [await StreamClient.open(server.url) for _ in range(WATCHERS)]
    each_kib = (server.resident_kib() - before) / WATCHERS
    reading = asyncio.gather(*(watcher.read(JOBS) for watcher in watchers))
    await submit(server.url, JOBS)
    await asyncio.wait_for(reading, 120)
    for watcher in watchers:
        assert watcher.positions == list(range(1, watcher.positions[-1] + 1)), "one was missed"
        watcher.close()
    delays = [delay for watcher in watchers for delay in watcher.delays]
    cuts = quantiles(delays, n=100)
    return {
        "name": f"event stream, {WATCHERS:,} watchers",
        "value": round(cuts[98] * 1e3, 1),
        "baseline": round(cuts[49] * 1e3, 1),
        "ratio": round(cuts[98] / cuts[49], 1),
        "target": None,
        "unit": "ms, p99",
        "note": f"{len(delays):,} deliveries, none missed or doubled; {each_kib:.0f} KiB of the "
        "server's memory a watcher; baseline: p50",
    }


class Event(msgspec.Struct):
    position: int
    at: float
    type: str


# Clients and server share two cores, so the clients read as little as they can.
_event = msgspec.json.Decoder(Event)


class StreamClient:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.positions: list[int] = []
        self.delays: list[float] = []

    @classmethod
    async def open(cls, url: str) -> "StreamClient":
        where = urlsplit(url)
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        head = f"GET /v1/events?after=0 HTTP/1.1\r\nHost: {where.netloc}\r\n"
        writer.write(f"{head}Accept: text/event-stream\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        return cls(reader, writer)

    async def read(self, jobs: int) -> None:
        """Read every event until `jobs` jobs were submitted."""
        while len(self.delays) < jobs:
            line = await self._reader.readline()
            if line.startswith(b"data: "):
                event = _event.decode(line[6:])
                self.positions.append(event.position)
                if event.type == "JobSubmitted":
                    self.delays.append(time() - event.at)

    def close(self) -> None:
        self._writer.close()


async def submit(url: str, jobs: int) -> None:
    """Submits jobs one after the other."""
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    for number in range(jobs):
        writer.write(posted(where.netloc, json.dumps(manifest(number)).encode()))
        assert await answered(reader) == 201
        await asyncio.sleep(0.2)
    writer.close()


if __name__ == "__main__":
    print(run(quick=True))
