"""Documents that make no sense are refused in words, whatever they are made of."""

import contextlib
import copy
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.kinds.kind import GangContext
from controlplane.kinds.manifest.manifest import with_scheduling_annotations
from controlplane.kinds.manifest.pod_group import pod_group
from controlplane.kinds.registry import kind_of, read_manifest, write_manifest
from controlplane.model.errors import Rejected

EXAMPLES = Path(__file__).parents[3] / "examples"
DOCUMENTS = [
    yaml.safe_load(path.read_text())
    for pattern in ("mpijob*", "trainjob*", "hostfilejob*")
    for path in sorted(EXAMPLES.glob(f"{pattern}.yaml"))
]
NATIVE = [write_manifest(read_manifest(document), "Job") for document in DOCUMENTS]

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["", "1", "auto", "Launcher", "-1Gi", "x" * 300, "\x00", "OpenMPI"])
    | st.just(10**400),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "spec", "a", "env"]), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(document, path=()):
    """Every path of a document, except those that identify its kind."""
    yield path
    inner = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in inner if isinstance(document, dict | list) else ():
        if path or key not in ("apiVersion", "kind"):
            if isinstance(value, dict | list):
                yield from places(value, (*path, key))
            else:
                yield (*path, key)


def changed(document, path, value):
    document = copy.deepcopy(document)
    *parents, last = path
    inner = document
    for key in parents:
        inner = inner[key]
    inner[last] = value
    return document


@st.composite
def strange(draw, documents):
    document = draw(st.sampled_from(documents))
    for _ in range(draw(st.integers(1, 3))):
        somewhere = sorted(places(document), key=str)
        path = draw(st.sampled_from([path for path in somewhere if path]))
        document = changed(document, path, draw(anything))
    return document


@settings(max_examples=300, deadline=None)
@given(strange(DOCUMENTS + NATIVE))
def test_a_strange_document_is_refused_or_has_environments_and_can_be_written(document):
    with contextlib.suppress(Rejected):
        job = read_manifest(document)
        kind = kind_of(job.spec)
        gang = GangContext(job.namespace, job.name, job.spec)
        environment = kind.environments(gang)
        for rank in range(min(job.spec.size, 3)):
            environment(rank)
        kind.services(gang)
        kind.files(gang, ())
        pod_group(gang)
        again = read_manifest(write_manifest(job))
        assert (again.name, again.suspended) == (job.name, job.suspended)
        # A field that the kind's form does not have is written as an annotation.
        assert again.spec in (job.spec, with_scheduling_annotations(job.spec))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda each: each["metadata"]["name"])
def test_every_example_survives_the_native_form(document):
    job = read_manifest(document)
    native = write_manifest(job, "Job")

    assert native["kind"] == "Job"
    assert read_manifest(native).spec == job.spec


@pytest.mark.parametrize(
    ("resources", "field"),
    [
        ({"requests": {"cpu": "half"}}, "containers[0].resources.requests[cpu]"),
        ({"limits": {"memory": "-1Gi"}}, "containers[0].resources.limits[memory]"),
    ],
)
def test_an_amount_that_is_none_is_refused(resources, field):
    document = copy.deepcopy(DOCUMENTS[0])
    role = document["spec"]["mpiReplicaSpecs"]["Launcher"]
    role["template"]["spec"]["containers"][0]["resources"] = resources

    with pytest.raises(Rejected) as refusal:
        read_manifest(document)
    assert refusal.value.problems[0].field.endswith(field)
