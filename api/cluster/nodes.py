"""Nodes over HTTP: list, get, cordon, drain, uncordon, forget."""

from itertools import islice

from aiohttp import web
from msgspec import UNSET, Struct, UnsetType, json

from api.access import ACTOR
from api.engine.engine_client import ENGINE
from api.history.past_worlds import PAST_PROBLEMS, ask_when
from api.requests.idempotency import HEADER, check_key, command_id
from api.requests.instants import PastQuery
from api.requests.pages import Cursor, Limit, read_cursor, write_cursor
from api.routes import Route, answer, route
from api.studies.previews import ChangeQuery, previewed
from controlplane.decisions.decider import find_node
from controlplane.model import commands as c
from controlplane.queries.queries import node_view, nodes
from controlplane.queries.views import NodeView
from controlplane.state.image import Receipt
from controlplane.state.world import World
from studies.forecast.views import Preview

_decode_ordinal = json.Decoder(int).decode


class NodesQuery(PastQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    limit: Limit = 100
    after: Cursor | UnsetType = UNSET


class NodePage(Struct, frozen=True, kw_only=True):
    """One page of nodes, and the cursor of the next page; null on the last page."""

    items: list[NodeView]
    next: str | None


async def list_nodes(request: web.Request, query: NodesQuery) -> web.Response:
    page, headers = await ask_when(request, query, lambda world: node_page(world, query))
    return answer(page, headers=headers)


def node_page(world: World, query: NodesQuery) -> NodePage:
    """Return a page of nodes in the order of their first report, which never changes."""
    after = -1 if query.after is UNSET else read_cursor(query.after, _decode_ordinal)
    later = (node for node in nodes(world) if node.ordinal > after)
    page = list(islice(later, query.limit + 1))
    shown = page[: query.limit]
    return NodePage(
        items=[node_view(world, node) for node in shown],
        next=write_cursor(shown[-1].ordinal) if len(page) > len(shown) else None,
    )


async def get_node(request: web.Request, query: PastQuery) -> web.Response:
    name = request.match_info["name"]
    view, headers = await ask_when(
        request, query, lambda world: node_view(world, find_node(world, name))
    )
    return answer(view, headers=headers)


async def cordon_node(request: web.Request, query: ChangeQuery) -> web.Response:
    node = request.match_info["name"]
    command = c.CordonNode(id=command_id(request), actor=request[ACTOR], node=node)
    return await _change(request, query, command)


async def uncordon_node(request: web.Request, query: ChangeQuery) -> web.Response:
    node = request.match_info["name"]
    command = c.UncordonNode(id=command_id(request), actor=request[ACTOR], node=node)
    return await _change(request, query, command)


async def drain_node(request: web.Request, query: ChangeQuery) -> web.Response:
    node = request.match_info["name"]
    command = c.DrainNode(id=command_id(request), actor=request[ACTOR], node=node)
    return await _change(request, query, command)


async def forget_node(request: web.Request, query: ChangeQuery) -> web.Response:
    node = request.match_info["name"]
    command = c.ForgetNode(id=command_id(request), actor=request[ACTOR], node=node)
    return await _change(request, query, command)


async def _change(
    request: web.Request,
    query: ChangeQuery,
    command: c.CordonNode | c.UncordonNode | c.DrainNode | c.ForgetNode,
) -> web.Response:
    if query.dry_run:
        return await previewed(request, command)

    def view(world: World, receipt: Receipt) -> tuple[Receipt, NodeView | None]:
        node = world.nodes.get(command.node)
        return receipt, None if node is None else node_view(world, node)

    engine_client = request.app[ENGINE]
    receipt, changed = await engine_client.submit_then(command, view)
    await check_key(request, engine_client.log, command, receipt)
    assert changed is not None, "a node that was ever there is remembered"
    return answer(changed)


_NODE = "/v1/nodes/{name}"
_CHANGE = ("no_such_node", "busy", "idempotency_key_reused")

ROUTES: tuple[Route, ...] = (
    route(
        "GET", "/v1/nodes", list_nodes, "List nodes, page by page",
        query=NodesQuery, answers={200: NodePage}, problems=("bad_cursor", *PAST_PROBLEMS),
    ),
    route(
        "GET", _NODE, get_node, "A node, and the jobs that hold something there",
        query=PastQuery, answers={200: NodeView}, problems=("no_such_node", *PAST_PROBLEMS),
    ),
    route(
        "POST", f"{_NODE}/cordon", cordon_node, "Let no more work be placed on a node",
        query=ChangeQuery, answers={200: (NodeView, Preview)}, problems=_CHANGE, headers=(HEADER,),
    ),
    route(
        "POST", f"{_NODE}/drain", drain_node,
        "Let no more work be placed on a node, and start what runs there again elsewhere",
        query=ChangeQuery, answers={200: (NodeView, Preview)}, problems=_CHANGE, headers=(HEADER,),
    ),
    route(
        "POST", f"{_NODE}/forget", forget_node,
        "Give up a node that does not answer: what ran there counts as gone and starts again elsewhere",
        query=ChangeQuery, answers={200: (NodeView, Preview)}, problems=(*_CHANGE, "node_is_up"),
        headers=(HEADER,),
    ),
    route(
        "POST", f"{_NODE}/uncordon", uncordon_node, "Let work be placed on a node again",
        query=ChangeQuery, answers={200: (NodeView, Preview)}, problems=_CHANGE, headers=(HEADER,),
    ),
)  # fmt: skip
