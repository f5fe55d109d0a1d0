"""What pods' templates ask of nodes: the scheduler keeps to it, so that no kubelet has to refuse."""

import pytest

from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo
from controlplane.model.constraints import asks_of, pods_selector, tolerates
from controlplane.model.phases import Phase
from controlplane.model.spec import Role, Scheduling
from controlplane.queries.queries import why
from controlplane.state.queue_order import shape_of
from tests.controlplane.specification import Given, spec, submit
from tests.controlplane.test_scheduling_features import passed


def role(name: str = "Worker", replicas: int = 1, gpus: int = 1, **pod: object) -> Role:
    return Role(name=name, replicas=replicas, gpus=gpus, template={"spec": pod})


def reported(name: str, labels: dict[str, str], *taints: str) -> e.NodeReported:
    return e.NodeReported(name, NodeInfo(name, 2, labels=labels, taints=taints))


def test_a_gang_keeps_to_nodes_with_the_labels_of_its_node_selector():
    slow, fast = reported("n1", {"disk": "hdd"}), reported("n2", {"disk": "ssd"})
    picky = (role(nodeSelector={"disk": "ssd"}),)
    given = Given(slow, fast).when(submit("a", "j1", spec(roles=picky)))
    passed(given)
    assert given.job("j1").attempt.placement[0].node == "n2"


def test_a_gang_that_suits_no_node_waits_with_that_reason():
    given = Given(reported("n1", {"disk": "hdd"}))
    given.when(submit("a", "j1", spec(roles=(role(nodeSelector={"disk": "ssd"}),))))
    passed(given)
    assert given.job("j1").phase is Phase.QUEUED
    assert "no_matching_node" in [each.code for each in why(given.world, given.job("j1")).reasons]


def test_gangs_of_one_size_that_ask_for_other_nodes_are_not_taken_for_alike():
    shapes = {
        shape_of(spec(roles=(role(nodeSelector=asked),)))
        for asked in ({}, {"disk": "ssd"}, {"disk": "hdd"})
    }
    assert len(shapes) == 3


def test_a_node_without_labels_suits_no_selector():
    given = Given(reported("n1", {})).when(
        submit("a", "j1", spec(roles=(role(nodeSelector={"disk": "ssd"}),)))
    )
    passed(given)
    assert given.job("j1").attempt is None


def test_roles_must_agree_and_what_they_contradict_is_left_to_the_cluster():
    launcher = role("Launcher", gpus=0, nodeSelector={"zone": "a"})
    worker = role(nodeSelector={"pool": "gpu", "zone": "a"})
    assert pods_selector(spec(roles=(launcher, worker))) == {"pool": "gpu", "zone": "a"}
    server = role("PS", gpus=0, nodeSelector={"pool": "cpu"})
    assert pods_selector(spec(roles=(server, worker))) == {"zone": "a"}


@pytest.mark.parametrize(
    ("toleration", "written"),
    [
        ({"key": "spot", "operator": "Exists"}, ("spot=*",)),
        ({"key": "spot", "value": "yes"}, ("spot=yes",)),
        ({"key": "spot", "operator": "Equal"}, ("spot",)),
        ({"operator": "Exists"}, ("*",)),
        ({"key": "spot", "operator": "Exists", "effect": "PreferNoSchedule"}, ()),
        ({"key": "gone", "operator": "Exists", "tolerationSeconds": 300}, ()),
    ],
)
def test_tolerations_become_what_the_scheduler_knows(toleration: dict, written: tuple):
    assert asks_of(spec(roles=(role(tolerations=[toleration]),))).tolerates == written


def test_a_taint_is_tolerated_only_if_every_role_does():
    bears = role(tolerations=[{"key": "spot", "operator": "Exists"}])
    assert asks_of(spec(roles=(bears, role("PS", gpus=0)))).tolerates == ()
    tolerant = spec(roles=(bears,), scheduling=Scheduling(tolerates=("old",)))
    assert asks_of(tolerant).tolerates == ("old", "spot=*")


@pytest.mark.parametrize(
    ("tolerations", "taint", "borne"),
    [
        ((), "spot", False),
        (("spot",), "spot", True),
        (("spot",), "spot=yes", False),
        (("spot=*",), "spot=yes", True),
        (("spot=*",), "spot", True),
        (("spot=*",), "spotty=yes", False),
        (("*",), "anything=at-all", True),
    ],
)
def test_a_taint_is_borne_by_its_name_its_value_or_any(tolerations, taint, borne):
    assert tolerates(tolerations, taint) is borne


def test_a_gang_goes_to_a_tainted_node_only_if_its_pods_bear_it():
    given = Given(reported("n1", {}, "spot=yes"))
    given.when(submit("a", "j1", spec(workers=1, gpus=1)))
    passed(given)
    assert given.job("j1").phase is Phase.QUEUED
    bears = (role(tolerations=[{"key": "spot", "operator": "Exists"}]),)
    given = Given(reported("n1", {}, "spot=yes")).when(submit("b", "j2", spec(roles=bears)))
    passed(given)
    assert given.job("j2").attempt.placement[0].node == "n1"
