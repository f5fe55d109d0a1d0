"""An election by a Lease, carried out: looks, takes, renews, and says when it is lost."""

from typing import Any, Protocol

from adapters.kubernetes.lease import (
    Document,
    Seen,
    Terms,
    Wait,
    holder,
    look,
    move,
    released,
    renewed,
)
from controlplane.ports import Clock

# After a failed renewal it is tried again so soon, or a single lost request would spend the lease.
RETRY_S = 0.5


class Refused(Exception):
    """Somebody changed the lease meanwhile."""


class Unreachable(Exception):
    """The API server did not answer, or not with what was asked for."""


class Leases(Protocol):
    """The Leases of one namespace. Raises Refused and Unreachable, in bounded time."""

    async def get(self, name: str) -> Document | None: ...

    async def create(self, lease: dict[str, Any]) -> Document: ...

    async def replace(self, lease: dict[str, Any]) -> Document: ...


class LeaseElection:
    """`me` must be this process's own: two that call themselves the same would both win.

    `clock` shows real time and is this one's own to wait on.
    """

    def __init__(
        self, leases: Leases, name: str, me: str, *, clock: Clock, terms: Terms | None = None
    ) -> None:
        self._leases = leases
        self._name = name
        self._me = me
        self._clock = clock
        self._terms = terms or Terms()
        self._seen: Seen | None = None
        # The lease as this one wrote it last, and since when it is good.
        self._mine: Document | None = None
        self._since = 0.0

    async def won(self) -> None:
        while not await self._step():
            pass

    async def _step(self) -> bool:
        """Looks once and does what follows; whether the lease is this one's now."""
        try:
            found = await self._leases.get(self._name)
            now = self._clock.now()
            self._seen = look(self._seen, found, now)
            todo = move(self._seen, self._me, self._name, now, self._terms)
            if isinstance(todo, Wait):
                await self._clock.wait(todo.until)
                return False
            write = self._leases.create if todo.is_new else self._leases.replace
            self._mine = await write(todo.lease)
        except Refused:
            # Somebody was quicker; what it is now is seen in the next look.
            await self._clock.wait(self._clock.now() + RETRY_S)
            return False
        except Unreachable:
            await self._clock.wait(self._clock.now() + self._terms.renew_every_s)
            return False
        # Counted from before the request: the server may have taken it at its very beginning.
        self._since = now
        return True

    async def lost(self) -> None:
        """Renews until that fails for too long or somebody else holds the lease."""
        wake_at = self._since + self._terms.renew_every_s
        while True:
            await self._clock.wait(wake_at)
            now = self._clock.now()
            if now >= self._since + self._terms.deadline_s:
                return
            try:
                await self._renew(now)
                wake_at = self._since + self._terms.renew_every_s
            except Refused:
                # Asking takes time too, and past the deadline there is none left.
                late = self._clock.now() >= self._since + self._terms.deadline_s
                if late or not await self._is_still_mine():
                    return
                wake_at = now
            except Unreachable:
                # Not past the deadline, so that it is seen in time.
                wake_at = min(self._clock.now() + RETRY_S, self._since + self._terms.deadline_s)

    async def _renew(self, now: float) -> None:
        assert self._mine is not None, "renewed before it was won"
        self._mine = await self._leases.replace(renewed(self._mine, now, self._terms))
        self._since = now

    async def _is_still_mine(self) -> bool:
        """After a conflict: somebody else took the lease, or only wrote something else into it.

        The latter is also what an own renewal looks like whose answer was lost.
        """
        try:
            found = await self._leases.get(self._name)
        except Unreachable:
            return True
        if holder(found) != self._me:
            return False
        self._mine = found
        return True

    async def resign(self) -> None:
        mine, self._mine, self._seen = self._mine, None, None
        if mine is None:
            return
        try:
            await self._leases.replace(released(mine, self._clock.now()))
        except (Refused, Unreachable):
            # Then it is somebody else's already, or runs out by itself.
            return
