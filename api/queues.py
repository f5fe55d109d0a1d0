"""Queues and the policy over HTTP: list, look, define."""

from typing import Annotated, Any

from aiohttp import web
from msgspec import UNSET, Meta, Struct, UnsetType, json
from msgspec.structs import asdict

from api.access import ACTOR
from api.control import CONTROL
from api.idempotency import HEADER, check_key, command_id
from api.pages import Cursor, Limit, read_cursor, write_cursor
from api.routes import NoQuery, Route, answer, route
from api.wire import BODIES, BODY_PROBLEMS, convert
from controlplane.commands import DefineQueue, RemoveQueue, SetPolicy
from controlplane.errors import Rejected
from controlplane.image import Receipt
from controlplane.queries import queue_view
from controlplane.sharing import Discipline, FlavorQuota, Policy, Preempt, Queue, ResourceQuota
from controlplane.views import QueueView
from controlplane.world import World

_decode_name = json.Decoder(str).decode


Gpus = Annotated[int, Meta(ge=0, le=1_000_000_000)]


class QueueSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What a queue may be told to be.

    `gpus_max` is the most GPUs that its jobs may hold, whoever's they are. `nominal` is its own
    quota; siblings below the same `parent` may use what it does not need, up to `lend_max`, and it
    may use theirs, up to `borrow_max`. Without `nominal` and `parent` there is no quota.
    """

    gpus_max: Gpus | None = None
    parent: str = ""
    nominal: Gpus | None = None
    borrow_max: Gpus | None = None
    lend_max: Gpus | None = None
    weight: Annotated[float, Meta(ge=0, le=1_000_000_000)] = 1.0
    rank: Annotated[int, Meta(ge=-1_000_000_000, le=1_000_000_000)] = 0
    flavors: tuple[FlavorQuota, ...] = ()
    resources: tuple[ResourceQuota, ...] = ()
    discipline: Discipline | None = None
    preempt: Preempt | None = None


class QueuesQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    limit: Limit = 100
    after: Cursor | UnsetType = UNSET


class QueuePage(Struct, frozen=True, kw_only=True):
    """Some queues, and the cursor with which to ask for more; null when there are no more."""

    items: list[QueueView]
    next: str | None


async def list_queues(request: web.Request, query: QueuesQuery) -> web.Response:
    return answer(await request.app[CONTROL].ask(lambda world: queue_page(world, query)))


def queue_page(world: World, query: QueuesQuery) -> QueuePage:
    """Queues by name."""
    after = "" if query.after is UNSET else read_cursor(query.after, _decode_name)
    names = sorted(name for name in world.queues if name > after)
    shown = names[: query.limit]
    return QueuePage(
        items=[_view(world, name) for name in shown],
        next=write_cursor(shown[-1]) if len(names) > len(shown) else None,
    )


async def get_queue(request: web.Request, query: NoQuery) -> web.Response:
    name = request.match_info["name"]
    return answer(await request.app[CONTROL].ask(lambda world: _view(world, name)))


def _view(world: World, name: str) -> QueueView:
    found = queue_view(world, name)
    if found is None:
        raise Rejected("no_such_queue", f"there is no queue {name!r}")
    return found


async def define_queue(request: web.Request, query: NoQuery) -> web.Response:
    settings = convert(await request.app[BODIES].document(request), QueueSettings)
    queue = Queue(request.match_info["name"], **asdict(settings))
    command = DefineQueue(id=command_id(request), actor=request[ACTOR], queue=queue)

    def view(world: World, receipt: Receipt) -> tuple[Receipt, QueueView | None]:
        return receipt, queue_view(world, queue.name)

    control = request.app[CONTROL]
    receipt, defined = await control.submit_then(command, view)
    await check_key(request, control.log, command, receipt)
    assert defined is not None, "a queue that was defined is there for good"
    return answer(defined)


async def remove_queue(request: web.Request, query: NoQuery) -> web.Response:
    name = request.match_info["name"]
    command = RemoveQueue(id=command_id(request), actor=request[ACTOR], name=name)
    control = request.app[CONTROL]
    receipt = await control.submit(command)
    await check_key(request, control.log, command, receipt)
    return web.Response(status=204)


async def get_policy(request: web.Request, query: NoQuery) -> web.Response:
    return answer(await request.app[CONTROL].ask(lambda world: _spelt_out(world.policy)))


async def set_policy(request: web.Request, query: NoQuery) -> web.Response:
    policy = convert(await request.app[BODIES].document(request), Policy)
    command = SetPolicy(id=command_id(request), actor=request[ACTOR], policy=policy)

    def view(world: World, receipt: Receipt) -> tuple[Receipt, dict[str, Any]]:
        return receipt, _spelt_out(world.policy)

    control = request.app[CONTROL]
    receipt, found = await control.submit_then(command, view)
    await check_key(request, control.log, command, receipt)
    return answer(found)


def _spelt_out(policy: Policy) -> dict[str, Any]:
    """With what equals its default, which is left out when it is written to the log."""
    return {**asdict(policy), "preempt": asdict(policy.preempt)}


_QUEUE = "/v1/queues/{name}"
_POLICY = "/v1/policy"

ROUTES: tuple[Route, ...] = (
    route(
        "GET", "/v1/queues", list_queues, "List queues, page by page",
        query=QueuesQuery, answers={200: QueuePage}, problems=("invalid_parameter", "bad_cursor"),
    ),
    route(
        "GET", _QUEUE, get_queue, "A queue, how much it holds and how many wait in it",
        query=NoQuery, answers={200: QueueView}, problems=("no_such_queue",),
    ),
    route(
        "PUT", _QUEUE, define_queue, "Define a queue, or change it",
        query=NoQuery, body=QueueSettings, answers={200: QueueView},
        problems=("invalid_queue", "invalid_body", "idempotency_key_reused", *BODY_PROBLEMS),
        headers=(HEADER,),
    ),
    route(
        "DELETE", _QUEUE, remove_queue, "Remove a queue that has no jobs and no queues below it",
        query=NoQuery, answers={204: None},
        problems=("no_such_queue", "queue_in_use", "invalid_queue", "idempotency_key_reused"),
        headers=(HEADER,),
    ),
    route(
        "GET", _POLICY, get_policy, "How the cluster is scheduled",
        query=NoQuery, answers={200: Policy}, problems=(),
    ),
    route(
        "PUT", _POLICY, set_policy, "Schedule the cluster in another way from here on",
        query=NoQuery, body=Policy, answers={200: Policy},
        problems=("invalid_policy", "invalid_body", "idempotency_key_reused", *BODY_PROBLEMS),
        headers=(HEADER,),
    ),
)  # fmt: skip
