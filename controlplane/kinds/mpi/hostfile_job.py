"""HostfileJob, a kind of Muster: for programs that need a host file and SSH access to the hosts.

CNTK with 1-bit SGD, Caffe over MPI and many programs of their age never had an operator. They need a
launcher that runs the command, workers with an SSH server, a key pair, and a host file. The host file
follows from the number of replicas, so it is written before any rank runs.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, to_builtins
from msgspec.structs import replace

from controlplane.kinds.kind import (
    About,
    Duty,
    Files,
    Form,
    GangContext,
    Kind,
    RankEnvironment,
    Service,
    Submission,
    launched_duties,
)
from controlplane.kinds.kubeflow.kubeflow import check_gang
from controlplane.kinds.manifest.checking import SECONDS_MAX, check_choice, check_range, problems
from controlplane.kinds.manifest.manifest import Metadata, RunPolicy, policy_of, written_metadata
from controlplane.kinds.manifest.pods import PodTemplate, ReplicaSpec, role_of
from controlplane.kinds.manifest.structure import shown
from controlplane.kinds.manifest.validation import Findings
from controlplane.kinds.mpi import hostfile
from controlplane.kinds.mpi.mpi_jobs import LAUNCHER, NO_GPUS, WORKER, check_slots, needed
from controlplane.kinds.mpi.v2beta1 import SSH_SERVER, dns_policy
from controlplane.model.spec import DoneWhen, JobSpec, RestartPolicy, RestartRule, Role

VERSION = "muster.dev/v1"
# Formats of the host file; each also selects the launcher variables that name the file.
FORMATS = tuple(hostfile.DIALECTS)
JOB_NAME, JOB_ROLE, INDEX = "muster.dev/job-name", "muster.dev/role", "muster.dev/index"


class HostfileRole(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The launcher or the workers, as a Kubernetes pod template."""

    template: PodTemplate
    restart: RestartRule = RestartRule.ON_FAILURE


class HostfileWorkers(HostfileRole, frozen=True, forbid_unknown_fields=True, kw_only=True):
    replicas: int = 1


class HostfileAt(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    path: str = f"{hostfile.CONFIG_PATH}/{hostfile.HOSTFILE}"
    format: str = FORMATS[0]


class HostfileJobSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    launcher: HostfileRole
    workers: HostfileWorkers | None = None
    # Processes per host; None: the number of GPUs of a worker, at least 1.
    slots: int | None = None
    # Whether the launcher is a host too and computes with the workers.
    launcher_works: bool = False
    hostfile: HostfileAt = HostfileAt()
    # The directory of the SSH keys.
    ssh_path: str = "/root/.ssh"
    queue: str = ""
    suspend: bool = False
    restart: RestartPolicy | UnsetType = UNSET
    active_deadline_s: int | None = None
    ttl_s: int | None = None


class HostfileJob(Struct, frozen=True, forbid_unknown_fields=True):
    apiVersion: Literal["muster.dev/v1"]
    kind: Literal["HostfileJob"]
    metadata: Metadata
    spec: HostfileJobSpec
    status: Any = UNSET


def read(job: HostfileJob, findings: Findings) -> Submission:
    spec = job.spec
    roles = _roles(spec, findings)
    slots = _slots(roles, spec) if spec.slots is None else spec.slots
    _check(spec, slots, findings)
    understood = policy_of(job.metadata, RunPolicy(), findings)
    fields = {**understood.fields}
    if spec.queue:
        fields["queue"] = spec.queue
    if spec.restart is not UNSET:
        fields["restart"] = spec.restart
    fields.update(active_deadline_s=spec.active_deadline_s, ttl_s=spec.ttl_s)
    read_as = JobSpec(
        kind="HostfileJob",
        version=VERSION,
        roles=roles,
        done_when=DoneWhen(LAUNCHER),
        labels=job.metadata.labels,
        annotations=job.metadata.annotations,
        options={
            "slots": slots,
            "launcher_works": spec.launcher_works,
            "hostfile": to_builtins(spec.hostfile),
            "ssh_path": spec.ssh_path,
        },
        **fields,
    )
    check_gang("spec.workers", job.metadata, read_as, findings)
    check_policy(read_as, findings)
    return Submission(job.metadata.namespace, job.metadata.name, read_as, spec.suspend)


def check_policy(spec: JobSpec, findings: Findings) -> None:
    """Check the numbers of a restart policy, which only Muster's own kinds have as fields."""
    for field, message in problems("default", "job", spec):
        if field.startswith("spec.restart."):
            findings.invalid(field, message)


def _roles(spec: HostfileJobSpec, findings: Findings) -> tuple[Role, ...]:
    launcher = role_of(
        "spec.launcher",
        LAUNCHER,
        ReplicaSpec(template=spec.launcher.template),
        findings,
        container="",
        restart=spec.launcher.restart,
    )
    if spec.workers is None:
        return (launcher,)
    workers = role_of(
        "spec.workers",
        WORKER,
        ReplicaSpec(template=spec.workers.template, replicas=spec.workers.replicas),
        findings,
        container="",
        restart=spec.workers.restart,
        is_server=True,
    )
    # These programs fail at the first host that does not answer, so the launcher starts last.
    waits = WORKER if workers.replicas > 0 else ""
    return replace(launcher, starts_after=waits), workers


def _slots(roles: Sequence[Role], spec: HostfileJobSpec) -> int:
    computing = roles[1:] or (roles if spec.launcher_works else ())
    return max([1, *(role.gpus for role in computing)])


def _check(spec: HostfileJobSpec, slots: int, findings: Findings) -> None:
    check_slots(slots, findings, "spec.slots")
    check_choice("spec.hostfile.format", spec.hostfile.format, FORMATS, findings)
    for field, path in (("hostfile.path", spec.hostfile.path), ("ssh_path", spec.ssh_path)):
        folder, _, name = path.rpartition("/")
        if not path.startswith("/") or not folder or not name:
            message = f"{shown(path)!r} is no path such as /etc/mpi/hostfile"
            findings.invalid(f"spec.{field}", message)
    if not spec.launcher_works and (spec.workers is None or spec.workers.replicas < 1):
        message = "a launcher that does not work itself needs workers"
        findings.required("spec.workers", message)
    for name in ("active_deadline_s", "ttl_s"):
        check_range(f"spec.{name}", getattr(spec, name), 0, SECONDS_MAX, findings)


def write(job: Submission) -> dict[str, Any]:
    spec = job.spec
    launcher, workers = needed(job, LAUNCHER), spec.role(WORKER)
    written: dict[str, Any] = {
        "launcher": _written_role(launcher),
        **spec.options,
        "queue": spec.queue,
        "restart": to_builtins(spec.restart),
        "suspend": job.suspended,
    }
    if workers is not None:
        written["workers"] = {**_written_role(workers), "replicas": workers.replicas}
    for name in ("active_deadline_s", "ttl_s"):
        if getattr(spec, name) is not None:
            written[name] = getattr(spec, name)
    return {
        "apiVersion": VERSION,
        "kind": "HostfileJob",
        "metadata": written_metadata(job),
        "spec": written,
    }


def _written_role(role: Role) -> dict[str, Any]:
    return {"template": role.template, "restart": role.restart.value}


# ------------------------------------------------------------------ rank environments


def environments(gang: GangContext) -> Callable[[int], RankEnvironment]:
    spec, options = gang.spec, gang.spec.options
    at, slots, works = options["hostfile"], options["slots"], options["launcher_works"]
    keys = {options["ssh_path"]: f"{gang.name}-ssh"}
    listed = {at["path"].rpartition("/")[0]: f"{gang.name}-hosts"}
    env = {
        "MUSTER_HOSTFILE": at["path"],
        "MUSTER_HOSTS": str(len(_hosts(gang))),
        "MUSTER_SLOTS": str(slots),
        "MUSTER_PROCESSES": str(len(_hosts(gang)) * slots),
    }
    launches = hostfile.over_ssh(at["format"], at["path"], slots)
    launcher = spec.role(LAUNCHER)
    blind = {} if works or (launcher is not None and launcher.gpus) else NO_GPUS

    def environment(rank: int) -> RankEnvironment:
        role, index = spec.role_of(rank)
        is_launcher, name = role.name == LAUNCHER, _pod_name(gang, rank)
        return RankEnvironment(
            name=name,
            labels={JOB_NAME: gang.name, JOB_ROLE: role.name.lower(), INDEX: str(index)},
            env={**env, **launches, **blind} if is_launcher else env,
            all_containers=False,
            command=() if is_launcher else SSH_SERVER,
            hostname=name,
            subdomain=gang.name,
            dns_policy=dns_policy(role),
            # Some of these programs resolve the other hosts by their bare host names.
            dns_searches=gang.search_domains(gang.name),
            mounts={**keys, **listed},
        )

    return environment


def _pod_name(gang: GangContext, rank: int) -> str:
    role, index = gang.spec.role_of(rank)
    return f"{gang.name}-{role.name.lower()}-{index}"


def _hosts(gang: GangContext) -> list[str]:
    """Return the host names of all ranks that compute, the launcher first if it is one."""
    works = gang.spec.options["launcher_works"]
    taking_part = [
        rank
        for role in gang.spec.roles
        if works or role.name != LAUNCHER
        for rank in gang.spec.ranks_of(role.name)
    ]
    return [gang.full_host(rank, f"{_pod_name(gang, rank)}.{gang.name}") for rank in taking_part]


def services(gang: GangContext) -> Sequence[Service]:
    """Return one service for all ranks; its names resolve before the pods are ready."""
    return (Service(name=gang.name, selector={JOB_NAME: gang.name}, before_ready=True),)


def files(gang: GangContext, running: Collection[int]) -> Sequence[Files]:
    options = gang.spec.options
    at, hosts = options["hostfile"], _hosts(gang)
    name = at["path"].rpartition("/")[2]
    return (
        Files(
            name=f"{gang.name}-hosts",
            contents={name: hostfile.hostfile(at["format"], hosts, options["slots"])},
            modes={name: hostfile.READABLE},
        ),
        Files(name=f"{gang.name}-ssh", ssh_keys=True, mode=0o600),
    )


def duties(spec: JobSpec) -> dict[str, Duty]:
    works = bool(spec.options.get("launcher_works"))
    return launched_duties(spec, LAUNCHER, WORKER, launcher_works=works)


KIND = Kind(
    name="HostfileJob",
    forms=(Form(VERSION, HostfileJob, read, write),),
    environments=environments,
    services=services,
    files=files,
    about=About(
        roles=(LAUNCHER, WORKER),
        container="the first",
        restart=RestartRule.ON_FAILURE.value,
        decides="the launcher",
    ),
    duties=duties,
)
