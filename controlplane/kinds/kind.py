"""What a kind of job is: how its manifests are read and written, and what its ranks are told.

A kind is one file with one value of `Kind`, made of pure functions. Everything else in the house
(engine, scheduler, API, both clusters) works on the `JobSpec` that a manifest is read as.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Flag, auto
from typing import Any, NamedTuple

from msgspec import Struct

from controlplane.job import Job
from controlplane.kinds import conditions
from controlplane.kinds.findings import Findings
from controlplane.model import JobSpec, Value


class Submission(Struct, frozen=True):
    """A manifest, understood; `warnings` are for the person who sent it."""

    namespace: str
    name: str
    spec: JobSpec
    suspended: bool = False
    warnings: tuple[str, ...] = ()


class Modern(NamedTuple):
    """A job as its kind's newest version can say it, and what of it that version cannot say."""

    submission: Submission
    warnings: tuple[str, ...] = ()


class Gang(NamedTuple):
    """A job as its ranks see it: all that they are told follows from this and their number."""

    namespace: str
    name: str
    spec: JobSpec
    # What the cluster's DNS appends to the name of a service, such as cluster.local.
    domain: str = ""

    def service_host(self, service: str) -> str:
        """A service's name as it is found from any namespace."""
        host = f"{service}.{self.namespace}.svc"
        return f"{host}.{self.domain}" if self.domain else host


class Service(Value, frozen=True, kw_only=True):
    """A headless service: a stable host name for the pods that it selects."""

    name: str
    selector: dict[str, str]
    ports: tuple[tuple[str, int], ...] = ()
    # Whether names resolve before the pods are ready.
    before_ready: bool = False


class Told(Value, frozen=True, kw_only=True):
    """What one rank is told."""

    # The name of its pod, which is also its host name.
    name: str
    labels: dict[str, str] = {}
    env: dict[str, str] = {}
    # Variables whose value is a field of the pod itself (Kubernetes' downward API).
    env_from_pod: dict[str, str] = {}
    # Variables that stand only where the person has not set them.
    env_if_unset: dict[str, str] = {}
    # Whether every container is told, or only the one that speaks for the rank.
    all_containers: bool = True
    # What runs when the person gave neither command nor arguments.
    command: tuple[str, ...] = ()
    hostname: str = ""
    subdomain: str = ""
    # Where else the resolver looks.
    dns_searches: tuple[str, ...] = ()
    # Which of the gang's files are mounted where: path -> name of the group of files.
    mounts: dict[str, str] = {}
    # Waits, before anything starts, until this host's name resolves.
    waits_for_host: str = ""
    annotations: dict[str, str] = {}
    # How names are resolved, where the pod's own way would not find the others.
    dns_policy: str = ""
    # Empty directories that the containers of the pod share: path -> name of the volume.
    scratch: dict[str, str] = {}
    # Containers that run to their end before the person's own, as a pod spec has them.
    init_containers: tuple[dict[str, Any], ...] = ()
    # The account it acts under, made for the job unless the person named one, and the pods that
    # this account may run commands in.
    account: str = ""
    may_exec_in: tuple[str, ...] = ()


class Files(Value, frozen=True, kw_only=True):
    """A group of files that ranks can mount: a config map, or a secret made once for the job."""

    name: str
    contents: dict[str, str] = {}
    # Files whose contents are not ours to know: a fresh SSH key pair made by the cluster's side,
    # as id_rsa, id_rsa.pub and authorized_keys.
    ssh_keys: bool = False
    executable: bool = False
    # The name of the volume that brings them into a pod; theirs, unless said otherwise.
    volume: str = ""
    # Who may do what with a file, as chmod takes it: of single ones, and of all others. What is
    # not said is left to the cluster.
    modes: dict[str, int] = {}
    mode: int | None = None


def _none_kept(spec: JobSpec) -> Collection[str]:
    return ()


def _no_files(gang: Gang, running: Collection[int]) -> Sequence[Files]:
    return ()


class Form(NamedTuple):
    """One version of a kind's manifest.

    `read` is given a manifest whose types are right, notes what else is wrong with it in the
    findings, and returns what it means with every default applied; what it returns beside problems
    is thrown away. `write` is its inverse: the manifest in this version, defaults spelt out.
    `status` is what the operator of this version would write into the job's status.
    """

    version: str
    manifest: type[Struct]
    read: Callable[[Any, Findings], Submission]
    write: Callable[[Submission], dict[str, Any]]
    status: Callable[[Job], dict[str, Any]] = conditions.status
    # The job in the terms of the kind's newest version, for versions that say things otherwise.
    modern: Callable[[Submission], Modern] | None = None


class Duty(Flag):
    """What the ranks of a role do while the job trains; a role may have several duties or none.

    A cluster that models training needs to know. `Duty(0)` is a role beside the training, such as
    an evaluator.
    """

    # Its devices compute gradients.
    COMPUTE = auto()
    # It holds parameters for those that compute.
    SERVE_PARAMETERS = auto()
    # It starts the program on the others: without it nothing trains, and it ends with the training.
    DRIVE = auto()


def usual_duties(spec: JobSpec) -> dict[str, Duty]:
    """By role: one that serves is a parameter server, any other computes."""
    return {
        role.name: Duty.SERVE_PARAMETERS if role.serves else Duty.COMPUTE for role in spec.roles
    }


def launched_duties(
    spec: JobSpec, launcher: str, worker: str, *, launcher_works: bool
) -> dict[str, Duty]:
    """By role, where a launcher starts the program on workers; alone, it runs the program itself."""
    works = launcher_works or not spec.ranks_of(worker)
    return {launcher: Duty.DRIVE | Duty.COMPUTE if works else Duty.DRIVE, worker: Duty.COMPUTE}


class About(NamedTuple):
    """What the documentation's table of kinds says."""

    roles: tuple[str, ...] = ()
    # The container that the framework runs in, and the port that its ranks meet on.
    container: str = ""
    port: str = ""
    restart: str = ""
    decides: str = ""


class Kind(NamedTuple):
    """A kind of job, whole. The first of its forms is the one that new manifests should have."""

    name: str
    forms: tuple[Form, ...]
    # What is the same for all ranks is worked out once, so a gang of a thousand is told quickly.
    tell: Callable[[Gang], Callable[[int], Told]]
    services: Callable[[Gang], Sequence[Service]]
    # Files for the ranks; they may depend on which ranks run now, as a list of hosts does.
    files: Callable[[Gang, Collection[int]], Sequence[Files]] = _no_files
    about: About = About()
    # What the ranks of each role do while the job trains; a role that is left out does nothing.
    duties: Callable[[JobSpec], Mapping[str, Duty]] = usual_duties
    # Roles whose ended pods stay whatever cleanPodPolicy says, until the job is deleted.
    kept: Callable[[JobSpec], Collection[str]] = _none_kept
