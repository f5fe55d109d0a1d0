"""The world's indexes against its state, and the scheduler's cache against the world."""

import pytest
from msgspec.structs import replace

from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo
from controlplane.model.phases import Phase
from controlplane.model.policy import Policy, Queue, ResourceQuota
from controlplane.scheduling import cache as caching
from controlplane.scheduling.cache import SchedulerCache
from controlplane.scheduling.cluster_view import ClusterView
from controlplane.scheduling.scheduling_pass import Pass
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.queue_order import QueueKey
from controlplane.state.world import World
from tests.controlplane.specification import Given, node, spec, submit

BACKFILL = Policy(discipline="easy")


def busy() -> Given:
    """One gang that runs, one that waits, one that waits as part of a group."""
    given = Given(e.PolicySet(BACKFILL), node(), node("n2", 4)).when(submit("a", "j1"))
    given.when_scheduled().when(c.ReportRanks(job="j1", attempt=1, started=(0, 1)))
    given.when(submit("b", "j2", spec(workers=3, gpus=4)))
    grouped = spec(workers=1, gpus=8)
    asks = replace(grouped.scheduling, group="team", group_size=1)
    return given.when(submit("c", "j3", replace(grouped, scheduling=asks)))


# What makes each index disagree with the state.
SPOILED = {
    "a name": lambda w: w.names.ids.pop(("default", "a")),
    "a phase": lambda w: w.phases.by_phase[Phase.QUEUED].pop("j2"),
    "quarantine": lambda w: w.phases.quarantined.update(j1=None),
    "a timer": lambda w: w.timers._due_at.update(j1=5.0),
    "a free device": lambda w: w.devices.free.allocate(1, 1),
    "a holder": lambda w: w.devices.holders["default"].clear(),
    "a live job": lambda w: w.devices.live.clear(),
    "a stopping job": lambda w: w.devices.stopping.update(j1=None),
    "usage": lambda w: w.devices.used.update(default=5),
    "jobs of a node": lambda w: w.devices.jobs_by_node["n1"].clear(),
    "nodes by size": lambda w: w.devices.nodes_by_size.clear(),
    "the order of a queue": lambda w: w.waiting.queues["default"].order.reverse(),
    "a shape class": lambda w: w.waiting.queues["default"].by_shape.popitem(),
    "a claim": lambda w: w.waiting.claimed.update(j2=None),
    "a planned end": lambda w: w.planned_ends.order.clear(),
    "whether ends are planned": lambda w: setattr(w.planned_ends, "is_kept", False),
    "what is learned": lambda w: setattr(w.run_lengths, "learns", not w.run_lengths.learns),
    "a group": lambda w: w.feasibility.groups.clear(),
    "a need": lambda w: w.feasibility.by_need.popitem(),
    "a change of a job that does not wait": lambda w: w.feasibility._changed_at.update(j1=99),
}


@pytest.mark.parametrize("what", SPOILED)
def test_check_detects_an_index_that_disagrees_with_the_state(what: str) -> None:
    world = busy().world
    world.check()
    SPOILED[what](world)
    with pytest.raises(AssertionError):
        world.check()


def test_a_world_made_of_a_state_has_the_indexes_of_one_that_followed_its_events() -> None:
    followed = busy().world
    made = World(followed.image())
    made.check()
    assert made.waiting.keys("default") == followed.waiting.keys("default")
    assert made.devices.free.masks == followed.devices.free.masks
    assert made.next_deadline() == followed.next_deadline()
    assert [type(key) for key in made.waiting.keys("default")] == [QueueKey, QueueKey]


def test_a_pass_changes_nothing_in_the_world() -> None:
    given = busy()
    given.when(
        c.CancelJob(namespace="default", name="a", id="x"),
        c.ReportRanks(job="j1", attempt=1, gone=(0, 1)),
    )
    before, free = given.world.image(), given.world.devices.free.copy()
    assert Pass(Snapshot(given.world), lambda job, code: True).run()
    assert given.world.image() == before
    for name in ("masks", "open", "shared", "by_count", "allocated"):
        assert getattr(given.world.devices.free, name) == getattr(free, name), name
    given.world.check()


# ---------------------------------------------------------------- feasibility


def test_a_job_that_begins_to_wait_has_changed_since_the_position_before() -> None:
    given = busy()
    before = given.world.position
    given.when(submit("d", "j4"))
    feasibility = given.world.feasibility
    assert feasibility.changed_since(before) == ["j4"]
    assert feasibility.changed_since(given.world.position) == []
    given.when(submit("e", "j5"), c.CancelJob(namespace="default", name="d", id="y"))
    assert feasibility.changed_since(before) == ["j5"]


def test_nodes_queues_and_policy_change_everything() -> None:
    given = busy()
    for event in (node("n9"), e.QueueDefined(Queue("q")), e.PolicySet(Policy())):
        before = given.world.position
        given.happened(event)
        assert given.world.feasibility.all_changed_at > before


# ---------------------------------------------------------------- the scheduler's cache


def test_facts_are_kept_until_what_they_were_worked_out_from_changes() -> None:
    given, cache = busy(), SchedulerCache()
    view = ClusterView(given.world, cache)
    given.when(submit("d", "j4"))
    later = ClusterView(given.world, cache)
    assert later.node_facts is view.node_facts
    assert later.queue_facts is view.queue_facts
    given.happened(e.NodeReported("n3", NodeInfo("n3", 2, taints=("slow",))))
    changed = ClusterView(given.world, cache)
    assert changed.node_facts.has_taints
    assert not view.node_facts.has_taints
    assert changed.queue_facts is view.queue_facts
    given.happened(e.QueueDefined(Queue("q", resources=(ResourceQuota("cpu", 4),))))
    assert ClusterView(given.world, cache).queue_facts.resources


def test_what_other_pods_request_of_a_node_changes_no_facts() -> None:
    given, cache = busy(), SchedulerCache()
    facts = ClusterView(given.world, cache).node_facts
    info = given.world.nodes["n1"].info
    given.happened(e.NodeReported("n1", replace(info, used_by_others={"cpu": 1})))
    assert ClusterView(given.world, cache).node_facts is facts


def test_a_gang_is_computed_again_only_for_another_spec() -> None:
    given, cache = busy(), SchedulerCache()
    gang = ClusterView(given.world, cache).gang(given.job("j2"))
    given.when(submit("d", "j4"))
    assert ClusterView(given.world, cache).gang(given.job("j2")) is gang
    amended = replace(given.job("j2"), spec=spec(workers=1, gpus=2))
    assert ClusterView(given.world, cache).gang(amended).gpus == 2


def test_a_cache_forgets_what_it_knew_of_another_world() -> None:
    given, cache = busy(), SchedulerCache()
    facts = ClusterView(given.world, cache).node_facts
    cache.reviewed_position = given.world.position
    ClusterView(World(given.world.image()), cache)
    assert cache.reviewed_position < 0
    assert ClusterView(given.world, cache).node_facts is not facts


def test_a_cache_drops_the_gangs_of_jobs_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching, "_GANGS_MIN", 3)
    given, cache = Given(node()), SchedulerCache()
    for number in range(20):
        given.when(submit(f"n{number}", f"j{number}"))
        ClusterView(given.world, cache).gang(given.job(f"j{number}"))
        given.when(c.CancelJob(namespace="default", name=f"n{number}", id=f"c{number}"))
    assert len(cache._gangs) <= 4
