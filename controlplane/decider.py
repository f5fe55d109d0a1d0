"""The front door: what a command makes happen, or why it is refused.

`decide` looks at the world and changes nothing. Refusals (`Rejected`) are for people and are not
recorded; what the cluster reports is never refused, only found to be old news.
"""

from typing import TypeVar, assert_never

from msgspec import UnsetType
from msgspec.structs import replace

from controlplane import commands as c
from controlplane import events as e
from controlplane import restart
from controlplane.admission import admit, require_fit
from controlplane.attempt import HOLDING, LIVE
from controlplane.draft import Decided, Draft
from controlplane.errors import Rejected
from controlplane.faults import concerning
from controlplane.image import Node
from controlplane.job import ACTIVE, Job, Phase
from controlplane.job_life import amended, scaled, scales_in_place
from controlplane.kinds.checking import problems
from controlplane.model import Cause, Restart, Role
from controlplane.queueing import configured
from controlplane.reports import (
    errored,
    node_lost,
    node_removed,
    node_reported,
    parts_of,
    quarantined,
    ranks_reported,
)
from controlplane.settling import settle, stop_attempt
from controlplane.world import World

_T = TypeVar("_T")
JobRequest = c.CancelJob | c.SuspendJob | c.ResumeJob | c.DeleteJob | c.ScaleJob | c.AmendJob
# What may be asked of a job that is finished.
_LATE = (c.DeleteJob, c.AmendJob)


def unfold(world: World, command: c.AnyCommand) -> list[c.AnyCommand]:
    """A command as the ones to decide in its place, one after the other."""
    return parts_of(world, command) if isinstance(command, c.ReportCluster) else [command]


def decide(world: World, command: c.AnyCommand, now: float) -> Decided:
    """The events that an unfolded command makes happen; if it raises Rejected, nothing happens."""
    match command:
        case c.ReportRanks():
            return ranks_reported(world, command, now)
        case c.SubmitJob():
            return Decided(_submit(world, command))
        case (
            c.CancelJob()
            | c.SuspendJob()
            | c.ResumeJob()
            | c.DeleteJob()
            | c.ScaleJob()
            | c.AmendJob()
        ):
            return _change(world, command, now)
        case c.ReportNode():
            return Decided(node_reported(world, command))
        case c.ReportNodeLost():
            return Decided(node_lost(world, command, now))
        case c.ReportNodeRemoved():
            return Decided(node_removed(world, command.node, now))
        case c.ReportSurveyed():
            return Decided([] if world.surveyed else [e.ClusterSurveyed()])
        case c.ReportModel() | c.ReportPoolRequest() | c.ReportPoolReturn() | c.ReportTime():
            return Decided(_simulated(world, command, now))
        case c.ReportError():
            return errored(world, command, now)
        case c.QuarantineJob():
            return quarantined(world, command, now)
        case c.ReportCluster():
            raise AssertionError("a survey is unfolded before it is decided")
        case c.DefineQueue() | c.RemoveQueue() | c.SetPolicy():
            return Decided(configured(world, command))
        case c.CordonNode() | c.UncordonNode() | c.DrainNode() | c.ForgetNode():
            return Decided(_mark(world, command, now))
        case _:
            assert_never(command)


def _simulated(
    world: World,
    report: c.ReportModel | c.ReportPoolRequest | c.ReportPoolReturn | c.ReportTime,
    now: float,
) -> list[e.Event]:
    """What a simulated cluster needs to know of itself when it is made again."""
    match report:
        case c.ReportModel():
            return [e.ClusterModelled(report.document)]
        case c.ReportPoolRequest():
            return [e.PoolNodesRequested(report.pool, report.nodes, report.ready_at)]
        case c.ReportPoolReturn():
            return [e.PoolNodesReturned(report.pool, report.nodes)]
        case c.ReportTime():
            return [e.TimePassed()] if now > world.at else []


def find_job(world: World, namespace: str, name: str) -> Job:
    job = world.job(namespace, name)
    if job is None:
        raise Rejected("no_such_job", f"there is no job {namespace}/{name}")
    return job


def find_node(world: World, name: str) -> Node:
    node = world.nodes.get(name)
    if node is None or node.removed:
        raise Rejected("no_such_node", f"there is no node {name!r}")
    return node


def _submit(world: World, command: c.SubmitJob) -> list[e.Event]:
    admit(world, command)
    submitted = e.JobSubmitted(command.job, command.namespace, command.name, command.spec)
    return [submitted, e.JobSuspended(command.job)] if command.suspended else [submitted]


def _mark(
    world: World,
    command: c.CordonNode | c.UncordonNode | c.DrainNode | c.ForgetNode,
    now: float,
) -> list[e.Event]:
    node = find_node(world, command.node)
    match command:
        case c.CordonNode():
            return [] if node.cordoned else [e.NodeCordoned(node.name)]
        case c.UncordonNode():
            return [e.NodeUncordoned(node.name)] if node.cordoned else []
        case c.DrainNode():
            return _drain(world, node, now)
        case c.ForgetNode():
            return _forget(world, node, now)


def _forget(world: World, node: Node, now: float) -> list[e.Event]:
    if node.ready:
        raise Rejected(
            "node_is_up",
            f"node {node.name} answers, so what runs there goes on; drain it first, and forget it "
            "once it is gone",
        )
    return node_removed(world, node.name, now, reason=e.FORGOTTEN)


def _drain(world: World, node: Node, now: float) -> list[e.Event]:
    """As a cordon, and what has ranks there gives way; each gang as a whole."""
    decided: list[e.Event] = [] if node.cordoned else [e.NodeCordoned(node.name, e.DRAINED)]
    for job, _ in world.ranks_on(node.name):
        attempt = job.attempt
        if attempt is None or attempt.state not in LIVE:
            continue
        with concerning(job.id):
            draft = Draft(job, now, world.position + len(decided))
            spends = restart.spends_budget(job.spec.restart, Cause.PREEMPTION)
            message = f"node {node.name} is being drained"
            ledger = Restart(now, attempt.number, Cause.PREEMPTION, spends, message=message)
            stop_attempt(draft, restart.again(job, ledger, now))
            decided += settle(draft).events
    return decided


def _change(world: World, command: JobRequest, now: float) -> Decided:
    """Events for a request about a job that exists."""
    job = find_job(world, command.namespace, command.name)
    if command.job not in ("", job.id):
        told = f"{command.namespace}/{command.name} is another job by now"
        raise Rejected("no_such_job", told)
    draft = Draft(job, now, world.position)
    if job.quarantined and not isinstance(command, c.DeleteJob):
        told = f"{command.namespace}/{command.name} is quarantined; it can only be deleted"
        raise Rejected("quarantined", told)
    if draft.job.finished and not isinstance(command, _LATE):
        raise Rejected(
            "already_finished",
            f"{command.namespace}/{command.name} is finished: {draft.job.phase.value.lower()}",
        )
    match command:
        case c.DeleteJob():
            _delete(draft)
        case c.CancelJob():
            draft.add(e.JobCancelled(draft.job.id))
        case c.SuspendJob():
            if draft.job.phase is not Phase.SUSPENDED:
                draft.add(e.JobSuspended(draft.job.id))
        case c.ResumeJob():
            _resume(draft)
        case c.ScaleJob():
            _scale(world, draft, command)
        case c.AmendJob():
            _amend(draft, command)
        case _:
            assert_never(command)
    return settle(draft)


def _delete(draft: Draft) -> None:
    if not draft.job.finished:
        draft.add(e.JobCancelled(draft.job.id))
    if not draft.job.deleting:
        draft.add(e.JobDeleteRequested(draft.job.id))


def _resume(draft: Draft) -> None:
    job = draft.job
    if job.phase is not Phase.SUSPENDED:
        raise Rejected(
            "not_suspended",
            f"{job.namespace}/{job.name} is not suspended: {job.phase.value.lower()}",
        )
    draft.add(e.JobResumed(job.id))


def _let_go(draft: Draft) -> None:
    """Ranks beyond the new size are to end; if there are too few, the scheduler adds some."""
    attempt, size = draft.job.attempt, draft.job.spec.size
    assert attempt is not None
    ranks = enumerate(attempt.ranks)
    surplus = tuple(i for i, rank in ranks if i >= size and rank.state in HOLDING)
    if surplus:
        told = "the job was scaled down"
        draft.add(e.RanksLost(draft.job.id, attempt.number, surplus, told, Cause.SCALED))


def _scale(world: World, draft: Draft, command: c.ScaleJob) -> None:
    job = draft.job
    role = job.spec.role(command.role)
    if role is None:
        names = ", ".join(role.name for role in job.spec.roles)
        raise Rejected("unknown_role", f"there is no role {command.role!r}; the roles are: {names}")
    if role.replicas == command.replicas:
        return
    spec = scaled(job.spec, role.name, command.replicas)
    least, most = role.min_replicas or 0, role.max_replicas
    if command.replicas < least or (most is not None and command.replicas > most):
        allowed = f"at least {least}" if most is None else f"between {least} and {most}"
        told = f"{command.replicas} replicas; {role.name} may have {allowed}"
        raise Rejected("invalid_job", told, field=f"spec.roles[{role.name}].replicas")
    for field, problem in problems(job.namespace, job.name, spec):
        raise Rejected("invalid_job", f"{field}: {problem}", field=field)
    require_fit(world, spec)
    resize(draft, role, command.replicas)


def _amend(draft: Draft, command: c.AmendJob) -> None:
    job, old = draft.job, draft.job.spec
    event = e.JobAmended(
        job.id,
        ttl_s=_or(command.ttl_s, old.ttl_s),
        active_deadline_s=_or(command.active_deadline_s, old.active_deadline_s),
        restart_limit=_or(command.restart_limit, old.restart.limit),
        clean=_or(command.clean, old.clean),
    )
    spec = amended(old, event)
    if spec == job.spec:
        return
    if job.finished and spec != replace(old, ttl_s=event.ttl_s):
        raise Rejected(
            "already_finished",
            f"{job.namespace}/{job.name} is finished: {job.phase.value.lower()}; "
            "only its time to live (ttl_s) can still change",
        )
    for field, problem in problems(job.namespace, job.name, spec):
        raise Rejected("invalid_job", f"{field}: {problem}", field=field)
    limit = event.restart_limit
    if limit not in (None, old.restart.limit) and limit < job.failures:
        told = f"{limit} is too late: it has failed {job.failures} times already"
        raise Rejected("invalid_job", f"spec.restart.limit: {told}", field="spec.restart.limit")
    draft.add(event)


def _or(asked: _T | UnsetType, known: _T) -> _T:
    return known if isinstance(asked, UnsetType) else asked


def resize(draft: Draft, role: Role, replicas: int) -> None:
    """The role gets more or fewer replicas: in place if the gang can do that, else with a restart."""
    job, now = draft.job, draft.now
    draft.add(e.JobScaled(job.id, role.name, replicas))
    if scales_in_place(job, role.name):
        _let_go(draft)
    elif job.phase in ACTIVE and job.attempt is not None:
        message = f"{role.name} went from {role.replicas} to {replicas} replicas"
        resized = Restart(now, job.attempt.number, Cause.SCALED, False, message=message)
        stop_attempt(draft, restart.again(job, resized, now))
