"""Events of resources that are not written yet, and the log position up to which they are written.

From the position at which this process's engine begins to lead, the operator receives every
recorded event. For a resource that existed before, or that appears later, events may have been
missed; they are read from the log (`missed.py`).
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable

from adapters.kubernetes.api.errors import ApiError
from adapters.kubernetes.observe.labels import Document
from adapters.kubernetes.operator import k8s_events as h
from adapters.kubernetes.operator.client import ControlPlaneClient
from adapters.kubernetes.operator.missed import missed
from adapters.kubernetes.operator.reconcile import observed_position
from adapters.kubernetes.operator.writer import Writer
from controlplane.model import events as e
from controlplane.model.errors import LogUnavailable, Rejected
from controlplane.ports import EventLog

# Resources arrive in whole lists; those within this time are looked up in the log together.
GATHER_S = 0.5
CATCH_UP_AGAIN_S = 5.0

_log = logging.getLogger("muster.kubernetes")


class EventBacklog:
    """The events to write, by the uid of the resource.

    `document_of` returns the resource with a uid, or None; `wake` queues a uid for reconciliation.
    `now` returns the time as the log counts it.
    """

    def __init__(
        self,
        client: ControlPlaneClient,
        log: EventLog,
        writer: Writer,
        now: Callable[[], float],
        document_of: Callable[[str], Document | None],
        wake: Callable[[str], None],
    ) -> None:
        self._client = client
        self._log = log
        self._writer = writer
        self._now = now
        self._document_of = document_of
        self._wake = wake
        self._pending: defaultdict[str, list[h.EventToEmit]] = defaultdict(list)
        self._written: dict[str, int] = {}
        # The position from which every recorded event is received; 0 while another process leads.
        self.heard_from = 0
        # The uids of resources whose events may have been missed.
        self._behind: set[str] = set()
        self._catch_up = asyncio.Event()

    def begin(self, position: int, uids: Collection[str]) -> None:
        """Start at the position where an engine begins to lead; `uids` are all known resources."""
        self.heard_from = position
        self._pending.clear()
        self._behind |= set(uids)
        self._catch_up.set()

    def appears(self, uid: str) -> None:
        """Check the log for missed events of a resource that is new to the operator."""
        self._behind.add(uid)
        self._catch_up.set()

    def add(self, uid: str, events: Iterable[h.EventToEmit]) -> None:
        """Add events to those that `write` will write."""
        self._pending[uid] += events

    def drop(self, uid: str) -> None:
        """Discard the events of a resource that is left alone."""
        self._pending.pop(uid, None)

    def forget(self, uid: str) -> None:
        """Remove everything about a resource that no longer exists."""
        self._pending.pop(uid, None)
        self._written.pop(uid, None)
        self._behind.discard(uid)

    def written_up_to(self, uid: str, document: Document) -> int:
        """Return the log position up to which all events of a resource are written.

        It is known from this process, or from the status of the resource.
        """
        return max(self._written.get(uid, 0), observed_position(document))

    async def write(self, uid: str, document: Document) -> None:
        """Write the pending events of a resource.

        Raises ApiError if one fails; then all of them stay pending.
        """
        due = self._pending.pop(uid, [])
        try:
            await asyncio.gather(*(self._writer.event(document, each) for each in due))
        except ApiError:
            self._pending[uid] = [*due, *self._pending[uid]]
            raise
        position = max((each.position for each in due), default=0)
        if uid not in self._behind:
            self._written[uid] = max(self._written.get(uid, 0), position)

    # ------------------------------------------------------------------ missed events

    async def catch_up_for_ever(self) -> None:
        """Look up missed events whenever resources appear, until cancelled."""
        while True:
            await self._catch_up.wait()
            await asyncio.sleep(GATHER_S)
            self._catch_up.clear()
            behind = set(self._behind)
            try:
                await self._add_missed(behind)
            except (Rejected, LogUnavailable) as error:
                _log.debug("missed events cannot be read yet: %s", error)
                self._catch_up.set()
                await asyncio.sleep(CATCH_UP_AGAIN_S)
            else:
                self._behind -= behind

    async def _add_missed(self, behind: Collection[str]) -> None:
        written: dict[str, int] = {}
        for uid in behind:
            document = self._document_of(uid)
            if document is not None:
                written[uid] = observed_position(document)
        jobs = await self._client.ask(lambda world: {uid: world.jobs.get(uid) for uid in written})
        # Nothing was missed for jobs that were submitted after the engine began to lead.
        old = {uid for uid, job in jobs.items() if job and job.submitted_position < self.heard_from}
        written = {uid: written[uid] for uid in sorted(old)}
        if not written:
            return
        since = self._now() - h.KEPT_S
        events = missed(self._log, written, since=since, before=self.heard_from)
        async for each in events:
            assert isinstance(each.event, e.JobEvent)
            uid = each.event.job
            job = jobs[uid]
            assert job is not None
            self.add(uid, h.emitted_events(job, [each]))
            self._wake(uid)
