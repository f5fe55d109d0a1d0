"""Required node affinity: the scheduler keeps to it, as that of Kubernetes does."""

import pytest

from controlplane.model.cluster import NodeInfo
from controlplane.model.errors import Rejected
from controlplane.model.node_affinity import affinity_of, suits
from controlplane.model.phases import Phase
from controlplane.model.unsupported_constraints import refusal
from controlplane.state.queue_order import shape_of
from tests.controlplane.specification import Given, spec, submit
from tests.controlplane.test_asks import reported, role
from tests.controlplane.test_scheduling_features import passed

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def node_affinity(*terms):
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


def labelled(key, operator, *values):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def named(operator, *values):
    field = {"key": "metadata.name", "operator": operator, "values": list(values)}
    return {"matchFields": [field]}


@pytest.mark.parametrize(
    ("terms", "labels", "expected"),
    [
        ([labelled("gpu", "In", "A100", "H100")], {"gpu": "H100"}, True),
        ([labelled("gpu", "In", "A100")], {"gpu": "H100"}, False),
        ([labelled("gpu", "In", "A100")], {}, False),
        ([labelled("gpu", "NotIn", "A100")], {"gpu": "H100"}, True),
        ([labelled("gpu", "NotIn", "A100")], {}, True),
        ([labelled("gpu", "Exists")], {"gpu": ""}, True),
        ([labelled("gpu", "Exists")], {}, False),
        ([labelled("gpu", "DoesNotExist")], {}, True),
        ([labelled("cores", "Gt", "64")], {"cores": "96"}, True),
        ([labelled("cores", "Gt", "64")], {"cores": "64"}, False),
        ([labelled("cores", "Lt", "64")], {"cores": "-1"}, True),
        ([labelled("cores", "Lt", "64")], {"cores": "many"}, False),
        ([labelled("cores", "Lt", "64")], {}, False),
        ([named("In", "n1")], {}, True),
        ([named("NotIn", "n1")], {}, False),
        # One of the terms is enough; all of a term are needed; an empty one holds nowhere.
        ([labelled("gpu", "In", "A100"), labelled("pool", "Exists")], {"pool": "x"}, True),
        ([{**labelled("gpu", "Exists"), **named("In", "n2")}], {"gpu": "H100"}, False),
        ([{}], {"gpu": "H100"}, False),
    ],
)
def test_a_node_suits_under_the_rules_of_kubernetes(terms, labels, expected):
    affinity = affinity_of(spec(roles=(role(affinity=node_affinity(*terms)),)))
    assert suits(affinity, NodeInfo("n1", 8, labels=labels)) is expected


def test_a_gang_is_placed_where_its_pods_may_be():
    slow, fast = reported("n1", {"disk": "hdd"}), reported("n2", {"disk": "ssd"})
    picky = role(affinity=node_affinity(labelled("disk", "In", "ssd", "nvme")))
    given = Given(slow, fast).when(submit("a", "j1", spec(roles=(picky,))))
    passed(given)
    assert given.job("j1").attempt.placement[0].node == "n2"


def test_all_roles_count():
    nodes = reported("n1", {"disk": "ssd"}), reported("n2", {"disk": "ssd", "zone": "a"})
    roles = (
        role("Launcher", gpus=0, affinity=node_affinity(labelled("zone", "Exists"))),
        role(affinity=node_affinity(labelled("disk", "In", "ssd"))),
    )
    given = Given(*nodes).when(submit("a", "j1", spec(roles=roles)))
    passed(given)
    assert {slot.node for slot in given.job("j1").attempt.placement} == {"n2"}


def test_a_gang_that_suits_no_node_does_not_start():
    picky = role(affinity=node_affinity(labelled("disk", "In", "ssd")))
    given = Given(reported("n1", {"disk": "hdd"})).when(submit("a", "j1", spec(roles=(picky,))))
    passed(given)
    assert given.job("j1").phase is Phase.QUEUED


def test_gangs_with_another_affinity_are_of_another_shape():
    asked = [(), node_affinity(labelled("a", "Exists")), node_affinity(labelled("b", "Exists"))]
    shapes = {shape_of(spec(roles=(role(affinity=each or {}),))) for each in asked}
    assert len(shapes) == 3


@pytest.mark.parametrize(
    ("affinity", "wrong"),
    [
        ({"nodeAffinity": {REQUIRED: {}}}, "at least one term"),
        ({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": "x"}}}, "at least one term"),
        ({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": ["x"]}}}, "is no term"),
        (node_affinity({"matchExpressions": {}}) and node_affinity({"matchFields": "x"}), "no list"),
        (node_affinity(labelled("a", "Near", "b")), "'Near' is not one of"),
        (node_affinity(labelled("a", "In")), "at least one value"),
        (node_affinity(labelled("a", "Exists", "b")), "takes no values"),
        (node_affinity(labelled("a", "Gt", "b")), "one whole number"),
        (node_affinity({"matchFields": [{"key": "spec.x", "operator": "In", "values": ["a"]}]}), "the only field"),
        (node_affinity({"matchExpressions": [7]}), "needs a key"),
    ],
)  # fmt: skip
def test_what_is_malformed_is_refused_at_the_door(affinity, wrong):
    refused = Given(reported("n1", {})).refuses(
        submit("a", "j1", spec(roles=(role(affinity=affinity),)))
    )
    assert refused.code == "invalid_job"
    assert wrong in refused.message
    assert "template.spec.affinity" in refused.message


REQUIREMENTS = {
    "podAffinity": {"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "rack"}]}}},
    "podAntiAffinity": {"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": "host"}]}}},
    "topologySpreadConstraints": {"topologySpreadConstraints": [{"topologyKey": "zone"}]},
    "resourceClaims": {"resourceClaims": [{"name": "gpu"}]},
}


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_a_requirement_that_muster_would_bind_past_is_refused_with_what_to_do(name):
    refused = refusal(spec(roles=(role(**REQUIREMENTS[name]),)))
    assert isinstance(refused, Rejected)
    assert (refused.code, name in refused.message) == ("invalid_job", True)
    assert "--scheduler cluster" in refused.message


def test_what_is_only_preferred_is_taken():
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    pod = {
        "affinity": {
            "podAntiAffinity": {preferred: [{"weight": 1}]},
            "nodeAffinity": {preferred: []},
        },
        "topologySpreadConstraints": [{"topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway"}],
    }
    assert refusal(spec(roles=(role(**pod),))) is None
    assert affinity_of(spec(roles=(role(**pod),))) == ()
