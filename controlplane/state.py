"""Everything the log says, folded: jobs, nodes, queues, and the answers given.

A `State` is the fold and nothing else, which is all that replay needs until it has reached the end.
`World` adds the indexes that decisions need. Only `apply` changes either of them, and only the
engine and replay call it.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Any

from msgspec.structs import replace

from controlplane import events as e
from controlplane.image import DEFAULT_POLICY, Cycle, Image, Node, Receipt
from controlplane.job import Job
from controlplane.job_life import EVOLVE, attained_gpu_s, begun
from controlplane.run_lengths import RunLengths, Sample, learns, sample_of
from controlplane.sharing import Policy, Queue

DEFAULT_QUEUE = Queue("default")
# How many answers to people's commands are remembered for those who ask again. If there are more,
# so many of the oldest are forgotten together: a dictionary looks for its first entry behind the
# places of all that went before it, so going one by one would take longer than the rest of a step.
RECEIPTS_MAX = 100_000
RECEIPTS_FORGOTTEN = 5_000


class State:
    def __init__(self, image: Image | None = None) -> None:
        self.position = 0
        self.at = 0.0
        # Whether every node of the cluster has been reported.
        self.surveyed = False
        self.jobs: dict[str, Job] = {}
        self.nodes: dict[str, Node] = {}
        self.queues: dict[str, Queue] = {DEFAULT_QUEUE.name: DEFAULT_QUEUE}
        self.receipts: dict[str, Receipt] = {}
        self.policy = DEFAULT_POLICY
        # Where the control plane answers that leads, if it said so.
        self.leader = ""
        # The rules by which the engine decides that leads; see `events.RULES`.
        self.rules = 0
        # Queue -> what its removed jobs have had, where the policy remembers: as much as is left of
        # it, and when that was so.
        self.usage: dict[str, tuple[float, float]] = {}
        # How long removed jobs ran, where some line looks at that.
        self.lengths = RunLengths()
        # The latest scheduling cycle, where the policy limits how many gangs start in one.
        self.cycle: Cycle | None = None
        if image is not None:
            self._restore(image)

    def _restore(self, image: Image) -> None:
        self.position = image.position
        self.at = image.at
        self.surveyed = image.surveyed
        self.jobs = {job.id: job for job in image.jobs}
        self.nodes = {node.name: node for node in image.nodes}
        self.queues = {queue.name: queue for queue in image.queues}
        self.receipts = {cause: Receipt(at, stream) for cause, at, stream in image.receipts}
        self.policy = image.policy
        self.leader = image.leader
        self.rules = image.rules
        self.usage = {queue: (gpu_s, at) for queue, gpu_s, at in image.usage}
        self.cycle = image.cycle
        self.lengths = RunLengths(
            {key: [Sample(*s) for s in group] for key, group in image.lengths}
        )

    def _take_over(self, other: "State") -> None:
        """Becomes another state, which is nobody's from here on."""
        self.position = other.position
        self.at = other.at
        self.surveyed = other.surveyed
        self.jobs = other.jobs
        self.nodes = other.nodes
        self.queues = other.queues
        self.receipts = other.receipts
        self.policy = other.policy
        self.leader = other.leader
        self.rules = other.rules
        self.usage = other.usage
        self.lengths = other.lengths
        self.cycle = other.cycle

    def image(self, hash: bytes = b"") -> Image:
        return Image(
            position=self.position,
            at=self.at,
            hash=hash,
            surveyed=self.surveyed,
            jobs=list(self.jobs.values()),
            nodes=list(self.nodes.values()),
            queues=list(self.queues.values()),
            receipts=[(cause, r.position, r.stream) for cause, r in self.receipts.items()],
            # What equals its default is left out only if it is the default itself.
            policy=DEFAULT_POLICY if self.policy == DEFAULT_POLICY else self.policy,
            leader=self.leader,
            rules=self.rules,
            usage=tuple((queue, *known) for queue, known in self.usage.items()),
            lengths=tuple(
                (key, tuple((*sample,) for sample in group))
                for key, group in sorted(self.lengths.groups.items())
            ),
            cycle=self.cycle,
        )

    def apply(self, recorded: e.Recorded) -> None:
        """Takes one more event in. The only door."""
        self.take(recorded.position, recorded.at, recorded.event, recorded.cause)

    def take(self, position: int, at: Any, event: e.Event, cause: str) -> None:
        """The same for a reader that has no envelopes."""
        jobs = self.jobs
        assert position == self.position + 1, (position, self.position)
        # One number for all who keep it; see `begun`.
        number: Any = position
        evolve = EVOLVE.get(type(event))
        if evolve is not None:
            job_id: str = event.job  # type: ignore[attr-defined]
            jobs[job_id] = evolve(jobs[job_id], event, at, number)
        elif isinstance(event, e.JobSubmitted):
            assert event.job not in jobs, f"{event.job} was submitted twice"
            jobs[event.job] = begun(event, at, number)
        else:
            self._apply_rarer(event, at)
        self.position = position
        self.at = at
        if cause:
            self._remember(number, event, cause)

    def _apply_rarer(self, event: e.Event, at: float) -> None:
        match event:
            case e.JobRemoved():
                job = self.jobs.pop(event.job)
                self._remember_usage(job, at)
                self._remember_length(job)
            case e.NodeEvent():
                old = self.nodes.get(event.node)
                self.nodes[event.node] = _node_after(old, event, len(self.nodes))
            case e.QueueDefined():
                self.queues[event.queue.name] = event.queue
            case e.QueueRemoved():
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
                self.cycle = None
            case e.ClusterSurveyed():
                self.surveyed = True
            case (
                e.ClusterModelled()
                | e.PoolNodesRequested()
                | e.PoolNodesReturned()
                | e.TimePassed()
            ):
                # Facts for the simulated cluster, which reads them from the log when it starts.
                pass
            case _:
                assert isinstance(event, e.EngineStarted), event
                self.leader = event.address
                self.rules = event.rules

    def _remember_usage(self, job: Job, at: float) -> None:
        """What a removed job has had counts on for a while, where the policy says so."""
        halflife_s, attempt = self.policy.usage_halflife_s, job.attempt
        if halflife_s is None or attempt is None or attempt.ended_at is None:
            return
        known, since = self.usage.get(job.spec.queue, (0.0, at))
        left = faded(known, at - since, halflife_s)
        more = faded(attained_gpu_s(job), at - attempt.ended_at, halflife_s)
        self.usage[job.spec.queue] = left + more, at

    def learns_now(self) -> bool:
        """Whether some line looks at how long jobs run, and that is learned."""
        return self.rules >= e.LEARNS and learns(self.policy, self.queues.values())

    def _remember_length(self, job: Job) -> None:
        """What a removed job has taught is kept, where some line looks at how long jobs run."""
        if self.learns_now() and sample_of(job) is not None:
            self.lengths.add_job(job)
            self.lengths.forget()

    def _note_batch(self, batch: Sequence[e.Recorded]) -> None:
        """Events were taken in whose jobs somebody else has folded."""
        first, last = batch[0], batch[-1]
        assert first.position == self.position + 1, (first.position, self.position)
        assert last.position == self.position + len(batch), (last.position, self.position)
        self.position = last.position
        self.at = last.at
        if first.cause:
            for recorded in batch:
                self._remember(recorded.position, recorded.event, recorded.cause)

    def _remember(self, position: Any, event: e.Event, cause: str) -> None:
        receipts, receipt = self.receipts, Receipt(position, _stream_of(event))
        known = receipts.setdefault(cause, receipt)
        if known is not receipt:
            receipts[cause] = Receipt(position, known.stream)
        if len(receipts) > RECEIPTS_MAX:
            for oldest in list(islice(receipts, RECEIPTS_FORGOTTEN)):
                del receipts[oldest]


def _cycles_of(policy: Policy) -> tuple[int | None, float]:
    return policy.starts_per_cycle_max, policy.cycle_s


def _stream_of(event: e.Event) -> str:
    # Nearly all are about a job, and a field takes a tenth of the time that a property does.
    return event.job if isinstance(event, e.JobEvent) else event.stream


def faded(gpu_s: float, after_s: float, halflife_s: float) -> float:
    """What is left of usage so long after it has ended."""
    return float(gpu_s * 0.5 ** (after_s / halflife_s))


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
            losses=node.losses,
        )
    assert node is not None, f"{event} is about a node that was never reported"
    match event:
        case e.NodeLost(message=message, losses=losses):
            return replace(node, ready=False, message=message, losses=losses)
        case e.NodeRemoved():
            return replace(node, ready=False, removed=True)
        case e.NodeCordoned(reason=reason):
            return replace(node, cordoned=True, cordon_reason=reason)
        case e.NodeUncordoned():
            return replace(node, cordoned=False, cordon_reason="", losses=())
        case _:
            raise AssertionError(event)
