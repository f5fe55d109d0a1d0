"""Write docs/states.md from the declarations on the event classes, so that it cannot drift from the code.

`python docs/draw_states.py` writes the file; `make docs` does the same.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from pathlib import Path

from controlplane.lifecycle.attempt import ATTEMPT_TRANSITIONS
from controlplane.lifecycle.owner import OWNER_TRANSITIONS
from controlplane.lifecycle.transitions import TRANSITIONS
from controlplane.model.events import (
    ANY_ATTEMPT,
    EVENT_TYPES,
    JOB_EVENTS,
    Event,
    GangPlaced,
    JobEvent,
    JobSubmitted,
    NodeEvent,
    OwnerSubmitted,
    RankEvent,
)
from controlplane.model.phases import (
    ACTIVE,
    AWAKE,
    FINISHED,
    OWNER_FINISHED,
    UNFINISHED,
    AttemptState,
    NodeState,
    OwnerPhase,
    Phase,
    RankState,
)

HEAD = """# States

Made by `make docs` from the declarations in `controlplane/model/events.py`; do not edit.

A job has a phase, and its last attempt has a state. Every event goes through the table below: an event
that is not allowed in the job's phase, in the state of its attempt or in the state of a rank is refused,
and so is one that names another attempt than the job's. Replay refuses a log with such an event and
reports the event's position, even if all hashes are right.

"""

TABLE = """
## The table

*Phases*: where the event may happen. *To*: the phase that it leads to, if it changes the phase.
*Attempt*: the states of the last attempt in which it may happen ("none" if the job was never placed),
and where it takes the attempt. *Ranks*: the states that the ranks it names must be in.

"""


NODES = """
## A node

An event about a node is refused likewise. `NodeReported` makes an unknown, lost or removed node ready.

"""


def draw() -> str:
    """The whole page."""
    return (
        HEAD
        + "## A job\n\n"
        + _diagram(TRANSITIONS, [(Phase.QUEUED, JobSubmitted.__name__)], FINISHED)
        + "\n## An attempt\n\n"
        + _diagram(
            ATTEMPT_TRANSITIONS, [(AttemptState.STARTING, GangPlaced.__name__)], [AttemptState.OVER]
        )
        + "\n## What owns jobs: an array\n\n"
        + _diagram(
            OWNER_TRANSITIONS, [(OwnerPhase.ACTIVE, OwnerSubmitted.__name__)], OWNER_FINISHED
        )
        + TABLE
        + _table()
        + NODES
        + _node_table()
    )


Table = Mapping[tuple[StrEnum, type[Event]], StrEnum]


def _diagram(table: Table, first: list[tuple[StrEnum, str]], last: Iterable[StrEnum]) -> str:
    """A Mermaid state diagram; events between the same two states share an arrow."""
    arrows: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (state, event), target in table.items():
        if state is not target:
            arrows[state.value, target.value].append(event.__name__)
    lines = ["```mermaid", "stateDiagram-v2"]
    lines += [f"    [*] --> {state.value}: {event}" for state, event in first]
    lines += [f"    {a} --> {b}: {', '.join(events)}" for (a, b), events in arrows.items()]
    lines += [f"    {state} --> [*]" for state in sorted(state.value for state in last)]
    return "\n".join([*lines, "```", ""])


def _table() -> str:
    head = ["| event | phases | to | attempt | ranks |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([*head, *(_row(kind) for kind in JOB_EVENTS)]) + "\n"


def _node_table() -> str:
    rows = ["| event | states | cordoned |", "| --- | --- | --- |"]
    for kind in EVENT_TYPES.values():
        if issubclass(kind, NodeEvent):
            states = ", ".join(state.value for state in NodeState if state in kind.allowed_in)
            cordoned = {None: "", True: "yes", False: "no"}[kind.if_cordoned]
            rows.append(f"| `{kind.__name__}` | {states} | {cordoned} |")
    return "\n".join(rows) + "\n"


def _row(kind: type[JobEvent]) -> str:
    if kind is JobSubmitted:
        return f"| `{kind.__name__}` | (no job) | Queued |  |  |"
    to = "" if kind.leads_to is None else kind.leads_to.value
    return f"| `{kind.__name__}` | {_phases(kind)} | {to} | {_attempt(kind)} | {_ranks(kind)} |"


def _phases(kind: type[JobEvent]) -> str:
    groups: dict[str, Collection[Phase]] = {
        "any": tuple(Phase),
        "unfinished": UNFINISHED,
        "unfinished, not suspended": AWAKE,
        "finished": FINISHED,
        "Starting, Running": ACTIVE,
    }
    for name, phases in groups.items():
        if set(phases) == set(kind.allowed_in):
            return name
    return ", ".join(phase.value for phase in Phase if phase in kind.allowed_in)


def _attempt(kind: type[JobEvent]) -> str:
    if set(kind.attempt_in) == ANY_ATTEMPT:
        states = "any"
    else:
        none = ["none"] if None in kind.attempt_in else []
        states = ", ".join(none + [s.value for s in AttemptState if s in kind.attempt_in])
    targets = {target.value for target in kind.moves_attempt.values()}
    return " → ".join([states, *targets])


def _ranks(kind: type[JobEvent]) -> str:
    if not issubclass(kind, RankEvent):
        return ""
    return ", ".join(state.value for state in RankState if state in kind.ranks_in)


if __name__ == "__main__":
    (Path(__file__).parent / "states.md").write_text(draw())
