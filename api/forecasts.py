"""When a job will start and end: the live state run forward, in a thread, for a moment.

Every forecast is kept until it can be compared with what happened; GET /v1/forecasts tells
how wrong they were.
"""

import asyncio
from collections.abc import Callable, Sequence
from time import perf_counter

from aiohttp import web
from msgspec.structs import replace

from api.routes import NoQuery, Route, answer, route
from controlplane.commands import SubmitJob
from controlplane.events import EngineStarted, JobSubmitted, Recorded
from controlplane.job import Job
from controlplane.job_life import begin
from controlplane.scheduling.schedulability import obstacle_of_draft
from controlplane.world import World
from studies.accuracy import Ledger
from studies.forecast import Question, forecast, worth_asking
from studies.forecast_answers import Accuracy, Forecast

# After so much time no further future is tried; each of them takes a few hundredths.
SECONDS_MAX = 0.5
AT_ONCE_MAX = 2


class Forecaster:
    """`now` is the engine's clock; without one, time stands where the log ends."""

    def __init__(self, now: Callable[[], float] | None = None) -> None:
        self.ledger = Ledger()
        self._now = now
        self._places = asyncio.Semaphore(AT_ONCE_MAX)

    def record(self, batch: Sequence[Recorded], world: World) -> None:
        if isinstance(batch[0].event, EngineStarted):
            self.ledger.catch_up(world.jobs)
        self.ledger.record(batch)

    def question(self, world: World, job: Job) -> Question | None:
        """The state as it is now, with this job in it if it is only a draft."""
        if not worth_asking(job) or job.spec.is_external:
            return None
        image = world.image()
        if job.id not in world.jobs:
            image = replace(image, jobs=[*image.jobs, job], position=image.position + 1)
        return Question(image, job.id, self._time(world))

    def draft(self, world: World, command: SubmitJob) -> Question | None:
        if command.suspended:
            return None
        submitted = JobSubmitted(command.job, command.namespace, command.name, command.spec)
        job = begin(Recorded(world.position + 1, self._time(world), submitted), submitted)
        if obstacle_of_draft(world, job) is not None:
            return None
        return self.question(world, job)

    async def answer(self, question: Question | None) -> Forecast | None:
        if question is None:
            return None
        async with self._places:
            began = perf_counter()
            found = await asyncio.to_thread(
                forecast, question, enough=lambda done: perf_counter() - began > SECONDS_MAX
            )
        # A draft never happens under this id, so the ledger will forget it in time.
        self.ledger.note(question.job, found)
        return found

    def _time(self, world: World) -> float:
        return world.at if self._now is None else max(world.at, self._now())


FORECASTS = web.AppKey("forecasts", Forecaster)


async def tell_accuracy(request: web.Request, query: NoQuery) -> web.Response:
    return answer(request.app[FORECASTS].ledger.accuracy())


ROUTES: tuple[Route, ...] = (
    route(
        "GET", "/v1/forecasts", tell_accuracy, "How wrong forecasts were",
        query=NoQuery, answers={200: Accuracy}, needs_leader=True,
    ),
)  # fmt: skip
