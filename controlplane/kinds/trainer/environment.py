"""Rank environments of a TrainJob, by the ML policy of its runtime."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from controlplane.kinds.kind import Files, GangContext, RankEnvironment, Service
from controlplane.kinds.manifest.pods import ContainerPort
from controlplane.kinds.mpi import hostfile
from controlplane.kinds.trainer.runtimes import LAUNCHER, NODE, PORT, RUNTIMES, Runtime
from controlplane.model import quantities as q
from controlplane.model.spec import JobSpec

# JobSet numbers its pods in this annotation, from which the policies read the index.
INDEX = "batch.kubernetes.io/job-completion-index"
INDEX_FIELD = f"metadata.annotations['{INDEX}']"
JOBSET = "jobset.sigs.k8s.io/jobset-name"
REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
KEY_MODES = {"id_rsa": 0o640, "id_rsa.pub": 0o644, "authorized_keys": 0o644}


def port(number: int) -> ContainerPort:
    return ContainerPort(containerPort=number)


def runtime_of(spec: JobSpec) -> Runtime:
    return RUNTIMES[spec.options["runtimeRef"]["name"]]


def is_known(spec: JobSpec) -> bool:
    """Return whether the job names a known runtime; a job written in the native form may not."""
    reference = spec.options.get("runtimeRef")
    name = reference.get("name") if isinstance(reference, dict) else None
    return isinstance(name, str) and name in RUNTIMES


def nodes(spec: JobSpec) -> int:
    """Return the number of nodes that train; the launcher of MPI may be one of them."""
    works = runtime_of(spec).policy == "mpi" and runtime_of(spec).launcher_works
    return len(spec.ranks_of(NODE)) + works


def processes(spec: JobSpec) -> int | str:
    """Return the number of processes of a node, or a word that torchrun understands.

    It is `numProcPerNode` if given; otherwise one for each GPU (`auto` for torch), or, for torch
    without GPUs, one for each CPU. It is at least 1.
    """
    trainer = spec.options["trainer"]
    asked: int | str | None = trainer.get("numProcPerNode")
    if asked not in (None, "auto"):
        assert asked is not None
        return asked
    resources = trainer.get("resourcesPerNode", {})
    gpus = _amount(resources, "gpu")
    if runtime_of(spec).policy == "torch":
        return "auto" if gpus else max(1, _cpus(resources))
    return max(1, gpus)


def _amount(resources: Mapping[str, Any], part: str) -> int:
    """Return the request, or else the limit, of the resource with `part` in its name; 0 if none."""
    for sort in ("requests", "limits"):
        for name, amount in sorted(resources.get(sort, {}).items()):
            quantity = q.parse(amount)
            if part in name.lower() and quantity is not None and quantity.whole:
                return quantity.whole
    return 0


def _cpus(resources: Mapping[str, Any]) -> int:
    only = {sort: {"cpu": of["cpu"]} for sort, of in resources.items() if "cpu" in of}
    return _amount(only, "cpu")


# ------------------------------------------------------------------ ranks


def environments(gang: GangContext) -> Callable[[int], RankEnvironment]:
    spec, policy = gang.spec, runtime_of(gang.spec).policy
    env, env_from_pod = ENV[policy](gang)
    trains = LAUNCHER if policy == "mpi" else NODE

    def environment(rank: int) -> RankEnvironment:
        role, index = spec.role_of(rank)
        name = _pod_name(gang, role.name, index)
        labels = {JOBSET: gang.name, REPLICATED_JOB: role.name, INDEX: str(index)}
        step = {STEP: "trainer"} if role.name == trains else {}
        return RankEnvironment(
            name=name,
            labels={**labels, **step},
            annotations={INDEX: str(index)},
            env=env if role.name == trains else {},
            env_from_pod=env_from_pod,
            all_containers=False,
            hostname=name,
            subdomain=gang.name,
            mounts=_mounts(gang, role.name) if policy == "mpi" else {},
        )

    return environment


def _pod_name(gang: GangContext, job: str, index: int) -> str:
    return f"{gang.name}-{job}-0-{index}"


def _host(gang: GangContext, job: str, index: int) -> str:
    rank = gang.spec.ranks_of(job).start + index
    return gang.host(rank, f"{_pod_name(gang, job, index)}.{gang.name}")


def _first_node(gang: GangContext) -> str:
    return _host(gang, NODE, 0)


def _port(gang: GangContext) -> int:
    """Return the port of the first node, on which the others meet it."""
    return gang.port(gang.spec.ranks_of(NODE).start, PORT)


def _mounts(gang: GangContext, job: str) -> dict[str, str]:
    keys = {runtime_of(gang.spec).ssh_path: f"{gang.name}-mpi-ssh-auth"}
    hosts = {hostfile.CONFIG_PATH: f"{gang.name}-mpi-hostfile"}
    return {**keys, **hosts} if job == LAUNCHER else keys


Env = tuple[dict[str, str], dict[str, str]]


def _torch(gang: GangContext) -> Env:
    return {
        "PET_NNODES": str(nodes(gang.spec)),
        "PET_NPROC_PER_NODE": str(processes(gang.spec)),
        "PET_MASTER_ADDR": _first_node(gang),
        "PET_MASTER_PORT": str(_port(gang)),
    }, {"PET_NODE_RANK": INDEX_FIELD}


def _jax(gang: GangContext) -> Env:
    return {
        "JAX_NUM_PROCESSES": str(nodes(gang.spec)),
        "JAX_COORDINATOR_ADDRESS": f"{_first_node(gang)}:{_port(gang)}",
    }, {"JAX_PROCESS_ID": INDEX_FIELD}


def _xgboost(gang: GangContext) -> Env:
    """Return the variables of XGBoost: one worker for each GPU, or for each node without GPUs.

    `numProcPerNode` applies to torch only.
    """
    gpus = _amount(gang.spec.options["trainer"].get("resourcesPerNode", {}), "gpu")
    return {
        "DMLC_TRACKER_URI": _first_node(gang),
        "DMLC_TRACKER_PORT": str(_port(gang)),
        "DMLC_NUM_WORKER": str(nodes(gang.spec) * max(1, gpus)),
    }, {"DMLC_TASK_ID": INDEX_FIELD}


def _mpi(gang: GangContext) -> Env:
    path = f"{hostfile.CONFIG_PATH}/{hostfile.HOSTFILE}"
    return hostfile.over_ssh("OpenMPI", path, int(processes(gang.spec))), {}


ENV: dict[str, Callable[[GangContext], Env]] = {
    "torch": _torch,
    "jax": _jax,
    "xgboost": _xgboost,
    "mpi": _mpi,
}


def services(gang: GangContext) -> Sequence[Service]:
    """Return one service for all pods; its names resolve before the pods are ready."""
    return (Service(name=gang.name, selector={JOBSET: gang.name}, before_ready=True),)


def files(gang: GangContext, running: Collection[int]) -> Sequence[Files]:
    spec, runtime = gang.spec, runtime_of(gang.spec)
    if runtime.policy != "mpi":
        return ()
    takes_part = (NODE, LAUNCHER) if runtime.launcher_works else (NODE,)
    hosts = [
        _host(gang, role.name, index)
        for role in spec.roles
        if role.name in takes_part
        for index in range(role.replicas)
    ]
    listed = hostfile.hostfile("OpenMPI", hosts, int(processes(spec)))
    return (
        Files(
            name=f"{gang.name}-mpi-hostfile",
            contents={hostfile.HOSTFILE: listed},
            modes={hostfile.HOSTFILE: hostfile.READABLE},
            volume="mpi-hostfile",
        ),
        Files(
            name=f"{gang.name}-mpi-ssh-auth",
            ssh_keys=True,
            modes=KEY_MODES,
            mode=0o400,
            volume="mpi-ssh-auth",
        ),
    )
