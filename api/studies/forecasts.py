"""Forecasts of a job's start and end: the live state simulated forward, in a thread, briefly.

Every forecast is kept until it can be compared with what happened; GET /v1/forecasts reports the
errors.
"""

import asyncio
from collections.abc import Callable, Sequence
from time import perf_counter

from aiohttp import web
from msgspec.structs import replace

from api.routes import NoQuery, Route, answer, route
from controlplane.lifecycle.job import Job, begin
from controlplane.model.commands import SubmitJob
from controlplane.model.events import EngineStarted, JobSubmitted, Recorded
from controlplane.scheduling.cluster_view import ClusterView
from controlplane.scheduling.explain.schedulability import obstacle_of_draft
from controlplane.state.world import World
from controlplane.workflows.dependencies import resolve
from studies.forecast.accuracy import ForecastAccuracy
from studies.forecast.forecast import Question, forecast, worth_asking
from studies.forecast.views import Accuracy, Forecast

# After this time no further future is simulated; each takes a few hundredths of a second.
SECONDS_MAX = 0.5
AT_ONCE_MAX = 2


class Forecaster:
    """Makes forecasts. `now` is the engine's clock; without one, time stands where the log ends."""

    def __init__(self, now: Callable[[], float] | None = None) -> None:
        self.ledger = ForecastAccuracy()
        self._now = now
        self._places = asyncio.Semaphore(AT_ONCE_MAX)

    def record(self, batch: Sequence[Recorded], world: World) -> None:
        if isinstance(batch[0].event, EngineStarted):
            self.ledger.catch_up(world.jobs)
        self.ledger.record(batch)

    def question(self, world: World, job: Job) -> Question | None:
        """Return the current state as a question, with `job` added if it is only a draft.

        None for a job that gets no forecast.
        """
        if not worth_asking(job) or job.spec.is_external:
            return None
        image = world.image()
        if job.id not in world.jobs:
            image = replace(image, jobs=[*image.jobs, job], position=image.position + 1)
        return Question(image, job.id, self.time(world))

    def draft(self, world: World, command: SubmitJob) -> Question | None:
        if command.suspended or command.spec.array:
            return None
        after = resolve(world, command.namespace, command.name, command.spec.after)
        submitted = JobSubmitted(
            command.job, command.namespace, command.name, command.spec, after=after
        )
        job = begin(Recorded(world.position + 1, self.time(world), submitted))
        if not after and obstacle_of_draft(ClusterView(world), job) is not None:
            return None
        return self.question(world, job)

    async def answer(self, question: Question | None) -> Forecast | None:
        if question is None:
            return None
        async with self._places:
            began = perf_counter()
            result = await asyncio.to_thread(
                forecast, question, enough=lambda done: perf_counter() - began > SECONDS_MAX
            )
        # No job of this id will exist if it was a draft, so the ledger drops the entry in time.
        self.ledger.note(question.job, result)
        return result

    def time(self, world: World) -> float:
        """Return the time of the engine's clock."""
        return world.at if self._now is None else max(world.at, self._now())


FORECASTS = web.AppKey("forecasts", Forecaster)


async def show_accuracy(request: web.Request, query: NoQuery) -> web.Response:
    return answer(request.app[FORECASTS].ledger.accuracy())


ROUTES: tuple[Route, ...] = (
    route(
        "GET", "/v1/forecasts", show_accuracy, "How wrong forecasts were",
        query=NoQuery, answers={200: Accuracy}, needs_leader=True,
    ),
)  # fmt: skip
