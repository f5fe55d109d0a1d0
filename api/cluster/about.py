"""What kind of cluster this is, how fast its time runs, and how large it is."""

from aiohttp import web
from msgspec import Struct
from msgspec.structs import asdict

from api.engine.engine_client import ENGINE
from api.history.answer_cache import ANSWERS
from api.history.history_index import HISTORY_FOLLOWER
from api.routes import NoQuery, Route, route
from controlplane.model.phases import WAITING
from controlplane.queries.queries import nodes
from controlplane.state.world import World

SIMULATED = "simulated"


class AboutCluster(Struct, frozen=True, kw_only=True):
    """A cluster as it was configured.

    `kind` is `simulated`, `kubernetes` or the name of another adapter. `speed` is the number of
    seconds of the cluster's time in a second of real time. With `read_only`, a log is only shown.
    """

    kind: str = ""
    description: str = ""
    speed: float = 1.0
    release: str = ""
    read_only: bool = False


class ClusterView(AboutCluster, frozen=True, kw_only=True):
    """A cluster as it is now. `now` is the time of its clock, in UTC seconds."""

    now: float
    position: int
    nodes: int
    nodes_ready: int
    nodes_cordoned: int
    gpus: int
    jobs_running: int
    jobs_waiting: int
    queues: int


ABOUT = web.AppKey("about", AboutCluster)


async def get_cluster(request: web.Request, query: NoQuery) -> web.Response:
    kept = request.app[ANSWERS].kept(request)
    if kept is not None:
        return kept
    about, now = request.app[ABOUT], request.app[HISTORY_FOLLOWER].now()
    view = await request.app[ENGINE].ask(lambda world: cluster_view(world, about, now))
    return request.app[ANSWERS].answer(request, lambda: view)


def cluster_view(world: World, about: AboutCluster, now: float) -> ClusterView:
    """Return the cluster with the numbers of `world`."""
    present = list(nodes(world))
    return ClusterView(
        **asdict(about),
        now=max(now, world.at),
        position=world.position,
        nodes=len(present),
        nodes_ready=sum(node.ready for node in present),
        nodes_cordoned=sum(node.cordoned for node in present),
        gpus=sum(node.info.gpus for node in present),
        jobs_running=len(world.devices.live),
        jobs_waiting=sum(len(world.phases.by_phase[phase]) for phase in WAITING),
        queues=len(world.queues),
    )


ROUTES: tuple[Route, ...] = (
    route(
        "GET", "/v1/cluster", get_cluster,
        "What kind of cluster this is, how fast its time runs, and how large it is",
        query=NoQuery, answers={200: ClusterView},
    ),
)  # fmt: skip
