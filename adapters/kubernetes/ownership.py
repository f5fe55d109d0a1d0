"""Jobs that are objects of the cluster: whose they are, and what hangs on those objects. Pure."""

from adapters.kubernetes.site import Owner, owner
from controlplane.job import Job

# The uid of the resource that a job was made from; it is also the job's id.
RESOURCE = "muster.dev/resource"


def is_resource(job: Job) -> bool:
    """Whether the job was made from a resource of the cluster, and lives and dies with it."""
    return job.spec.annotations.get(RESOURCE) == job.id


def owner_of(job: Job) -> Owner | None:
    """What everything made for the job hangs on, so that deleting it takes everything along."""
    if not is_resource(job):
        return None
    spec = job.spec
    return owner(version=spec.version, kind=spec.kind, name=job.name, uid=job.id)
