"""Who is told why it waits. Reasons are worked out only for who asks: a pass needs just the code."""

from collections.abc import Callable, Mapping

from controlplane.job import Job
from controlplane.lines import Shape
from controlplane.scheduling.decisions import Decision, Hold
from controlplane.scheduling.explanation import brief, explain, left_over, refined
from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.quota_gate import QuotaGate
from controlplane.scheduling.reasons import Reason
from controlplane.scheduling.snapshot import Snapshot
from controlplane.scheduling.start_limit import STARTS_LIMITED, StartLimit

# Whether the reasons of this job, which waits for this, are worth working out.
Explains = Callable[[Job, str], bool]


class Holder:
    """`explains` says whose reasons are worked out; of those only who are looked at, or `everyone`
    who waits.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        gate: QuotaGate,
        decisions: list[Decision],
        explains: Explains | None,
        everyone: bool,
    ) -> None:
        self._snapshot = snapshot
        self._gate = gate
        self._decisions = decisions
        self._explains = explains
        self._everyone = everyone
        self.tells_everyone = explains is not None and everyone
        # Why the first of a shape waits, which is why all of its shape do.
        self._codes: dict[tuple[str, Shape], str] = {}

    @property
    def tells(self) -> bool:
        return self._explains is not None

    def hold(self, gang: Gang, code: str, limit: StartLimit | None = None) -> None:
        """`limit` is that on starts, for a gang that it has left over."""
        explains, snapshot = self._explains, self._snapshot
        if explains is None:
            return
        self._codes.setdefault((gang.queue, gang.shape), code)
        if not self._everyone:
            code = refined(snapshot, gang, code)
        if explains(snapshot.job(gang.id), code):
            flavor = self._gate.flavors(gang)[0]
            reasons: tuple[Reason, ...]
            if code == STARTS_LIMITED:
                assert limit is not None
                reasons = left_over(snapshot, gang, flavor, limit)
            elif self._everyone:
                reasons = explain(snapshot, gang, code, flavor)
            else:
                reasons = (brief(snapshot, gang, code, flavor),)
            self._decisions.append(Hold(gang.id, reasons))

    def explain_those_behind(self, closed: Mapping[str, str], limit: StartLimit | None) -> None:
        """Those that the pass did not look at wait behind a head, or like the first of their shape.

        `limit` is that on starts, if it has left gangs over: then any other waits for the next cycle.
        """
        snapshot, explains = self._snapshot, self._explains
        assert explains is not None
        decided = {decision.job for decision in self._decisions}
        for queue in snapshot.queues:
            head = closed.get(queue)
            for place in snapshot.line(queue).order:
                job_id = place.job
                if job_id in decided:
                    continue
                code = "blocked_by_head" if head else "insufficient_capacity"
                if explains(snapshot.job(job_id), code):
                    gang = snapshot.gang(job_id)
                    if not head and limit is not None and self._is_new(gang):
                        flavor = self._gate.flavors(gang)[0]
                        found = left_over(snapshot, gang, flavor, limit)
                        self._decisions.append(Hold(job_id, found))
                        continue
                    code = code if head else self._code_of(gang)
                    flavor = self._gate.flavors(gang)[0]
                    reasons = explain(snapshot, gang, code, flavor, head or "")
                    self._decisions.append(Hold(job_id, reasons))

    def _is_new(self, gang: Gang) -> bool:
        """Whether none of its shape was looked at."""
        return self._codes.get((gang.queue, gang.shape), STARTS_LIMITED) == STARTS_LIMITED

    def _code_of(self, gang: Gang) -> str:
        known = self._codes.get((gang.queue, gang.shape), "")
        known = known or self._gate.code(gang, self._gate.flavors(gang)[0])
        return known or "insufficient_capacity"
