"""The entry of the core: the events that follow from a command, or why it is refused.

`decide` reads the world and changes nothing. Refusals (`Rejected`) are for people and are not
recorded; reports of a cluster are never refused, but late ones decide nothing.
"""

from typing import assert_never

from msgspec.structs import replace

from controlplane.decisions.admission import admit, require_fit, require_queue
from controlplane.decisions.owner_requests import (
    array_submitted,
    members_retried,
    owner_changed,
    refuse_for_member,
)
from controlplane.decisions.queue_admin import configured
from controlplane.decisions.reports import (
    errored,
    node_lost,
    node_removed,
    node_reported,
    parts_of,
    quarantined,
    ranks_reported,
)
from controlplane.kinds.manifest.checking import problems
from controlplane.lifecycle import restart
from controlplane.lifecycle.draft import Decision, Draft
from controlplane.lifecycle.job import Job, amended, scaled, scales_in_place
from controlplane.lifecycle.owner import member_name
from controlplane.lifecycle.settle import settle, stop_attempt
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.errors import Rejected, concerning
from controlplane.model.failures import Cause, Restart
from controlplane.model.phases import ACTIVE, LIVE, WITH_DEVICES, Phase
from controlplane.model.reasons import (
    CordonReason,
    LossReason,
    NodeDrained,
    NodeRemovalReason,
    Resized,
)
from controlplane.model.spec import JobSpec, Role
from controlplane.state.image import Node
from controlplane.state.world import World
from controlplane.workflows.dependencies import owner_named, reserving, resolve

JobRequest = c.CancelJob | c.SuspendJob | c.ResumeJob | c.DeleteJob | c.ScaleJob | c.AmendJob
# Requests that are allowed for a finished job.
_LATE = (c.DeleteJob, c.AmendJob)


def unfold(world: World, command: c.AnyCommand) -> list[c.AnyCommand]:
    """The commands to decide in place of `command`, one after the other."""
    return parts_of(world, command) if isinstance(command, c.ReportCluster) else [command]


def decide(world: World, command: c.AnyCommand, now: float) -> Decision:
    """The events that follow from an unfolded command; empty if it changes nothing.

    Raises Rejected if a person's request is refused; then nothing happens.
    """
    match command:
        case c.ReportRanks():
            return ranks_reported(world, command, now)
        case c.SubmitJob():
            return Decision(submitted(world, command))
        case (
            c.CancelJob()
            | c.SuspendJob()
            | c.ResumeJob()
            | c.DeleteJob()
            | c.ScaleJob()
            | c.AmendJob()
            | c.RetryMembers()
        ):
            return _change(world, command, now)
        case c.ReportNode():
            return Decision(node_reported(world, command))
        case c.ReportNodeLost():
            return Decision(node_lost(world, command, now))
        case c.ReportNodeRemoved():
            return Decision(node_removed(world, command.node, now))
        case c.ReportSurveyed():
            return Decision([] if world.surveyed else [e.ClusterSurveyed()])
        case c.ReportModel() | c.ReportPoolRequest() | c.ReportPoolReturn() | c.ReportTime():
            return Decision(_simulated(world, command, now))
        case c.ReportError():
            return errored(world, command, now)
        case c.QuarantineJob():
            return quarantined(world, command, now)
        case c.ReportCluster():
            raise AssertionError("a survey is unfolded before it is decided")
        case c.DefineQueue() | c.RemoveQueue() | c.SetPolicy():
            return Decision(configured(world, command))
        case c.CordonNode() | c.UncordonNode() | c.DrainNode() | c.ForgetNode() | c.InjectFault():
            return Decision(_of_node(world, command, now))
        case _:
            assert_never(command)


def _simulated(
    world: World,
    report: c.ReportModel | c.ReportPoolRequest | c.ReportPoolReturn | c.ReportTime,
    now: float,
) -> list[e.Event]:
    """The events that a simulated cluster needs for its own recovery."""
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
    """The job with this name. Raises Rejected if there is none, or if an array has the name."""
    job = world.job(namespace, name)
    if job is not None:
        return job
    array = owner_named(world, namespace, name)
    if array is not None:
        first = member_name(array, array.spec.indices[0])
        raise Rejected(
            "is_array", f"{namespace}/{name} is an array; name one index of it, as {first}"
        )
    if (member := reserving(world, namespace, name)) is not None:
        owner = member[0].full_name
        raise Rejected("no_such_job", f"index {member[1]} of array {owner} is not submitted yet")
    raise Rejected("no_such_job", f"there is no job {namespace}/{name}")


def find_node(world: World, name: str) -> Node:
    """The node with this name. Raises Rejected if it is not part of the cluster."""
    node = world.nodes.get(name)
    if node is None or node.removed:
        raise Rejected("no_such_node", f"there is no node {name!r}")
    return node


def submitted(world: World, command: c.SubmitJob) -> list[e.Event]:
    """The events of a submission. Raises Rejected."""
    if command.spec.array:
        return array_submitted(world, command)
    admit(world, command)
    spec = command.spec
    after = resolve(world, command.namespace, command.name, spec.after)
    event = e.JobSubmitted(command.job, command.namespace, command.name, spec, after)
    return [event, e.JobSuspended(command.job)] if command.suspended else [event]


def _of_node(
    world: World,
    command: c.CordonNode | c.UncordonNode | c.DrainNode | c.ForgetNode | c.InjectFault,
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
        case c.InjectFault():
            return [e.FaultInjected(node.name, command.fault, command.delay_s)]


def _forget(world: World, node: Node, now: float) -> list[e.Event]:
    if node.ready:
        raise Rejected(
            "node_is_up",
            f"node {node.name} answers, so what runs there goes on; drain it first, and forget it "
            "once it is gone",
        )
    return node_removed(world, node.name, now, reason=NodeRemovalReason.FORGOTTEN)


def _drain(world: World, node: Node, now: float) -> list[e.Event]:
    """Cordon the node, and stop every gang that has ranks there, each as a whole.

    A drain of a node that is cordoned and has no gang decides nothing.
    """
    decided: list[e.Event] = [
        e.NodeDrainRequested(node.name)
        if node.cordoned
        else e.NodeCordoned(node.name, CordonReason.DRAINED)
    ]
    for job, _ in world.devices.ranks_on(node.name):
        attempt = job.attempt
        if attempt is None or attempt.state not in LIVE:
            continue
        with concerning(job.id):
            draft = Draft(job, now, world.position + len(decided))
            spends = restart.spends_budget(job.spec.restart, Cause.PREEMPTION)
            facts = NodeDrained(node.name)
            ledger = Restart(now, attempt.number, Cause.PREEMPTION, spends, facts=facts)
            stop_attempt(draft, restart.again(job, ledger, now))
            decided += settle(draft).events
    return [] if node.cordoned and len(decided) == 1 else decided


def _change(world: World, command: JobRequest | c.RetryMembers, now: float) -> Decision:
    """The events of a request about an existing job or array. Raises Rejected."""
    if isinstance(command, c.RetryMembers):
        return Decision(members_retried(world, command))
    owner = owner_named(world, command.namespace, command.name)
    if owner is not None:
        return Decision(owner_changed(owner, command))
    job = find_job(world, command.namespace, command.name)
    if command.job not in ("", job.id):
        message = f"{command.namespace}/{command.name} is another job by now"
        raise Rejected("no_such_job", message)
    if job.owner is not None:
        refuse_for_member(world, job, command)
    draft = Draft(job, now, world.position)
    if job.quarantined and not isinstance(command, c.DeleteJob):
        message = f"{command.namespace}/{command.name} is quarantined; it can only be deleted"
        raise Rejected("quarantined", message)
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
            _amend(world, draft, command)
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
    """Release ranks beyond the new size; if there are too few, the scheduler adds ranks."""
    attempt, size = draft.job.attempt, draft.job.spec.size
    assert attempt is not None
    ranks = enumerate(attempt.ranks)
    surplus = tuple(i for i, rank in ranks if i >= size and rank.state in WITH_DEVICES)
    if surplus:
        reason = LossReason.SCALED_DOWN
        draft.add(e.RanksReleased(draft.job.id, attempt.number, surplus, reason))


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
        message = f"{command.replicas} replicas; {role.name} may have {allowed}"
        raise Rejected("invalid_job", message, field=f"spec.roles[{role.name}].replicas")
    for field, problem in problems(job.namespace, job.name, spec):
        raise Rejected("invalid_job", f"{field}: {problem}", field=field)
    require_fit(world, spec)
    resize(draft, role, command.replicas)


def _amend(world: World, draft: Draft, command: c.AmendJob) -> None:
    job, old = draft.job, draft.job.spec
    event = e.JobAmended(
        job.id,
        ttl_s=command.ttl_s,
        active_deadline_s=command.active_deadline_s,
        restart_limit=command.restart_limit,
        clean=command.clean,
        priority=command.priority,
        queue=command.queue,
    )
    spec = amended(old, event)
    if spec == job.spec:
        return
    if job.finished and spec != replace(old, ttl_s=spec.ttl_s):
        raise Rejected(
            "already_finished",
            f"{job.namespace}/{job.name} is finished: {job.phase.value.lower()}; "
            "only its time to live (ttl_s) can still change",
        )
    _require_movable(world, job, spec)
    for field, problem in problems(job.namespace, job.name, spec):
        raise Rejected("invalid_job", f"{field}: {problem}", field=field)
    limit = spec.restart.limit
    if limit not in (None, old.restart.limit) and limit < job.failures:
        message = f"{limit} is too late: it has failed {job.failures} times already"
        raise Rejected("invalid_job", f"spec.restart.limit: {message}", field="spec.restart.limit")
    draft.add(event)


def _require_movable(world: World, job: Job, spec: JobSpec) -> None:
    """Raise Rejected if `spec` has another queue or priority and the job cannot get it now."""
    changed = [
        name for name in ("queue", "priority") if getattr(spec, name) != getattr(job.spec, name)
    ]
    for field in changed:
        if job.live_attempt is not None:
            raise Rejected(
                "cannot_change",
                f"{field}: {job.namespace}/{job.name} holds devices; its {field} can change only "
                "while it waits",
                field=field,
            )
    if "queue" in changed:
        require_queue(world, spec.queue)
        if spec.scheduling.group:
            raise Rejected(
                "cannot_change",
                f"queue: {job.namespace}/{job.name} belongs to group {spec.scheduling.group!r}, "
                "whose gangs start together from one queue",
                field="queue",
            )


def resize(draft: Draft, role: Role, replicas: int) -> None:
    """Change the replicas of a role: in place if the gang allows that, else with a restart."""
    job, now = draft.job, draft.now
    draft.add(e.JobScaled(job.id, role.name, replicas))
    if scales_in_place(job, role.name):
        _let_go(draft)
    elif job.phase in ACTIVE and job.attempt is not None:
        facts = Resized(role.name, role.replicas, replicas)
        resized = Restart(now, job.attempt.number, Cause.SCALED, False, facts=facts)
        stop_attempt(draft, restart.again(job, resized, now))
