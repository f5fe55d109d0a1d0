"""The whole log on one axis of time: its bounds, marks on it, and the use of the GPUs.

Answers come from indexes in memory (`history_index.py`), which may be a little behind the log after
a start; each says how far they reach.
"""

from typing import Annotated

import numpy as np
from aiohttp import web
from msgspec import UNSET, Meta, Struct, UnsetType, field

from api.engine.engine_client import ENGINE
from api.history.answer_cache import ANSWERS
from api.history.history_index import HISTORY_FOLLOWER
from api.requests.instants import POSITION_MAX, SECONDS_MAX, Instant, seconds
from api.routes import Route, answer, route
from controlplane.log.replay import position_at
from controlplane.model.errors import Rejected
from controlplane.ports import LogReader
from studies.history.levels import Numbers
from studies.history.marks import KINDS, MarkKind
from studies.history.views import Failures, Marks, Usage, failures_view, marks_view, usage_view

BINS_MAX = 1_000
MARKS_MAX = 1_000
# The shortest span, in seconds, so that bins have a length.
SPAN_S_MIN = 1.0

Bins = Annotated[int, Meta(ge=1, le=BINS_MAX, description="Into how many bins to divide the span.")]


class Moment(Struct, frozen=True, kw_only=True):
    """A position in the log, and the time of its event."""

    position: int
    at: float


class BoundsQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    at: Instant | UnsetType = UNSET
    position: (
        Annotated[int, Meta(ge=0, le=POSITION_MAX, description="Resolve it to a time.")] | UnsetType
    ) = UNSET


class LogBounds(Struct, frozen=True, kw_only=True):
    """The bounds of the log. `now` is the time of the cluster's clock.

    `first` and `last` are null for an empty log. `indexed` is how far marks, usage and timeline
    reach. `instant` is the last event not later than the requested time, or the requested position;
    null if there is none.
    """

    first: Moment | None
    last: Moment | None
    now: float
    indexed: Moment
    instant: Moment | None = None


class TimeSpan(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A span of time; without `from` it begins with the log, without `to` it ends now.

    A view that follows the present asks for `last_s`: equal questions get one answer a second.
    """

    from_: Instant | UnsetType = field(default=UNSET, name="from")
    to: Instant | UnsetType = UNSET
    last_s: (
        Annotated[
            float,
            Meta(
                gt=0, le=SECONDS_MAX, description="The last seconds, in place of `from` and `to`."
            ),
        ]
        | UnsetType
    ) = UNSET


class MarksQuery(TimeSpan, frozen=True, forbid_unknown_fields=True, kw_only=True):
    limit: Annotated[int, Meta(ge=0, le=MARKS_MAX, description="At most how many marks.")] = 200
    bins: Bins = 120
    kind: Annotated[tuple[MarkKind, ...], Meta(description="Only marks of these kinds.")] = ()


class UsageQuery(TimeSpan, frozen=True, forbid_unknown_fields=True, kw_only=True):
    bins: Bins = 120
    queues: Annotated[bool, Meta(description="Also the use and the demand of each queue.")] = False


async def get_history(request: web.Request, query: BoundsQuery) -> web.Response:
    log, follower = request.app[ENGINE].log, request.app[HISTORY_FOLLOWER]
    index = follower.index
    first, last = await _moment(log, 0), await _moment(log, (await log.head()).position - 1)
    return answer(
        LogBounds(
            first=first,
            last=last,
            now=max(follower.now(), 0.0 if last is None else last.at),
            indexed=Moment(position=index.position, at=index.at),
            instant=await _instant(log, query),
        )
    )


async def _instant(log: LogReader, query: BoundsQuery) -> Moment | None:
    at = seconds(query.at)
    if query.position is not UNSET:
        head = (await log.head()).position
        if query.position > head:
            raise Rejected("no_such_position", f"the log ends at {head}", field="position")
        return await _moment(log, query.position - 1)
    return None if at is None else await _moment(log, await position_at(log, at) - 1)


async def _moment(log: LogReader, after: int) -> Moment | None:
    """Return the first event after position `after`; None if there is none."""
    rows = await log.read(after, 1) if after >= 0 else ()
    return Moment(position=rows[0].position, at=rows[0].at) if rows else None


async def get_marks(request: web.Request, query: MarksQuery) -> web.Response:
    index = request.app[HISTORY_FOLLOWER].index
    cuts = await _cuts(request, query, query.bins)
    return request.app[ANSWERS].answer(
        request, lambda: marks_view(index, cuts, query.kind or KINDS, query.limit)
    )


async def get_failures(request: web.Request, query: TimeSpan) -> web.Response:
    index = request.app[HISTORY_FOLLOWER].index
    begin, end = await span_of(request, query)
    return request.app[ANSWERS].answer(request, lambda: failures_view(index, begin, end))


async def get_usage(request: web.Request, query: UsageQuery) -> web.Response:
    index = request.app[HISTORY_FOLLOWER].index
    cuts = await _cuts(request, query, query.bins)
    return request.app[ANSWERS].answer(
        request, lambda: usage_view(index, cuts, with_queues=query.queues)
    )


async def _cuts(request: web.Request, query: TimeSpan, bins: int) -> Numbers:
    """Return the edges of equal bins over the requested span."""
    return np.linspace(*await span_of(request, query), bins + 1)


async def span_of(request: web.Request, query: TimeSpan) -> tuple[float, float]:
    """Return the begin and the end of the requested span; raise Rejected if it is empty."""
    begin, end = seconds(query.from_), seconds(query.to)
    if query.last_s is not UNSET:
        if begin is not None or end is not None:
            raise Rejected("invalid_parameter", "last_s: it replaces from and to", field="last_s")
        end = request.app[HISTORY_FOLLOWER].now()
        begin = max(0.0, end - query.last_s)
    if begin is None:
        first = await _moment(request.app[ENGINE].log, 0)
        begin = 0.0 if first is None else first.at
    if end is None:
        end = max(begin + SPAN_S_MIN, request.app[HISTORY_FOLLOWER].now())
    if end <= begin:
        raise Rejected("invalid_parameter", "to: it must be later than `from`", field="to")
    return begin, max(end, begin + SPAN_S_MIN)


_PROBLEMS = ("invalid_parameter",)

ROUTES: tuple[Route, ...] = (
    route(
        "GET", "/v1/history", get_history,
        "The bounds of the log, and the position of an instant or the time of a position",
        query=BoundsQuery, answers={200: LogBounds},
        problems=("invalid_parameter", "no_such_position"),
    ),
    route(
        "GET", "/v1/history/marks", get_marks,
        "Failures, restarts, preemptions, node losses and changes of policy in a span of time",
        query=MarksQuery, answers={200: Marks}, problems=_PROBLEMS,
    ),
    route(
        "GET", "/v1/history/failures", get_failures,
        "Failures, restarts and losses in a span of time, counted by cause",
        query=TimeSpan, answers={200: Failures}, problems=_PROBLEMS,
    ),
    route(
        "GET", "/v1/history/usage", get_usage,
        "Where the GPUs were, what jobs waited for and how long, in a span of time",
        query=UsageQuery, answers={200: Usage}, problems=_PROBLEMS,
    ),
)  # fmt: skip
