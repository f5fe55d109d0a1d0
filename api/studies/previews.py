"""Previews of changes over HTTP: with `dry_run=true` a request is answered with what it would do."""

import asyncio
from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct

from api.engine.engine_client import ENGINE
from api.routes import answer
from api.studies.forecasts import FORECASTS
from controlplane.model.commands import Request
from controlplane.model.errors import Rejected
from studies.forecast.preview import preview
from studies.forecast.views import Preview

AT_ONCE_MAX = 2
WAITING_MAX = 16


class ChangeQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    dry_run: Annotated[
        bool, Meta(description="Change nothing, and answer with a preview of what would happen.")
    ] = False


class Previewer:
    """Makes previews in threads, a few at a time."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(AT_ONCE_MAX)
        self._waiting = 0

    async def preview(self, request: web.Request, command: Request) -> Preview:
        """Return what `command` would do. Raises Rejected as the command would be."""
        if self._waiting >= WAITING_MAX:
            raise Rejected("busy", "many ask for previews; it takes a while")
        self._waiting += 1
        try:
            async with self._turns:
                forecaster = request.app[FORECASTS]
                image, now = await request.app[ENGINE].ask(
                    lambda world: (world.image(with_receipts=False), forecaster.time(world))
                )
                return await asyncio.to_thread(preview, image, now, command)
        finally:
            self._waiting -= 1


PREVIEWS = web.AppKey("previews", Previewer)


async def previewed(request: web.Request, command: Request) -> web.Response:
    """Answer with what `command` would do."""
    return answer(await request.app[PREVIEWS].preview(request, command))
