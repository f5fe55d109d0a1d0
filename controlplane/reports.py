"""What the cluster's reports make happen. Late, repeated and out-of-order ones decide nothing."""

from collections.abc import Collection

from controlplane import commands as c
from controlplane import events as e
from controlplane.attempt import LIVE, Attempt, RankState
from controlplane.draft import Decided, Draft
from controlplane.faults import concerning
from controlplane.image import Node
from controlplane.job import Job
from controlplane.job_life import PLATFORM_ERROR, QUARANTINED, error_line
from controlplane.model import Cause, Restart, RestartRule
from controlplane.settling import close, settle
from controlplane.world import World

# A start is news of a rank that waits for it; an end is news of one that may have a process.
_UNSTARTED = (RankState.PENDING,)
_UNENDED = (RankState.PENDING, RankState.RUNNING, RankState.LOST)
_STAYING = (RankState.PENDING, RankState.RUNNING)

# A process that was started again a million times while nobody looked is told of shortly.
LEDGER_ENTRIES_MAX = 100


def ranks_reported(world: World, report: c.ReportRanks, now: float) -> Decided:
    job = world.jobs.get(report.job)
    if job is None or job.attempt is None or job.attempt.number != report.attempt:
        return Decided([])
    draft, attempt = Draft(job, now, world.position), job.attempt
    run, gone = report.incarnation, report.gone
    for rank, commit in report.commits:
        # Ranks of one gang have the same code, or it is worth an event that they have not.
        if commit not in draft.job.commits:
            draft.add(e.CodeResolved(job.id, attempt.number, rank, commit))
    ended: tuple[int, ...] = ()
    if report.started and (started := _news(attempt, run, report.started, _UNSTARTED)):
        draft.add(e.RanksStarted(job.id, attempt.number, started))
    if report.exited:
        exits = {x.rank: x for x in report.exited}
        if ended := _news(attempt, run, tuple(exits), _UNENDED):
            exited = tuple([exits[rank] for rank in ended])
            draft.add(e.RanksExited(job.id, attempt.number, exited))
    if gone and (left := _news(attempt, run, _without(gone, ended), _UNENDED)):
        draft.add(e.RanksGone(job.id, attempt.number, left))
    if (report.leaving or report.restarted or report.stuck) and attempt.state in LIVE:
        _add_rarer_news(draft, attempt, report, ended)
    if not draft.events:
        return draft
    # Of a job that has ended nothing is judged any more, whatever may be wrong with it.
    return close(draft) if job.finished else settle(draft)


def _news(
    attempt: Attempt, run: int, told: tuple[int, ...], states: Collection[RankState]
) -> tuple[int, ...]:
    """Of the ranks that a report names those of which it is news, each once.

    What it says of the others is late, repeated or of another run.
    """
    ranks = attempt.ranks
    size = len(ranks)
    news = [
        i
        for i in told
        if 0 <= i < size and ranks[i].incarnation == run and ranks[i].state in states
    ]
    return tuple(news) if len(news) <= 1 else tuple(dict.fromkeys(news))


def _without(told: tuple[int, ...], known: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(i for i in told if i not in known) if known else told


def _add_rarer_news(
    draft: Draft, attempt: Attempt, report: c.ReportRanks, ended: tuple[int, ...]
) -> None:
    """Ranks that are told to go, and those that the cluster has started again in place."""
    job, run = draft.job, report.incarnation
    told = {x.rank: x for x in report.leaving}
    staying = _news(attempt, run, _without(tuple(told), (*ended, *report.gone)), _STAYING)
    leaving = [told[rank] for rank in staying]
    for cause, message in dict.fromkeys((x.cause, x.message) for x in leaving):
        ranks = tuple(x.rank for x in leaving if (x.cause, x.message) == (cause, message))
        draft.add(e.RanksLost(job.id, attempt.number, ranks, message, cause))
    counts = dict(report.restarted)
    restarted = tuple(
        (i, counts[i])
        for i in _news(attempt, run, _without(tuple(counts), ended), _STAYING)
        if counts[i] > attempt.ranks[i].restarted
    )
    if restarted:
        draft.add(_restarted_in_place(job, attempt, restarted, draft.now))
    if report.stuck:
        _add_stuck(draft, attempt, report)


def _add_stuck(draft: Draft, attempt: Attempt, report: c.ReportRanks) -> None:
    """Why ranks do not come up; the same reason in other words is no news."""
    told = dict(report.stuck)
    over = (*report.started, *(x.rank for x in report.exited), *report.gone)
    waiting = _news(attempt, report.incarnation, _without(tuple(told), over), _UNSTARTED)
    news = [i for i in waiting if _reason(attempt.ranks[i].message) != _reason(told[i])]
    for message in dict.fromkeys(told[i] for i in news):
        ranks = tuple(i for i in news if told[i] == message)
        draft.add(e.RanksStuck(draft.job.id, attempt.number, ranks, message))


def _reason(message: str) -> str:
    return message.partition(":")[0]


def _restarted_in_place(
    job: Job, attempt: Attempt, counts: tuple[tuple[int, int], ...], now: float
) -> e.RanksRestartedInPlace:
    """Each restart in place is an entry in the ledger, and spends the budget as any other does.

    Under the rule Never the cluster does not restart a process, whatever it counts.
    """
    ledger = []
    for rank, count in counts:
        if rank >= job.spec.size or job.spec.role_of(rank)[0].restart is RestartRule.NEVER:
            continue
        message = f"{job.spec.rank_name(rank)} was started again in place"
        node = attempt.placement[rank].node
        again = Restart(now, attempt.number, Cause.EXIT, True, rank, None, node, message)
        ledger += [again] * min(count - attempt.ranks[rank].restarted, LEDGER_ENTRIES_MAX)
    return e.RanksRestartedInPlace(job.id, attempt.number, counts, tuple(ledger))


def parts_of(world: World, survey: c.ReportCluster) -> list[c.AnyCommand]:
    """A survey as reports on single nodes, each to be decided after the one before has happened."""
    parts: list[c.AnyCommand] = [c.ReportNode(node=info) for info in survey.up]
    for info in survey.down:
        if info.name not in world.nodes:
            parts.append(c.ReportNode(node=info))
        parts.append(c.ReportNodeLost(node=info.name, message="it does not answer"))
    listed = {info.name for info in (*survey.up, *survey.down)}
    parts += [c.ReportNodeRemoved(node=name) for name in world.nodes if name not in listed]
    return [*parts, c.ReportSurveyed()]


def node_reported(world: World, report: c.ReportNode) -> list[e.Event]:
    known = world.nodes.get(report.node.name)
    if known is not None and known.info == report.node and known.ready:
        return []
    return [e.NodeReported(report.node.name, report.node)]


_LATELY_S = 86_400.0


def _lost_again(world: World, node: Node, message: str, now: float) -> list[e.Event]:
    """Who is lost too often within a day is put in quarantine, where the policy asks for it."""
    limit = world.policy.quarantine_after
    if limit is None:
        return [e.NodeLost(node.name, message)]
    losses = (*(at for at in node.losses if at > now - _LATELY_S), now)
    decided: list[e.Event] = [e.NodeLost(node.name, message, losses)]
    if len(losses) >= limit and not node.cordoned:
        decided.append(e.NodeCordoned(node.name, f"quarantine: lost {len(losses)} times in a day"))
    return decided


def node_lost(world: World, report: c.ReportNodeLost, now: float) -> list[e.Event]:
    """A silent node takes no more work; live gangs that have ranks there must start again."""
    node = world.nodes.get(report.node)
    if node is None or not node.ready:
        return []
    if report.given_back:
        decided: list[e.Event] = [e.NodeLost(node.name, report.message, given_back=True)]
    else:
        decided = _lost_again(world, node, report.message, now)
    for job, ranks in world.ranks_on(node.name):
        attempt = job.attempt
        if attempt is not None and attempt.state in LIVE:
            with concerning(job.id):
                draft = Draft(job, now, world.position + len(decided))
                lost = tuple(i for i in ranks if attempt.ranks[i].state is not RankState.LOST)
                draft.add(e.RanksLost(job.id, attempt.number, lost, report.message))
                decided += settle(draft).events
    return decided


def node_removed(world: World, name: str, now: float, *, reason: str = "") -> list[e.Event]:
    """A node that left the cluster took everything on it along."""
    node = world.nodes.get(name)
    if node is None or node.removed:
        return []
    decided: list[e.Event] = [e.NodeRemoved(node.name, reason)]
    for job, ranks in world.ranks_on(node.name):
        with concerning(job.id):
            attempt = job.attempt
            assert attempt is not None
            draft = Draft(job, now, world.position + len(decided))
            if attempt.state in LIVE:
                draft.add(e.RanksLost(job.id, attempt.number, tuple(ranks), "its node was removed"))
            draft.add(e.RanksGone(job.id, attempt.number, tuple(ranks)))
            decided += settle(draft).events
    return decided


def errored(world: World, report: c.ReportError, now: float) -> Decided:
    """The job fails, unless it has ended already or the error is of an earlier attempt."""
    job = world.jobs.get(report.job)
    if job is None or job.finished:
        return Decided([])
    number = 0 if job.attempt is None else job.attempt.number
    if report.attempt and report.attempt != number:
        return Decided([])
    draft = Draft(job, now, world.position)
    event = e.JobErrored(job.id, report.where, report.error, report.text, report.attempt)
    draft.add(event)
    draft.add(e.JobFailed(job.id, PLATFORM_ERROR, error_line(event)))
    return close(draft)


def quarantined(world: World, command: c.QuarantineJob, now: float) -> Decided:
    """The job is set aside for good; if it had not ended, it has failed. Once is enough."""
    job = world.jobs.get(command.job)
    if job is None or job.quarantined:
        return Decided([])
    draft = Draft(job, now, world.position)
    event = e.JobQuarantined(job.id, command.where, command.error, command.text)
    draft.add(event)
    if not job.finished:
        draft.add(e.JobFailed(job.id, QUARANTINED, error_line(event)))
    return close(draft)
