"""The policies that a study may name, and the settings of the control plane for each.

A policy is named after its discipline (`controlplane/disciplines`), as in `muster policy set discipline=NAME`.
"FIFO" alone does not define what happens to the jobs behind a head of line that does not fit: systems differ here, and
on one public trace the mean completion time differs by a factor of 3.6. Each discipline therefore fixes it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from controlplane.decisions.queue_admin import CYCLE_S_MIN
from controlplane.disciplines.registry import DISCIPLINES
from controlplane.model.commands import Command, DefineQueue, SetPolicy
from controlplane.model.events import Event, PolicySet, QueueDefined, Recorded
from controlplane.model.policy import Policy, Queue
from controlplane.state.image import DEFAULT_POLICY
from controlplane.state.state import DEFAULT_QUEUE


@dataclass(frozen=True, slots=True)
class StudyPolicy:
    """A policy with its name and a description for reports."""

    name: str
    description: str
    policy: Policy = field(default_factory=Policy)


# How gangs are placed on nodes, as the second part of a name: `fifo+consolidate`.
PACKINGS = {
    "pack": ("pack", "a gang goes to the nodes that it fills best"),
    "consolidate": (
        "pack_emptiest",
        "a gang gets whole nodes first, and its remaining ranks go to the emptiest node",
    ),
    "spread": ("spread", "ranks go to the emptiest nodes"),
}


# The limit on starts per cycle, as a part of a name: `fifo+starts=10` or `fifo+starts=10/5s`.
_STARTS = re.compile(r"starts=([0-9]{1,9})(?:/([0-9]{1,9}(?:\.[0-9]{1,9})?)s?)?")


def policy_named(name: str) -> StudyPolicy:
    """Return a policy by its name, with an optional packing and limit on starts.

    `fifo+spread+starts=10/5s` has all three parts. Raise ValueError for any other name.
    """
    first, *parts = name.split("+")
    if first not in DISCIPLINES:
        known = ", ".join(DISCIPLINES.names)
        raise ValueError(f"there is no policy {name!r}; the policies are: {known}")
    discipline = DISCIPLINES[first]
    # Wait reasons are not recorded: a study computes them afterwards, where they are requested.
    settings = Policy(discipline=discipline.name, records_reasons=False)
    policy = StudyPolicy(discipline.name, discipline.description, settings)
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
    setting, description = PACKINGS[packing]
    return StudyPolicy(
        f"{policy.name}+{packing}",
        f"{policy.description}; {description}",
        replace(policy.policy, packing=setting),
    )


def _limited(policy: StudyPolicy, part: str) -> StudyPolicy:
    match = _STARTS.fullmatch(part)
    gangs = int(match[1]) if match else 0
    cycle_s = float(match[2] or 1.0) if match else 0.0
    if not gangs or cycle_s < CYCLE_S_MIN:
        raise ValueError(
            f"{part!r} is no limit on starts; write starts=N, or starts=N/SECONDSs for cycles of "
            f"another length than 1 s: N at least 1, the seconds at least {CYCLE_S_MIN:g}"
        )
    return StudyPolicy(
        f"{policy.name}+starts={gangs}/{cycle_s:g}s",
        f"{policy.description}; at most {gangs} gangs start in {cycle_s:g} s",
        replace(policy.policy, starts_per_cycle_max=gangs, cycle_s=cycle_s),
    )


def beginning(policy: StudyPolicy, queues: Iterable[Queue], *, at: float) -> list[Recorded]:
    """Return the first step of a study's log: the events that set the policy and define the queues."""
    decided: list[tuple[type[Command], Event]] = []
    if policy.policy != DEFAULT_POLICY:
        decided.append((SetPolicy, PolicySet(policy.policy)))
    decided += [(DefineQueue, QueueDefined(queue)) for queue in queues if queue != DEFAULT_QUEUE]
    return [
        Recorded(i, at, event, command=command.__name__, step=1, ordinal=i)
        for i, (command, event) in enumerate(decided, 1)
    ]
