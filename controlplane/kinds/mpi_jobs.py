"""What all generations of MPIJob share: one launcher, its workers, their names and their files."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from controlplane.errors import Rejected
from controlplane.kinds import kubeflow
from controlplane.kinds.checking import MANAGERS, check_range
from controlplane.kinds.findings import Findings
from controlplane.kinds.hostfile import CONFIG_PATH, HOSTFILE, READABLE, RUNNABLE
from controlplane.kinds.kind import About, Files, Gang, Submission
from controlplane.kinds.manifest import Metadata, RunPolicy
from controlplane.kinds.pods import ReplicaSpec, role_of
from controlplane.kinds.structure import shown
from controlplane.model import DoneWhen, RestartRule, Role

LAUNCHER, WORKER = "Launcher", "Worker"
MPI = kubeflow.Framework(
    kind="MPIJob",
    field="mpiReplicaSpecs",
    # The launcher is rank 0.
    roles=(LAUNCHER, WORKER),
    # MPI runs in the first container, whatever its name, and needs no port of ours.
    container="",
    port_name="",
    port=0,
    restart=RestartRule.NEVER,
    # Workers wait for the launcher's orders (sshd, or sleep) until the job is over.
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
# A launcher without GPUs must not see any, whatever the container runtime makes of its silence.
NO_GPUS = {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}


class Generation(NamedTuple):
    """What differs between versions while the roles are read."""

    version: str
    restart: Mapping[str, RestartRule]
    restarts_allowed: tuple[RestartRule, ...] = tuple(RestartRule)
    # A worker role that is there has at least so many replicas.
    workers_min: int = 0
    managers: tuple[str, ...] = MANAGERS


def read_roles(
    generation: Generation, given: Mapping[str, ReplicaSpec] | None, findings: Findings
) -> tuple[Role, ...]:
    """The launcher and the workers; roles may be spelt in any case."""
    if given is None:
        findings.required(MPI.path, "a Launcher is needed, and Workers for it to launch on")
        return ()
    found: dict[str, ReplicaSpec] = {}
    for key, replica in given.items():
        name = key.capitalize()
        if name not in MPI.roles:
            told = f"no such role; the roles are: {', '.join(MPI.roles)}"
            findings.unsupported(f"{MPI.path}[{shown(key)}]", told)
        elif name in found:
            findings.duplicate(f"{MPI.path}[{shown(key)}]", f"{name} is given twice")
        else:
            found[name] = replica
    if LAUNCHER not in found:
        findings.required(f"{MPI.path}[{LAUNCHER}]", "a launcher is needed: it decides the job")
    return tuple(
        _read_role(generation, name, found[name], findings) for name in MPI.roles if name in found
    )


def _read_role(generation: Generation, name: str, replica: ReplicaSpec, findings: Findings) -> Role:
    where = f"{MPI.path}[{name}]"
    if replica.restartPolicy not in (None, *generation.restarts_allowed):
        allowed = ", ".join(generation.restarts_allowed)
        told = f"{replica.restartPolicy} is not one of {allowed}"
        findings.unsupported(f"{where}.restartPolicy", told)
    role = role_of(
        where,
        name,
        replica,
        findings,
        container=MPI.container,
        restart=generation.restart[name],
        replicas=MPI.replicas.get(name, 1),
        serves=name in MPI.serving,
    )
    # Workers come and go while the launcher runs on: elastic Horovod is made for that.
    if name == WORKER:
        role = replace(role, min_replicas=generation.workers_min)
    if name == LAUNCHER and role.replicas != 1:
        findings.invalid(f"{where}.replicas", f"there is one launcher, not {role.replicas}")
    if name == WORKER and 0 <= role.replicas < generation.workers_min:
        told = f"{role.replicas} is not at least {generation.workers_min}; leave the role out"
        findings.invalid(f"{where}.replicas", told)
    return role


def check_slots(slots: int, findings: Findings, field: str = "spec.slotsPerWorker") -> None:
    check_range(field, slots, 1, SLOTS_MAX, findings)


class Clean(NamedTuple):
    """A run policy, and which of its fields stood in `spec` itself."""

    policy: RunPolicy
    flat: frozenset[str] = frozenset()


def one_clean_policy(policy: RunPolicy, beside: str | None, findings: Findings) -> Clean:
    """The run policy with the other place where a clean-up policy may stand; its own one wins."""
    if beside is None:
        return Clean(policy)
    if policy.cleanPodPolicy is None:
        return Clean(replace(policy, cleanPodPolicy=beside), frozenset({"cleanPodPolicy"}))
    if policy.cleanPodPolicy != beside:
        told = f"{shown(beside)} gives way to {shown(policy.cleanPodPolicy)} of spec.runPolicy"
        findings.warn(f"spec.cleanPodPolicy: {told}")
    return Clean(policy)


def submission(
    generation: Generation,
    metadata: Metadata,
    clean: Clean,
    roles: tuple[Role, ...],
    options: Mapping[str, Any],
    findings: Findings,
) -> Submission:
    """An MPIJob as the control plane knows it: its launcher decides."""
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
    """A role without which there is nothing to write."""
    role = job.spec.role(name)
    if role is None:
        told = f"a {job.spec.kind} needs a role {name}"
        raise Rejected("cannot_convert", told, field="spec.roles")
    return role


# ------------------------------------------------------------------ what ranks are told


def pod_name(gang: Gang, rank: int) -> str:
    role, index = gang.spec.role_of(rank)
    return launcher_name(gang) if role.name == LAUNCHER else worker_name(gang, index)


def launcher_name(gang: Gang) -> str:
    return f"{gang.name}-launcher"


def worker_name(gang: Gang, index: int) -> str:
    return f"{gang.name}-worker-{index}"


def worker_names(gang: Gang) -> list[str]:
    return [worker_name(gang, index) for index in range(len(gang.spec.ranks_of(WORKER)))]


def running_workers(gang: Gang, running: Collection[int]) -> list[str]:
    """The names of the workers that run now, in the order of names, so that a script is steady."""
    first = gang.spec.ranks_of(WORKER)
    return sorted(worker_name(gang, rank - first.start) for rank in running if rank in first)


def config_name(gang: Gang) -> str:
    return f"{gang.name}-config"


def config(gang: Gang, contents: dict[str, str]) -> Files:
    """The group of files that tells MPI who takes part."""
    modes = {name: RUNNABLE if name.endswith(".sh") else READABLE for name in contents}
    return Files(name=config_name(gang), contents=contents, modes=modes, volume="mpi-job-config")
