"""The commands behind a log, reconstructed from their events.

The envelope of an event names the type of its command and which command of which step it was. The
events of one command hold its parameters. `_PARAMETERS` has one function for each type of command
that reads them; the id and the actor are in the envelope. Two things are looked up in the state
before the command: the name of a job that a request is about (events have its id), and the
incarnation of the ranks that a report is about.

Only the news in a report is reconstructed. Late and repeated parts of a report decide nothing and
are not recorded, and a command that decided nothing at all is not in the log.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, get_args

from msgspec.structs import asdict

from controlplane.lifecycle.job import Job
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.failures import Exit, Stuck
from controlplane.model.owners import written_spec
from controlplane.state.world import World

COMMAND_TYPES: dict[str, type[c.AnyCommand]] = {
    kind.__name__: kind
    for kind in get_args(c.AnyCommand)
    # It is decided as reports on single nodes, and these are recorded.
    if kind is not c.ReportCluster
}


def is_input(recorded: e.Recorded) -> bool:
    """Whether an event records a person's request or a cluster's report."""
    event = recorded.event
    return event.is_input and (bool(recorded.cause) or not event.needs_cause)


def by_command(events: Iterable[e.Recorded]) -> Iterator[list[e.Recorded]]:
    """The events of each command in turn, without the decisions of steps themselves."""
    for (_, ordinal), group in groupby(events, key=lambda x: (x.step, x.ordinal)):
        if ordinal:
            yield list(group)


def command_of(world: World, recorded: Sequence[e.Recorded]) -> c.AnyCommand:
    """The command that caused the events in `recorded`; `world` is the state before it.

    Raises LookupError if the envelope names no command, or the command's job or events are missing.
    """
    first = recorded[0]
    kind = COMMAND_TYPES[first.command]
    fields = parameters_of(recorded)
    if issubclass(kind, c.JobRequest):
        named = world.owners.get(fields["job"]) or world.jobs[fields["job"]]
        fields |= {"namespace": named.namespace, "name": named.name}
    elif kind is c.ReportRanks:
        fields["incarnation"] = _incarnation(world.jobs[fields["job"]], fields)
    return kind(id=first.cause, actor=first.actor, **fields)


def parameters_of(recorded: Sequence[e.Recorded]) -> dict[str, Any]:
    """The parameters that the events of one command have."""
    return _PARAMETERS[COMMAND_TYPES[recorded[0].command]]([x.event for x in recorded])


def _incarnation(job: Job, report: Mapping[str, Any]) -> int:
    """The incarnation of the ranks in a report, which is the same for all ranks with news."""
    about = (*report.get("exited", ()), *report.get("leaving", ()), *report.get("stuck", ()))
    ranks = [
        *report.get("started", ()),
        *report.get("gone", ()),
        *(x.rank for x in about),
        *(rank for rank, _ in report.get("restarted", ())),
    ]
    return job.attempt.ranks[ranks[0]].incarnation if ranks and job.attempt is not None else 0


# -- parameters ------------------------------------------------------------------------------

Events = Sequence[Any]
Parameters = dict[str, Any]


def _first(kind: type[e.Event], *names: str, **renamed: str) -> Callable[[Events], Parameters]:
    """A reader of fields of the first event of a type, as parameters of the same name.

    `renamed` maps the name of a parameter to the event's field.
    """

    def read(events: Events) -> Parameters:
        event = _event(kind, events)
        fields = {name: getattr(event, name) for name in names}
        return fields | {name: getattr(event, field) for name, field in renamed.items()}

    return read


def _event(kind: type[e.Event] | tuple[type[e.Event], ...], events: Events) -> Any:
    for event in events:
        if isinstance(event, kind):
            return event
    kinds = kind if isinstance(kind, tuple) else (kind,)
    raise LookupError(f"it has no {' and no '.join(each.__name__ for each in kinds)}")


def _submission(events: Events) -> Parameters:
    """The parameters of a submission of a job or an array.

    Dependencies are resolved again from their names.
    """
    submitted = events[0]
    suspended = any(isinstance(event, e.JobSuspended | e.OwnerSuspended) for event in events)
    shared = {"namespace": submitted.namespace, "name": submitted.name, "suspended": suspended}
    if isinstance(submitted, e.OwnerSubmitted):
        return {**shared, "job": submitted.owner, "spec": written_spec(submitted.spec)}
    submitted = _event(e.JobSubmitted, events)
    return {**shared, "job": submitted.job, "spec": submitted.spec}


def _request(kind: type[e.Event], owner_kind: type[e.OwnerEvent]) -> Callable[[Events], Parameters]:
    """A reader of the id of the job or array that a request is about."""

    def read(events: Events) -> Parameters:
        event = _event((kind, owner_kind), events)
        return {"job": event.owner if isinstance(event, e.OwnerEvent) else event.job}

    return read


def _error(events: Events) -> Parameters:
    event = _event((e.JobErrored, e.OwnerErrored), events)
    shared = {"where": event.where, "error": event.error, "text": event.text}
    if isinstance(event, e.OwnerErrored):
        return {**shared, "job": event.owner}
    return {**shared, "job": event.job, "attempt": event.attempt}


def _amendment(events: Events) -> Parameters:
    return asdict(_event(e.JobAmended, events))


def _rank_report(events: Events) -> Parameters:
    fields: dict[str, Any] = {}
    news: dict[str, tuple[Any, ...]]
    for event in events:
        match event:
            case e.CodeResolved(rank=rank, commit=commit):
                news = {"commits": ((rank, commit),)}
            case e.RanksStarted(ranks=ranks):
                news = {"started": ranks}
            case e.RanksExited(exits=exits):
                news = {"exited": exits}
            case e.RanksGone(ranks=ranks):
                news = {"gone": ranks}
            case e.RanksLost(ranks=ranks, cause=cause, detail=detail, loss=loss):
                news = {"leaving": tuple(Exit(i, None, cause, detail, loss=loss) for i in ranks)}
            case e.RanksRestartedInPlace(counts=counts):
                news = {"restarted": counts}
            case e.RanksStuck(ranks=ranks, reason=reason, detail=detail):
                news = {"stuck": tuple(Stuck(i, reason, detail) for i in ranks)}
            case _:
                # Decisions that follow from the report come after all its news.
                break
        fields |= {"job": event.job, "attempt": event.attempt}
        for name, value in news.items():
            fields[name] = (*fields.get(name, ()), *value)
    if not fields:
        raise LookupError("it reports nothing")
    return fields


_PARAMETERS: dict[type[c.AnyCommand], Callable[[Events], Parameters]] = {
    c.SubmitJob: _submission,
    c.CancelJob: _request(e.JobCancelled, e.OwnerCancelled),
    c.SuspendJob: _request(e.JobSuspended, e.OwnerSuspended),
    c.ResumeJob: _request(e.JobResumed, e.OwnerResumed),
    # A running job is cancelled first.
    c.DeleteJob: _request(e.JobEvent, e.OwnerEvent),
    c.RetryMembers: _first(e.MembersRetried, "indices", job="owner"),
    c.ScaleJob: _first(e.JobScaled, "job", "role", "replicas"),
    c.AmendJob: _amendment,
    c.DefineQueue: _first(e.QueueDefined, "queue"),
    c.RemoveQueue: _first(e.QueueRemoved, "name"),
    c.SetPolicy: _first(e.PolicySet, "policy"),
    # A NodeCordoned, or a NodeDrainRequested if the node was cordoned already.
    c.DrainNode: _first(e.NodeEvent, "node"),
    c.CordonNode: _first(e.NodeCordoned, "node"),
    c.InjectFault: _first(e.FaultInjected, "node", "fault", "delay_s"),
    c.UncordonNode: _first(e.NodeUncordoned, "node"),
    c.ForgetNode: _first(e.NodeRemoved, "node"),
    c.ReportNode: _first(e.NodeReported, node="info"),
    c.ReportNodeLost: _first(e.NodeLost, "node", "reason", "detail", "left_s"),
    c.ReportNodeRemoved: _first(e.NodeRemoved, "node"),
    c.ReportSurveyed: _first(e.ClusterSurveyed),
    c.ReportModel: _first(e.ClusterModelled, "document"),
    c.ReportPoolRequest: _first(e.PoolNodesRequested, "pool", "nodes", "ready_at"),
    c.ReportPoolReturn: _first(e.PoolNodesReturned, "pool", "nodes"),
    c.ReportTime: _first(e.TimePassed),
    c.ReportRanks: _rank_report,
    c.ReportError: _error,
    c.QuarantineJob: _first(e.JobQuarantined, "job", "where", "error", "text"),
}
