"""Capacity search: the fewest nodes that reach a goal, such as a p90 wait of at most one hour.

The number of nodes is doubled until the goal is reached, and then determined by bisection between the
last size that missed it and the first size that reached it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from simulator.network.topology import NODES_MAX
from studies.whatif.clusters import other_count, parse_nodes
from studies.whatif.comparison import MEASURES, interval, measure
from studies.whatif.executors import Executor
from studies.whatif.grid import Study, compute
from studies.whatif.scenario import Scenario
from studies.whatif.scenario_parts import ClusterChoice
from studies.whatif.store import Store


class Goal(NamedTuple):
    """An upper limit on one of `MEASURES`, as in `wait_p90_s<=3600`; times are in seconds."""

    measure: str
    at_most: float


class Probe(NamedTuple):
    """One size that was tried: the mean of the measure, and whether it reaches the goal."""

    nodes: int
    value: float | None
    granted: bool


def parse_goal(text: str) -> Goal:
    """Parse a goal; raise ValueError if it is not MEASURE<=NUMBER, with s, m, h or d as a unit."""
    for sign in ("<=", "<"):
        name, operator, limit = text.partition(sign)
        if operator:
            break
    else:
        raise ValueError(f"{text!r} is not a goal: write MEASURE<=NUMBER, as in wait_p90_s<=3600")
    if name.strip() not in MEASURES:
        raise ValueError(f"{name.strip()!r} is not a measure; use one of {', '.join(MEASURES)}")
    return Goal(name.strip(), _seconds(limit.strip()))


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def _seconds(text: str) -> float:
    unit = _UNITS.get(text[-1:])
    try:
        return float(text[:-1]) * unit if unit else float(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither a number nor a number with s, m, h or d") from None


def fewest_nodes(
    base: Scenario,
    goal: Goal,
    study: Study,
    store: Store,
    executor: Executor,
    on_probe: Callable[[Probe], None] | None = None,
) -> dict[str, Any]:
    """Search for the fewest nodes with which the mean over all replications reaches the goal.

    More nodes help nearly always but not strictly: with large gangs, a few more nodes can delay
    another job. The answer therefore lists every size that was tried, and `in_order` is false if a
    larger size missed the goal that a smaller one reached. `nodes` is None if not even `NODES_MAX`
    nodes suffice. `on_probe` is called after each new size.
    """
    count = parse_nodes(base.cluster.nodes)[0]
    probes: dict[int, Probe] = {}

    def try_out(nodes: int) -> bool:
        if nodes not in probes:
            choice = ClusterChoice(nodes=other_count(base.cluster.nodes, nodes))
            scenario = replace(base, cluster=choice)
            tasks = study.tasks(scenario)
            documents = compute(tasks, store, executor)
            summaries = [documents[task.key]["summary"] for task in tasks]
            value = interval([measure(s, goal.measure) for s in summaries])["mean"]
            # A size at which jobs were refused or did not finish does not count: the jobs left out
            # would make the waiting times of the others look better.
            complete = not any(s["refused"] or s["unfinished"] for s in summaries)
            granted = complete and value is not None and value <= goal.at_most
            probes[nodes] = Probe(nodes, value, granted)
            if on_probe is not None:
                on_probe(probes[nodes])
        return probes[nodes].granted

    low, high = 0, max(1, count)
    while not try_out(high):
        low, high = high, high * 2
        if high > NODES_MAX:
            return _result(goal, None, probes)
    while high - low > 1:
        middle = (low + high) // 2
        if try_out(middle):
            high = middle
        else:
            low = middle
    return _result(goal, high, probes)


def _result(goal: Goal, nodes: int | None, probes: dict[int, Probe]) -> dict[str, Any]:
    tried = [probes[n] for n in sorted(probes)]
    granted = [probe.granted for probe in tried]
    return {
        "measure": goal.measure,
        "at_most": goal.at_most,
        "nodes": nodes,
        "in_order": granted == sorted(granted),
        "tried": [probe._asdict() for probe in tried],
    }
