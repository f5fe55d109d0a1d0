"""What happened to jobs and is to be told as events of their resources, and up to where it was.

From where the engine of this process leads we hear everything ourselves. Of a resource that was there
before, or that appears, something may have been missed: that is looked up in the log.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable

from adapters.kubernetes.errors import ApiError
from adapters.kubernetes.marks import Document
from adapters.kubernetes.operator import happenings as h
from adapters.kubernetes.operator.desk import Desk
from adapters.kubernetes.operator.judging import observed_position
from adapters.kubernetes.operator.missed import missed
from adapters.kubernetes.operator.writing import Writer
from controlplane import events as e
from controlplane.errors import LogUnavailable, Rejected
from controlplane.ports import EventLog

# Whole lists come in at once, and are looked up in the log together.
GATHER_S = 0.5
CATCH_UP_AGAIN_S = 5.0

_log = logging.getLogger("muster.kubernetes")


class News:
    """`document_of` finds a resource by its uid; `wake` has somebody look at it."""

    def __init__(
        self,
        desk: Desk,
        log: EventLog,
        writer: Writer,
        now: Callable[[], float],
        document_of: Callable[[str], Document | None],
        wake: Callable[[str], None],
    ) -> None:
        self._desk = desk
        self._log = log
        self._writer = writer
        self._now = now
        self._document_of = document_of
        self._wake = wake
        self._untold: defaultdict[str, list[h.Happening]] = defaultdict(list)
        self._told: dict[str, int] = {}
        # From where on we hear everything ourselves; 0 while somebody else leads.
        self.heard_from = 0
        # Of whom it may be that we missed something.
        self._unheard: set[str] = set()
        self._catch_up = asyncio.Event()

    def begin(self, position: int, uids: Collection[str]) -> None:
        """An engine leads from this position on, and these resources are there."""
        self.heard_from = position
        self._untold.clear()
        self._unheard |= set(uids)
        self._catch_up.set()

    def appears(self, uid: str) -> None:
        """A resource is seen for the first time."""
        self._unheard.add(uid)
        self._catch_up.set()

    def add(self, uid: str, found: Iterable[h.Happening]) -> None:
        self._untold[uid] += found

    def drop(self, uid: str) -> None:
        """Nothing of this is ours to tell."""
        self._untold.pop(uid, None)

    def forget(self, uid: str) -> None:
        self._untold.pop(uid, None)
        self._told.pop(uid, None)
        self._unheard.discard(uid)

    def told_up_to(self, uid: str, document: Document) -> int:
        """The position in the log up to which all was told, by us or as the resource says."""
        return max(self._told.get(uid, 0), observed_position(document))

    async def tell(self, uid: str, document: Document) -> None:
        """Writes the events that are due; after a failure all of them once more."""
        due = self._untold.pop(uid, [])
        try:
            await asyncio.gather(*(self._writer.event(document, each) for each in due))
        except ApiError:
            self._untold[uid] = [*due, *self._untold[uid]]
            raise
        told = max((each.position for each in due), default=0)
        if uid not in self._unheard:
            self._told[uid] = max(self._told.get(uid, 0), told)

    # ------------------------------------------------------------------ what we missed

    async def catch_up_for_ever(self) -> None:
        while True:
            await self._catch_up.wait()
            await asyncio.sleep(GATHER_S)
            self._catch_up.clear()
            unheard = set(self._unheard)
            try:
                await self._hear_missed(unheard)
            except (Rejected, LogUnavailable) as error:
                _log.debug("what was missed is not known yet: %s", error)
                self._catch_up.set()
                await asyncio.sleep(CATCH_UP_AGAIN_S)
            else:
                self._unheard -= unheard

    async def _hear_missed(self, unheard: Collection[str]) -> None:
        told: dict[str, int] = {}
        for uid in unheard:
            document = self._document_of(uid)
            if document is not None:
                told[uid] = observed_position(document)
        jobs = await self._desk.ask(lambda world: {uid: world.jobs.get(uid) for uid in told})
        # Of those that are younger than the engine nothing was missed.
        old = {uid for uid, job in jobs.items() if job and job.submitted_as < self.heard_from}
        told = {uid: told[uid] for uid in sorted(old)}
        if not told:
            return
        since = self._now() - h.KEPT_S
        found = missed(self._log, told, since=since, before=self.heard_from)
        async for each in found:
            assert isinstance(each.event, e.JobEvent)
            uid = each.event.job
            job = jobs[uid]
            assert job is not None
            self.add(uid, h.happenings(job, [each]))
            self._wake(uid)
