"""What was asked, read back from what was recorded: the commands behind a log's inputs.

The log holds events and not commands, but an input's event says all that its command said. Where
several commands could have left the same events, they come as candidates, the likeliest first;
whoever asks decides each and takes the one that gives what was recorded.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from controlplane import commands as c
from controlplane import events as e
from controlplane.model import Cause, Exit
from controlplane.world import World

Candidates = Iterable[c.AnyCommand]

# The order in which one report's news is recorded, and what may come once for each reason.
_REPORT_ORDER: dict[type[e.Event], int] = {
    e.RanksStarted: 0,
    e.RanksExited: 1,
    e.RanksGone: 2,
    e.RanksLost: 3,
    e.RanksRestartedInPlace: 4,
    e.RanksStuck: 5,
}


_REPEATED = (_REPORT_ORDER[e.RanksLost], _REPORT_ORDER[e.RanksStuck])


def candidates(world: World, events: Sequence[e.Recorded], first: int) -> Candidates:
    """The commands that may have been the reason for what begins at `events[first]`.

    None, if the event is no input. All of `events` happened at the same time.
    """
    kind = type(events[first].event)
    recall = _RECALL.get(kind)
    if recall is None:
        return _drains(world, events[first]) if kind in _GIVES_WAY else ()
    return recall(world, events, first)


def is_input(recorded: e.Recorded) -> bool:
    """Whether an event tells what somebody asked or the cluster reported.

    What people ask for may also be decided without them, and then it has no cause: a node that is
    lost too often is cordoned by the policy.
    """
    kind = type(recorded.event)
    if kind in _ASKED:
        return bool(recorded.cause)
    return kind in _RECALL or kind in (e.EngineStarted, e.EngineFailed)


_ASKED = frozenset(
    {
        e.JobSubmitted,
        e.JobCancelled,
        e.JobSuspended,
        e.JobResumed,
        e.JobScaled,
        e.JobAmended,
        e.JobDeleteRequested,
        e.NodeCordoned,
        e.NodeUncordoned,
        e.QueueDefined,
        e.QueueRemoved,
        e.PolicySet,
    }
)


def _report(world: World, events: Sequence[e.Recorded], first: int) -> Candidates:
    """The longest run of news that one report may have brought, and then every shorter one."""
    event: Any = events[first].event
    job = world.jobs.get(event.job)
    if job is None or job.attempt is None:
        return ()
    end, size, order = first + 1, len(events), _REPORT_ORDER[type(event)]
    while end < size:
        more: Any = events[end].event
        rank = _REPORT_ORDER.get(type(more), -1)
        if rank < order or (rank == order and rank not in _REPEATED) or more.job != event.job:
            break
        order, end = rank, end + 1
    subject, ranks = _FIRST_RANK[type(event)](event), job.attempt.ranks
    run = ranks[subject].incarnation if subject < len(ranks) else 0
    if end == first + 1:
        return (_report_of(event.job, (event,), run),)
    news = [recorded.event for recorded in events[first:end]]
    return [_report_of(event.job, news[:count], run) for count in range(len(news), 0, -1)]


# One of the ranks that the news is about; all of them are in the same run.
_FIRST_RANK: dict[type[e.Event], Callable[[Any], int]] = {
    e.RanksStarted: lambda event: event.ranks[0] if event.ranks else 0,
    e.RanksExited: lambda event: event.exits[0].rank if event.exits else 0,
    e.RanksGone: lambda event: event.ranks[0] if event.ranks else 0,
    e.RanksLost: lambda event: event.ranks[0] if event.ranks else 0,
    e.RanksStuck: lambda event: event.ranks[0] if event.ranks else 0,
    e.RanksRestartedInPlace: lambda event: event.counts[0][0] if event.counts else 0,
}


def _report_of(job: str, news: Sequence[e.Event], incarnation: int) -> c.ReportRanks:
    told: dict[str, Any] = {}
    attempt = 0
    for event in news:
        match event:
            case e.RanksStarted(attempt=attempt, ranks=ranks):
                told["started"] = ranks
            case e.RanksExited(attempt=attempt, exits=exits):
                told["exited"] = exits
            case e.RanksGone(attempt=attempt, ranks=ranks):
                told["gone"] = ranks
            case e.RanksLost(attempt=attempt):
                lost = tuple(Exit(i, None, event.cause, event.message) for i in event.ranks)
                told["leaving"] = (*told.get("leaving", ()), *lost)
            case e.RanksRestartedInPlace(attempt=attempt, counts=counts):
                told["restarted"] = counts
            case e.RanksStuck(attempt=attempt):
                stuck = tuple((i, event.message) for i in event.ranks)
                told["stuck"] = (*told.get("stuck", ()), *stuck)
            case _:
                raise AssertionError(event)
    return c.ReportRanks(job=job, attempt=attempt, incarnation=incarnation, **told)


def _submission(world: World, events: Sequence[e.Recorded], first: int) -> Iterator[c.AnyCommand]:
    recorded = events[first]
    event = recorded.event
    assert isinstance(event, e.JobSubmitted)
    after = events[first + 1].event if first + 1 < len(events) else None
    suspended = isinstance(after, e.JobSuspended) and after.job == event.job
    for asleep in (True, False) if suspended else (False,):
        yield c.SubmitJob(
            id=recorded.cause,
            actor=recorded.actor,
            job=event.job,
            namespace=event.namespace,
            name=event.name,
            spec=event.spec,
            suspended=asleep,
        )


def _request(world: World, events: Sequence[e.Recorded], first: int) -> Iterator[c.AnyCommand]:
    recorded = events[first]
    event = recorded.event
    assert isinstance(event, e.JobEvent)
    job = world.jobs.get(event.job)
    if job is None:
        return
    whose = {
        "id": recorded.cause,
        "actor": recorded.actor,
        "namespace": job.namespace,
        "name": job.name,
    }
    if isinstance(event, e.JobScaled):
        yield c.ScaleJob(**whose, role=event.role, replicas=event.replicas)
        return
    if isinstance(event, e.JobAmended):
        yield c.AmendJob(
            **whose,
            ttl_s=event.ttl_s,
            active_deadline_s=event.active_deadline_s,
            restart_limit=event.restart_limit,
            clean=event.clean,
        )
        return
    if isinstance(event, e.JobCancelled) and _is_deleted_next(events, first):
        yield c.DeleteJob(**whose)
    yield _REQUESTS[type(event)](**whose)


def _is_deleted_next(events: Sequence[e.Recorded], first: int) -> bool:
    event = events[first + 1].event if first + 1 < len(events) else None
    return isinstance(event, e.JobDeleteRequested)


_REQUESTS: dict[type[e.Event], Callable[..., c.AnyCommand]] = {
    e.JobCancelled: c.CancelJob,
    e.JobSuspended: c.SuspendJob,
    e.JobResumed: c.ResumeJob,
    e.JobDeleteRequested: c.DeleteJob,
}


# What a gang does that gives way to a drain. Nobody else asks for that.
_GIVES_WAY = (e.JobRestarting, e.JobFailed)


def _drains(world: World, recorded: e.Recorded) -> Candidates:
    """A drain of a node that was cordoned before; the one that the event names comes first."""
    event = recorded.event
    assert isinstance(event, _GIVES_WAY)
    job = world.jobs.get(event.job) if recorded.cause else None
    if job is None or job.live_attempt is None:
        return ()
    told = event.restart.message if isinstance(event, e.JobRestarting) else event.message
    names = {slot.node: None for slot in job.live_attempt.placement}
    nodes = [name for name in names if world.nodes[name].cordoned]
    nodes.sort(key=lambda name: name not in told)
    return [c.DrainNode(id=recorded.cause, actor=recorded.actor, node=name) for name in nodes]


def _cordon(event: e.NodeCordoned) -> c.AnyCommand:
    make = c.DrainNode if event.reason == e.DRAINED else c.CordonNode
    return make(node=event.node)


def _removal(event: e.NodeRemoved) -> c.AnyCommand:
    make = c.ForgetNode if event.reason == e.FORGOTTEN else c.ReportNodeRemoved
    return make(node=event.node)


def _lost_ranks(world: World, events: Sequence[e.Recorded], first: int) -> Iterator[c.AnyCommand]:
    """Ranks that were told to end. Those let go with a job's scaling come behind that request."""
    event = events[first].event
    assert isinstance(event, e.RanksLost)
    if event.cause is not Cause.SCALED:
        yield from _report(world, events, first)


def _plain(make: Callable[[Any], c.AnyCommand]) -> Callable[..., Candidates]:
    """For an event that alone says what was asked."""

    def recall(world: World, events: Sequence[e.Recorded], first: int) -> Candidates:
        recorded = events[first]
        return (_signed(make(recorded.event), recorded),)

    return recall


def _signed(command: c.AnyCommand, recorded: e.Recorded) -> c.AnyCommand:
    if not recorded.cause and not recorded.actor:
        return command
    fields = {name: getattr(command, name) for name in command.__struct_fields__}
    return type(command)(**{**fields, "id": recorded.cause, "actor": recorded.actor})


_RECALL: dict[type[e.Event], Callable[[World, Sequence[e.Recorded], int], Candidates]] = {
    e.RanksStarted: _report,
    e.RanksExited: _report,
    e.RanksGone: _report,
    e.RanksLost: _lost_ranks,
    e.RanksRestartedInPlace: _report,
    e.CodeResolved: _plain(
        lambda event: c.ReportRanks(
            job=event.job, attempt=event.attempt, commits=((event.rank, event.commit),)
        )
    ),
    e.RanksStuck: _report,
    e.JobSubmitted: _submission,
    e.JobCancelled: _request,
    e.JobSuspended: _request,
    e.JobResumed: _request,
    e.JobScaled: _request,
    e.JobAmended: _request,
    e.JobDeleteRequested: _request,
    e.JobErrored: _plain(
        lambda event: c.ReportError(
            job=event.job,
            where=event.where,
            error=event.error,
            text=event.text,
            attempt=event.attempt,
        )
    ),
    e.JobQuarantined: _plain(
        lambda event: c.QuarantineJob(
            job=event.job, where=event.where, error=event.error, text=event.text
        )
    ),
    e.NodeReported: _plain(lambda event: c.ReportNode(node=event.info)),
    e.NodeLost: _plain(
        lambda event: c.ReportNodeLost(
            node=event.node, message=event.message, given_back=event.given_back
        )
    ),
    e.NodeRemoved: _plain(_removal),
    e.NodeCordoned: _plain(_cordon),
    e.NodeUncordoned: _plain(lambda event: c.UncordonNode(node=event.node)),
    e.QueueDefined: _plain(lambda event: c.DefineQueue(queue=event.queue)),
    e.QueueRemoved: _plain(lambda event: c.RemoveQueue(name=event.name)),
    e.PolicySet: _plain(lambda event: c.SetPolicy(policy=event.policy)),
    e.ClusterSurveyed: _plain(lambda event: c.ReportSurveyed()),
    e.ClusterModelled: _plain(lambda event: c.ReportModel(document=event.document)),
    e.PoolNodesRequested: _plain(
        lambda event: c.ReportPoolRequest(
            pool=event.pool, nodes=event.nodes, ready_at=event.ready_at
        )
    ),
    e.PoolNodesReturned: _plain(
        lambda event: c.ReportPoolReturn(pool=event.pool, nodes=event.nodes)
    ),
    e.TimePassed: _plain(lambda event: c.ReportTime()),
}
