"""An analysis in sentences: what failed, where, whose, and what it cost, the most important first."""

from collections.abc import Iterator, Sequence

from controlplane.messages import words
from studies.analysis.incident_analyser import ON_PURPOSE
from studies.analysis.values import Analysis, Group

GPU_HOUR_PRICE = 2.0
FLAPPING_MAX = 3
# A group that has at least this share of all failed attempts is worth a sentence.
SHARE_MIN = 0.2


def sentences(analysis: Analysis, *, gpu_hour_price: float = GPU_HOUR_PRICE) -> list[str]:
    """Return the analysis in sentences; one sentence if nothing failed."""
    if not analysis.attempts_lost and not analysis.failed and not _losses(analysis):
        return [f"Nothing failed: {_count(analysis.jobs, 'job')}, and no attempt was lost."]
    return list(_all(analysis, gpu_hour_price))


def _all(analysis: Analysis, price: float) -> Iterator[str]:
    yield (
        f"{_count(analysis.attempts_lost, 'attempt')} failed, and "
        f"{_count(analysis.failed, 'job')} of {analysis.jobs:,} ended as failed."
    )
    lost, used = analysis.gpu_hours_lost, analysis.gpu_hours
    if lost >= 0.05:
        share = f", {100 * lost / used:.1f} % of all that were used" if used else ""
        yield f"{lost:,.1f} GPU-hours were lost{share}: {lost * price:,.2f} at {price:g} each."
    failures = [group for group in analysis.by_cause if group.name not in ON_PURPOSE]
    yield from _main("cause", failures, analysis.attempts_lost)
    yield from _main("node", analysis.by_node, analysis.attempts_lost)
    yield from _main("user", analysis.by_user, analysis.attempts_lost)
    yield from _nodes(analysis)
    for group in analysis.by_cause:
        if group.name in ON_PURPOSE:
            yield (
                f"{_count(group.attempts, 'attempt')} ended by {words(group.name)}, with "
                f"{group.gpu_hours_lost:,.1f} GPU-hours lost."
            )
    for job in analysis.flapping[:FLAPPING_MAX]:
        where = f", {job.on_node} of them on {job.node}" if job.node else ""
        why = job.cause.replace("_", " ")
        within = _hours(job.within_s / 3600)
        yield f"{job.job} restarted {job.restarts} times within {within}{where}; mostly: {why}."


def _main(what: str, groups: Sequence[Group], attempts: int) -> Iterator[str]:
    """Yield a sentence on the group with the most failed attempts, if it stands out."""
    if not groups or not attempts:
        return
    most = max(groups, key=lambda group: (group.attempts, group.gpu_hours_lost))
    if most.attempts / attempts < SHARE_MIN or (len(groups) == 1 and what == "user"):
        return
    verb = {"cause": "The most frequent cause", "node": "The node with the most failures",
            "user": "The user with the most failures"}[what]  # fmt: skip
    yield (
        f"{verb} is {most.name.replace('_', ' ') if what == 'cause' else most.name}: "
        f"{most.attempts:,} of {attempts:,} failed attempts, in {_count(most.jobs, 'job')}, with "
        f"{most.gpu_hours_lost:,.1f} GPU-hours lost."
    )


def _nodes(analysis: Analysis) -> Iterator[str]:
    lost = [node for node in analysis.nodes if node.losses]
    if not lost:
        return
    down = sum(node.down_hours for node in lost)
    worst = max(lost, key=lambda node: (node.losses, node.down_hours))
    text = (
        f"1 node failed, and was down for {_hours(down)}"
        if len(lost) == 1
        else f"{len(lost)} nodes failed, and were down for {_hours(down)} together"
    )
    if len(lost) > 1 and worst.losses > 1:
        text += f"; {worst.node} failed most often, {worst.losses} times"
    elif worst.losses > 1:
        text += f"; {worst.node} failed {worst.losses} times"
    yield f"{text}."


def _losses(analysis: Analysis) -> int:
    return sum(node.losses for node in analysis.nodes)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _hours(hours: float) -> str:
    if hours < 1 / 60:
        return f"{hours * 3600:.0f} s"
    return f"{hours * 60:.0f} min" if hours < 2 else f"{hours:,.1f} h"
