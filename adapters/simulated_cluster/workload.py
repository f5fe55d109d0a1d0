"""What the ranks of a job do, read off its workload and its state. Pure.

A regular rank works for `duration_s`, counted from when the whole gang is up, and exits with 0; a
rank of a role that serves runs until it is stopped. Of a job that trains, every rank does what its
kind says (`Kind.duties`): workers of MPI compute and serve, and their launcher ends with the training. In a failing try the rank `exit_rank` exits
with `exit_code` instead, and the others hang until they are stopped, as real gangs do; where single
ranks restart, the others go on and end well. Tries count through attempts and, within an attempt,
through the incarnations of that rank.
"""

from collections import defaultdict

from adapters.simulated_cluster.training import all_compute, duties_of, training_of
from controlplane.attempt import Attempt, Rank, RankState, launched_at
from controlplane.attempt_life import staying
from controlplane.job import Job, Phase
from controlplane.model import RestartScope
from simulator.gangs import Duty, Part

_NEW = Rank()


def what_to_do(job: Job, attempt: Attempt, ranks: tuple[int, ...], now: float) -> tuple[Part, ...]:
    """What these ranks have before them, those that behave alike in one part."""
    spec, work = job.spec, job.spec.workload
    serving = {i for role in spec.roles if role.serves for i in spec.ranks_of(role.name)}
    late = any([attempt.ranks[i].relaunched_at is not None for i in ranks])  # noqa: C419
    if late and work.exit_code == 0 and together(job) and any(r.done for r in attempt.ranks):
        # A rank that comes when the others have done the work finds nothing left to do.
        return (Part(ranks, 0.0),)
    training = training_of(job)
    plain = not serving and (training is None or all_compute(spec))
    if plain and work.exit_code == 0 and is_new(attempt):
        return (Part(ranks, work.duration_s, 0, None, training),)
    failing = _failing_rank(job, attempt)
    hangs = failing is not None and together(job)
    trains = training is not None and failing is None
    duties = duties_of(spec) if trains else ()
    alike = defaultdict[tuple[float | None, int, float | None, Duty], list[int]](list)
    for i in ranks:
        run_s = None if i in serving or hangs else work.duration_s
        deed = (work.duration_s, work.exit_code) if i == failing else (run_s, 0)
        duty = duties[i] if i < len(duties) else Duty.COMPUTE
        alike[*deed, _elapsed_s(job, attempt, i, now), duty].append(i)
    return tuple(
        Part(
            tuple(alike_ranks),
            run_s,
            code,
            elapsed_s,
            # A role beside the training that ends by itself ends with it.
            training if trains and (duty or run_s is not None) else None,
            duty,
        )
        for (run_s, code, elapsed_s, duty), alike_ranks in alike.items()
    )


def _failing_rank(job: Job, attempt: Attempt) -> int | None:
    work = job.spec.workload
    if work.exit_code == 0:
        return None
    rank = min(work.exit_rank, len(attempt.ranks) - 1)
    tries = attempt.number + attempt.ranks[rank].incarnation
    return rank if work.failing_attempts is None or tries <= work.failing_attempts else None


def _elapsed_s(job: Job, attempt: Attempt, index: int, now: float) -> float | None:
    """How much of its work a rank has done according to the log; None if it is not up."""
    rank = attempt.ranks[index]
    if rank.state is not RankState.RUNNING:
        return None
    since = working_since(job, attempt, rank)
    return 0.0 if since is None else max(0.0, now - since)


def working_since(job: Job, attempt: Attempt, rank: Rank) -> float | None:
    """A gang that works together begins when all of it is up; ranks that came later, by themselves."""
    alone = rank.relaunched_at is not None or not together(job)
    return rank.started_at if alone else attempt.running_at


def together(job: Job) -> bool:
    """Whether no rank gets anywhere without the others."""
    if job.spec.restart.scope is not RestartScope.GANG:
        return False
    return not any([role.expendable for role in job.spec.roles])  # noqa: C419 - in the hot path


def is_new(attempt: Attempt) -> bool:
    """Nothing has happened to any rank. (In a new attempt they are all the same object.)"""
    ranks = attempt.ranks
    return bool(ranks) and ranks[0] == _NEW and ranks.count(ranks[0]) == len(ranks)


def asked_at(job: Job, attempt: Attempt, index: int) -> float:
    """When a rank was asked for: with the gang, once more, or when those it waits for were up."""
    rank = attempt.ranks[index]
    if rank.incarnation == 0 and index < job.spec.size:
        first = job.spec.role_of(index)[0].starts_after
        there = staying(attempt, job.spec.size)
        firsts = [i for i in job.spec.ranks_of(first) if i < there] if first else []
        ups = [attempt.ranks[i].started_at for i in firsts]
        known = [at for at in ups if at is not None]
        if known:
            return max(known)
    return launched_at(attempt, rank)


def stopped_at(job: Job, attempt: Attempt) -> float:
    """When the attempt was told to stop: at the first of what may stop one since its placement."""
    times = [job.finished_at, job.suspended_at]
    if (
        job.phase is Phase.RESTARTING
        and job.restarts
        and job.restarts[-1].attempt == attempt.number
    ):
        times.append(job.restarts[-1].at)
    known = [at for at in times if at is not None and at >= attempt.placed_at]
    return min(known, default=attempt.placed_at)
