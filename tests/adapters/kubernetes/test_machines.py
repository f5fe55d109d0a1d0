"""What nodes have, as far as it may be given away, and who is bound where. Pure."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.kubernetes.observe import nodes
from adapters.kubernetes.observe.labels import is_current
from adapters.kubernetes.reconcile.binding import binds, by_count, by_index, held_devices
from adapters.kubernetes.reconcile.plan import Ref
from adapters.kubernetes.render.site import Site
from controlplane.model.cluster import Slot
from tests.adapters.kubernetes.jobs import job, rendering


def node(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "n"}, "spec": {}, "status": status}


def test_sick_devices_are_those_that_a_kubelet_does_not_offer() -> None:
    sick_node = node(capacity={"nvidia.com/gpu": "8"}, allocatable={"nvidia.com/gpu": "5"})
    assert (nodes.gpus(sick_node), nodes.sick(sick_node)) == (8, 3)
    assert nodes.gpus(node()) == 0


@given(
    st.integers(0, 16),
    st.integers(0, 20),
    st.sets(st.integers(0, 15)),
    st.lists(st.integers(0, 15), unique=True),
)
def test_as_many_devices_are_left_alone_as_are_missing_and_free_ones_first(
    gpus: int, count: int, held: set[int], before: list[int]
) -> None:
    unusable = nodes.unusable(gpus, count, held, before)
    assert len(unusable) == min(gpus, count) == len(set(unusable))
    assert all(0 <= i < gpus for i in unusable)
    free = {i for i in range(gpus) if i not in held}
    # One that a rank holds is taken only when no other is left.
    assert not held & set(unusable) or free <= set(unusable)
    # Devices that were unusable before stay so, as far as possible.
    again = nodes.unusable(gpus, count, held, unusable)
    assert again == unusable


def test_a_cordon_is_a_taint_and_gpu_taints_do_not_repel_jobs_that_request_gpus() -> None:
    spec = {
        "unschedulable": True,
        "taints": [
            {"key": "team", "value": "a", "effect": "NoSchedule"},
            {"key": "soft", "effect": "PreferNoSchedule"},
            {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
        ],
    }
    taints = nodes.taints({"metadata": {"name": "n"}, "spec": spec})
    assert taints == ("node.kubernetes.io/unschedulable", "team=a")


@pytest.mark.parametrize(
    ("containers", "inits", "asked"),
    [([1, 2], [], 3), ([1], [4], 4), ([0], [0], 0)],
)
def test_a_pod_has_the_devices_of_its_containers_or_of_the_greediest_first_one(
    containers: list[int], inits: list[int], asked: int
) -> None:
    def of(counts: list[int]) -> list[dict[str, Any]]:
        return [{"resources": {"limits": {"nvidia.com/gpu": str(n)}}} for n in counts]

    pod = {"spec": {"containers": of(containers), "initContainers": of(inits)}}
    assert nodes.gpus_asked(pod) == asked


def test_what_pods_may_request_is_what_a_node_can_give_away() -> None:
    allocatable = {"cpu": "3920m", "memory": "15Gi", "pods": "110", "nvidia.com/gpu": "8", "rdma/hca": "0", "odd": "?"}  # fmt: skip
    info = nodes.info(node(capacity={"cpu": "4"}, allocatable=allocatable), others={"cpu": 100, "x/y": 1})  # fmt: skip
    assert info.resources == {"cpu": 3920, "memory": 15 << 30, "rdma/hca": 0}
    assert info.used_by_others == {"cpu": 100}
    assert info.offers == {"cpu": 3820, "memory": 15 << 30, "rdma/hca": 0}
    assert nodes.info(node()).resources == {}


def test_a_pod_that_shrinks_counts_with_what_it_still_has() -> None:
    container = {"name": "a", "resources": {"requests": {"cpu": "1", "memory": "2Gi"}}}
    pod = {"spec": {"containers": [container, {"name": "b"}]}}
    assert nodes.requested(pod) == {"cpu": 1000, "memory": 2 << 30}
    given = {"name": "a", "allocatedResources": {"cpu": "3", "memory": "1Gi"}}
    grown = {**pod, "status": {"containerStatuses": [given, {"name": "b"}]}}
    assert nodes.requested(grown) == {"cpu": 3000, "memory": 2 << 30}
    assert nodes.asks_something(pod)
    assert not nodes.asks_something({"spec": {"containers": [{"name": "b"}]}})


def test_levels_are_read_from_labels() -> None:
    labels = {"zone": "z1", "rack": "r2"}
    info = nodes.info({"metadata": {"name": "n", "labels": labels}}, levels=("zone", "rack"))
    assert info.path == ("z1", "r2")


def test_devices_are_written_down_and_shown_only_where_muster_chooses_them() -> None:
    slot = Slot("node-1", (2, 3))
    assert by_count(slot).env == {}
    assert by_index(slot).env == {"NVIDIA_VISIBLE_DEVICES": "2,3"}
    for binding in (by_count(slot), by_index(slot)):
        assert not binding.node
        assert held_devices({"metadata": {"annotations": binding.annotations}}) == (2, 3)


def test_no_pod_is_bound_before_all_of_the_gang_exist() -> None:
    of = job()
    made = rendering(of, Site(scheduler="muster", bind=by_count))
    pods = {Ref("Pod", name): made.pod(i) for i, name in enumerate(made.names)}

    def wanted(there: dict[Ref, Any]) -> list[tuple[str, str]]:
        return [
            tuple(each) for each in binds(of, made.names, there, lambda r, p: is_current(of, r, p))
        ]  # type: ignore[misc]

    assert wanted(pods) == [(name, f"node-{i}") for i, name in enumerate(made.names)]
    assert wanted(dict(list(pods.items())[:1])) == []
    first, second = pods.values()
    bound = {**first, "spec": {**first["spec"], "nodeName": "node-0"}}
    assert wanted(dict(zip(pods, (bound, second), strict=True))) == [(made.names[1], "node-1")]
    stranger = {**second, "spec": {**second["spec"], "schedulerName": "default-scheduler"}}
    assert wanted(dict(zip(pods, (first, stranger), strict=True))) == [(made.names[0], "node-0")]
