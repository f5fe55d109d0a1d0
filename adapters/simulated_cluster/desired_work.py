"""The work of a job's ranks, derived from its workload and its state. Pure.

- A regular rank works for `duration_s` from when the whole gang is up, and exits with 0.
- A rank of a role that serves runs until it is stopped.
- The ranks of a training do what their kind defines (`Kind.duties`): the workers of an MPIJob
  compute, and its launcher ends with the training.
- In a failing try the rank `exit_rank` exits with `exit_code`, and the others hang until they are
  stopped, as in real gangs. Where ranks restart one by one, the others finish normally.

Tries count through the attempts and, where ranks restart one by one, through the incarnations of
that rank. A gang that hangs for a rank to fail must see it fail, so a rank that is replaced within
an attempt repeats the try.
"""

from collections import defaultdict

from adapters.simulated_cluster.training import all_compute, duties_of, training_of
from adapters.simulated_cluster.workload import Workload
from controlplane.lifecycle.attempt import Attempt, Rank, launched_at, staying
from controlplane.lifecycle.job import Job
from controlplane.model.phases import Phase, RankState
from controlplane.model.spec import RestartScope
from simulator.machine.gang import Duty, Part

_NEW = Rank()


def desired_work(
    job: Job, work: Workload, attempt: Attempt, ranks: tuple[int, ...], now: float
) -> tuple[Part, ...]:
    """Return the remaining work of these ranks; ranks that behave alike share a part."""
    spec = job.spec
    serving = {i for role in spec.roles if role.is_server for i in spec.ranks_of(role.name)}
    late = any(attempt.ranks[i].relaunched_at is not None for i in ranks)
    if late and work.exit_code == 0 and together(job) and any(r.done for r in attempt.ranks):
        # The others have finished the work, so a rank that comes later has nothing to do.
        return (Part(ranks, 0.0),)
    training = training_of(job, work.training)
    plain = not serving and (training is None or all_compute(spec))
    if plain and work.exit_code == 0 and is_new(attempt):
        return (Part(ranks, work.duration_s, 0, None, training),)
    failing = _failing_rank(job, work, attempt)
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
            # A role that does not train and does not serve ends with the training.
            training if trains and (duty or run_s is not None) else None,
            duty,
        )
        for (run_s, code, elapsed_s, duty), alike_ranks in alike.items()
    )


def _failing_rank(job: Job, work: Workload, attempt: Attempt) -> int | None:
    if work.exit_code == 0:
        return None
    rank = min(work.exit_rank, len(attempt.ranks) - 1)
    tries = attempt.number + (0 if together(job) else attempt.ranks[rank].incarnation)
    return rank if work.failing_attempts is None or tries <= work.failing_attempts else None


def _elapsed_s(job: Job, attempt: Attempt, index: int, now: float) -> float | None:
    """Return the seconds that a rank has worked according to the log; None if it is not running."""
    rank = attempt.ranks[index]
    if rank.state is not RankState.RUNNING:
        return None
    since = working_since(job, attempt, rank)
    return 0.0 if since is None else max(0.0, now - since)


def working_since(job: Job, attempt: Attempt, rank: Rank) -> float | None:
    """Return when the rank began to work: with its whole gang, or on its own if it came later."""
    alone = rank.relaunched_at is not None or not together(job)
    return rank.started_at if alone else attempt.running_at


def together(job: Job) -> bool:
    """Return whether the ranks depend on each other, so that one failure stops them all."""
    if job.spec.restart.scope is not RestartScope.GANG:
        return False
    return not any(role.optional for role in job.spec.roles)


def is_new(attempt: Attempt) -> bool:
    """Return whether nothing has happened to any rank yet."""
    ranks = attempt.ranks
    return bool(ranks) and ranks[0] == _NEW and ranks.count(ranks[0]) == len(ranks)


def asked_at(job: Job, attempt: Attempt, index: int) -> float:
    """Return when a rank was requested: with the gang, by a relaunch, or after the roles before it."""
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
    """Return when the attempt was stopped: at the first event since its placement that stops one."""
    times = [job.finished_at, job.suspended_at]
    if (
        job.phase is Phase.RESTARTING
        and job.restarts
        and job.restarts[-1].attempt == attempt.number
    ):
        times.append(job.restarts[-1].at)
    known = [at for at in times if at is not None and at >= attempt.placed_at]
    return min(known, default=attempt.placed_at)
