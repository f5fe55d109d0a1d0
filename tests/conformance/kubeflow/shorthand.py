"""The scenarios' short forms of manifests, and of what is compared with them."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from adapters.kubernetes.render.objects import Rendering
from adapters.kubernetes.render.site import Site
from controlplane.kinds.kind import Submission
from controlplane.lifecycle.job import Job, begin, evolve
from controlplane.model import events as e
from controlplane.model.cluster import Slot
from tests.conformance.kubeflow import manifests
from tests.conformance.kubeflow.cluster import JOB
from tests.conformance.kubeflow.expecting import require_distinct, require_word

# How the number of a role's replicas is written.
ROLES = {
    "chief": "Chief",
    "master": "Master",
    "launcher": "Launcher",
    "scheduler": "Scheduler",
    "server": "Server",
    "ps": "PS",
    "worker": "Worker",
    "workers": "Worker",
    "evaluator": "Evaluator",
}
PORT_NAMES = {
    "TFJob": "tfjob-port",
    "PyTorchJob": "pytorchjob-port",
    "XGBoostJob": "xgboostjob-port",
    "PaddleJob": "master",
    "JAXJob": "jaxjob-port",
    "MXJob": "mxjob-port",
}
# Variables that some kind sets for some rank: only of these does it mean anything to be absent.
VARIABLES = frozenset(
    [
        *("TF_CONFIG", "PYTHONUNBUFFERED", "MASTER_PORT", "MASTER_ADDR", "WORLD_SIZE", "RANK"),
        *("PET_MASTER_PORT", "PET_MASTER_ADDR", "PET_NODE_RANK", "PET_NPROC_PER_NODE"),
        *("PET_NNODES", "PET_RDZV_ENDPOINT", "PET_RDZV_BACKEND", "PET_RDZV_ID", "PET_RDZV_CONF"),
        *("PET_MAX_RESTARTS", "PET_STANDALONE", "WORKER_PORT", "WORKER_ADDRS"),
        *("PADDLE_JOB_ID", "PADDLE_NNODES", "PADDLE_MASTER", "POD_IP_DUMMY"),
        *("PADDLE_SERVER_NUM", "PADDLE_TRAINER_NUM"),
        *("COORDINATOR_PORT", "COORDINATOR_ADDRESS", "NUM_PROCESSES", "PROCESS_ID"),
        *("MX_CONFIG", "DMLC_PS_ROOT_PORT", "DMLC_PS_ROOT_URI", "DMLC_NUM_SERVER"),
        *("DMLC_NUM_WORKER", "DMLC_ROLE", "DMLC_USE_KUBERNETES", "DMLC_WORKER_ID"),
        *("K_MPI_JOB_ROLE", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"),
        *("OMPI_MCA_orte_keep_fqdn_hostnames", "OMPI_MCA_orte_default_hostfile"),
        *("OMPI_MCA_plm_rsh_args", "OMPI_MCA_plm_rsh_agent", "OMPI_MCA_orte_set_default_slots"),
        *("I_MPI_HYDRA_HOST_FILE", "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", "I_MPI_PERHOST"),
        *("I_MPI_HYDRA_BOOTSTRAP", "I_MPI_HYDRA_BOOTSTRAP_EXEC"),
        *("HYDRA_HOST_FILE", "HYDRA_LAUNCH_EXTRA_ARGS"),
    ]
)
SIDECAR = {"name": "sidecar", "image": "example.com/sidecar:1"}


def roles_of(
    kind: str, given: Mapping[str, Any], *, sidecar: bool = True, **container: Any
) -> dict[str, Any]:
    """Replica specs from counts by role; a role with none is left out."""
    roles = {}
    for key, role in ROLES.items():
        if isinstance(given.get(key), int) and given[key] > 0:
            spec = manifests.replica(kind, {"replicas": given[key]}, **container)
            if sidecar:
                spec["template"]["spec"]["containers"].append(SIDECAR)
            roles[role] = spec
    return roles


def ports(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    if "port" not in given:
        return {}
    return {"ports": [{"name": PORT_NAMES[kind], "containerPort": given["port"]}]}


def placed(submission: Submission) -> Job:
    """The job after all of its ranks were given a place."""
    submitted = e.JobSubmitted(JOB, submission.namespace, submission.name, submission.spec)
    job = begin(e.Recorded(1, 0.0, submitted))
    placement = tuple(Slot("node-0") for _ in range(submission.spec.size))
    return evolve(job, e.Recorded(2, 0.0, e.GangPlaced(JOB, 1, placement)))


def rendering(document: Mapping[str, Any], site: Site | None = None) -> Rendering:
    submission = manifests.understood(document)
    return Rendering(placed(submission), manifests.kind_named(submission.spec.kind), site)


def rank_called(rendering: Rendering, name: str) -> int:
    """The rank that a scenario calls worker-0."""
    ranks = [i for i, pod in enumerate(rendering.names) if pod.endswith(f"-{name}")]
    assert len(ranks) == 1, f"no pod {name} among {rendering.names}"
    return ranks[0]


def env_of(container: Mapping[str, Any]) -> dict[str, Any]:
    """A container's variables as the scenarios write them."""
    return {each["name"]: _value(each) for each in container.get("env", [])}


def _value(variable: Mapping[str, Any]) -> str:
    source = variable.get("valueFrom")
    if source:
        return f"fieldRef:{source['fieldRef']['fieldPath']}"
    return str(variable.get("value", ""))


def is_same_text(ours: object, theirs: object) -> bool:
    """Whether two values are the same text, or the same JSON document."""
    if ours is None or str(ours) == str(theirs):
        return ours is not None
    try:
        return bool(json.loads(str(ours)) == json.loads(str(theirs)))
    except ValueError:
        return False


def compare_env(container: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    ours = env_of(container)
    wrong = {
        name: (ours.get(name), value)
        for name, value in expected.items()
        if not is_same_text(ours.get(name), value)
    }
    assert not wrong, f"(ours, theirs): {wrong}"


def lacks(container: Mapping[str, Any], names: Iterable[str]) -> None:
    names = list(names)
    require_distinct("absent variables", names)
    for name in names:
        require_word("variable", name, VARIABLES)
    present = [name for name in names if name in env_of(container)]
    assert not present, f"{present} should not be set"
