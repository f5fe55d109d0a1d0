"""Incident analysis over HTTP: re-decide the log, analyse failures, fork the past.

Each answer folds the log again, in a thread, and only a few run at once; see `api.history.past`.
"""

from importlib.metadata import version
from typing import Annotated

from aiohttp import web
from msgspec import UNSET, Meta, Struct, UnsetType

from api.engine.engine_client import ENGINE
from api.history.past import PAST
from api.requests.bodies import BODIES, BODY_PROBLEMS, convert
from api.requests.headers import HEADERS
from api.requests.instants import POSITION_MAX, SECONDS_MAX, Instant, seconds
from api.routes import NoQuery, Route, answer_bytes, encode, route
from controlplane.audit.bundle import make_bundle
from controlplane.audit.redecide import Difference, redecide
from controlplane.model.errors import Rejected
from controlplane.ports import LogReader
from studies.analysis import Analysis, EmptySpan, analyse
from studies.fork import Change, Forked, ForkError, fork, parse_change
from studies.fork.past import NodeFault, asked_for

LINES = "application/x-ndjson"
BUNDLE_EVENTS_MAX = 1_000_000
FORK_S_MAX = 31 * 86_400.0

Position = Annotated[int, Meta(ge=1, le=POSITION_MAX)]
Name = Annotated[str, Meta(min_length=1, max_length=253)]


class Verified(Struct, frozen=True, kw_only=True):
    """Whether today's code decides what was recorded, and the first difference if not."""

    position: int
    decided_alike: bool
    difference: Difference | None


class BundleQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    first: Position = 1
    last: Position | UnsetType = UNSET
    redact: bool = False


class SpanQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    since: Instant | UnsetType = UNSET
    until: Instant | UnsetType = UNSET


class FaultWanted(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A node that fails, and for how long in seconds; without `repair_s` it is not repaired."""

    node: Name
    at: Instant
    repair_s: Annotated[float, Meta(ge=0, le=SECONDS_MAX)] | None = None


class ForkWanted(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The instant to fork at, and the changes to make; see `muster fork`."""

    at: Instant
    until: Instant | None = None
    set: Annotated[dict[Name, str], Meta(max_length=100)] = {}
    add_nodes: Annotated[int, Meta(ge=0, le=10_000)] = 0
    cordon: Annotated[list[Name], Meta(max_length=10_000)] = []
    without_fault: Annotated[list[Name], Meta(max_length=10_000)] = []
    with_fault: Annotated[list[FaultWanted], Meta(max_length=10_000)] = []
    gpu_hour_price: Annotated[float, Meta(ge=0, le=1e9)] = 2.0


async def verify(request: web.Request, query: NoQuery) -> web.Response:
    async def look(log: LogReader) -> bytes:
        position = (await log.head()).position
        difference = await redecide(log)
        return encode(
            Verified(position=position, decided_alike=difference is None, difference=difference)
        )

    return answer_bytes(await request.app[PAST].look(look))


async def get_bundle(request: web.Request, query: BundleQuery) -> web.Response:
    head = (await request.app[ENGINE].log.head()).position
    last = head if query.last is UNSET else query.last
    if last > head or query.first > last:
        message = f"the log has the positions 1-{head}; {query.first}-{last} are not among them"
        raise Rejected("no_such_position", message, field="last")
    if last - query.first >= BUNDLE_EVENTS_MAX:
        raise Rejected("invalid_parameter", f"more than {BUNDLE_EVENTS_MAX} events", field="last")

    async def look(log: LogReader) -> bytes:
        made = await make_bundle(
            log, first=query.first, last=last, release=version("muster"), redact=query.redact
        )
        return b"".join(made.lines())

    body = await request.app[PAST].look(look)
    return web.Response(body=body, headers=HEADERS, content_type=LINES)


async def get_analysis(request: web.Request, query: SpanQuery) -> web.Response:
    since, until = seconds(query.since), seconds(query.until)

    async def look(log: LogReader) -> bytes:
        return encode(await analyse(log, since=since, until=until))

    try:
        return answer_bytes(await request.app[PAST].look(look))
    except EmptySpan as error:
        raise Rejected("no_such_position", str(error), field="since") from None


async def post_fork(request: web.Request, query: NoQuery) -> web.Response:
    wanted = convert(await request.app[BODIES].document(request), ForkWanted)
    at = seconds(wanted.at)
    until = None if wanted.until is None else seconds(wanted.until)
    assert at is not None
    if until is not None and until - at > FORK_S_MAX:
        raise Rejected("invalid_fork", f"it is longer than {FORK_S_MAX:.0f} s", field="until")

    async def look(log: LogReader) -> bytes:
        change, price = change_of(wanted), wanted.gpu_hour_price
        return encode(await fork(log, at=at, until=until, change=change, gpu_hour_price=price))

    try:
        return answer_bytes(await request.app[PAST].look(look))
    except ForkError as error:
        raise Rejected("invalid_fork", str(error)) from None


def change_of(wanted: ForkWanted) -> Change:
    """Return the change that a request names; raise ForkError if a part of it is invalid."""
    return parse_change(
        settings=[f"{name}={value}" for name, value in wanted.set.items()],
        add_nodes=wanted.add_nodes,
        cordon=wanted.cordon,
        without_fault=wanted.without_fault,
        with_fault=[_fault(fault) for fault in wanted.with_fault],
    )


def _fault(wanted: FaultWanted) -> NodeFault:
    at = seconds(wanted.at)
    assert at is not None
    back_at = None if wanted.repair_s is None else at + wanted.repair_s
    return NodeFault(at, wanted.node, asked_for(wanted.node), back_at)


ROUTES: tuple[Route, ...] = (
    route(
        "GET", "/v1/log/verify", verify, "Whether today's code decides what was recorded",
        query=NoQuery, answers={200: Verified}, problems=("busy",),
    ),
    route(
        "GET", "/v1/log/bundle", get_bundle, "A part of the log that stands by itself",
        query=BundleQuery, answers={200: str}, media_types=(LINES,),
        problems=("invalid_parameter", "no_such_position", "busy"),
    ),
    route(
        "GET", "/v1/analysis", get_analysis, "What failed, where, and what it cost; and fits",
        query=SpanQuery, answers={200: Analysis},
        problems=("invalid_parameter", "no_such_position", "busy"),
    ),
    route(
        "POST", "/v1/studies/fork", post_fork, "What would have happened otherwise",
        query=NoQuery, body=ForkWanted, answers={200: Forked},
        problems=("invalid_body", "invalid_fork", "busy", *BODY_PROBLEMS),
    ),
)  # fmt: skip
