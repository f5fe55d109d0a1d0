"""The spec of a job and its parts, as frozen values.

Every value here is stored inside events, so a field may be added with a default, but must never be
renamed, removed or given another meaning.
"""

from enum import StrEnum
from typing import Any

from controlplane.model.dependencies import After
from controlplane.model.supplies import NO_SUPPLIES, Supplies
from controlplane.model.values import Value

# Values of `managed_by` that name this control plane; it leaves a job with any other value alone.
OUR_NAMES = frozenset(
    {"", "muster.dev/muster", "kubeflow.org/training-operator", "kubeflow.org/mpi-operator"}
)


class RestartRule(StrEnum):
    """Whether a rank restarts after a nonzero exit code. Exit code 0 always means success."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"
    EXIT_CODE = "ExitCode"


class RestartScope(StrEnum):
    """What restarts when one rank fails: the whole gang, or only that rank."""

    GANG = "gang"
    RANK = "rank"


class CleanPods(StrEnum):
    """Which pods of a finished job are deleted. Pods that still run are stopped in any case."""

    NONE = "None"
    RUNNING = "Running"
    ALL = "All"


class RestartPolicy(Value, frozen=True):
    """How often a failed gang restarts, and after which back-off in seconds."""

    limit: int | None = 6
    backoff_s_first: float = 10.0
    backoff_s_max: float = 300.0
    # An attempt that ran this long was healthy: back-off then begins at `backoff_s_first` again.
    healthy_after_s: float = 600.0
    counts_platform: bool = False
    scope: RestartScope = RestartScope.GANG


class Role(Value, frozen=True, kw_only=True):
    """One replica type of a job."""

    name: str
    replicas: int = 1
    gpus: int = 0
    restart: RestartRule = RestartRule.ON_FAILURE
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    # The pod template as submitted, for clusters that create pods from it.
    template: dict[str, Any] = {}
    # A role that serves the other roles (a parameter server) runs until the job ends.
    is_server: bool = False
    # The container of the template whose exit code is the rank's; "": the first one.
    container: str = ""
    # An elastic role may run with any number of replicas between these two.
    min_replicas: int | None = None
    max_replicas: int | None = None
    # The ranks of this role are launched once every rank of the named role runs.
    starts_after: str = ""
    # If a rank of this role fails permanently, the job continues while the role has other ranks.
    optional: bool = False
    # Under the rule ExitCode: an out-of-memory kill is permanent, as a program's own exit code is.
    oom_is_permanent: bool = False
    # A share of one device for each rank, in thousandths or as memory; `gpus` counts whole devices.
    gpu_share: int = 0
    gpu_memory_mib: int = 0
    # The node that the role is pinned to, and its devices; empty: the scheduler chooses.
    node: str = ""
    devices: tuple[int, ...] = ()

    @property
    def shares_device(self) -> bool:
        """Return whether a rank of the role has a share of one device instead of whole devices."""
        return bool(self.gpu_share or self.gpu_memory_mib)

    @property
    def devices_of_rank(self) -> int:
        """Return the number of devices of one rank; a shared device counts as 1."""
        return self.gpus or int(self.shares_device)

    @property
    def gpu_milli(self) -> int:
        """Return the thousandths of devices of one rank.

        A request by memory counts as a whole device, because its share depends on the device.
        """
        return self.gpu_share or 1_000 * self.devices_of_rank


def goes_on_smaller(role: Role) -> bool:
    """Return whether the role continues with fewer ranks when some are lost with their nodes.

    A role that serves does not: a program that a launcher started on its workers ends when one of
    the workers is lost.
    """
    return role.min_replicas is not None and not role.is_server


class DoneWhen(Value, frozen=True):
    """The ranks whose success makes the job succeed.

    All ranks of `role`; only its first rank if `first`; any one of its ranks if `any`.
    """

    role: str
    first: bool = False
    any: bool = False


class Repair(StrEnum):
    """What happens to a running gang that lost ranks with their nodes."""

    RESTART = "restart"
    REPLACE = "replace"


class TopologyAsk(Value, frozen=True, kw_only=True):
    """Required and preferred topology of a gang; a level is one of the policy's, or `node`."""

    required: str = ""
    preferred: str = ""
    # No other job may use the domain of the required level.
    exclusive: bool = False
    # Slices of `slice_size` ranks, each within one domain of `slice_level`.
    slice_level: str = ""
    slice_size: int = 0


class Scheduling(Value, frozen=True, kw_only=True):
    """What a job requests of the scheduler besides its size."""

    topology: TopologyAsk = TopologyAsk()
    selector: dict[str, str] = {}
    tolerates: tuple[str, ...] = ()
    # GPU flavors in order of preference; empty: the queue decides.
    flavors: tuple[str, ...] = ()
    packing: str = ""
    preemptible: bool = True
    # The job's priority as a guest: on nodes with a taint that it does not tolerate.
    away_priority: int | None = None
    # Gangs of one group start together, once `group_size` of them are submitted.
    group: str = ""
    group_size: int = 0
    # How many members of the gang must still be submitted from elsewhere before it may start.
    members_missing: int = 0
    estimate_s: float | None = None
    checkpoint_every_s: float | None = None
    repair: Repair = Repair.RESTART
    recovery_timeout_s: float = 1_800.0


# One shared value for jobs that request nothing, so that the encoder leaves it out as the default.
PLAIN_SCHEDULING = Scheduling()


class StartPolicy(Value, frozen=True, kw_only=True):
    """Retries of a gang that was placed and did not come up.

    The back-off doubles from `backoff_s_first` up to `backoff_s_max` seconds. After more than
    `limit` timeouts in a row the job is suspended; None: no limit.
    """

    backoff_s_first: float = 60.0
    backoff_s_max: float = 3_600.0
    limit: int | None = None


class JobSpec(Value, frozen=True):
    """The common form of a job: every kind of manifest is read as one. Construct it by keyword."""

    roles: tuple[Role, ...]
    done_when: DoneWhen
    kind: str = "Job"
    # The apiVersion of its manifest, and the fields that only its kind understands (see `kinds/`).
    version: str = ""
    options: dict[str, Any] = {}
    queue: str = "default"
    priority: int = 0
    restart: RestartPolicy = RestartPolicy()
    active_deadline_s: float | None = None
    ttl_s: float | None = None
    start_timeout_s: float = 600.0
    # A starting job fails if the cluster cannot pull the image of a rank for this many seconds.
    image_timeout_s: float = 300.0
    # The number of ranks with which the gang may start; None: all of them.
    min_available: int | None = None
    clean: CleanPods = CleanPods.NONE
    # The controller that runs this job; see `OUR_NAMES`.
    managed_by: str = ""
    # What the manifest states for cluster adapters: plain JSON by the name of the hint. The core never
    # reads it; see `kinds/hints.py`.
    hints: dict[str, Any] = {}
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    scheduling: Scheduling = PLAIN_SCHEDULING
    # None: the restart policy applies to a gang that does not come up.
    start: StartPolicy | None = None
    # Code, data, configuration and more for ranks on a real cluster.
    supplies: Supplies = NO_SUPPLIES
    # Jobs and arrays that must end before this job queues, as written in the manifest.
    after: tuple[After, ...] = ()
    # The indices and the limit of an array, as in `0-99%10`; empty for a single job.
    array: str = ""

    @property
    def is_external(self) -> bool:
        """Return whether another controller runs this job."""
        return self.managed_by not in OUR_NAMES

    @property
    def size(self) -> int:
        """Return the number of ranks of the gang."""
        roles = self.roles
        return roles[0].replicas if len(roles) == 1 else sum(role.replicas for role in roles)

    @property
    def gpus(self) -> int:
        """Return the number of whole GPUs that the gang needs."""
        return sum(role.replicas * role.gpus for role in self.roles)

    @property
    def gpu_milli(self) -> int:
        """Return the GPUs of the gang in thousandths, shares included.

        A rank that requests a device by memory counts as one whole GPU.
        """
        return sum(role.replicas * role.gpu_milli for role in self.roles)

    def role(self, name: str) -> Role | None:
        return next((role for role in self.roles if role.name == name), None)

    def role_of(self, rank: int) -> tuple[Role, int]:
        """Return the role of a rank and its index within the role.

        Ranks are numbered through the roles, from 0. Raises IndexError for a rank out of range.
        """
        index = rank
        for role in self.roles:
            if index < role.replicas:
                return role, index
            index -= role.replicas
        raise IndexError(f"rank {rank} of {self.size}")

    def ranks_of(self, name: str) -> range:
        """Return the ranks of the role with this name; empty if there is no such role."""
        first = 0
        for role in self.roles:
            if role.name == name:
                return range(first, first + role.replicas)
            first += role.replicas
        return range(0)

    def rank_name(self, rank: int) -> str:
        role, index = self.role_of(rank)
        return f"{role.name.lower()}-{index}"


def grows(spec: JobSpec) -> bool:
    """Return whether the job may run with fewer ranks than it requests and get the others later."""
    last = spec.roles[-1]
    if last.optional or last.min_replicas is not None or last.max_replicas is not None:
        return True
    return spec.min_available is not None and spec.min_available < spec.size
