"""Leader election by a Lease: acquire it, renew it, and return when it is lost.

The decisions are in `lease.py`; this module sends the requests and waits. The protocol is that of
client-go (`tools/leaderelection`): candidates poll the lease and take it when its holder has not
renewed it for its whole duration.
"""

from typing import Any, Protocol

from adapters.kubernetes.leader_election.lease import (
    Document,
    ObservedLease,
    Terms,
    Wait,
    holder,
    look,
    move,
    released,
    renewed,
)
from controlplane.ports import Clock

# The delay after a failed renewal; with a longer one, a single lost request could cost the lease.
RETRY_S = 0.5


class LeaseRefused(Exception):
    """Another client changed the lease in the meantime."""


class LeaseUnreachable(Exception):
    """The API server did not answer, or answered with an error."""


class Leases(Protocol):
    """The Leases of one namespace.

    Every method returns within bounded time, or raises LeaseRefused or LeaseUnreachable. `get` returns None
    if there is no such lease.
    """

    async def get(self, name: str) -> Document | None: ...

    async def create(self, lease: dict[str, Any]) -> Document: ...

    async def replace(self, lease: dict[str, Any]) -> Document: ...


class LeaseElection:
    """One candidate in the election for the lease `name`.

    `me` must be unique to this process: two candidates with the same identity would both win.
    `clock` shows real time and has no other waiter.
    """

    def __init__(
        self, leases: Leases, name: str, me: str, *, clock: Clock, terms: Terms | None = None
    ) -> None:
        self._leases = leases
        self._name = name
        self._me = me
        self._clock = clock
        self._terms = terms or Terms()
        self._seen: ObservedLease | None = None
        # The lease as this candidate wrote it last, and the time from which it is valid.
        self._mine: Document | None = None
        self._since = 0.0

    async def won(self) -> None:
        """Wait until this candidate holds the lease."""
        while not await self._step():
            pass

    async def _step(self) -> bool:
        """Read the lease once and act on it; return whether this candidate holds it now."""
        try:
            lease = await self._leases.get(self._name)
            now = self._clock.now()
            self._seen = look(self._seen, lease, now)
            todo = move(self._seen, self._me, self._name, now, self._terms)
            if isinstance(todo, Wait):
                await self._clock.wait(todo.until)
                return False
            write = self._leases.create if todo.is_new else self._leases.replace
            self._mine = await write(todo.lease)
        except LeaseRefused:
            # Another candidate was faster; the next step reads the lease again.
            await self._clock.wait(self._clock.now() + RETRY_S)
            return False
        except LeaseUnreachable:
            await self._clock.wait(self._clock.now() + self._terms.renew_every_s)
            return False
        # Counted from before the request: the server may have stored it right at the start.
        self._since = now
        return True

    async def lost(self) -> None:
        """Renew the lease; return at the deadline without a renewal, or when another holds it."""
        wake_at = self._since + self._terms.renew_every_s
        while True:
            await self._clock.wait(wake_at)
            now = self._clock.now()
            if now >= self._since + self._terms.deadline_s:
                return
            try:
                await self._renew(now)
                wake_at = self._since + self._terms.renew_every_s
            except LeaseRefused:
                # The failed request took time too; past the deadline the lease counts as lost.
                late = self._clock.now() >= self._since + self._terms.deadline_s
                if late or not await self._is_still_mine():
                    return
                wake_at = now
            except LeaseUnreachable:
                # Not past the deadline, so that the loss is noticed in time.
                wake_at = min(self._clock.now() + RETRY_S, self._since + self._terms.deadline_s)

    async def _renew(self, now: float) -> None:
        assert self._mine is not None, "renewed before it was won"
        self._mine = await self._leases.replace(renewed(self._mine, now, self._terms))
        self._since = now

    async def _is_still_mine(self) -> bool:
        """Return whether this candidate still holds the lease after a conflict.

        Another candidate may have taken the lease, or another client may have changed other fields.
        The latter is also what an own renewal looks like whose answer was lost. True if the server
        cannot be reached.
        """
        try:
            lease = await self._leases.get(self._name)
        except LeaseUnreachable:
            return True
        if holder(lease) != self._me:
            return False
        self._mine = lease
        return True

    async def resign(self) -> None:
        """Release the lease if this candidate holds it, so that another can take it at once."""
        mine, self._mine, self._seen = self._mine, None, None
        if mine is None:
            return
        try:
            await self._leases.replace(released(mine, self._clock.now()))
        except (LeaseRefused, LeaseUnreachable):
            # Another candidate holds it already, or it expires by itself.
            return
