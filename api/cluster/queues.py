"""Queues and the policy over HTTP: list, get, define."""

from typing import Annotated, Any

from aiohttp import web
from msgspec import UNSET, Meta, Struct, UnsetType, json
from msgspec.structs import asdict

from api.access import ACTOR
from api.engine.engine_client import ENGINE
from api.history.past_worlds import PAST_PROBLEMS, ask_when
from api.requests.bodies import BODIES, BODY_PROBLEMS, convert
from api.requests.idempotency import HEADER, check_key, command_id
from api.requests.instants import PastQuery
from api.requests.pages import Cursor, Limit, read_cursor, write_cursor
from api.routes import Route, answer, route
from api.studies.previews import ChangeQuery, previewed
from controlplane.model.commands import DefineQueue, RemoveQueue, SetPolicy
from controlplane.model.errors import Rejected
from controlplane.model.policy import FlavorQuota, Policy, Preempt, Queue, ResourceQuota
from controlplane.queries.queries import queue_view
from controlplane.queries.views import QueueView
from controlplane.state.image import Receipt
from controlplane.state.world import World
from studies.forecast.views import Preview

_decode_name = json.Decoder(str).decode


Gpus = Annotated[int, Meta(ge=0, le=1_000_000_000)]


class QueueSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a queue.

    `nominal` is its quota and `gpus_max` its ceiling, the most GPUs that its jobs may have, with
    borrowed ones. `discipline` is the name of a registered discipline. Siblings below the same `parent` may borrow what it does not need, up to
    `lend_max`, and it may borrow theirs, up to `borrow_max`. Without `nominal` and `parent` there
    is no quota.
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
    discipline: str | None = None
    preempt: Preempt | None = None


class QueuesQuery(PastQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    limit: Limit = 100
    after: Cursor | UnsetType = UNSET


class QueuePage(Struct, frozen=True, kw_only=True):
    """One page of queues, and the cursor of the next page; null on the last page."""

    items: list[QueueView]
    next: str | None


async def list_queues(request: web.Request, query: QueuesQuery) -> web.Response:
    page, headers = await ask_when(request, query, lambda world: queue_page(world, query))
    return answer(page, headers=headers)


def queue_page(world: World, query: QueuesQuery) -> QueuePage:
    """Return a page of queues, ordered by name."""
    after = "" if query.after is UNSET else read_cursor(query.after, _decode_name)
    names = sorted(name for name in world.queues if name > after)
    shown = names[: query.limit]
    return QueuePage(
        items=[_view(world, name) for name in shown],
        next=write_cursor(shown[-1]) if len(names) > len(shown) else None,
    )


async def get_queue(request: web.Request, query: PastQuery) -> web.Response:
    name = request.match_info["name"]
    view, headers = await ask_when(request, query, lambda world: _view(world, name))
    return answer(view, headers=headers)


def _view(world: World, name: str) -> QueueView:
    view = queue_view(world, name)
    if view is None:
        raise Rejected("no_such_queue", f"there is no queue {name!r}")
    return view


async def define_queue(request: web.Request, query: ChangeQuery) -> web.Response:
    settings = convert(await request.app[BODIES].document(request), QueueSettings)
    queue = Queue(request.match_info["name"], **asdict(settings))
    command = DefineQueue(id=command_id(request), actor=request[ACTOR], queue=queue)
    if query.dry_run:
        return await previewed(request, command)

    def view(world: World, receipt: Receipt) -> tuple[Receipt, QueueView | None]:
        return receipt, queue_view(world, queue.name)

    engine_client = request.app[ENGINE]
    receipt, defined = await engine_client.submit_then(command, view)
    await check_key(request, engine_client.log, command, receipt)
    assert defined is not None, "a queue that was defined is there for good"
    return answer(defined)


async def remove_queue(request: web.Request, query: ChangeQuery) -> web.Response:
    name = request.match_info["name"]
    command = RemoveQueue(id=command_id(request), actor=request[ACTOR], name=name)
    if query.dry_run:
        return await previewed(request, command)
    engine_client = request.app[ENGINE]
    receipt = await engine_client.submit(command)
    await check_key(request, engine_client.log, command, receipt)
    return web.Response(status=204)


async def get_policy(request: web.Request, query: PastQuery) -> web.Response:
    policy, headers = await ask_when(request, query, lambda world: _spelt_out(world.policy))
    return answer(policy, headers=headers)


async def set_policy(request: web.Request, query: ChangeQuery) -> web.Response:
    policy = convert(await request.app[BODIES].document(request), Policy)
    command = SetPolicy(id=command_id(request), actor=request[ACTOR], policy=policy)
    if query.dry_run:
        return await previewed(request, command)

    def view(world: World, receipt: Receipt) -> tuple[Receipt, dict[str, Any]]:
        return receipt, _spelt_out(world.policy)

    engine_client = request.app[ENGINE]
    receipt, changed = await engine_client.submit_then(command, view)
    await check_key(request, engine_client.log, command, receipt)
    return answer(changed)


def _spelt_out(policy: Policy) -> dict[str, Any]:
    """Return `policy` with the fields that equal their defaults, which the log's encoding omits."""
    return {**asdict(policy), "preempt": asdict(policy.preempt)}


_QUEUE = "/v1/queues/{name}"
_POLICY = "/v1/policy"

ROUTES: tuple[Route, ...] = (
    route(
        "GET", "/v1/queues", list_queues, "List queues, page by page",
        query=QueuesQuery, answers={200: QueuePage}, problems=("bad_cursor", *PAST_PROBLEMS),
    ),
    route(
        "GET", _QUEUE, get_queue, "A queue, how much it holds and how many wait in it",
        query=PastQuery, answers={200: QueueView}, problems=("no_such_queue", *PAST_PROBLEMS),
    ),
    route(
        "PUT", _QUEUE, define_queue, "Define a queue, or change it",
        query=ChangeQuery, body=QueueSettings, answers={200: (QueueView, Preview)},
        problems=("invalid_queue", "invalid_body", "idempotency_key_reused", *BODY_PROBLEMS),
        headers=(HEADER,),
    ),
    route(
        "DELETE", _QUEUE, remove_queue, "Remove a queue that has no jobs and no queues below it",
        query=ChangeQuery, answers={204: None, 200: Preview},
        problems=("no_such_queue", "queue_in_use", "invalid_queue", "idempotency_key_reused"),
        headers=(HEADER,),
    ),
    route(
        "GET", _POLICY, get_policy, "How the cluster is scheduled",
        query=PastQuery, answers={200: Policy}, problems=PAST_PROBLEMS,
    ),
    route(
        "PUT", _POLICY, set_policy, "Schedule the cluster in another way from here on",
        query=ChangeQuery, body=Policy, answers={200: (Policy, Preview)},
        problems=("invalid_policy", "invalid_body", "idempotency_key_reused", *BODY_PROBLEMS),
        headers=(HEADER,),
    ),
)  # fmt: skip
