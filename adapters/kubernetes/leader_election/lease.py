"""The rules of leader election by a Lease (coordination.k8s.io/v1). Pure.

Clocks of other machines are not trusted, as in client-go: a lease has expired when a candidate has
observed it unchanged for its whole duration, measured by the candidate's own clock.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

Document = Mapping[str, Any]


class Terms(NamedTuple):
    """How long a lease is valid, how often it is renewed, and when its holder gives up.

    `deadline_s` is shorter than `duration_s`: the holder gives up before another candidate may take
    the lease.
    """

    duration_s: float = 10.0
    renew_every_s: float = 3.0
    deadline_s: float = 7.0


class ObservedLease(NamedTuple):
    """A lease as it was read, and since when it has been unchanged."""

    lease: Document | None
    since: float


class Write(NamedTuple):
    """Create the lease (`is_new`), or replace the version that was read."""

    lease: dict[str, Any]
    is_new: bool


class Wait(NamedTuple):
    """Read the lease again at this time."""

    until: float


def look(before: ObservedLease | None, lease: Document | None, now: float) -> ObservedLease:
    """Return the observation of `lease`; its time stays while holder and renewals are the same."""
    if before is not None and _record(before.lease) == _record(lease):
        return ObservedLease(lease, before.since)
    return ObservedLease(lease, now)


def move(seen: ObservedLease, me: str, name: str, now: float, terms: Terms) -> Write | Wait:
    """Return what a candidate does that does not hold the lease yet.

    It writes a lease that is missing, free, expired or already its own, and waits otherwise.
    """
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
    """Return the lease renewed by its holder at `now`."""
    return _with(lease, renewTime=rfc3339(now), leaseDurationSeconds=_whole(terms))


def released(lease: Document, now: float) -> dict[str, Any]:
    """Return the lease without a holder, free for the next candidate."""
    return _with(lease, holderIdentity="", leaseDurationSeconds=1, renewTime=rfc3339(now))


def holder(lease: Document | None) -> str:
    """Return the identity of the holder; "" if there is none."""
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
    """Return the lease with changed fields of its spec.

    The resource version stays in the metadata, so a lease that changed since is not overwritten.
    """
    return {**lease, "spec": {**(lease.get("spec") or {}), **spec}}


def _record(lease: Document | None) -> tuple[Any, ...] | None:
    """Return the fields that change whenever a candidate takes or renews the lease."""
    if lease is None:
        return None
    spec = lease.get("spec") or {}
    return (spec.get("holderIdentity"), spec.get("renewTime"), spec.get("leaseTransitions"))


def _whole(terms: Terms) -> int:
    return max(1, round(terms.duration_s))


def rfc3339(at: float) -> str:
    """Return a Unix time in the API's format with microseconds."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
