"""How many nodes until a wish comes true: by doubling, and then by halving the gap."""

from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from studies.clusters import other_count, parse_nodes
from studies.comparison import MEASURES, interval, measure
from studies.executors import Executor
from studies.grid import Study, compute
from studies.scenario import Scenario
from studies.scenario_parts import ClusterChoice
from studies.store import Store

NODES_MAX = 100_000


class Wish(NamedTuple):
    """A measure that is to be at most so much: `wait_p90_s<=3600`."""

    measure: str
    at_most: float


class Probe(NamedTuple):
    nodes: int
    value: float | None
    granted: bool


def parse_wish(text: str) -> Wish:
    for sign in ("<=", "<"):
        name, found, limit = text.partition(sign)
        if found:
            break
    else:
        raise ValueError(f"{text!r} is no goal: say MEASURE<=NUMBER, as in wait_p90_s<=3600")
    if name.strip() not in MEASURES:
        raise ValueError(f"{name.strip()!r} is no measure: {', '.join(MEASURES)}")
    return Wish(name.strip(), _seconds(limit.strip()))


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def _seconds(text: str) -> float:
    unit = _UNITS.get(text[-1:])
    try:
        return float(text[:-1]) * unit if unit else float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number, or a number with s, m, h or d") from None


def fewest_nodes(
    base: Scenario,
    wish: Wish,
    study: Study,
    store: Store,
    executor: Executor,
    on_probe: Callable[[Probe], None] | None = None,
) -> dict[str, Any]:
    """The fewest nodes with which the mean over all replications grants the wish.

    More nodes help nearly always, but not by law: with large gangs a few more can delay somebody.
    So the answer names every size that was tried, and says if one of them broke the order.
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
            value = interval([measure(s, wish.measure) for s in summaries])["mean"]
            # A cluster that refuses jobs has not solved the problem by turning people away.
            complete = not any(s["refused"] or s["unfinished"] for s in summaries)
            granted = complete and value is not None and value <= wish.at_most
            probes[nodes] = Probe(nodes, value, granted)
            if on_probe is not None:
                on_probe(probes[nodes])
        return probes[nodes].granted

    low, high = 0, max(1, count)
    while not try_out(high):
        low, high = high, high * 2
        if high > NODES_MAX:
            return _told(wish, None, probes)
    while high - low > 1:
        middle = (low + high) // 2
        if try_out(middle):
            high = middle
        else:
            low = middle
    return _told(wish, high, probes)


def _told(wish: Wish, nodes: int | None, probes: dict[int, Probe]) -> dict[str, Any]:
    tried = [probes[n] for n in sorted(probes)]
    granted = [probe.granted for probe in tried]
    return {
        "measure": wish.measure,
        "at_most": wish.at_most,
        "nodes": nodes,
        "in_order": granted == sorted(granted),
        "tried": [probe._asdict() for probe in tried],
    }
