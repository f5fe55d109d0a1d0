"""Manifests to try kinds with, read by one kind alone."""

from controlplane.kinds.kind import GangContext
from controlplane.kinds.manifest.structure import fitted
from controlplane.kinds.manifest.validation import Findings
from controlplane.lifecycle.job import begin, evolve
from controlplane.model import events as e
from controlplane.model.addresses import ServiceNames
from controlplane.model.cluster import Slot


def read(kind, document):
    """What a document means; raises Rejected with everything that is wrong with it."""
    submission, findings = attempt(kind, document)
    if findings.problems:
        raise findings.refusal()
    return submission


def problems(kind, document):
    """What is wrong with a document, as pairs of sort and field."""
    return [(each.sort, each.field) for each in attempt(kind, document)[1].problems]


def attempt(kind, document):
    form = form_of(kind, document["apiVersion"])
    findings = Findings()
    manifest = fitted(document, form.manifest, findings)
    assert manifest is not None, findings.problems
    return form.read(manifest, findings), findings


def form_of(kind, version):
    return next(form for form in kind.forms if form.version == version)


def written(kind, submission):
    return form_of(kind, submission.spec.version).write(submission)


def gang_of(submission, domain=""):
    return GangContext(submission.namespace, submission.name, submission.spec, ServiceNames(domain))


def environment_of(kind, submission, rank, domain=""):
    return kind.environments(gang_of(submission, domain))(rank)


def contents(kind, submission, name, running=(), domain=""):
    """The contents of one of the files that the ranks get."""
    groups = kind.files(gang_of(submission, domain), running)
    return next(group.contents[name] for group in groups if name in group.contents)


def replica(replicas=None, *, limits=None, requests=None, restart=None, pod=None, **container):
    resources = {k: v for k, v in (("limits", limits), ("requests", requests)) if v}
    one = {"name": "mpi", "image": "example/mpi:1", **container}
    if resources:
        one["resources"] = resources
    document = {"template": {"spec": {"containers": [one], **(pod or {})}}}
    if replicas is not None:
        document["replicas"] = replicas
    if restart:
        document["restartPolicy"] = restart
    return document


def manifest(kind, version, spec, name="job", namespace="team", **metadata):
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": spec,
    }


def life(spec, *events):
    """A job after these events, of which one happens every ten seconds after its submission."""
    first = e.JobSubmitted("j1", "team", "job", spec)
    job = begin(e.Recorded(1, 0.0, first, ""))
    for number, event in enumerate(events, start=1):
        job = evolve(job, e.Recorded(number + 1, 10.0 * number, event, ""))
    return job


def placed(spec):
    return e.GangPlaced("j1", 1, (Slot("n1"),) * spec.size)
