"""The interface of a kind: how its manifests are read and written, and what its ranks get.

A kind is one file with one `Kind` value, which consists of pure functions. Everything else (engine,
scheduler, API, both clusters) works on the `JobSpec` that a manifest is read as.
`docs/adding-a-kind.md` adds one step by step.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Flag, auto
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from controlplane.kinds import conditions
from controlplane.kinds.manifest.validation import Findings
from controlplane.lifecycle.job import Job
from controlplane.model.addresses import AddressBook, ServiceNames
from controlplane.model.spec import JobSpec
from controlplane.model.values import Value


class Submission(Struct, frozen=True):
    """What a manifest means; `warnings` are for the person who sent it."""

    namespace: str
    name: str
    spec: JobSpec
    suspended: bool = False
    warnings: tuple[str, ...] = ()


class Modern(NamedTuple):
    """A job converted to its kind's newest version, and warnings about what that version lacks."""

    submission: Submission
    warnings: tuple[str, ...] = ()


class GangContext(NamedTuple):
    """The input of a rank's environment, together with the rank's number."""

    namespace: str
    name: str
    spec: JobSpec
    # Hosts and ports of the ranks on the cluster in use.
    addresses: AddressBook = ServiceNames()

    def host(self, rank: int, name: str) -> str:
        """Return the host of a rank; `name` is its DNS name in the job's namespace."""
        return self.addresses.host(rank, name)

    def full_host(self, rank: int, name: str) -> str:
        """Return the host of a rank, as programs in any namespace reach it."""
        return self.addresses.full_host(rank, name, self.namespace)

    def port(self, rank: int, port: int) -> int:
        """Return the port on which a rank listens; `port` is the one that its spec names."""
        return self.addresses.port(rank, port)

    def search_domains(self, service: str) -> tuple[str, ...]:
        """Return the domains in which a resolver finds the bare names of ranks below a service."""
        return self.addresses.search_domains(service, self.namespace)


class Service(Value, frozen=True, kw_only=True):
    """A headless service: a stable host name for the pods that it selects."""

    name: str
    selector: dict[str, str]
    ports: tuple[tuple[str, int], ...] = ()
    # Whether names resolve before the pods are ready.
    before_ready: bool = False


class RankEnvironment(Value, frozen=True, kw_only=True):
    """What one rank gets to find the others: variables, host names, labels, files.

    A cluster adds it to the pod that the rank's template describes.
    """

    # The name of the rank's pod, which is also its host name.
    name: str
    labels: dict[str, str] = {}
    env: dict[str, str] = {}
    # Variables whose value is a field of the pod (Kubernetes' downward API).
    env_from_pod: dict[str, str] = {}
    # Variables that are set only if the person has not set them.
    env_if_unset: dict[str, str] = {}
    # Whether all containers get the variables, or only the one whose exit code is the rank's.
    all_containers: bool = True
    # The command if the person gave neither a command nor arguments.
    command: tuple[str, ...] = ()
    hostname: str = ""
    subdomain: str = ""
    # Further search domains of the resolver.
    dns_searches: tuple[str, ...] = ()
    # Mounted files of the gang: path -> name of the group of files (`Files.name`).
    mounts: dict[str, str] = {}
    # The pod waits, before anything starts, until this host name resolves.
    waits_for_host: str = ""
    annotations: dict[str, str] = {}
    # The DNS policy, if the pod's own would not resolve the names of the other ranks.
    dns_policy: str = ""
    # Empty directories that the containers of the pod share: path -> name of the volume.
    scratch: dict[str, str] = {}
    # Init containers that run before the person's own, as in a pod spec.
    init_containers: tuple[dict[str, Any], ...] = ()
    # The service account of the pod, created for the job unless the person named one, and the pods
    # in which this account may execute commands.
    account: str = ""
    may_exec_in: tuple[str, ...] = ()


def with_owner_env(job: Job, environment: RankEnvironment) -> RankEnvironment:
    """Return the environment with the variables of the job's owner, such as an array's index."""
    if job.owner is None or not job.owner.env:
        return environment
    return replace(environment, env={**environment.env, **job.owner.env})


class Files(Value, frozen=True, kw_only=True):
    """A group of files that ranks can mount: a config map, or a secret created once for the job."""

    name: str
    contents: dict[str, str] = {}
    # Whether the group is a secret with a new SSH key pair: id_rsa, id_rsa.pub and authorized_keys.
    # The cluster adapter generates the keys; the core never has them.
    ssh_keys: bool = False
    executable: bool = False
    # The name of the volume in a pod; empty: `name`.
    volume: str = ""
    # File modes as for chmod: by file name, and for all other files; None: the cluster's default.
    modes: dict[str, int] = {}
    mode: int | None = None


def _none_kept(spec: JobSpec) -> Collection[str]:
    return ()


def _no_files(gang: GangContext, running: Collection[int]) -> Sequence[Files]:
    return ()


class Form(NamedTuple):
    """One version of a kind's manifest.

    `read` gets a manifest whose types are correct, adds further problems to the findings, and
    returns the submission with all defaults applied; the result is discarded if there are problems.
    `write` is its inverse: the manifest in this version with explicit defaults. `status` returns the
    status that the operator of this version would write.
    """

    version: str
    manifest: type[Struct]
    read: Callable[[Any, Findings], Submission]
    write: Callable[[Submission], dict[str, Any]]
    status: Callable[[Job], dict[str, Any]] = conditions.status
    # Converts a job to the kind's newest version, for versions that differ from it in structure.
    modern: Callable[[Submission], Modern] | None = None


class Duty(Flag):
    """What the ranks of a role do while the job trains; a role may have several duties or none.

    A cluster that models training uses it. `Duty(0)` is a role outside of the training, such as an
    evaluator.
    """

    # The ranks compute gradients on their devices.
    COMPUTE = auto()
    # The ranks hold parameters for those that compute.
    SERVE_PARAMETERS = auto()
    # The rank starts the program on the other ranks: nothing trains without it, and it ends with the
    # training.
    DRIVE = auto()


def usual_duties(spec: JobSpec) -> dict[str, Duty]:
    """Return the default duties by role: a role that serves holds parameters, any other computes."""
    return {
        role.name: Duty.SERVE_PARAMETERS if role.is_server else Duty.COMPUTE for role in spec.roles
    }


def launched_duties(
    spec: JobSpec, launcher: str, worker: str, *, launcher_works: bool
) -> dict[str, Duty]:
    """Return the duties by role where a launcher starts the program on workers.

    The launcher computes too if `launcher_works` or if there are no workers.
    """
    works = launcher_works or not spec.ranks_of(worker)
    return {launcher: Duty.DRIVE | Duty.COMPUTE if works else Duty.DRIVE, worker: Duty.COMPUTE}


class About(NamedTuple):
    """A row of the table of kinds in the documentation."""

    roles: tuple[str, ...] = ()
    # The container that the framework runs in, and the port that its ranks meet on.
    container: str = ""
    port: str = ""
    restart: str = ""
    decides: str = ""


class Kind(NamedTuple):
    """A kind of job. The first of its forms is the newest, which new manifests should use."""

    name: str
    forms: tuple[Form, ...]
    # Returns a function from a rank to its environment. What all ranks share is computed once, which
    # keeps a gang of a thousand ranks fast.
    environments: Callable[[GangContext], Callable[[int], RankEnvironment]]
    services: Callable[[GangContext], Sequence[Service]]
    # Files for the ranks; they may depend on the ranks that run now, as a list of hosts does.
    files: Callable[[GangContext, Collection[int]], Sequence[Files]] = _no_files
    about: About = About()
    # The duties of each role while the job trains; a role that is left out has none.
    duties: Callable[[JobSpec], Mapping[str, Duty]] = usual_duties
    # Roles whose ended pods are kept until the job is deleted, regardless of cleanPodPolicy.
    kept: Callable[[JobSpec], Collection[str]] = _none_kept
