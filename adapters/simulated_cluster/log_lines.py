"""Log lines that a rank might have written, read off the job's state and the time. Pure."""

from datetime import UTC, datetime

from adapters.simulated_cluster.workload import working_since
from controlplane.attempt import Rank, RankState
from controlplane.job import Job


def log_lines(job: Job, index: int, now: float) -> list[str]:
    """What a rank of the latest attempt would have written by now, read off the job's state."""
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
    """A line every tenth of the work; the last tenth ends with the rank itself."""
    served = any(role.serves and index in job.spec.ranks_of(role.name) for role in job.spec.roles)
    if served:
        return [(since, "serving")]
    training = job.spec.workload.training
    if training is not None:
        return [(since, f"training {training.model} for {training.steps} steps")]
    tenth_s = job.spec.workload.duration_s / 10
    lines = [(since + k * tenth_s, f"progress {k * 10} %") for k in range(1, 10)]
    return [(since, "training"), *(line for line in lines if line[0] < over)]


def _last_words(rank: Rank) -> str:
    if rank.state is RankState.GONE:
        return "stopped"
    why = f": {rank.message}" if rank.message else ""
    return f"lost{why}" if rank.exit_code is None else f"exited with code {rank.exit_code}{why}"


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
