"""Marks on the axis of time: what a person looks for in a long log.

Every mark is counted. The sentences are kept for the latest `DETAILS_MAX` marks only, and a request
gets at most as many as it asks for: rare kinds first, the others thinned out evenly.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from itertools import islice

import numpy as np
from msgspec import Struct

from controlplane.event_messages import describe
from controlplane.lifecycle.job import Job
from controlplane.model import events as e
from controlplane.model.failures import Cause
from controlplane.model.reasons import NodeDrained
from studies.history.levels import Numbers

DETAILS_MAX = 100_000


class MarkKind(StrEnum):
    """What happened, in the words of the legend."""

    FAILURE = "failure"
    RESTART = "restart"
    PREEMPTION = "preemption"
    NODE_LOST = "node_lost"
    NODE_BACK = "node_back"
    CORDON = "cordon"
    UNCORDON = "uncordon"
    FAULT = "fault"
    POLICY = "policy"
    QUEUE = "queue"
    LEADER = "leader"


KINDS = tuple(MarkKind)
_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}
_MOVED = frozenset({Cause.PREEMPTION, Cause.CONSOLIDATION})


class Mark(Struct, frozen=True, gc=False, kw_only=True):
    """One event that deserves a mark. `job` is NAMESPACE/NAME; it and `node` may be empty."""

    position: int
    at: float
    kind: MarkKind
    message: str
    job: str = ""
    node: str = ""
    # Why, as a code: the reason of a failure, the cause of a restart.
    cause: str = ""


class MarkIndex:
    """All marks of a log, in order."""

    def __init__(self, details_max: int = DETAILS_MAX) -> None:
        self._at = array("d")
        self._kind = array("b")
        self._cause = array("h")
        # The causes that occurred, in the order of their first mark.
        self._causes: dict[str, int] = {}
        self._details: deque[Mark] = deque(maxlen=details_max)
        # Nodes that were reported lost or removed and have not come back.
        self._away: set[str] = set()

    def __len__(self) -> int:
        return len(self._at)

    def record(self, recorded: e.Recorded, jobs: Mapping[str, Job]) -> None:
        """Add the mark of an event, if it deserves one."""
        kind = self._kind_of(recorded.event)
        if kind is None:
            return
        event = recorded.event
        self._at.append(recorded.at)
        self._kind.append(_NUMBERS[kind])
        cause = cause_of(event)
        self._cause.append(self._causes.setdefault(cause, len(self._causes)))
        job = jobs.get(event.job) if isinstance(event, e.JobEvent) else None
        self._details.append(
            Mark(
                position=recorded.position,
                at=recorded.at,
                kind=kind,
                message=describe(event),
                job="" if job is None else f"{job.namespace}/{job.name}",
                node=_node_of(event),
                cause=cause,
            )
        )

    def _kind_of(self, event: e.Event) -> MarkKind | None:
        match event:
            case e.JobRestarting(restart=restart) if restart.cause in _MOVED:
                drained = isinstance(restart.facts, NodeDrained)
                return MarkKind.RESTART if drained else MarkKind.PREEMPTION
            case e.NodeLost(node=node) | e.NodeRemoved(node=node):
                is_news = node not in self._away
                self._away.add(node)
                return MarkKind.NODE_LOST if is_news else None
            case e.NodeReported(node=node):
                was_away = node in self._away
                self._away.discard(node)
                return MarkKind.NODE_BACK if was_away else None
            case _:
                return _KIND_OF.get(type(event))

    def kinds_between(self, begin: float, end: float) -> tuple[int, int]:
        """Return the range of the marks from `begin` to `end`, both included."""
        return bisect_left(self._at, begin), bisect_right(self._at, end)

    def counts(self, cuts: Numbers, kinds: Collection[MarkKind]) -> dict[MarkKind, list[int]]:
        """Return the number of marks between every two neighbours of `cuts`; empty kinds are left out.

        A mark at the last cut counts.
        """
        first, last = self.kinds_between(float(cuts[0]), float(cuts[-1]))
        at = np.array(self._at[first:last])
        numbers = np.array(self._kind[first:last])
        counts = {}
        for kind in kinds:
            chosen = at[numbers == _NUMBERS[kind]]
            if len(chosen):
                counts[kind] = np.histogram(chosen, bins=cuts)[0].tolist()
        return counts

    def causes(self, begin: float, end: float) -> list[tuple[MarkKind, str, int]]:
        """Return the number of marks from `begin` to `end` by kind and cause, most frequent first.

        Marks without a cause are left out.
        """
        first, last = self.kinds_between(begin, end)
        pairs = Counter(zip(self._kind[first:last], self._cause[first:last], strict=True))
        names = list(self._causes)
        return [
            (KINDS[kind], names[cause], count)
            for (kind, cause), count in pairs.most_common()
            if names[cause]
        ]

    def some(self, begin: float, end: float, kinds: Collection[MarkKind], most: int) -> list[Mark]:
        """Return at most `most` marks between `begin` and `end`, in order."""
        first, last = self.kinds_between(begin, end)
        dropped = len(self._at) - len(self._details)
        known = islice(self._details, max(0, first - dropped), max(0, last - dropped))
        by_kind: dict[MarkKind, list[Mark]] = {}
        for mark in known:
            if mark.kind in kinds:
                by_kind.setdefault(mark.kind, []).append(mark)
        chosen: list[Mark] = []
        left = most
        rarest = sorted(by_kind.values(), key=len)
        for others, marks in zip(range(len(rarest), 0, -1), rarest, strict=True):
            share = min(len(marks), left // others)
            chosen += evenly(marks, share)
            left -= share
        return sorted(chosen, key=lambda mark: mark.position)


def evenly(items: Sequence[Mark], most: int) -> list[Mark]:
    """Return at most `most` of `items`, spread evenly, among them the first and the last."""
    if len(items) <= most:
        return list(items)
    if most <= 1:
        return list(items[:most])
    step = (len(items) - 1) / (most - 1)
    return [items[round(number * step)] for number in range(most)]


def _node_of(event: e.Event) -> str:
    match event:
        case e.NodeEvent(node=node) | e.FaultInjected(node=node):
            return node
        case e.JobRestarting(restart=restart) | e.RankRestarting(restart=restart):
            return restart.node
        case _:
            return ""


def cause_of(event: e.Event) -> str:
    """Return why it happened, as a code; empty if the event has no cause."""
    match event:
        case e.JobFailed(reason=reason) | e.NodeLost(reason=reason):
            return reason.value
        case e.JobRestarting(restart=restart) | e.RankRestarting(restart=restart):
            return restart.cause.value
        case e.JobErrored() | e.EngineFailed() | e.JobQuarantined():
            return "platform_error"
        case e.FaultInjected(fault=fault):
            return fault.kind.value
        case e.OwnerFailed(reason=owner_reason):
            return owner_reason.value
        case e.NodeCordoned(reason=cordon_reason) if cordon_reason is not None:
            return cordon_reason.value
        case _:
            return ""


_KIND_OF: dict[type[e.Event], MarkKind] = {
    e.JobFailed: MarkKind.FAILURE,
    e.JobErrored: MarkKind.FAILURE,
    e.OwnerFailed: MarkKind.FAILURE,
    e.EngineFailed: MarkKind.FAILURE,
    e.JobQuarantined: MarkKind.FAILURE,
    e.JobRestarting: MarkKind.RESTART,
    e.RankRestarting: MarkKind.RESTART,
    e.NodeCordoned: MarkKind.CORDON,
    e.FaultInjected: MarkKind.FAULT,
    e.NodeUncordoned: MarkKind.UNCORDON,
    e.PolicySet: MarkKind.POLICY,
    e.QueueDefined: MarkKind.QUEUE,
    e.QueueRemoved: MarkKind.QUEUE,
    e.EngineStarted: MarkKind.LEADER,
}
