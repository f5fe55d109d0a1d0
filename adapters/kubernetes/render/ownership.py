"""Jobs that were created from custom resources of the cluster, and their owner references. Pure."""

from adapters.kubernetes.render.site import Owner, owner
from controlplane.lifecycle.job import Job

# The annotation with the uid of the resource that a job was created from, which is the job's id.
RESOURCE = "muster.dev/resource"


def is_resource(job: Job) -> bool:
    """Return whether the job was created from a resource of the cluster and is deleted with it."""
    return job.spec.annotations.get(RESOURCE) == job.id


def owner_of(job: Job) -> Owner | None:
    """Return the owner reference for the job's objects, or None if it has no resource.

    Kubernetes deletes the objects together with their owner.
    """
    if not is_resource(job):
        return None
    spec = job.spec
    return owner(version=spec.version, kind=spec.kind, name=job.name, uid=job.id)
