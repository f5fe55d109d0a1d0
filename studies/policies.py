"""The queue policies that a study may name, and what the control plane is told by each.

Whoever says FIFO must say what becomes of those behind a head that does not fit: programs differ
there, and on one public trace the mean completion time differs by 3.6 times. So each name says it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from controlplane.events import Event, PolicySet, QueueDefined
from controlplane.queueing import CYCLE_S_MIN
from controlplane.sharing import Discipline, Policy, Queue


@dataclass(frozen=True, slots=True)
class StudyPolicy:
    name: str
    told: str
    policy: Policy = field(default_factory=Policy)


def _named(name: str, discipline: Discipline, told: str) -> StudyPolicy:
    # Why each job waits is worked out afterwards, for those that somebody asks about.
    return StudyPolicy(name, told, Policy(discipline=discipline, records_reasons=False))


POLICIES = {
    policy.name: policy
    for policy in (
        _named(
            "fifo", Discipline.STRICT_FIFO,
            "first in, first out; whoever does not fit holds up those behind",
        ),
        _named("fit", Discipline.FIFO_FIT, "first in, first out; whoever fits may pass"),
        _named(
            "sjf", Discipline.STRICT_SHORTEST,
            "shortest first; whoever does not fit holds up those behind",
        ),
        _named("sjffit", Discipline.SHORTEST_FIT, "shortest first; whoever fits may pass"),
        _named("las", Discipline.LEAST_ATTAINED_FIT, "least GPU time so far first; whoever fits"),
        _named(
            "tiresias", Discipline.LEAST_ATTAINED,
            "least GPU time so far first; whoever has had more gives way",
        ),
        _named(
            "easy", Discipline.EASY_BACKFILL,
            "first in, first out; whoever does not delay the first that waits may pass",
        ),
        _named(
            "conservative", Discipline.CONSERVATIVE_BACKFILL,
            "first in, first out; whoever delays nobody that waits may pass",
        ),
    )
}  # fmt: skip
# The control plane's own names for the same things.
ALIASES = {str(policy.policy.discipline.value): name for name, policy in POLICIES.items()}


# How gangs are put on nodes, as the second part of a name: `fifo+consolidate`.
PACKINGS = {
    "pack": ("pack", "a gang goes where it leaves the least room over"),
    "consolidate": (
        "pack_emptiest",
        "whole nodes, and what is left of a gang on the emptiest node",
    ),
    "spread": ("spread", "ranks go to the emptiest nodes"),
}


# The limit on starts, as a part of a name: `fifo+starts=10` or `fifo+starts=10/5s`.
_STARTS = re.compile(r"starts=([0-9]{1,9})(?:/([0-9]{1,9}(?:\.[0-9]{1,9})?)s?)?")


def policy_named(name: str) -> StudyPolicy:
    """A policy by its name, with a packing and a limit on starts if wanted: `fifo+spread+starts=10/5s`.

    Raises ValueError for any other name.
    """
    first, *parts = name.split("+")
    policy = POLICIES.get(ALIASES.get(first, first))
    if policy is None:
        raise ValueError(f"there is no policy {name!r}; the policies are: {', '.join(POLICIES)}")
    seen: set[str] = set()
    for part in parts:
        kind = "a limit on starts" if part.startswith("starts") else "a packing"
        if kind in seen:
            raise ValueError(f"{name!r} has {kind} twice; name one")
        seen.add(kind)
        policy = _limited(policy, part) if part.startswith("starts") else _packed(policy, part)
    return policy


def _packed(policy: StudyPolicy, packing: str) -> StudyPolicy:
    if packing not in PACKINGS:
        known = ", ".join(PACKINGS)
        raise ValueError(
            f"{packing!r} is no packing; the packings are: {known}; "
            "a limit on starts is written starts=N or starts=N/SECONDSs"
        )
    ours, told = PACKINGS[packing]
    return StudyPolicy(
        f"{policy.name}+{packing}", f"{policy.told}; {told}", replace(policy.policy, packing=ours)
    )


def _limited(policy: StudyPolicy, part: str) -> StudyPolicy:
    found = _STARTS.fullmatch(part)
    gangs = int(found[1]) if found else 0
    cycle_s = float(found[2] or 1.0) if found else 0.0
    if not gangs or cycle_s < CYCLE_S_MIN:
        raise ValueError(
            f"{part!r} is no limit on starts; write starts=N, or starts=N/SECONDSs for cycles of "
            f"another length than 1 s: N at least 1, the seconds at least {CYCLE_S_MIN:g}"
        )
    return StudyPolicy(
        f"{policy.name}+starts={gangs}/{cycle_s:g}s",
        f"{policy.told}; at most {gangs} gangs start in {cycle_s:g} s",
        replace(policy.policy, starts_per_cycle_max=gangs, cycle_s=cycle_s),
    )


def beginning(policy: StudyPolicy, queues: Iterable[Queue]) -> list[Event]:
    """What has happened before the first job comes: the policy was set, and queues were defined."""
    return [PolicySet(policy.policy), *(QueueDefined(queue) for queue in queues)]
