"""Records the wait reasons of a pass; their facts are computed only for selected gangs."""

from collections.abc import Callable, Mapping

from controlplane.lifecycle.job import Job
from controlplane.model.reasons import Wait, WaitReason
from controlplane.scheduling.decisions import KeepWaiting, SchedulingDecision
from controlplane.scheduling.explain.explanation import brief, explain, left_over, refined
from controlplane.scheduling.gang import Gang
from controlplane.scheduling.ordering.start_limit import StartLimit
from controlplane.scheduling.quota.gate import QuotaGate
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.queue_order import Shape

# Whether to compute the facts of this job's wait reason.
Explains = Callable[[Job, WaitReason], bool]


class WaitReasonRecorder:
    """Collects why gangs wait, as `KeepWaiting` decisions.

    `explains` selects the gangs whose facts are computed: among those that the pass tries, or among
    all waiting gangs if `explain_all` is set. Without `explains` nothing is recorded.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        gate: QuotaGate,
        decisions: list[SchedulingDecision],
        explains: Explains | None,
        explain_all: bool,
    ) -> None:
        self._snapshot = snapshot
        self._gate = gate
        self._decisions = decisions
        self._explains = explains
        self._explain_all = explain_all
        self.explains_all = explains is not None and explain_all
        # (Queue, shape) -> why its first gang waits, which holds for all gangs of the shape.
        self._codes: dict[tuple[str, Shape], WaitReason] = {}

    @property
    def records(self) -> bool:
        """Whether wait reasons are recorded at all."""
        return self._explains is not None

    def record(self, gang: Gang, code: WaitReason, limit: StartLimit | None = None) -> None:
        """Record why a gang waits; `limit` is the limit on starts, if that left the gang over."""
        explains, snapshot = self._explains, self._snapshot
        if explains is None:
            return
        self._codes.setdefault((gang.queue, gang.shape), code)
        if not self._explain_all:
            code = refined(snapshot, gang, code)
        if explains(snapshot.job(gang.id), code):
            flavor = self._gate.flavors(gang)[0]
            reasons: tuple[Wait, ...]
            if code is WaitReason.STARTS_LIMITED:
                assert limit is not None
                reasons = left_over(snapshot, gang, flavor, limit)
            elif self._explain_all:
                reasons = explain(snapshot, gang, code, flavor)
            else:
                reasons = (brief(snapshot, gang, code, flavor),)
            self._decisions.append(KeepWaiting(gang.id, reasons))

    def explain_those_behind(self, closed: Mapping[str, str], limit: StartLimit | None) -> None:
        """Record the reasons of gangs that the pass did not try.

        These wait behind a blocked head, or behind the first gang of their shape. `limit` is the
        limit on starts, if it left gangs over: then every other gang waits for the next cycle.
        """
        snapshot, explains = self._snapshot, self._explains
        assert explains is not None
        decided = {decision.job for decision in self._decisions}
        for queue in snapshot.queues:
            head = closed.get(queue)
            for place in snapshot.queue_index(queue).order:
                job_id = place.job
                if job_id in decided:
                    continue
                code = WaitReason.BLOCKED_BY_HEAD if head else WaitReason.INSUFFICIENT_CAPACITY
                if explains(snapshot.job(job_id), code):
                    gang = snapshot.gang(job_id)
                    if not head and limit is not None and self._is_new(gang):
                        flavor = self._gate.flavors(gang)[0]
                        limited = left_over(snapshot, gang, flavor, limit)
                        self._decisions.append(KeepWaiting(job_id, limited))
                        continue
                    code = code if head else self._code_of(gang)
                    flavor = self._gate.flavors(gang)[0]
                    reasons = explain(snapshot, gang, code, flavor, head or "")
                    self._decisions.append(KeepWaiting(job_id, reasons))

    def _is_new(self, gang: Gang) -> bool:
        """Whether no gang of its shape was tried."""
        known = self._codes.get((gang.queue, gang.shape))
        return known in (None, WaitReason.STARTS_LIMITED)

    def _code_of(self, gang: Gang) -> WaitReason:
        known = self._codes.get((gang.queue, gang.shape))
        known = known or self._gate.code(gang, self._gate.flavors(gang)[0])
        return known or WaitReason.INSUFFICIENT_CAPACITY
