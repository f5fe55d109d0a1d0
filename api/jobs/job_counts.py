"""The number of jobs in each phase, now or at an instant of the past."""

from aiohttp import web
from msgspec import Struct

from api.history.past_worlds import PAST_PROBLEMS, ask_when
from api.requests.instants import PastQuery
from api.routes import Route, answer, route
from controlplane.model.phases import Phase
from controlplane.state.world import World


class JobCounts(Struct, frozen=True, kw_only=True):
    """The number of jobs by phase; every phase is named. Each index of an array is a job."""

    total: int
    phases: dict[Phase, int]


async def get_counts(request: web.Request, query: PastQuery) -> web.Response:
    counts, headers = await ask_when(request, query, count_jobs)
    return answer(counts, headers=headers)


def count_jobs(world: World) -> JobCounts:
    phases = {phase: len(world.phases.by_phase[phase]) for phase in Phase}
    return JobCounts(total=len(world.jobs), phases=phases)


ROUTES: tuple[Route, ...] = (
    route(
        "GET", "/v1/counts/jobs", get_counts, "How many jobs are in which phase",
        query=PastQuery, answers={200: JobCounts}, problems=PAST_PROBLEMS,
    ),
)  # fmt: skip
