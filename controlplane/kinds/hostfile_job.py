"""HostfileJob, a kind of ours: for programs that want a list of hosts and a way to log in to them.

CNTK with 1-bit SGD, Caffe over MPI and many of their age never had an operator. They need no more
than this: a launcher that runs the command, workers with an ssh server, keys that fit, and a file
that names the hosts, written from the number of replicas before anybody runs.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, to_builtins
from msgspec.structs import replace

from controlplane.kinds import hostfile
from controlplane.kinds.checking import SECONDS_MAX, check_choice, check_range, problems
from controlplane.kinds.findings import Findings
from controlplane.kinds.kind import (
    About,
    Duty,
    Files,
    Form,
    Gang,
    Kind,
    Service,
    Submission,
    Told,
    launched_duties,
)
from controlplane.kinds.kubeflow import check_gang
from controlplane.kinds.manifest import Metadata, RunPolicy, policy_of, written_metadata
from controlplane.kinds.mpi_jobs import LAUNCHER, NO_GPUS, WORKER, check_slots, needed
from controlplane.kinds.mpi_v2beta1 import SSH_SERVER, dns_policy
from controlplane.kinds.pods import PodTemplate, ReplicaSpec, role_of
from controlplane.kinds.structure import shown
from controlplane.model import DoneWhen, JobSpec, RestartPolicy, RestartRule, Role

VERSION = "muster.dev/v1"
# How the file is written, and which launcher's variables name it.
FORMATS = tuple(hostfile.DIALECTS)
JOB_NAME, JOB_ROLE, INDEX = "muster.dev/job-name", "muster.dev/role", "muster.dev/index"


class HostfileRole(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The pods of one side, as a Kubernetes pod template."""

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
    # How many processes a host takes: the GPUs of a worker, or one, unless said otherwise.
    slots: int | None = None
    # Whether the launcher is a host too, and computes with the others.
    launcher_works: bool = False
    hostfile: HostfileAt = HostfileAt()
    # Where the keys are put.
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
    """The numbers of a restart policy, which only kinds of ours let people write."""
    for field, told in problems("default", "job", spec):
        if field.startswith("spec.restart."):
            findings.invalid(field, told)


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
        serves=True,
    )
    # The programs of that age give up on the first host that does not answer.
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
            told = f"{shown(path)!r} is no path such as /etc/mpi/hostfile"
            findings.invalid(f"spec.{field}", told)
    if not spec.launcher_works and (spec.workers is None or spec.workers.replicas < 1):
        told = "a launcher that does not work itself needs workers"
        findings.required("spec.workers", told)
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


# ------------------------------------------------------------------ what ranks are told


def tell(gang: Gang) -> Callable[[int], Told]:
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

    def told(rank: int) -> Told:
        role, index = spec.role_of(rank)
        is_launcher, name = role.name == LAUNCHER, _pod_name(gang, rank)
        return Told(
            name=name,
            labels={JOB_NAME: gang.name, JOB_ROLE: role.name.lower(), INDEX: str(index)},
            env={**env, **launches, **blind} if is_launcher else env,
            all_containers=False,
            command=() if is_launcher else SSH_SERVER,
            hostname=name,
            subdomain=gang.name,
            dns_policy=dns_policy(role),
            # Some of these programs look each other up by the bare name of the host.
            dns_searches=(f"{gang.name}.{gang.namespace}.svc.{gang.domain or 'cluster.local'}",),
            mounts={**keys, **listed},
        )

    return told


def _pod_name(gang: Gang, rank: int) -> str:
    role, index = gang.spec.role_of(rank)
    return f"{gang.name}-{role.name.lower()}-{index}"


def _hosts(gang: Gang) -> list[str]:
    """Every host that computes, by the name that leads to it: the launcher first, if it does."""
    works = gang.spec.options["launcher_works"]
    taking_part = [
        rank
        for role in gang.spec.roles
        if works or role.name != LAUNCHER
        for rank in gang.spec.ranks_of(role.name)
    ]
    return [gang.service_host(f"{_pod_name(gang, rank)}.{gang.name}") for rank in taking_part]


def services(gang: Gang) -> Sequence[Service]:
    """One for all; hosts must find each other before they call themselves ready."""
    return (Service(name=gang.name, selector={JOB_NAME: gang.name}, before_ready=True),)


def files(gang: Gang, running: Collection[int]) -> Sequence[Files]:
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
    tell=tell,
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
