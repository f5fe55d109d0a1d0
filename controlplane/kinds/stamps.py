"""Instants as Kubernetes writes them."""

from datetime import UTC, datetime


def stamp(at: float) -> str:
    """Seconds since 1970 as RFC 3339 in UTC, to the second."""
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
