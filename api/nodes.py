"""Nodes over HTTP: list, look, cordon, drain, uncordon, forget."""

from itertools import islice

from aiohttp import web
from msgspec import UNSET, Struct, UnsetType, json

from api.access import ACTOR
from api.control import CONTROL
from api.idempotency import HEADER, check_key, command_id
from api.pages import Cursor, Limit, read_cursor, write_cursor
from api.routes import NoQuery, Route, answer, route
from controlplane import commands as c
from controlplane.decider import find_node
from controlplane.image import Receipt
from controlplane.queries import node_view, nodes
from controlplane.views import NodeView
from controlplane.world import World

_decode_ordinal = json.Decoder(int).decode


class NodesQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    limit: Limit = 100
    after: Cursor | UnsetType = UNSET


class NodePage(Struct, frozen=True, kw_only=True):
    """Some nodes, and the cursor with which to ask for more; null when there are no more."""

    items: list[NodeView]
    next: str | None


async def list_nodes(request: web.Request, query: NodesQuery) -> web.Response:
    return answer(await request.app[CONTROL].ask(lambda world: node_page(world, query)))


def node_page(world: World, query: NodesQuery) -> NodePage:
    """Nodes in the order in which they were first seen, which never changes."""
    after = -1 if query.after is UNSET else read_cursor(query.after, _decode_ordinal)
    later = (node for node in nodes(world) if node.ordinal > after)
    found = list(islice(later, query.limit + 1))
    shown = found[: query.limit]
    return NodePage(
        items=[node_view(world, node) for node in shown],
        next=write_cursor(shown[-1].ordinal) if len(found) > len(shown) else None,
    )


async def get_node(request: web.Request, query: NoQuery) -> web.Response:
    name = request.match_info["name"]
    return answer(
        await request.app[CONTROL].ask(lambda world: node_view(world, find_node(world, name)))
    )


async def cordon_node(request: web.Request, query: NoQuery) -> web.Response:
    node = request.match_info["name"]
    command = c.CordonNode(id=command_id(request), actor=request[ACTOR], node=node)
    return await _change(request, command)


async def uncordon_node(request: web.Request, query: NoQuery) -> web.Response:
    node = request.match_info["name"]
    command = c.UncordonNode(id=command_id(request), actor=request[ACTOR], node=node)
    return await _change(request, command)


async def drain_node(request: web.Request, query: NoQuery) -> web.Response:
    node = request.match_info["name"]
    command = c.DrainNode(id=command_id(request), actor=request[ACTOR], node=node)
    return await _change(request, command)


async def forget_node(request: web.Request, query: NoQuery) -> web.Response:
    node = request.match_info["name"]
    command = c.ForgetNode(id=command_id(request), actor=request[ACTOR], node=node)
    return await _change(request, command)


async def _change(
    request: web.Request, command: c.CordonNode | c.UncordonNode | c.DrainNode | c.ForgetNode
) -> web.Response:
    def view(world: World, receipt: Receipt) -> tuple[Receipt, NodeView | None]:
        node = world.nodes.get(command.node)
        return receipt, None if node is None else node_view(world, node)

    control = request.app[CONTROL]
    receipt, changed = await control.submit_then(command, view)
    await check_key(request, control.log, command, receipt)
    assert changed is not None, "a node that was ever there is remembered"
    return answer(changed)


_NODE = "/v1/nodes/{name}"
_CHANGE = ("no_such_node", "idempotency_key_reused")

ROUTES: tuple[Route, ...] = (
    route(
        "GET", "/v1/nodes", list_nodes, "List nodes, page by page",
        query=NodesQuery, answers={200: NodePage}, problems=("invalid_parameter", "bad_cursor"),
    ),
    route(
        "GET", _NODE, get_node, "A node, and the jobs that hold something there",
        query=NoQuery, answers={200: NodeView}, problems=("no_such_node",),
    ),
    route(
        "POST", f"{_NODE}/cordon", cordon_node, "Let no more work be placed on a node",
        query=NoQuery, answers={200: NodeView}, problems=_CHANGE, headers=(HEADER,),
    ),
    route(
        "POST", f"{_NODE}/drain", drain_node,
        "Let no more work be placed on a node, and start what runs there again elsewhere",
        query=NoQuery, answers={200: NodeView}, problems=_CHANGE, headers=(HEADER,),
    ),
    route(
        "POST", f"{_NODE}/forget", forget_node,
        "Give up a node that does not answer: what ran there counts as gone and starts again elsewhere",
        query=NoQuery, answers={200: NodeView}, problems=(*_CHANGE, "node_is_up"),
        headers=(HEADER,),
    ),
    route(
        "POST", f"{_NODE}/uncordon", uncordon_node, "Let work be placed on a node again",
        query=NoQuery, answers={200: NodeView}, problems=_CHANGE, headers=(HEADER,),
    ),
)  # fmt: skip
