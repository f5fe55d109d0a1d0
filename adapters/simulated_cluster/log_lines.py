"""Generated log lines of a rank, derived from the job's state and the time. Pure."""

from datetime import UTC, datetime

from adapters.simulated_cluster.desired_work import working_since
from adapters.simulated_cluster.workload import workload_of
from controlplane.lifecycle.attempt import Rank
from controlplane.lifecycle.job import Job
from controlplane.messages import rank_text
from controlplane.model.phases import RankState


def log_lines(job: Job, index: int, now: float) -> list[str]:
    """Return the lines that a rank of the latest attempt would have written by now."""
    attempt = job.attempt
    if attempt is None or not 0 <= index < len(attempt.ranks):
        return []
    rank, slot, spec = attempt.ranks[index], attempt.placement[index], job.spec
    if rank.started_at is None:
        return []
    name = spec.rank_name(index) if index < spec.size else f"rank-{index}"
    gpus = ", ".join(map(str, slot.devices)) or "none"
    lines = [
        (rank.started_at, f"{name} of {job.name}, attempt {attempt.number}"),
        (rank.started_at, f"node {slot.node}, GPUs {gpus}, {len(attempt.ranks)} ranks in the gang"),
    ]
    since = working_since(job, attempt, rank)
    if since is not None:
        over = now if rank.ended_at is None else min(now, rank.ended_at)
        lines.extend(_progress(job, index, since, over))
    if rank.ended_at is not None:
        lines.append((rank.ended_at, _last_words(rank)))
    return [f"{_stamp(at)} {text}" for at, text in lines]


def _progress(job: Job, index: int, since: float, over: float) -> list[tuple[float, str]]:
    """Return a line for every tenth of the work but the last, which ends with the rank."""
    served = any(
        role.is_server and index in job.spec.ranks_of(role.name) for role in job.spec.roles
    )
    if served:
        return [(since, "serving")]
    work = workload_of(job.spec)
    if work.training is not None:
        return [(since, f"training {work.training.model} for {work.training.steps} steps")]
    tenth_s = work.duration_s / 10
    lines = [(since + k * tenth_s, f"progress {k * 10} %") for k in range(1, 10)]
    return [(since, "training"), *(line for line in lines if line[0] < over)]


def _last_words(rank: Rank) -> str:
    if rank.state is RankState.GONE:
        return "stopped"
    known = rank_text(rank)
    why = f": {known}" if known else ""
    return f"lost{why}" if rank.exit_code is None else f"exited with code {rank.exit_code}{why}"


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
