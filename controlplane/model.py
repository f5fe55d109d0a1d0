"""The nouns that people and clusters speak in, as frozen values.

Every value here travels inside events, so a field may be added with a default but never renamed,
removed or given another meaning.
"""

from enum import StrEnum
from typing import Any

import msgspec

from controlplane.supplies import NO_SUPPLIES, Supplies

# Names under which a manifest may ask for this control plane; a job of any other is left alone.
OUR_NAMES = frozenset(
    {"", "muster.dev/muster", "kubeflow.org/training-operator", "kubeflow.org/mpi-operator"}
)


class Value(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """A frozen value; what equals its default is left out when written."""


class Row(Value, frozen=True, array_like=True):
    """A value that is written as an array: its fields keep their order for ever."""


class RestartRule(StrEnum):
    """What an exit with a code other than 0 means for a role. Exit code 0 always means done."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"
    EXIT_CODE = "ExitCode"


# Under the ExitCode rule, codes up to this are the program's own and permanent; those above are
# signals (128 + n) and may go away with another try.
PERMANENT_CODE_MAX = 127


def is_permanent(code: int | None) -> bool:
    """Whether the ExitCode rule takes this code of a failed rank for the program's own verdict."""
    return code is not None and 0 < code <= PERMANENT_CODE_MAX


class RestartScope(StrEnum):
    """What is started again when one rank fails."""

    GANG = "gang"
    RANK = "rank"


class CleanPods(StrEnum):
    """What becomes of the pods of a finished job. Whatever still runs is ended in any case."""

    NONE = "None"
    RUNNING = "Running"
    ALL = "All"


class Cause(StrEnum):
    """Why a rank ended or a gang had to start again."""

    EXIT = "exit"
    OOM = "oom"
    EVICTION = "eviction"
    # Its node turned it down before anything ran: too little CPU or memory left there, for example.
    REFUSED = "refused"
    NODE_LOST = "node_lost"
    PREEMPTION = "preemption"
    # It was moved aside, so that another gang finds its room in one piece.
    CONSOLIDATION = "consolidation"
    START_TIMEOUT = "start_timeout"
    SPOT_RECLAIM = "spot_reclaim"
    VANISHED = "vanished"
    SCALED = "scaled"
    # What it should run cannot run on what it was given, and another try would end the same way.
    CANNOT_RUN = "cannot_run"
    # It ended well, though nobody saw its exit code.
    COMPLETED = "completed"


# These are not the doing of the person who submitted the job, so they do not spend the job's
# restart budget unless its policy asks for that.
PLATFORM_CAUSES = frozenset(Cause) - {Cause.EXIT, Cause.OOM, Cause.CANNOT_RUN, Cause.COMPLETED}


class RestartPolicy(Value, frozen=True):
    """How often, and after how long, a failed gang starts again."""

    limit: int | None = 6
    backoff_s_first: float = 10.0
    backoff_s_max: float = 300.0
    # An attempt that ran this long was healthy: the next failure begins at the first back-off.
    healthy_after_s: float = 600.0
    counts_platform: bool = False
    scope: RestartScope = RestartScope.GANG


class Training(Value, frozen=True, kw_only=True):
    """What a job trains, for a cluster that models how fast that goes where it is placed.

    Zero and None stand for what is usual; `docs/simulator.md` names models, schemes and the rest.
    """

    model: str
    steps: int = 1000
    precision: str = ""
    # Samples of one GPU in a step.
    batch: int = 0
    # Empty: through the parameter servers that the job has, or else `ring`.
    scheme: str = ""
    compression: str = "none"
    accumulate: int = 1
    servers: int | None = None
    real_data: bool = False
    # Seconds that one GPU computes in a step, where the catalogue should not say.
    compute_s: float | None = None
    tensor: int = 1
    pipeline: int = 1
    global_batch: int = 0
    # A checkpoint after so much work, and how long it holds the work up; 0 means none.
    checkpoint_s: float = 0.0
    checkpoint_write_s: float = 0.0
    # An evaluation of so many seconds after so many steps of training; 0 means none.
    evaluate_steps: int = 0
    evaluate_s: float = 0.0


class Workload(Value, frozen=True):
    """What a simulated cluster should make of a job; a real one ignores it."""

    duration_s: float = 60.0
    exit_code: int = 0
    # The rank that exits with `exit_code`, on an attempt that fails; the others hang until stopped.
    exit_rank: int = 0
    # How many attempts end with `exit_code` before one succeeds; None means every attempt.
    failing_attempts: int | None = None
    # Instead of `duration_s`: steps at the speed that the placement gives.
    training: Training | None = None


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
    # The pod template as it was submitted, for clusters that can use all of it.
    template: dict[str, Any] = {}
    # A role that serves the others (a parameter server) runs until the job is over.
    serves: bool = False
    # The container of the template whose exit code speaks for the rank; "" means the first.
    container: str = ""
    # An elastic role may run with any number of replicas between these.
    min_replicas: int | None = None
    max_replicas: int | None = None
    # This role's ranks are launched once every rank of the named role runs.
    starts_after: str = ""
    # The job goes on without a rank of this role that failed for good, while others of it are left.
    expendable: bool = False
    # Under the rule ExitCode: running out of memory is as permanent as an exit code of its own.
    oom_is_permanent: bool = False
    # A part of one device for each rank: thousandths of it, or memory; whole devices are `gpus`.
    gpu_share: int = 0
    gpu_memory_mib: int = 0
    # This role runs on this node, and on these devices of it; empty leaves it to the scheduler.
    node: str = ""
    devices: tuple[int, ...] = ()

    @property
    def shares_device(self) -> bool:
        """Whether a rank of it has a part of one device instead of whole ones."""
        return bool(self.gpu_share or self.gpu_memory_mib)

    @property
    def devices_of_rank(self) -> int:
        """How many devices a rank of it computes on, whole or in part."""
        return self.gpus or int(self.shares_device)

    @property
    def gpu_milli(self) -> int:
        """Thousandths of devices for each rank; a whole one where only its memory is asked for,
        since it depends on the device how much that is.
        """
        return self.gpu_share or 1_000 * self.devices_of_rank

    @property
    def is_elastic(self) -> bool:
        """Whether its ranks may come and go while the others run."""
        return self.expendable or self.min_replicas is not None or self.max_replicas is not None


def goes_on_smaller(role: Role) -> bool:
    """Whether the others of the role go on when some of its ranks are lost with their nodes.

    Not the workers of a launcher, which serve: the program on them ends when one of them is lost.
    """
    return role.min_replicas is not None and not role.serves


class DoneWhen(Value, frozen=True):
    """Whose success is the job's success.

    Every rank of a role; or already its first one (`first`), or any single one of them (`any`).
    """

    role: str
    first: bool = False
    any: bool = False


class Repair(StrEnum):
    """What becomes of a running gang that lost ranks with their nodes."""

    RESTART = "restart"
    REPLACE = "replace"


class TopologyAsk(Value, frozen=True, kw_only=True):
    """Which ranks must, or should, be near each other; levels are named by the policy, or `node`."""

    required: str = ""
    preferred: str = ""
    # Nobody else may have anything in the domain of the required level.
    exclusive: bool = False
    # Ranks in groups of so many, each group within one domain of this level.
    slice_level: str = ""
    slice_size: int = 0


class Scheduling(Value, frozen=True, kw_only=True):
    """What a job asks of the scheduler beside its size."""

    topology: TopologyAsk = TopologyAsk()
    selector: dict[str, str] = {}
    tolerates: tuple[str, ...] = ()
    # Flavours of GPUs in the order of preference; empty leaves it to the queue.
    flavors: tuple[str, ...] = ()
    packing: str = ""
    preemptible: bool = True
    # The priority it has where it is a guest: on nodes with a taint that it does not tolerate.
    away_priority: int | None = None
    # Gangs of one group start together, once so many of them are there.
    group: str = ""
    group_size: int = 0
    # How many of the gang's members have to be submitted from elsewhere before it may start.
    members_missing: int = 0
    estimate_s: float | None = None
    checkpoint_every_s: float | None = None
    repair: Repair = Repair.RESTART
    recovery_timeout_s: float = 1_800.0


# What asks for nothing; one value for all, so that it is left out where jobs are written.
PLAIN_SCHEDULING = Scheduling()


class StartPolicy(Value, frozen=True, kw_only=True):
    """What follows when a placed gang does not come up: a doubling wait, and in the end no more."""

    backoff_s_first: float = 60.0
    backoff_s_max: float = 3_600.0
    limit: int | None = None


class JobSpec(Value, frozen=True):
    """A job as every kind of manifest is reduced to it. To be made with keywords."""

    roles: tuple[Role, ...]
    done_when: DoneWhen
    kind: str = "Job"
    # The apiVersion it was written in, and what only its kind understands (see `kinds/`).
    version: str = ""
    options: dict[str, Any] = {}
    queue: str = "default"
    priority: int = 0
    restart: RestartPolicy = RestartPolicy()
    active_deadline_s: float | None = None
    ttl_s: float | None = None
    start_timeout_s: float = 600.0
    # A job fails if the cluster cannot get the image of one of its ranks for so long at its start.
    image_timeout_s: float = 300.0
    # The gang may start with this many ranks; None means all of them.
    min_available: int | None = None
    clean: CleanPods = CleanPods.NONE
    # Who runs this job; see `OUR_NAMES`.
    managed_by: str = ""
    workload: Workload = Workload()
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    scheduling: Scheduling = PLAIN_SCHEDULING
    # None leaves a gang that does not come up to the restart policy.
    start: StartPolicy | None = None
    # Code, data and the like for the ranks of a real cluster.
    supplies: Supplies = NO_SUPPLIES

    @property
    def is_external(self) -> bool:
        """Whether another controller runs this job."""
        return self.managed_by not in OUR_NAMES

    @property
    def size(self) -> int:
        """How many ranks the gang has."""
        roles = self.roles
        return roles[0].replicas if len(roles) == 1 else sum([role.replicas for role in roles])

    @property
    def gpus(self) -> int:
        """How many whole GPUs the gang needs."""
        return sum([role.replicas * role.gpus for role in self.roles])

    @property
    def gpu_milli(self) -> int:
        """The same in thousandths, with parts of devices; a rank that asks by memory counts as one."""
        return sum([role.replicas * role.gpu_milli for role in self.roles])

    def role(self, name: str) -> Role | None:
        return next((role for role in self.roles if role.name == name), None)

    def role_of(self, rank: int) -> tuple[Role, int]:
        """The role of a rank and its index within the role. Ranks count through the roles."""
        index = rank
        for role in self.roles:
            if index < role.replicas:
                return role, index
            index -= role.replicas
        raise IndexError(f"rank {rank} of {self.size}")

    def ranks_of(self, name: str) -> range:
        """The ranks of one role."""
        first = 0
        for role in self.roles:
            if role.name == name:
                return range(first, first + role.replicas)
            first += role.replicas
        return range(0)

    def rank_name(self, rank: int) -> str:
        role, index = self.role_of(rank)
        return f"{role.name.lower()}-{index}"


class Slot(Row, frozen=True):
    """Where one rank runs: a node, and the indices of the devices it has there."""

    node: str
    devices: tuple[int, ...] = ()


class Remedy(StrEnum):
    """What would let a job start that cannot start on the cluster as it is."""

    # Nodes that the cluster has, and that take no work now, take work: those that are down or
    # cordoned, those of a pool that has not asked for them yet, and those that a cluster autoscaler may
    # add where the policy says that there is one.
    NODES = "nodes"
    # Its queue, or one above it, gets more quota.
    QUOTA = "quota"
    # The rest of its group has come.
    GROUP = "group"
    # The cluster gets other nodes, or the job asks for less.
    OTHER = "other"


class Obstacle(Value, frozen=True, kw_only=True):
    """Why a job could not start even if nothing ran: a code, and what it is about.

    `obstacles.py` puts it into words. A field that says nothing is left at its default.
    """

    code: str
    remedy: Remedy = Remedy.OTHER
    # How much it needs, and how much there is at most, of `resource`: ranks, gpus, gangs,
    # gpu_memory_mib, or what pods request.
    needed: int | None = None
    available: int | None = None
    resource: str = ""
    role: str = ""
    node: str = ""
    devices: tuple[int, ...] = ()
    level: str = ""
    flavors: tuple[str, ...] = ()
    # Labels that it asks of its nodes, with their values.
    selector: tuple[tuple[str, str], ...] = ()
    # Taints of nodes that would do otherwise, and that it does not tolerate.
    taints: tuple[str, ...] = ()
    queue: str = ""
    group: str = ""


# One slot a rank, in the order of the ranks.
Placement = tuple[Slot, ...]


def in_gpus(milli: int) -> float:
    """Thousandths as GPUs: an int where they are whole, so that views of whole GPUs stay integers."""
    return milli // 1_000 if milli % 1_000 == 0 else milli / 1_000


class Exit(Value, frozen=True):
    """How one rank ended. A code is unknown when nobody saw the process end.

    `lines` are the last ones it wrote, where it ended badly and the cluster knows them.
    """

    rank: int
    code: int | None = None
    cause: Cause = Cause.EXIT
    message: str = ""
    lines: tuple[str, ...] = ()


class Restart(Value, frozen=True):
    """One entry of a job's restart ledger."""

    at: float
    attempt: int
    cause: Cause
    spends_budget: bool
    rank: int | None = None
    exit_code: int | None = None
    node: str = ""
    message: str = ""
    # Of an eviction: for how many seconds it had run that are lost.
    lost_s: float = 0.0


class NodeInfo(Value, frozen=True):
    """A machine as the cluster reports it."""

    name: str
    gpus: int
    gpu_type: str = ""
    gpu_memory_mib: int = 0
    rack: str = ""
    labels: dict[str, str] = {}
    # Its domains, outermost first; empty means that the rack is all there is to say.
    path: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()
    # Devices that nobody is given: sick ones, and those that others use.
    unusable: tuple[int, ...] = ()
    # What ranks may request of it beside GPUs, and what of that other people's pods have: amounts
    # as in `requests`. Of what is not named here there is as much as anybody wants.
    resources: dict[str, int] = {}
    used_by_others: dict[str, int] = {}

    @property
    def domains(self) -> tuple[str, ...]:
        return self.path or ((self.rack,) if self.rack else ())

    @property
    def flavor(self) -> str:
        return self.labels.get("flavor", self.gpu_type)

    @property
    def offers(self) -> dict[str, int]:
        """What is there for ranks in all, beside GPUs; less than nothing if others have too much."""
        others = self.used_by_others
        return {name: most - others.get(name, 0) for name, most in self.resources.items()}
