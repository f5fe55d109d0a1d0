"""The events that follow from the cluster's reports.

Late, repeated and out-of-order reports decide nothing.
"""

from collections.abc import Collection

from msgspec.structs import replace

from controlplane.lifecycle.attempt import Attempt
from controlplane.lifecycle.draft import Decision, Draft
from controlplane.lifecycle.job import Job, fault_of
from controlplane.lifecycle.settle import close, settle
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.errors import concerning
from controlplane.model.failures import Cause, Restart
from controlplane.model.phases import LIVE, WITH_DEVICES, RankState
from controlplane.model.reasons import (
    CordonReason,
    FailureReason,
    Loss,
    LossReason,
    NodeRemovalReason,
    RestartedInPlace,
)
from controlplane.model.spec import RestartRule
from controlplane.state.image import Node
from controlplane.state.world import World

# A start is news for a rank that has not started; an end is news for one that may have a process.
_UNSTARTED = (RankState.PENDING,)
_UNENDED = (RankState.PENDING, RankState.RUNNING, RankState.LOST)
_STAYING = (RankState.PENDING, RankState.RUNNING)

# A cluster may report a million restarts of a process at once; at most this many are recorded.
LEDGER_ENTRIES_MAX = 100


def ranks_reported(world: World, report: c.ReportRanks, now: float) -> Decision:
    """The events of a report on ranks; empty if nothing in it is news."""
    job = world.jobs.get(report.job)
    if job is None or job.attempt is None or job.attempt.number != report.attempt:
        return Decision([])
    draft, attempt = Draft(job, now, world.position), job.attempt
    run, gone = report.incarnation, report.gone
    for rank, commit in report.commits:
        # All ranks of a gang should have the same code; a difference is worth an event.
        if commit not in draft.job.commits:
            draft.add(e.CodeResolved(job.id, attempt.number, rank, commit))
    ended: tuple[int, ...] = ()
    if report.started and (started := _news(attempt, run, report.started, _UNSTARTED)):
        draft.add(e.RanksStarted(job.id, attempt.number, started))
    if report.exited:
        exits = {x.rank: x for x in report.exited}
        if ended := _news(attempt, run, tuple(exits), _UNENDED):
            exited = tuple(exits[rank] for rank in ended)
            draft.add(e.RanksExited(job.id, attempt.number, exited))
    if gone and (left := _news(attempt, run, _without(gone, ended), _UNENDED)):
        draft.add(e.RanksGone(job.id, attempt.number, left))
    if (report.leaving or report.restarted or report.stuck) and attempt.state in LIVE:
        _add_rarer_news(draft, attempt, report, ended)
    if not draft.events:
        return draft
    # The ranks of a finished job are not judged any more.
    return close(draft) if job.finished else settle(draft)


def _news(
    attempt: Attempt, run: int, reported: tuple[int, ...], states: Collection[RankState]
) -> tuple[int, ...]:
    """The ranks of a report for which it is news, each once.

    For any other rank the report is late, repeated or about another incarnation.
    """
    ranks = attempt.ranks
    size = len(ranks)
    news = [
        i
        for i in reported
        if 0 <= i < size and ranks[i].incarnation == run and ranks[i].state in states
    ]
    return tuple(news) if len(news) <= 1 else tuple(dict.fromkeys(news))


def _without(reported: tuple[int, ...], known: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(i for i in reported if i not in known) if known else reported


def _add_rarer_news(
    draft: Draft, attempt: Attempt, report: c.ReportRanks, ended: tuple[int, ...]
) -> None:
    """Add ranks that must leave, ranks that were restarted in place, and ranks that do not start."""
    job, run = draft.job, report.incarnation
    by_rank = {x.rank: x for x in report.leaving}
    staying = _news(attempt, run, _without(tuple(by_rank), (*ended, *report.gone)), _STAYING)
    leaving = [by_rank[rank] for rank in staying]
    for why in dict.fromkeys((x.detail, x.cause, x.loss) for x in leaving):
        ranks = tuple(x.rank for x in leaving if (x.detail, x.cause, x.loss) == why)
        draft.add(e.RanksLost(job.id, attempt.number, ranks, *why))
    counts = dict(report.restarted)
    restarted = tuple(
        (i, counts[i])
        for i in _news(
            attempt, run, _without(tuple(counts), (*ended, *report.gone, *staying)), _STAYING
        )
        if counts[i] > attempt.ranks[i].restarted
    )
    if restarted:
        draft.add(_restarted_in_place(job, attempt, restarted, draft.now))
    if report.stuck:
        _add_stuck(draft, attempt, report)


def _add_stuck(draft: Draft, attempt: Attempt, report: c.ReportRanks) -> None:
    """Add why ranks do not start; the same reason with another detail is not news."""
    stuck = {each.rank: each for each in report.stuck}
    ends = (x.rank for x in (*report.exited, *report.leaving))
    over = (*report.started, *ends, *report.gone)
    waiting = _news(attempt, report.incarnation, _without(tuple(stuck), over), _UNSTARTED)
    news = [stuck[i] for i in waiting if attempt.ranks[i].reason != stuck[i].reason]
    for why in dict.fromkeys((each.reason, each.detail) for each in news):
        ranks = tuple(each.rank for each in news if (each.reason, each.detail) == why)
        draft.add(e.RanksStuck(draft.job.id, attempt.number, ranks, *why))


def _restarted_in_place(
    job: Job, attempt: Attempt, counts: tuple[tuple[int, int], ...], now: float
) -> e.RanksRestartedInPlace:
    """The event with an entry for each restart in place, which spends the budget like any other.

    Under the rule Never the cluster does not restart a process, whatever count it reports.
    """
    ledger = []
    for rank, count in counts:
        if rank >= job.spec.size or job.spec.role_of(rank)[0].restart is RestartRule.NEVER:
            continue
        again = Restart(
            at=now,
            attempt=attempt.number,
            cause=Cause.EXIT,
            spends_budget=True,
            rank=rank,
            node=attempt.placement[rank].node,
            rank_name=job.spec.rank_name(rank),
            facts=RestartedInPlace(),
        )
        ledger += [again] * min(count - attempt.ranks[rank].restarted, LEDGER_ENTRIES_MAX)
    return e.RanksRestartedInPlace(job.id, attempt.number, counts, tuple(ledger))


def parts_of(world: World, survey: c.ReportCluster) -> list[c.AnyCommand]:
    """A survey as reports on single nodes; each must be applied before the next is decided."""
    parts: list[c.AnyCommand] = [c.ReportNode(node=info) for info in survey.up]
    for info in survey.down:
        if info.name not in world.nodes:
            parts.append(c.ReportNode(node=info))
        parts.append(c.ReportNodeLost(node=info.name))
    listed = {info.name for info in (*survey.up, *survey.down)}
    parts += [c.ReportNodeRemoved(node=name) for name in world.nodes if name not in listed]
    return [*parts, c.ReportSurveyed()]


def node_reported(world: World, report: c.ReportNode) -> list[e.Event]:
    """The event of a report on one node; empty if nothing has changed."""
    known = world.nodes.get(report.node.name)
    if known is not None and known.info == report.node and known.ready:
        return []
    return [e.NodeReported(report.node.name, report.node)]


_LATELY_S = 86_400.0


def _lost_again(world: World, node: Node, lost: e.NodeLost, now: float) -> list[e.Event]:
    """The events of a lost node; too many losses within a day cordon it, where the policy asks."""
    limit = world.policy.quarantine_after
    if limit is None:
        return [lost]
    losses = (*(at for at in node.losses if at > now - _LATELY_S), now)
    decided: list[e.Event] = [replace(lost, losses=losses)]
    if len(losses) >= limit and not node.cordoned:
        decided.append(e.NodeCordoned(node.name, CordonReason.QUARANTINED, len(losses)))
    return decided


def node_lost(world: World, report: c.ReportNodeLost, now: float) -> list[e.Event]:
    """The events of a silent node: it takes no more work, and live gangs on it lose their ranks."""
    node = world.nodes.get(report.node)
    if node is None or not node.ready:
        return []
    lost = e.NodeLost(node.name, report.reason, report.detail, report.left_s)
    # A node that was returned to its pool has not failed.
    is_failure = report.reason is not LossReason.GIVEN_BACK
    decided: list[e.Event] = [lost]
    if is_failure:
        decided = _lost_again(world, node, lost, now)
    for job, ranks in world.devices.ranks_on(node.name):
        attempt = job.attempt
        if attempt is not None and attempt.state in LIVE:
            with concerning(job.id):
                # Ranks that the node lost before, and that are not gone yet, are lost already.
                here = tuple(i for i in ranks if attempt.ranks[i].state is not RankState.LOST)
                if here:
                    draft = Draft(job, now, world.position + len(decided))
                    draft.add(e.RanksLost(job.id, attempt.number, here, loss=report.loss))
                    decided += settle(draft).events
    return decided


def node_removed(
    world: World, name: str, now: float, *, reason: NodeRemovalReason | None = None
) -> list[e.Event]:
    """The events of a node that left the cluster with everything on it."""
    node = world.nodes.get(name)
    if node is None or node.removed:
        return []
    decided: list[e.Event] = [e.NodeRemoved(node.name, reason)]
    for job, ranks in world.devices.ranks_on(node.name):
        with concerning(job.id):
            attempt = job.attempt
            assert attempt is not None
            draft = Draft(job, now, world.position + len(decided))
            if attempt.state in LIVE:
                loss = Loss(LossReason.REMOVED, node.name)
                draft.add(e.RanksLost(job.id, attempt.number, tuple(ranks), loss=loss))
            assert draft.job.attempt is not None
            left = tuple(i for i in ranks if draft.job.attempt.ranks[i].state in WITH_DEVICES)
            if left:
                draft.add(e.RanksGone(job.id, attempt.number, left))
            decided += settle(draft).events
    return decided


def errored(world: World, report: c.ReportError, now: float) -> Decision:
    """Fail the job, unless it has ended already or the error is from an earlier attempt."""
    owner = world.owners.get(report.job)
    if owner is not None and not owner.finished:
        return Decision([e.OwnerErrored(owner.id, report.where, report.error, report.text)])
    job = world.jobs.get(report.job)
    if job is None or job.finished:
        return Decision([])
    number = 0 if job.attempt is None else job.attempt.number
    if report.attempt and report.attempt != number:
        return Decision([])
    draft = Draft(job, now, world.position)
    event = e.JobErrored(job.id, report.where, report.error, report.text, report.attempt)
    draft.add(event)
    draft.add(e.JobFailed(job.id, FailureReason.PLATFORM_ERROR, facts=fault_of(event)))
    return close(draft)


def quarantined(world: World, command: c.QuarantineJob, now: float) -> Decision:
    """Quarantine the job; if it had not ended, it fails. A second time decides nothing."""
    job = world.jobs.get(command.job)
    if job is None or job.quarantined:
        return Decision([])
    draft = Draft(job, now, world.position)
    event = e.JobQuarantined(job.id, command.where, command.error, command.text)
    draft.add(event)
    if not job.finished:
        draft.add(e.JobFailed(job.id, FailureReason.QUARANTINED, facts=fault_of(event)))
    return close(draft)
