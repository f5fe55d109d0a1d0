"""The differences of a fork in sentences, for the CLI and the browser.

The first sentence says how far the model can be trusted; then come the totals that differ, the first
decision that differs, and the jobs whose story changed most.
"""

from collections.abc import Iterator

from controlplane.event_messages import describe
from controlplane.model.events import JobEvent
from studies.fork.comparison import JobApart, Parting, Totals
from studies.fork.fork import Forked, ModelError

JOBS_MAX = 8
# Differences below these are not worth a sentence.
SECONDS_MIN = 1.0
GPU_HOURS_MIN = 0.05
# Shorter lengths of time have a tenth of a second.
SECONDS_EXACT_MAX = 10.0


def sentences(forked: Forked) -> list[str]:
    """Return what differs between the control and the branch with the change, in sentences."""
    comparison = forked.comparison
    lines = [trust(forked.error)]
    if comparison.parting is None:
        return [*lines, "The change makes no difference in this time."]
    lines += totals_apart(comparison.one, comparison.other)
    if forked.first_decision is not None:
        lines.append(_first_decision(forked.first_decision, forked.names))
    jobs = [text for job in comparison.jobs[:JOBS_MAX] if (text := job_apart(job))]
    more = len(comparison.jobs) - JOBS_MAX
    lines += jobs
    if more > 0:
        lines.append(f"{more} more jobs have another story.")
    return lines


def trust(error: ModelError) -> str:
    """Return how close the control is to what really happened."""
    if error.is_exact:
        return "The control run repeats what happened, event for event."
    if error.finish_s_median is None:
        return "No job ended both really and in the control run, so the model is not checked."
    return (
        f"In the control run jobs end {duration(error.finish_s_median)} from when they really "
        f"ended (median; at most {duration(error.finish_s_max or 0.0)}), and "
        f"{_count(error.outcomes_apart, 'job')} ended otherwise."
    )


def totals_apart(one: Totals, other: Totals) -> Iterator[str]:
    """Yield a sentence for each total that differs."""
    counts = {
        "job starts": ("job starts", "jobs start", one.started, other.started),
        "succeed": ("job succeeds", "jobs succeed", one.succeeded, other.succeeded),
        "fail": ("job fails", "jobs fail", one.failed, other.failed),
        "restart": ("restart", "restarts", one.restarts, other.restarts),
        "preempt": ("preemption", "preemptions", one.preemptions, other.preemptions),
    }
    for singular, plural, before, after in counts.values():
        if before != after:
            yield f"{after} {singular if after == 1 else plural} instead of {before}."
    waits = one.wait_s_mean, other.wait_s_mean
    if None not in waits and abs((waits[0] or 0.0) - (waits[1] or 0.0)) >= SECONDS_MIN:
        yield (
            f"Jobs wait {duration(waits[1] or 0.0)} on average instead of "
            f"{duration(waits[0] or 0.0)}."
        )
    if abs(one.gpu_hours_lost - other.gpu_hours_lost) >= GPU_HOURS_MIN:
        yield (
            f"{other.gpu_hours_lost:,.1f} GPU-hours are lost instead of {one.gpu_hours_lost:,.1f}."
        )
    if abs(one.cost - other.cost) >= GPU_HOURS_MIN:
        more = "more" if other.cost > one.cost else "less"
        yield (
            f"The jobs use {other.gpu_hours:,.1f} GPU-hours instead of {one.gpu_hours:,.1f}, "
            f"which costs {abs(other.cost - one.cost):,.2f} {more}."
        )


def job_apart(job: JobApart) -> str:
    """Return what changed most for a job; empty if it is too little for a sentence."""
    before, after = job.outcome
    if before != after:
        return f"{job.job} {_outcome(after)} instead of {_as_noun(before)}."
    for verb, times in (("ends", job.finished_at), ("starts", job.started_at)):
        one, other = times
        if one is None and other is not None:
            return f"{job.job} {verb}, which it does not do in the control run."
        if one is not None and other is None:
            return f"{job.job} does not {verb[:-1]} in this time, as it does in the control run."
        if one is not None and other is not None and abs(other - one) >= SECONDS_MIN:
            when = "later" if other > one else "earlier"
            return f"{job.job} {verb} {duration(abs(other - one))} {when}."
    if job.restarts[0] != job.restarts[1]:
        before_times, after_times = (_times(count) for count in job.restarts)
        return f"{job.job} restarts {after_times} instead of {before_times}."
    return ""


_OUTCOMES = {
    "Succeeded": ("succeeds", "succeeding"),
    "Failed": ("fails", "failing"),
    "Cancelled": ("is cancelled", "being cancelled"),
    "": ("is not finished", "ending"),
}


def _outcome(outcome: str) -> str:
    return _OUTCOMES.get(outcome, (f"is {outcome.lower()}", ""))[0]


def _as_noun(outcome: str) -> str:
    return _OUTCOMES.get(outcome, ("", f"being {outcome.lower()}"))[1] if outcome else "going on"


def _first_decision(parting: Parting, names: dict[str, str]) -> str:
    def text(shown: object) -> str:
        event = getattr(shown, "event", None)
        if event is None:
            return "nothing"
        subject = f"{names.get(event.job, event.job)}: " if isinstance(event, JobEvent) else ""
        return f"{subject}{describe(event)}"

    return (
        f"The first decision that differs: {text(parting.other)}; "
        f"in the control run: {text(parting.one)}."
    )


def duration(seconds: float) -> str:
    """Return a length of time in its two largest units: 2 h 5 min."""
    for size, unit, smaller, small_unit in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= size:
            rest = int(seconds % size // smaller)
            return f"{int(seconds // size)} {unit}" + (f" {rest} {small_unit}" if rest else "")
    return f"{seconds:.1f} s" if seconds < SECONDS_EXACT_MAX else f"{seconds:.0f} s"


def _times(count: int) -> str:
    return {0: "never", 1: "once"}.get(count, f"{count} times")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
