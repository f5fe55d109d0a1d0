"""The fold of the log: jobs, nodes, queues, policy, and receipts of answered commands.

Replay needs only a `State` until it has reached the end. `World` adds the indexes that decisions need, and is then the
only one that applies events to it.
"""

from collections.abc import Sequence
from itertools import islice
from typing import NoReturn

from msgspec.structs import replace

from controlplane.disciplines.discipline import Discipline
from controlplane.disciplines.registry import DISCIPLINES
from controlplane.lifecycle.job import Job, attained_gpu_s, begin, evolve, require_removable
from controlplane.lifecycle.owner import Owner, begin_owner, evolve_owner, require_owner_removable
from controlplane.model import events as e
from controlplane.model.errors import ImpossibleEvent
from controlplane.model.phases import NodeState
from controlplane.model.policy import Policy, Queue
from controlplane.state.image import DEFAULT_POLICY, Cycle, Node, Receipt, StateImage
from controlplane.state.run_lengths import RunLengths, Sample, learns, sample_of

DEFAULT_QUEUE = Queue("default")
# How many receipts are kept for repeated commands, and how many of the oldest are dropped at once when there are more: a
# dict finds its first entry by scanning the slots of deleted ones, so dropping them one by one would be slow.
RECEIPTS_MAX = 100_000
RECEIPTS_FORGOTTEN = 5_000


class State:
    def __init__(self, image: StateImage | None = None) -> None:
        self.position = 0
        # The number of the latest step that recorded something; see `events.Recorded`.
        self.step = 0
        # How many commands of that step have recorded something.
        self.step_commands = 0
        self.at = 0.0
        # Whether every node of the cluster has been reported.
        self.surveyed = False
        self.jobs: dict[str, Job] = {}
        # What owns jobs: arrays.
        self.owners: dict[str, Owner] = {}
        self.nodes: dict[str, Node] = {}
        self.queues: dict[str, Queue] = {DEFAULT_QUEUE.name: DEFAULT_QUEUE}
        self.receipts: dict[str, Receipt] = {}
        self.policy = DEFAULT_POLICY
        # The address of the leading control plane, if it has one.
        self.leader = ""
        # Queue -> decayed GPU-seconds of its removed jobs, and the time of that number; kept if the policy has a
        # half-life of usage.
        self.usage: dict[str, tuple[float, float]] = {}
        # Run lengths of removed jobs, if some queue's discipline uses them.
        self.lengths = RunLengths()
        # The latest scheduling cycle, if the policy limits the starts of one.
        self.cycle: Cycle | None = None
        if image is not None:
            self._restore(image)

    def _restore(self, image: StateImage) -> None:
        self.position = image.position
        self.step = image.step
        self.step_commands = image.step_commands
        self.at = image.at
        self.surveyed = image.surveyed
        self.jobs = {job.id: job for job in image.jobs}
        self.nodes = {node.name: node for node in image.nodes}
        self.queues = {queue.name: queue for queue in image.queues}
        self.receipts = {cause: Receipt(at, stream) for cause, at, stream in image.receipts}
        self.policy = image.policy
        self.leader = image.leader
        self.usage = {queue: (gpu_s, at) for queue, gpu_s, at in image.usage}
        self.cycle = image.cycle
        self.owners = {owner.id: owner for owner in image.owners}
        self.lengths = RunLengths(
            {key: [Sample(*s) for s in group] for key, group in image.lengths}
        )

    def image(self, hash: bytes = b"", *, with_receipts: bool = True) -> StateImage:
        """Return the state as one value; a copy that is only read needs no receipts."""
        receipts = self.receipts if with_receipts else {}
        return StateImage(
            position=self.position,
            step=self.step,
            step_commands=self.step_commands,
            at=self.at,
            hash=hash,
            surveyed=self.surveyed,
            jobs=list(self.jobs.values()),
            nodes=list(self.nodes.values()),
            queues=list(self.queues.values()),
            receipts=[(cause, r.position, r.stream) for cause, r in receipts.items()],
            # The encoder omits a field only if it is the default object itself.
            policy=DEFAULT_POLICY if self.policy == DEFAULT_POLICY else self.policy,
            leader=self.leader,
            usage=tuple((queue, *known) for queue, known in self.usage.items()),
            lengths=tuple(
                (key, tuple((*sample,) for sample in group))
                for key, group in sorted(self.lengths.groups.items())
            ),
            cycle=self.cycle,
            owners=tuple(self.owners.values()),
        )

    def apply_folded(self, batch: Sequence[e.Recorded], outcome: Job) -> None:
        """Apply events about one job whose fold is known: they turn the job into `outcome`."""
        first, last = batch[0], batch[-1]
        assert first.position == self.position + 1, (first.position, self.position)
        assert last.position == self.position + len(batch), (last.position, self.position)
        commands = self._commands_with(first)
        self.jobs[outcome.id] = outcome
        self.position = last.position
        self.step, self.step_commands = last.step, commands
        self.at = last.at
        if first.cause:
            for recorded in batch:
                self._remember(recorded)

    def apply(self, recorded: e.Recorded) -> None:
        """Apply one event. Raises ImpossibleEvent if it cannot happen in this state."""
        event = recorded.event
        assert recorded.position == self.position + 1, (recorded.position, self.position)
        commands = self._commands_with(recorded)
        if isinstance(event, e.JobEvent):
            self._apply_job_event(recorded, event)
        else:
            self._apply_rarer(recorded, event)
        self.position = recorded.position
        self.step, self.step_commands = recorded.step, commands
        self.at = recorded.at
        if recorded.cause:
            self._remember(recorded)

    def _commands_with(self, recorded: e.Recorded) -> int:
        """How many commands of its step have recorded something, including the event's own.

        Raises ImpossibleEvent unless the event belongs to the latest step or the next one, and to
        the latest command of its step, the next one, or none.
        """
        step, ordinal, commands = recorded.step, recorded.ordinal, self.step_commands
        if step != self.step:
            if step != self.step + 1:
                message = f"step {self.step} is followed by step {step}"
                raise ImpossibleEvent(message)
            commands = 0
        if not ordinal:
            return commands
        if ordinal not in (commands, commands + 1):
            raise ImpossibleEvent(f"command {commands} of step {step} is followed by {ordinal}")
        return ordinal

    def _apply_job_event(self, recorded: e.Recorded, event: e.JobEvent) -> None:
        job = self.jobs.get(event.job)
        if isinstance(event, e.JobSubmitted):
            if job is not None:
                _refuse(event, f"{event.job} was submitted before")
            self.jobs[event.job] = begin(recorded)
            if event.owner is not None:
                self._apply_to_owner(event.owner.id, recorded)
            return
        if job is None:
            raise ImpossibleEvent(f"{type(event).__name__}: there is no job {event.job}")
        if isinstance(event, e.JobRemoved):
            require_removable(job, event)
            del self.jobs[event.job]
            self._remember_usage(job, recorded.at)
            self._remember_length(job)
        else:
            self.jobs[event.job] = evolve(job, recorded)

    def _apply_to_owner(self, owner_id: str, recorded: e.Recorded) -> None:
        owner, event = self.owners.get(owner_id), recorded.event
        if isinstance(event, e.OwnerSubmitted):
            if owner is not None:
                _refuse(event, f"{owner_id} was submitted before")
            self.owners[owner_id] = begin_owner(recorded)
            return
        if owner is None:
            raise ImpossibleEvent(f"{type(event).__name__}: there is no owner {owner_id}")
        if isinstance(event, e.OwnerRemoved):
            require_owner_removable(owner, event)
            del self.owners[owner_id]
        else:
            self.owners[owner_id] = evolve_owner(owner, recorded)

    def _apply_rarer(self, recorded: e.Recorded, event: e.Event) -> None:
        match event:
            case e.OwnerEvent():
                self._apply_to_owner(event.owner, recorded)
            case e.NodeEvent():
                node = self.nodes.get(event.node)
                _require_node(node, event)
                self.nodes[event.node] = _node_after(node, event, len(self.nodes))
            case e.QueueDefined():
                self.queues[event.queue.name] = event.queue
            case e.QueueRemoved():
                if event.name not in self.queues:
                    _refuse(event, f"there is no queue {event.name}")
                del self.queues[event.name]
            case e.PolicySet():
                if _cycles_of(self.policy) != _cycles_of(event.policy):
                    self.cycle = None
                self.policy = event.policy
            case e.StartsCounted():
                self.cycle = Cycle(
                    ends_at=event.ends_at, admitted=event.admitted, limited=event.limited
                )
            case e.CycleEnded():
                if self.cycle is None:
                    _refuse(event, "no scheduling cycle has begun")
                self.cycle = None
            case e.ClusterSurveyed():
                if self.surveyed:
                    _refuse(event, "the cluster was surveyed before")
                self.surveyed = True
            case (
                e.ClusterModelled()
                | e.PoolNodesRequested()
                | e.PoolNodesReturned()
                | e.FaultInjected()
                | e.TimePassed()
            ):
                # Facts for the simulated cluster, which reads them from the log when it starts.
                pass
            case _:
                assert isinstance(event, e.EngineStarted), event
                self.leader = event.address

    def _remember_usage(self, job: Job, at: float) -> None:
        """Add a removed job's usage to its queue's, if the policy has a half-life of usage."""
        halflife_s, attempt = self.policy.usage_halflife_s, job.attempt
        if halflife_s is None or attempt is None or attempt.ended_at is None:
            return
        known, since = self.usage.get(job.spec.queue, (0.0, at))
        left = faded(known, at - since, halflife_s)
        more = faded(attained_gpu_s(job), at - attempt.ended_at, halflife_s)
        self.usage[job.spec.queue] = left + more, at

    def discipline(self, queue: str) -> Discipline:
        """The queue's discipline: its own, or the policy's."""
        known = self.queues.get(queue)
        own = None if known is None else known.discipline
        return DISCIPLINES[self.policy.discipline if own is None else own]

    def learns_now(self) -> bool:
        """Whether run lengths are learned: some queue's discipline uses them."""
        return learns(self.policy, self.queues.values())

    def _remember_length(self, job: Job) -> None:
        """Keep a removed job's run length, if lengths are learned."""
        if self.learns_now() and sample_of(job) is not None:
            self.lengths.add_job(job)
            self.lengths.forget()

    def _remember(self, recorded: e.Recorded) -> None:
        """Keep the answer to a command: its last position, and the stream of its first event."""
        receipts, cause = self.receipts, recorded.cause
        known = receipts.get(cause)
        stream = recorded.event.stream if known is None else known.stream
        receipts[cause] = Receipt(recorded.position, stream)
        if len(receipts) > RECEIPTS_MAX:
            for oldest in list(islice(receipts, RECEIPTS_FORGOTTEN)):
                del receipts[oldest]


def _cycles_of(policy: Policy) -> tuple[int | None, float]:
    return policy.starts_per_cycle_max, policy.cycle_s


def faded(gpu_s: float, after_s: float, halflife_s: float) -> float:
    """What is left of usage `after_s` seconds after it ended."""
    return float(gpu_s * 0.5 ** (after_s / halflife_s))


def _refuse(event: e.Event, why: str) -> NoReturn:
    raise ImpossibleEvent(f"{type(event).__name__} cannot happen: {why}")


def _require_node(node: Node | None, event: e.NodeEvent) -> None:
    """Raise ImpossibleEvent unless the event's class allows it in the state of its node."""
    state = NodeState.UNKNOWN if node is None else node.state
    if state not in event.allowed_in:
        allowed = " or ".join(sorted(event.allowed_in))
        _refuse(event, f"node {event.node} is {state}, and it must be {allowed}")
    if (
        node is not None
        and event.if_cordoned is not None
        and node.cordoned is not event.if_cordoned
    ):
        known = "is" if node.cordoned else "is not"
        _refuse(event, f"node {event.node} {known} cordoned already")


def _node_after(node: Node | None, event: e.NodeEvent, ordinal: int) -> Node:
    """A node after an event about it; `ordinal` is for one that is seen for the first time."""
    if isinstance(event, e.NodeReported):
        if node is None:
            return Node(info=event.info, ordinal=ordinal)
        return Node(
            info=event.info,
            ordinal=node.ordinal,
            cordoned=node.cordoned,
            cordon_reason=node.cordon_reason,
            cordon_losses=node.cordon_losses,
            losses=node.losses,
        )
    assert node is not None, event
    match event:
        case e.NodeLost(losses=losses):
            return replace(node, ready=False, loss=event.loss, losses=losses)
        case e.NodeRemoved():
            return replace(node, ready=False, removed=True)
        case e.NodeCordoned(reason=reason, losses=times):
            return replace(node, cordoned=True, cordon_reason=reason, cordon_losses=times)
        case e.NodeDrainRequested():
            return node
        case e.NodeUncordoned():
            return replace(node, cordoned=False, cordon_reason=None, cordon_losses=0, losses=())
        case _:
            raise AssertionError(event)
