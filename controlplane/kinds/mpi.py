"""MPIJob: a launcher that starts a program on its workers and decides the job. Horovod's home.

Two generations: v2beta1 logs in with ssh, the older ones use `kubectl exec`.
"""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from controlplane.kinds import mpi_exec, mpi_v1, mpi_v1alpha1, mpi_v2beta1
from controlplane.kinds.kind import Duty, Files, Gang, Kind, Service, Told, launched_duties
from controlplane.kinds.mpi_jobs import ABOUT, LAUNCHER, WORKER
from controlplane.model import JobSpec


class Way(NamedTuple):
    """How the ranks of one version are told."""

    tell: Callable[[Gang], Callable[[int], Told]]
    services: Callable[[Gang], Sequence[Service]] = mpi_exec.services
    files: Callable[[Gang, Collection[int]], Sequence[Files]] = mpi_exec.files


WAYS = {
    mpi_v2beta1.FORM.version: Way(mpi_v2beta1.tell, mpi_v2beta1.services, mpi_v2beta1.files),
    mpi_v1.FORM.version: Way(mpi_v1.tell),
    mpi_v1.FORM_V1ALPHA2.version: Way(mpi_v1.tell_v1alpha2),
    mpi_v1alpha1.FORM.version: Way(mpi_v1alpha1.tell),
}


def tell(gang: Gang) -> Callable[[int], Told]:
    return WAYS[gang.spec.version].tell(gang)


def services(gang: Gang) -> Sequence[Service]:
    return WAYS[gang.spec.version].services(gang)


def files(gang: Gang, running: Collection[int]) -> Sequence[Files]:
    return WAYS[gang.spec.version].files(gang, running)


def duties(spec: JobSpec) -> dict[str, Duty]:
    """In the versions that use `kubectl exec` a launcher with a GPU is a host among the others."""
    by_exec = spec.version != mpi_v2beta1.FORM.version
    works = mpi_exec.gpu_launcher(spec) if by_exec else spec.options.get("runLauncherAsWorker")
    return launched_duties(spec, LAUNCHER, WORKER, launcher_works=bool(works))


def kept(spec: JobSpec) -> Collection[str]:
    """In v2beta1 the launcher was a job of Kubernetes, which keeps its pods when they have ended."""
    return (LAUNCHER,) if spec.version == mpi_v2beta1.FORM.version else ()


KIND = Kind(
    name="MPIJob",
    forms=(mpi_v2beta1.FORM, mpi_v1.FORM, mpi_v1.FORM_V1ALPHA2, mpi_v1alpha1.FORM),
    tell=tell,
    services=services,
    files=files,
    about=ABOUT,
    duties=duties,
    kept=kept,
)
