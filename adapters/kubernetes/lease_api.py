"""The Leases of a namespace over the API server, with every request bounded in time."""

from typing import Any

from adapters.kubernetes.connection import Connection
from adapters.kubernetes.election import Refused, Unreachable
from adapters.kubernetes.errors import ApiError, Conflict, NotFound
from adapters.kubernetes.lease import Document

# A holder must learn in time that it cannot renew, so no request may wait longer than this, nor
# for its turn, nor be tried again behind the election's back.
URGENT: dict[str, Any] = {"urgent": True, "tries": 1, "timeout_s": 2.0}


class ApiLeases:
    def __init__(self, connection: Connection, namespace: str) -> None:
        self._connection = connection
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"

    async def get(self, name: str) -> Document | None:
        try:
            return await self._connection.get(f"{self._path}/{name}", **URGENT)
        except NotFound:
            return None
        except ApiError as error:
            raise Unreachable(str(error)) from None

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


def _refusal(error: ApiError) -> Refused | Unreachable:
    """Somebody else changed, made or deleted it: the next look tells. Or it could not be asked."""
    if isinstance(error, Conflict | NotFound):
        return Refused(str(error))
    return Unreachable(str(error))
