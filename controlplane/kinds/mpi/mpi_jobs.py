"""Parts that all versions of MPIJob share: launcher, workers, their names and their files."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from controlplane.kinds.kind import About, Files, GangContext, Submission
from controlplane.kinds.kubeflow import kubeflow
from controlplane.kinds.manifest.checking import MANAGERS, check_range
from controlplane.kinds.manifest.manifest import Metadata, RunPolicy
from controlplane.kinds.manifest.pods import ReplicaSpec, role_of
from controlplane.kinds.manifest.structure import shown
from controlplane.kinds.manifest.validation import Findings
from controlplane.kinds.mpi.hostfile import CONFIG_PATH, HOSTFILE, READABLE, RUNNABLE
from controlplane.model.errors import Rejected
from controlplane.model.spec import DoneWhen, RestartRule, Role

LAUNCHER, WORKER = "Launcher", "Worker"
MPI = kubeflow.Framework(
    kind="MPIJob",
    field="mpiReplicaSpecs",
    # The launcher is rank 0.
    roles=(LAUNCHER, WORKER),
    # MPI runs in the first container, regardless of its name, and needs no declared port.
    container="",
    port_name="",
    port=0,
    restart=RestartRule.NEVER,
    # Workers run sshd or sleep, and serve the launcher until the job ends.
    serving=(WORKER,),
    operator="mpijob-controller",
    replicas={WORKER: 0},
)
ABOUT = About(
    roles=MPI.roles,
    container="the first",
    restart="OnFailure, workers Never (v2beta1); Never (v1)",
    decides="the Launcher",
)
SLOTS_MAX = 100_000
HOSTFILE_PATH = f"{CONFIG_PATH}/{HOSTFILE}"
# A launcher without GPUs must not see any. Without these variables some container runtimes expose
# all of them.
NO_GPUS = {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}


class Generation(NamedTuple):
    """The differences between versions in how roles are read."""

    version: str
    restart: Mapping[str, RestartRule]
    restarts_allowed: tuple[RestartRule, ...] = tuple(RestartRule)
    # The least number of replicas of a worker role, if there is one.
    workers_min: int = 0
    managers: tuple[str, ...] = MANAGERS


def read_roles(
    generation: Generation, given: Mapping[str, ReplicaSpec] | None, findings: Findings
) -> tuple[Role, ...]:
    """Return the launcher and the workers; the names of roles are case-insensitive."""
    if given is None:
        findings.required(MPI.path, "a Launcher is needed, and Workers for it to launch on")
        return ()
    replicas: dict[str, ReplicaSpec] = {}
    for key, replica in given.items():
        name = key.capitalize()
        if name not in MPI.roles:
            message = f"no such role; the roles are: {', '.join(MPI.roles)}"
            findings.unsupported(f"{MPI.path}[{shown(key)}]", message)
        elif name in replicas:
            findings.duplicate(f"{MPI.path}[{shown(key)}]", f"{name} is given twice")
        else:
            replicas[name] = replica
    if LAUNCHER not in replicas:
        findings.required(f"{MPI.path}[{LAUNCHER}]", "a launcher is needed: it decides the job")
    return tuple(
        _read_role(generation, name, replicas[name], findings)
        for name in MPI.roles
        if name in replicas
    )


def _read_role(generation: Generation, name: str, replica: ReplicaSpec, findings: Findings) -> Role:
    where = f"{MPI.path}[{name}]"
    if replica.restartPolicy not in (None, *generation.restarts_allowed):
        allowed = ", ".join(generation.restarts_allowed)
        message = f"{replica.restartPolicy} is not one of {allowed}"
        findings.unsupported(f"{where}.restartPolicy", message)
    role = role_of(
        where,
        name,
        replica,
        findings,
        container=MPI.container,
        restart=generation.restart[name],
        replicas=MPI.replicas.get(name, 1),
        is_server=name in MPI.serving,
    )
    # Elastic Horovod lets workers join and leave while the launcher keeps running.
    if name == WORKER:
        role = replace(role, min_replicas=generation.workers_min)
    if name == LAUNCHER and role.replicas != 1:
        findings.invalid(f"{where}.replicas", f"there is one launcher, not {role.replicas}")
    if name == WORKER and 0 <= role.replicas < generation.workers_min:
        message = f"{role.replicas} is not at least {generation.workers_min}; leave the role out"
        findings.invalid(f"{where}.replicas", message)
    return role


def check_slots(slots: int, findings: Findings, field: str = "spec.slotsPerWorker") -> None:
    check_range(field, slots, 1, SLOTS_MAX, findings)


class Clean(NamedTuple):
    """A run policy, and which of its fields were given in `spec` itself."""

    policy: RunPolicy
    flat: frozenset[str] = frozenset()


def one_clean_policy(policy: RunPolicy, beside: str | None, findings: Findings) -> Clean:
    """Merge the clean-up policy `beside`, given in `spec` itself, into the run policy.

    The run policy's own value takes precedence.
    """
    if beside is None:
        return Clean(policy)
    if policy.cleanPodPolicy is None:
        return Clean(replace(policy, cleanPodPolicy=beside), frozenset({"cleanPodPolicy"}))
    if policy.cleanPodPolicy != beside:
        message = f"{shown(beside)} gives way to {shown(policy.cleanPodPolicy)} of spec.runPolicy"
        findings.warn(f"spec.cleanPodPolicy: {message}")
    return Clean(policy)


def submission(
    generation: Generation,
    metadata: Metadata,
    clean: Clean,
    roles: tuple[Role, ...],
    options: Mapping[str, Any],
    findings: Findings,
) -> Submission:
    """Return the submission of an MPIJob, which its launcher decides."""
    return kubeflow.submission(
        MPI,
        generation.version,
        metadata,
        clean.policy,
        roles,
        DoneWhen(LAUNCHER),
        findings,
        options,
        flat=clean.flat,
        managers=generation.managers,
    )


def needed(job: Submission, name: str) -> Role:
    """Return a role without which the job cannot be written; raises Rejected if it is missing."""
    role = job.spec.role(name)
    if role is None:
        message = f"a {job.spec.kind} needs a role {name}"
        raise Rejected("cannot_convert", message, field="spec.roles")
    return role


# ------------------------------------------------------------------ rank environments


def pod_name(gang: GangContext, rank: int) -> str:
    role, index = gang.spec.role_of(rank)
    return launcher_name(gang) if role.name == LAUNCHER else worker_name(gang, index)


def launcher_name(gang: GangContext) -> str:
    return f"{gang.name}-launcher"


def worker_name(gang: GangContext, index: int) -> str:
    return f"{gang.name}-worker-{index}"


def worker_names(gang: GangContext) -> list[str]:
    return [worker_name(gang, index) for index in range(len(gang.spec.ranks_of(WORKER)))]


def running_workers(gang: GangContext, running: Collection[int]) -> list[int]:
    """Return the running workers by name, so that a script changes only with them."""
    workers = gang.spec.ranks_of(WORKER)
    return sorted((i for i in running if i in workers), key=lambda rank: pod_name(gang, rank))


def config_name(gang: GangContext) -> str:
    return f"{gang.name}-config"


def config(gang: GangContext, contents: dict[str, str]) -> Files:
    """Return the group of configuration files of an MPI job, such as its host file."""
    modes = {name: RUNNABLE if name.endswith(".sh") else READABLE for name in contents}
    return Files(name=config_name(gang), contents=contents, modes=modes, volume="mpi-job-config")
