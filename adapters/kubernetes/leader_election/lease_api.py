"""The Leases of a namespace through the API server; every request has a time limit."""

from typing import Any

from adapters.kubernetes.api.connection import Connection
from adapters.kubernetes.api.errors import ApiError, Conflict, NotFound
from adapters.kubernetes.leader_election.election import LeaseRefused, LeaseUnreachable
from adapters.kubernetes.leader_election.lease import Document

# A holder must notice in time that it cannot renew, so a request has a short timeout, does not wait
# for the rate limit, and is not retried by the connection: the election itself retries.
URGENT: dict[str, Any] = {"urgent": True, "tries": 1, "timeout_s": 2.0}


class ApiLeases:
    """The `Leases` protocol of the election on a connection."""

    def __init__(self, connection: Connection, namespace: str) -> None:
        self._connection = connection
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"

    async def get(self, name: str) -> Document | None:
        try:
            return await self._connection.get(f"{self._path}/{name}", **URGENT)
        except NotFound:
            return None
        except ApiError as error:
            raise LeaseUnreachable(str(error)) from None

    async def create(self, lease: dict[str, Any]) -> Document:
        try:
            return await self._connection.create(self._path, lease, **URGENT)
        except ApiError as error:
            raise _refusal(error) from None

    async def replace(self, lease: dict[str, Any]) -> Document:
        path = f"{self._path}/{lease['metadata']['name']}"
        try:
            return await self._connection.replace(path, lease, **URGENT)
        except ApiError as error:
            raise _refusal(error) from None


def _refusal(error: ApiError) -> LeaseRefused | LeaseUnreachable:
    """Return LeaseRefused if another client changed, created or deleted the lease, else LeaseUnreachable."""
    if isinstance(error, Conflict | NotFound):
        return LeaseRefused(str(error))
    return LeaseUnreachable(str(error))
