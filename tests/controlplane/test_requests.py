"""Cores, memory and the like: what ranks request of their nodes is there for them, or they wait."""

import os
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from controlplane.disciplines.registry import DISCIPLINES
from controlplane.messages import wait_text
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo
from controlplane.model.errors import Rejected
from controlplane.model.phases import ACTIVE, WITH_DEVICES, Phase
from controlplane.model.policy import Policy, Preempt, Queue, WithinQueue
from controlplane.model.resources import by_rank, of_rank, pod_requests, requests_of
from controlplane.model.spec import DoneWhen, JobSpec, Role, Scheduling, TopologyAsk, grows
from controlplane.model.supplies import Supplies
from controlplane.queries.queries import node_view, why
from controlplane.scheduling.cluster_view import ClusterView
from controlplane.scheduling.decisions import Claim, Evict, KeepWaiting, Start
from controlplane.scheduling.placement.fit import fit
from controlplane.scheduling.scheduling_pass import Pass
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.world import World
from tests.controlplane.scheduling_worlds import Sandbox, policies, trees
from tests.controlplane.specification import Given, submit

EXAMPLES = int(os.environ.get("MUSTER_EXAMPLES", "40"))
GIB = 1 << 30


def node(name: str, gpus: int = 8, cpu: float = 4, memory: int = 16, **more) -> NodeInfo:
    resources = {"cpu": int(cpu * 1000), "memory": memory * GIB}
    others = {"cpu": int(more.pop("others", 0) * 1000)}
    return NodeInfo(name, gpus, resources=resources, used_by_others=others, **more)


def role(name: str = "worker", cpu: str = "1", replicas: int = 1, gpus: int = 0, **more) -> Role:
    resources = {"requests": {"cpu": cpu, "memory": more.pop("memory", "1Gi")}}
    pod = {"spec": {"containers": [{"name": "c", "resources": resources}]}}
    return Role(name=name, replicas=replicas, gpus=gpus, template=pod, **more)


def job(*roles: Role, **more) -> JobSpec:
    return JobSpec(roles=roles, done_when=DoneWhen(roles[0].name), **more)


def box_of(
    *nodes: NodeInfo, policy: Policy | None = None, queues: tuple[Queue, ...] = ()
) -> Sandbox:
    box = Sandbox([], queues, policy or Policy())
    for info in nodes:
        box.record(e.NodeReported(info.name, info))
    return box


def started(box: Sandbox) -> dict[str, list[str]]:
    """Who starts in a pass, and on which nodes."""
    starts = [d for d in box.one_pass() if isinstance(d, Start)]
    return {d.job: [slot.node for slot in d.fit.placement] for d in starts}


def check_amounts(world: World) -> None:
    """No job was given what does not exist. Counted by hand, rank by rank."""
    held: dict[tuple[str, str], int] = {}
    for each in world.jobs.values():
        if each.attempt is None:
            continue
        requests = requests_of(each.spec)
        for index, rank in enumerate(each.attempt.ranks):
            if requests and rank.state in WITH_DEVICES:
                for name, amount in of_rank(
                    each.spec, requests, index, len(each.attempt.ranks)
                ).items():
                    key = each.attempt.placement[index].node, name
                    held[key] = held.get(key, 0) + amount
    for (name, resource), amount in held.items():
        info = world.nodes[name].info
        if resource in info.resources:
            assert amount <= info.offers[resource], (name, resource)


# ---------------------------------------------------------------- where ranks go


def test_a_rank_goes_where_its_cores_are():
    box = box_of(node("n1", others=3), node("n2"))
    box.submit("j", job(role(cpu="2")))
    assert started(box) == {"j": ["n2"]}


def test_ranks_without_gpus_are_spread_over_the_nodes_that_hold_them():
    box = box_of(node("n1", cpu=4), node("n2", cpu=4))
    box.submit("j", job(role(cpu="1500m", replicas=4)))
    assert sorted(started(box)["j"]) == ["n1", "n1", "n2", "n2"]


def test_ranks_with_gpus_take_no_more_of_a_node_than_its_cores_allow():
    box = box_of(node("n1", cpu=4), node("n2", cpu=4))
    box.submit("j", job(role(cpu="2", replicas=4, gpus=1)))
    assert sorted(started(box)["j"]) == ["n1", "n1", "n2", "n2"]


def test_a_gang_without_enough_cores_waits_whole_and_starts_when_others_leave():
    box = box_of(node("n1", others=3), node("n2", others=3))
    box.submit("j", job(role(cpu="2", replicas=2, gpus=1)))
    assert started(box) == {}
    box.record(e.NodeReported("n1", node("n1")))
    assert started(box) == {"j": ["n1", "n1"]}


def test_what_ends_gives_its_cores_back():
    box = box_of(node("n1", cpu=4))
    box.submit("first", job(role(cpu="3")))
    box.settle()
    box.submit("second", job(role(cpu="3")))
    assert started(box) == {}
    box.finish("first")
    assert started(box) == {"second": ["n1"]}
    box.finish("second")
    assert box.world.devices.free.allocated == {}


def test_a_launcher_goes_elsewhere_when_its_workers_fill_their_node():
    box = box_of(node("n1", cpu=4), node("n2", gpus=0, cpu=4))
    box.submit("j", job(role("launcher", "2"), role("worker", "2", replicas=2, gpus=4)))
    assert started(box) == {"j": ["n2", "n1", "n1"]}


def test_nodes_without_declared_resources_are_unlimited():
    box = box_of(NodeInfo("n1", 8))
    box.submit("j", job(role(cpu="500", replicas=8, gpus=1)))
    assert started(box) == {"j": ["n1"] * 8}


def test_a_resource_that_a_node_does_not_name_is_not_counted_there():
    box = box_of(replace(node("n1"), resources={"memory": 4 * GIB}))
    box.submit("j", job(role(cpu="64", memory="4Gi")))
    assert started(box) == {"j": ["n1"]}


def test_extended_resources_are_counted_like_cores():
    two = replace(node("n1"), resources={"rdma/hca": 2})
    box = box_of(two, replace(two, name="n2"))
    box.submit(
        "j", job(Role(name="w", replicas=2, gpus=1), supplies=Supplies(resources={"rdma/hca": "2"}))
    )
    assert sorted(started(box)["j"]) == ["n1", "n2"]


def test_parts_of_devices_and_named_nodes_need_their_cores_too():
    box = box_of(node("n1", others=3.5), node("n2"))
    box.submit("part", job(role(cpu="1", gpu_share=500)))
    assert started(box) == {"part": ["n2"]}
    box.submit("pinned", job(role(cpu="1", gpus=1, node="n1")))
    assert started(box) == {}
    box.record(e.NodeReported("n1", node("n1")))
    assert started(box) == {"pinned": ["n1"]}


def test_within_a_rack_ranks_go_only_where_their_cores_are():
    racks = [node(f"{r}{n}", rack=r, others=3 if r == "a" else 0) for r in "ab" for n in range(2)]
    box = box_of(*racks)
    ask = Scheduling(topology=TopologyAsk(required="rack"))
    box.submit("j", job(role(cpu="2", replicas=4, gpus=1), scheduling=ask))
    assert sorted(started(box)["j"]) == ["b0", "b0", "b1", "b1"]
    box.submit("k", job(role("launcher", "1"), role(cpu="1", replicas=1, gpus=1), scheduling=ask))
    assert started(box)["k"] == ["a1", "a0"]


def test_spread_goes_to_the_nodes_that_have_most_and_enough():
    box = box_of(node("n1", others=3), node("n2"), node("n3"), policy=Policy(packing="spread"))
    box.submit("j", job(role(cpu="2", replicas=2, gpus=1)))
    assert sorted(started(box)["j"]) == ["n2", "n3"]


def test_ranks_of_several_kinds_find_the_one_way_to_fit():
    """Filling the first node with whatever fits leaves a rank without a place."""
    box = box_of(node("n1", cpu=5, memory=8), node("n2", cpu=4, memory=16))
    box.submit("j", job(role("a", "3", memory="2Gi"), role("b", "2", memory="6Gi", replicas=2), role("c", "2", memory="10Gi")))  # fmt: skip
    assert started(box) == {"j": ["n1", "n1", "n2", "n2"]}


def test_a_gang_that_was_scaled_holds_its_cores_until_it_has_stopped():
    """Its ranks are counted by another spec from then on, and with no less than they have."""
    box = box_of(node("n1", cpu=10))
    box.submit("j", job(role("a", "1"), role("b", "3")))
    box.settle()
    assert box.world.devices.free.left(0, "cpu") == 6_000
    box._do(c.ScaleJob(id="s", namespace="default", name="j", role="a", replicas=4))
    box.world.check()
    assert box.world.devices.free.left(0, "cpu") == 4_000
    box.settle()
    assert box.world.devices.free.allocated == {}


# ---------------------------------------------------------------- who gives way, and who plans


def test_the_holder_of_the_cores_is_preempted_by_a_higher_priority():
    lower = Policy(preempt=Preempt(within_queue=WithinQueue.LOWER))
    box = box_of(node("n1"), node("n2"), policy=lower)
    box.submit("low", job(role(cpu="3"), priority=0))
    box.submit("idle", job(role(cpu="1"), priority=0))
    box.settle()
    box.submit("high", job(role(cpu="4", replicas=2), priority=5))
    decided = box.one_pass()
    assert {d.job for d in decided if isinstance(d, Evict)} == {"low", "idle"}
    assert [d.job for d in decided if isinstance(d, Claim)] == ["high"]
    assert sorted(started(box)["high"]) == ["n1", "n2"]


def test_of_very_many_only_those_go_whose_cores_are_needed():
    """More victims than are tried one by one."""
    lower = Policy(preempt=Preempt(within_queue=WithinQueue.LOWER), discipline="fit")
    box = box_of(*[node(f"n{i}", gpus=0, cpu=20) for i in range(10)], policy=lower)
    for number in range(100):
        box.submit(f"low{number:03}", job(role(cpu="1", memory="1Mi")))
    box.settle()
    box.submit("high", job(role(cpu="15", memory="1Mi", replicas=10), priority=5))
    gone = [d for d in box.one_pass() if isinstance(d, Evict)]
    # They fill five nodes of 20, on each of which five may stay.
    assert len(gone) == 75
    assert len(started(box)["high"]) == 10
    check_amounts(box.world)


@pytest.mark.parametrize("discipline", ["easy", "conservative"])
def test_planned_starts_look_at_cores(discipline):
    """The long one would take the cores for which the head waits; the short one is gone by then."""
    box = box_of(node("n1", cpu=4), policy=Policy(discipline=discipline))
    soon, long, short = (Scheduling(estimate_s=s) for s in (100.0, 1000.0, 50.0))
    box.submit("runs", job(role(cpu="3"), scheduling=soon))
    box.settle()
    box.submit("head", job(role(cpu="4"), scheduling=soon))
    box.submit("long", job(role(cpu="1"), scheduling=long))
    box.submit("short", job(role(cpu="1"), scheduling=short))
    assert started(box) == {"short": ["n1"]}
    box.finish("runs")
    box.finish("short")
    assert started(box) == {"head": ["n1"]}
    box.finish("head")
    assert started(box) == {"long": ["n1"]}


@pytest.mark.parametrize("discipline", DISCIPLINES.names)
def test_a_job_without_free_cores_blocks_no_other(discipline):
    box = box_of(node("n1", cpu=4, others=2), policy=Policy(discipline=discipline))
    box.submit("big", job(role(cpu="4")))
    box.settle()
    box.submit("small", job(Role(name="w", gpus=1)))
    box.settle()
    box.record(e.NodeReported("n1", node("n1", cpu=4)))
    box.settle()
    box.settle()
    phases = {name: each.phase for name, each in box.world.jobs.items()}
    assert phases["big"] in ACTIVE
    assert phases["small"] in ACTIVE


# ---------------------------------------------------------------- reasons


def test_why_names_the_node_and_what_it_has_left():
    box = box_of(node("n1", others=2.5), node("n2", others=3))
    box.submit("j", job(role(cpu="2", replicas=2, gpus=1)))
    box.one_pass()
    answer = why(box.world, box.world.jobs["j"])
    assert answer.reasons[0].code == "insufficient_capacity"
    assert "each of 2 ranks needs 2 CPUs; n1 has 1.5 of 4 CPUs free" in answer.reasons[0].message
    assert answer.reasons[0].by_domain == {"n1": "1.5 of 4 CPUs free", "n2": "1 of 4 CPUs free"}
    decided = Pass(Snapshot(box.world), lambda job, code: True, explain_all=False).run()
    held = [d for d in decided if isinstance(d, KeepWaiting)]
    assert "1.5 of 4 CPUs free" in wait_text(held[0].reasons[0])


def test_why_reports_when_no_single_resource_is_the_cause():
    box = box_of(node("n1", cpu=8, memory=2), node("n2", cpu=2, memory=32))
    box.submit("j", job(role(cpu="4", memory="8Gi")))
    box.one_pass()
    reasons = why(box.world, box.world.jobs["j"]).reasons
    assert any(
        "some nodes have enough CPUs and memory, but too few have enough of all" in r.message
        for r in reasons
    )


def test_a_gang_that_can_never_have_its_cores_is_refused():
    given_ = Given(
        e.NodeReported("n1", node("n1")),
        e.NodeReported("n2", node("n2", gpus=4)),
        e.ClusterSurveyed(),
    )
    for asked, message in [
        (job(role(cpu="5")), "a rank of worker needs 5 CPUs on one node; the most that a node has is 4"),
        (job(role(memory="17Gi")), "needs 17 GiB of memory on one node; the most that a node has is 16 GiB"),
        (job(role(cpu="2", replicas=5)), "5 ranks of worker need 2 CPUs, 1 GiB of memory each; the whole cluster has room for 4"),
        (job(role(cpu="1", gpus=4, replicas=4)), "room for 3"),
    ]:  # fmt: skip
        with pytest.raises(Rejected) as refused:
            given_.when(submit(of=asked))
        assert refused.value.code == "can_never_fit"
        assert message in str(refused.value)
    given_.when(submit(of=job(role(cpu="2", replicas=4))))


def test_before_every_node_is_known_nothing_is_refused():
    given_ = Given(e.NodeReported("n1", node("n1")))
    given_.when(submit(of=job(role(cpu="50"))))
    assert given_.job().phase is Phase.QUEUED


def test_a_node_shows_what_it_has_and_what_is_free():
    box = box_of(node("n1", others=0.5))
    box.submit("j", job(role(cpu="1", memory="512Mi")))
    box.settle()
    view = node_view(box.world, box.world.nodes["n1"])
    assert view.resources == {"cpu": "4", "memory": "16Gi"}
    assert view.resources_free == {"cpu": "2500m", "memory": "15872Mi"}


# ---------------------------------------------------------------- what a pod requests


def test_supplies_are_requests_of_the_container_that_speaks():
    pod = {"initContainers": [{"resources": {"requests": {"cpu": "3"}}}], "containers": [{"name": "side", "resources": {"limits": {"cpu": "1"}}}, {"name": "main"}]}  # fmt: skip
    asked = Role(name="w", replicas=2, template={"spec": pod}, container="main")
    spec = job(asked, supplies=Supplies(resources={"cpu": "1500m", "rdma/hca": "1"}))
    assert requests_of(spec) == ({"cpu": 3000, "rdma/hca": 1},)
    template = {
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "250m"}}}]}
    }
    assert requests_of(replace(spec, roles=(replace(asked, template=template),))) == (
        {"cpu": 250, "rdma/hca": 1},
    )
    assert by_rank(spec, requests_of(spec)) == ({"cpu": 3000, "rdma/hca": 1},) * 2


def test_the_requests_of_a_pod_take_precedence_over_those_of_its_containers():
    pod = {"resources": {"requests": {"cpu": "2"}}, "overhead": {"cpu": "250m"}, "containers": [{"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}  # fmt: skip
    requests = {name: str(amount) for name, amount in pod_requests({"spec": pod}).items()}
    assert requests == {"cpu": "2250m", "memory": "1Gi"}


def test_what_no_door_would_let_in_today_counts_as_nothing():
    broken = Role(
        name="w", template={"spec": {"containers": [{"resources": {"requests": {"cpu": "lots"}}}]}}
    )
    assert requests_of(job(broken)) == ()
    assert requests_of(job(Role(name="w", gpus=4))) == ()


# ---------------------------------------------------------------- whatever comes

cores = st.sampled_from(["250m", "500m", "1", "1500m", "2", "3"])
memories = st.sampled_from(["1Gi", "2Gi", "5Gi"])


@st.composite
def nodes(draw):
    drawn = []
    for number in range(draw(st.integers(1, 5))):
        info = node(
            f"n{number}",
            draw(st.integers(0, 4)),
            cpu=draw(st.integers(0, 6)),
            memory=draw(st.integers(1, 8)),
            others=draw(st.sampled_from([0, 0, 0.5, 2])),
            rack=draw(st.sampled_from("ab")),
        )
        silent = draw(st.integers(0, 6)) == 0
        drawn.append(replace(info, resources={}, used_by_others={}) if silent else info)
    return drawn


@st.composite
def asking(draw):
    roles = []
    for name in draw(st.sampled_from([["a"], ["a"], ["a", "b"]])):
        one = role(
            name,
            draw(cores),
            draw(st.integers(1, 4)),
            draw(st.integers(0, 2)),
            memory=draw(memories),
        )
        kind = draw(st.integers(0, 8))
        if kind == 0:
            one = replace(one, template={})
        elif kind == 1:
            one = replace(one, gpus=0, gpu_share=500)
        elif kind == 2 and name == "a":
            one = replace(one, node="n0")
        roles.append(one)
    if (
        len(roles) == 1
        and not roles[0].node
        and not roles[0].gpu_share
        and draw(st.integers(0, 3)) == 0
    ):
        roles = [replace(roles[0], min_replicas=1, max_replicas=4)]
    asks = [
        TopologyAsk(),
        TopologyAsk(),
        TopologyAsk(required="rack"),
        TopologyAsk(preferred="rack"),
    ]
    asks += [
        TopologyAsk(required="rack", exclusive=True),
        TopologyAsk(slice_level="rack", slice_size=2),
    ]
    return job(
        *roles,
        queue=draw(st.sampled_from(["default", "left", "inner"])),
        priority=draw(st.integers(-1, 2)),
        scheduling=Scheduling(
            topology=draw(st.sampled_from(asks)),
            estimate_s=draw(st.sampled_from([None, 5.0, 50.0])),
        ),
    )


@given(nodes(), trees(), policies(), st.lists(asking(), min_size=1, max_size=7), st.data())
@settings(max_examples=EXAMPLES * 2, deadline=None)
def test_no_node_is_ever_asked_for_more_than_it_has(infos, queues, policy, jobs, data):
    """And passes come to rest, and indexes are what a fresh world has (`world.check`)."""
    box = box_of(*infos, policy=policy, queues=queues)
    for number, each in enumerate(jobs):
        box.submit(f"j{number}", each)
    box.settle()
    check_amounts(box.world)
    for each in [j for j in box.world.jobs.values() if j.phase in ACTIVE][:2]:
        box.finish(each.id)
    elastic = [j for j in box.world.jobs.values() if j.phase is Phase.RUNNING and grows(j.spec)]
    if elastic:
        replicas = data.draw(st.integers(1, 4))
        box._do(
            c.ScaleJob(
                id="s", namespace="default", name=elastic[0].name, role="a", replicas=replicas
            )
        )
        box.world.check()
    box.submit("late", data.draw(asking()))
    box.settle()
    box.world.check()
    check_amounts(box.world)
    for each in [j for j in box.world.jobs.values() if j.phase in ACTIVE]:
        box.finish(each.id)
    box.world.check()


@given(nodes(), st.lists(st.tuples(cores, memories, st.integers(0, 2)), min_size=1, max_size=4))
@settings(max_examples=EXAMPLES * 3, deadline=None)
def test_a_gang_fits_if_there_is_any_way_to_place_it(infos, ranks):
    box = box_of(*infos)
    roles = [
        role(f"r{i}", cpu, 1, gpus, memory=memory) for i, (cpu, memory, gpus) in enumerate(ranks)
    ]
    spec = job(*roles)
    box.submit("j", spec)
    gang = Snapshot(box.world).gang("j")
    fitted = fit(ClusterView(box.world), box.world.devices.free, gang)
    assert (fitted is not None) == any(
        holds(infos, spec, where) for where in product(range(len(infos)), repeat=len(ranks))
    )


def holds(infos, spec, where) -> bool:
    asked = requests_of(spec)
    for index, info in enumerate(infos):
        here = [i for i, at in enumerate(where) if at == index]
        if sum(spec.roles[i].gpus for i in here) > info.gpus:
            return False
        for name, most in info.offers.items():
            if sum(asked[i].get(name, 0) for i in here) > max(0, most) and here:
                return False
    return True
