"""MPIJob: a launcher that starts a program on its workers and decides the job; Horovod uses it.

There are two generations: v2beta1 logs in with ssh, the older versions use `kubectl exec`.
"""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from controlplane.kinds.kind import (
    Duty,
    Files,
    GangContext,
    Kind,
    RankEnvironment,
    Service,
    launched_duties,
)
from controlplane.kinds.mpi import mpi_exec, v1, v1alpha1, v2beta1
from controlplane.kinds.mpi.mpi_jobs import ABOUT, LAUNCHER, WORKER
from controlplane.model.spec import JobSpec


class Way(NamedTuple):
    """The functions that make the rank environments, services and files of one version."""

    environments: Callable[[GangContext], Callable[[int], RankEnvironment]]
    services: Callable[[GangContext], Sequence[Service]] = mpi_exec.services
    files: Callable[[GangContext, Collection[int]], Sequence[Files]] = mpi_exec.files


WAYS = {
    v2beta1.FORM.version: Way(v2beta1.environments, v2beta1.services, v2beta1.files),
    v1.FORM.version: Way(v1.environments),
    v1.FORM_V1ALPHA2.version: Way(v1.environments_v1alpha2),
    v1alpha1.FORM.version: Way(v1alpha1.environments),
}


def environments(gang: GangContext) -> Callable[[int], RankEnvironment]:
    return WAYS[gang.spec.version].environments(gang)


def services(gang: GangContext) -> Sequence[Service]:
    return WAYS[gang.spec.version].services(gang)


def files(gang: GangContext, running: Collection[int]) -> Sequence[Files]:
    return WAYS[gang.spec.version].files(gang, running)


def duties(spec: JobSpec) -> dict[str, Duty]:
    """Return the duties by role.

    In the versions that use `kubectl exec`, a launcher that requests a GPU computes too.
    """
    by_exec = spec.version != v2beta1.FORM.version
    works = mpi_exec.gpu_launcher(spec) if by_exec else spec.options.get("runLauncherAsWorker")
    return launched_duties(spec, LAUNCHER, WORKER, launcher_works=bool(works))


def kept(spec: JobSpec) -> Collection[str]:
    """Return the roles whose ended pods are kept.

    In v2beta1 the launcher is a Job of Kubernetes, which keeps its ended pods.
    """
    return (LAUNCHER,) if spec.version == v2beta1.FORM.version else ()


KIND = Kind(
    name="MPIJob",
    forms=(v2beta1.FORM, v1.FORM, v1.FORM_V1ALPHA2, v1alpha1.FORM),
    environments=environments,
    services=services,
    files=files,
    about=ABOUT,
    duties=duties,
    kept=kept,
)
