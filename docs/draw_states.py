"""Draws docs/states.md from the transition tables, so that the picture cannot drift from the code.

`python docs/draw_states.py` writes the file; `make docs` does the same.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path

from controlplane.attempt import ATTEMPT_TRANSITIONS, AttemptState
from controlplane.events import Event, GangPlaced
from controlplane.job import FINISHED, PHASE_KEEPERS, TRANSITIONS, Phase

HEAD = """# States

Made from `TRANSITIONS` in `controlplane/job.py` and `ATTEMPT_TRANSITIONS` in
`controlplane/attempt.py` by `make docs`; do not edit.

"""


def draw() -> str:
    """The whole page."""
    keepers = ", ".join(sorted(f"`{kind.__name__}`" for kind in PHASE_KEEPERS))
    return (
        HEAD
        + "## A job\n\n"
        + _diagram(TRANSITIONS, [(Phase.QUEUED, "JobSubmitted")], FINISHED)
        + _table(TRANSITIONS)
        + f"\nThese happen without a change of phase: {keepers}.\n"
        + "\n## An attempt\n\n"
        + _diagram(
            ATTEMPT_TRANSITIONS, [(AttemptState.STARTING, GangPlaced.__name__)], [AttemptState.OVER]
        )
        + _table(ATTEMPT_TRANSITIONS)
    )


Table = Mapping[tuple[StrEnum, type[Event]], StrEnum]


def _diagram(table: Table, first: list[tuple[StrEnum, str]], last: Iterable[StrEnum]) -> str:
    """A Mermaid state diagram; events between the same two states share an arrow."""
    arrows: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (state, event), target in table.items():
        arrows[state.value, target.value].append(event.__name__)
    lines = ["```mermaid", "stateDiagram-v2"]
    lines += [f"    [*] --> {state.value}: {event}" for state, event in first]
    lines += [f"    {a} --> {b}: {', '.join(events)}" for (a, b), events in arrows.items()]
    lines += [f"    {state} --> [*]" for state in sorted(state.value for state in last)]
    return "\n".join([*lines, "```", ""]) + "\n"


def _table(table: Table) -> str:
    rows = [f"| {s.value} | `{e.__name__}` | {t.value} |" for (s, e), t in table.items()]
    return "\n".join(["| from | event | to |", "| --- | --- | --- |", *rows]) + "\n"


if __name__ == "__main__":
    (Path(__file__).parent / "states.md").write_text(draw())
