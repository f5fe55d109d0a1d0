"""The outlook of the cluster over HTTP: computed on request in a thread, and kept for a while."""

import asyncio
from time import perf_counter
from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct

from api.engine.engine_client import ENGINE, EngineClient
from api.routes import Route, answer_bytes, encode, route
from api.studies.forecasts import FORECASTS, Forecaster
from studies.forecast.outlook import Outlook, outlook

# An outlook takes at most about this long, in seconds, and is kept for longer than it takes.
SECONDS_MAX = 0.5
FRESH_S = 10.0
HORIZON_S = 6 * 3_600.0
HORIZON_S_MAX = 31 * 86_400.0
KEPT_MAX = 8


class OutlookQuery(Struct, frozen=True, forbid_unknown_fields=True):
    horizon_s: Annotated[
        float, Meta(gt=0, le=HORIZON_S_MAX, description="How far to look ahead, in seconds.")
    ] = HORIZON_S


class OutlookKeeper:
    """The latest outlook for each horizon; one is made at a time."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._kept: dict[float, tuple[float, bytes]] = {}

    async def get(
        self, engine_client: EngineClient, forecaster: Forecaster, horizon_s: float
    ) -> bytes:
        """Return the outlook as JSON, at most `FRESH_S` seconds old."""
        async with self._turn:
            kept = self._kept.get(horizon_s)
            if kept is not None and perf_counter() - kept[0] < FRESH_S:
                return kept[1]
            image, now = await engine_client.ask(
                lambda world: (world.image(), forecaster.time(world))
            )
            began = perf_counter()
            encoded = await asyncio.to_thread(
                lambda: encode(
                    outlook(
                        image,
                        now,
                        now + horizon_s,
                        is_late=lambda: perf_counter() - began > SECONDS_MAX,
                    )
                )
            )
            self._kept.pop(horizon_s, None)
            self._kept[horizon_s] = (perf_counter(), encoded)
            while len(self._kept) > KEPT_MAX:
                del self._kept[next(iter(self._kept))]
            return encoded


OUTLOOKS = web.AppKey("outlooks", OutlookKeeper)


async def get_outlook(request: web.Request, query: OutlookQuery) -> web.Response:
    app = request.app
    encoded = await app[OUTLOOKS].get(app[ENGINE], app[FORECASTS], query.horizon_s)
    return answer_bytes(encoded)


ROUTES: tuple[Route, ...] = (
    route(
        "GET", "/v1/forecasts/outlook", get_outlook,
        "When jobs are likely to start and end, and how busy the cluster will be",
        query=OutlookQuery, answers={200: Outlook}, problems=("invalid_parameter",),
    ),
)  # fmt: skip
