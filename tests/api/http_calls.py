"""Requests to an app that a test has made itself."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web

from api.server import Runner


@asynccontextmanager
async def listening(app: web.Application) -> AsyncIterator[str]:
    """The URL of the app, which listens on a free port of this machine until the block ends."""
    runner = Runner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


async def call(url: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Status and decoded body of one request."""
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url + path, json=body) as answer,
    ):
        return answer.status, await answer.json(content_type=None)
