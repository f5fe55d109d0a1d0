"""An election by a Lease (coordination.k8s.io/v1): what to do about it, from what it says. Pure.

Times of other machines are not believed: a lease is over when it was not renewed for its whole
duration since this one first saw it as it is, by this one's own clock.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

Document = Mapping[str, Any]


class Terms(NamedTuple):
    """How long a lease is good, how often it is renewed, and when its holder gives up.

    The holder gives up well before anyone else may take the lease.
    """

    duration_s: float = 10.0
    renew_every_s: float = 3.0
    deadline_s: float = 7.0


class Seen(NamedTuple):
    """A lease as it was found, and since when it has been like that."""

    lease: Document | None
    since: float


class Write(NamedTuple):
    """Create the lease, or replace the version of it that was seen."""

    lease: dict[str, Any]
    is_new: bool


class Wait(NamedTuple):
    until: float


def look(before: Seen | None, lease: Document | None, now: float) -> Seen:
    """What is seen now; the time counts from when it was first seen like this."""
    if before is not None and _record(before.lease) == _record(lease):
        return Seen(lease, before.since)
    return Seen(lease, now)


def move(seen: Seen, me: str, name: str, now: float, terms: Terms) -> Write | Wait:
    """What to do about a lease that this one does not know to be its own."""
    lease, since = seen
    if lease is None:
        return Write(_new(name, me, now, terms), is_new=True)
    spec = lease.get("spec") or {}
    holder = spec.get("holderIdentity") or ""
    if holder in ("", me):
        return Write(_taken(lease, me, now, terms), is_new=False)
    free_at = since + float(spec.get("leaseDurationSeconds") or terms.duration_s)
    if now >= free_at:
        return Write(_taken(lease, me, now, terms), is_new=False)
    return Wait(min(free_at, now + terms.renew_every_s))


def renewed(lease: Document, now: float, terms: Terms) -> dict[str, Any]:
    """The lease of its holder, for another while."""
    return _with(lease, renewTime=rfc3339(now), leaseDurationSeconds=_whole(terms))


def released(lease: Document, now: float) -> dict[str, Any]:
    """Free for whoever looks at it next."""
    return _with(lease, holderIdentity="", leaseDurationSeconds=1, renewTime=rfc3339(now))


def holder(lease: Document | None) -> str:
    return ((lease or {}).get("spec") or {}).get("holderIdentity") or ""


def _new(name: str, me: str, now: float, terms: Terms) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": {
            "holderIdentity": me,
            "leaseDurationSeconds": _whole(terms),
            "acquireTime": rfc3339(now),
            "renewTime": rfc3339(now),
            "leaseTransitions": 0,
        },
    }


def _taken(lease: Document, me: str, now: float, terms: Terms) -> dict[str, Any]:
    spec = lease.get("spec") or {}
    changes = 0 if spec.get("holderIdentity") == me else 1
    return _with(
        lease,
        holderIdentity=me,
        leaseDurationSeconds=_whole(terms),
        acquireTime=rfc3339(now),
        renewTime=rfc3339(now),
        leaseTransitions=int(spec.get("leaseTransitions") or 0) + changes,
    )


def _with(lease: Document, **spec: Any) -> dict[str, Any]:
    """The resource version stays in the metadata: a lease that changed since is not overwritten."""
    return {**lease, "spec": {**(lease.get("spec") or {}), **spec}}


def _record(lease: Document | None) -> tuple[Any, ...] | None:
    """What changes whenever somebody takes or renews a lease."""
    if lease is None:
        return None
    spec = lease.get("spec") or {}
    return (spec.get("holderIdentity"), spec.get("renewTime"), spec.get("leaseTransitions"))


def _whole(terms: Terms) -> int:
    return max(1, round(terms.duration_s))


def rfc3339(at: float) -> str:
    """As the API writes times with microseconds."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
