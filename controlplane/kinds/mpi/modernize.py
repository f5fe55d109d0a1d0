"""Conversion of MPIJobs of older versions to v2beta1, whose launcher logs in with ssh."""

from msgspec.structs import replace

from controlplane.kinds.kind import Modern, Submission
from controlplane.kinds.manifest.checking import MPI_OPERATOR, TRAINING_OPERATOR
from controlplane.kinds.manifest.pods import container_of
from controlplane.kinds.mpi import hostfile, mpi_exec
from controlplane.kinds.mpi import mpi_jobs as mpi
from controlplane.model.spec import JobSpec, RestartRule, Role

# Restart rules that v2beta1 lacks, each with the nearest one that it has.
NEAREST = {
    RestartRule.ALWAYS: RestartRule.ON_FAILURE,
    RestartRule.EXIT_CODE: RestartRule.ON_FAILURE,
}
SSH_NEEDED = "the launcher logs in with ssh, so the images need an SSH server and client"


def modern(job: Submission) -> Modern:
    """Convert a job to v2beta1; its ranks run the same commands, but over ssh."""
    spec, warnings = job.spec, [SSH_NEEDED]
    for role in spec.roles:
        if role.restart in NEAREST:
            rule = NEAREST[role.restart]
            warnings.append(f"{role.name} restarts by {rule}; {role.restart} is not known any more")
    main = spec.options.get("mainContainer", "")
    worker = spec.role(mpi.WORKER)
    if main and worker is not None and container_of(worker).get("name") != main:
        warnings.append(f"MPI runs in the first container of the workers; before, in {main!r}")
    # A worker role without replicas is left out.
    roles = tuple(_role(role) for role in spec.roles if role.replicas or role.name != mpi.WORKER)
    managed_by = MPI_OPERATOR if spec.managed_by == TRAINING_OPERATOR else spec.managed_by
    changed = replace(spec, roles=roles, options=_options(spec), managed_by=managed_by)
    return Modern(replace(job, spec=changed), tuple(warnings))


def _role(role: Role) -> Role:
    least = 1 if role.name == mpi.WORKER else role.min_replicas
    changed = replace(role, restart=NEAREST.get(role.restart, role.restart), min_replicas=least)
    return _awake(changed) if role.name == mpi.WORKER else changed


def _awake(worker: Role) -> Role:
    """Return the worker without its sleep command; v2beta1 runs an SSH server by default."""
    first = container_of(worker)
    if [*first.get("command", ()), *first.get("args", ())] != list(mpi_exec.SLEEP):
        return worker
    pod = worker.template["spec"]
    kept = [
        {k: v for k, v in each.items() if k not in ("command", "args")} if each is first else each
        for each in pod["containers"]
    ]
    template = {**worker.template, "spec": {**pod, "containers": kept}}
    return replace(worker, template=template, command=(), args=())


def _options(spec: JobSpec) -> dict[str, object]:
    launcher = spec.role(mpi.LAUNCHER)
    waits = launcher is not None and bool(launcher.starts_after)
    kept = {name: spec.options[name] for name in ("runPolicy",) if name in spec.options}
    distribution = spec.options.get("mpiDistribution", "open_mpi")
    return {
        **kept,
        "slotsPerWorker": spec.options["slotsPerWorker"],
        "runLauncherAsWorker": mpi_exec.gpu_launcher(spec),
        "sshAuthMountPath": hostfile.SSH_PATH,
        "launcherCreationPolicy": "WaitForWorkersReady" if waits else "AtStartup",
        "mpiImplementation": mpi_exec.DISTRIBUTIONS[distribution],
    }
