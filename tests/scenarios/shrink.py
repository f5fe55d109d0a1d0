"""A failing wide world, made as small as it still fails: the start of a regression test."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.scenarios.faulty_ports import Faults
from tests.scenarios.plan import WorldPlan, drawn_plan
from tests.scenarios.wide import WideScenario


def failure(plan: WorldPlan) -> str:
    """What goes wrong in this world, without the names and numbers in it; empty if nothing does."""
    try:
        WideScenario(plan).run()
    except Exception as error:  # noqa: BLE001 - whatever goes wrong is what is looked for
        return _kind(error)
    return ""


def _kind(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    words = str(error).split("\n")[0].split()[:12]
    plain = [word for word in words if word.isalpha()]
    return f"{type(error).__name__}: {' '.join(plain)}"


def shrunk(seed: int) -> WorldPlan:
    """The plan of a seed without anything that its failure does not need."""
    plan = drawn_plan(seed)
    wanted = failure(plan)
    if not wanted:
        raise SystemExit(f"seed {seed} does not fail")
    print(wanted)
    while (smaller := _smaller(plan, lambda each: failure(each) == wanted)) is not None:
        plan = smaller
        print(f"{len(plan.timeline)} steps, {len(plan.stops)} stops")
    return plan


def _smaller(plan: WorldPlan, fails: Callable[[WorldPlan], bool]) -> WorldPlan | None:
    return next((each for each in _candidates(plan) if fails(each)), None)


def _candidates(plan: WorldPlan) -> Iterator[WorldPlan]:
    """Plans with something left out, large pieces first."""
    if plan.faults != Faults():
        yield replace(plan, faults=Faults())
    if plan.stops:
        yield replace(plan, stops=frozenset())
    if plan.taints:
        yield replace(plan, taints={})
    if plan.cluster.faults.node_mtbf_s is not None:
        faults = replace(plan.cluster.faults, node_mtbf_s=None)
        yield replace(plan, cluster=replace(plan.cluster, faults=faults))
    size = len(plan.timeline) // 2
    while size:
        for first in range(0, len(plan.timeline), size):
            left = plan.timeline[:first] + plan.timeline[first + size :]
            yield replace(plan, timeline=left)
        size //= 2
    for stop in sorted(plan.stops):
        yield replace(plan, stops=plan.stops - {stop})
    for queue in plan.queues:
        yield replace(plan, queues=tuple(q for q in plan.queues if q != queue))
