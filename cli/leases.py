"""The election by a Lease of the cluster that this process can reach."""

import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from adapters.asyncio_clock import AsyncioClock
from adapters.kubernetes.access import Access
from adapters.kubernetes.connection import Connection
from adapters.kubernetes.election import LeaseElection
from adapters.kubernetes.errors import BadAccess
from adapters.kubernetes.lease_api import ApiLeases
from cli.complaints import Complaint


@asynccontextmanager
async def lease_election(lease: str, access: Access) -> AsyncIterator[LeaseElection]:
    """A connection of its own: a lease must not wait behind a thousand pods."""
    namespace, _, name = lease.partition("/")
    # The host's name is the pod's, which is what people look for; the rest is only this process's.
    me = f"{socket.gethostname()}_{secrets.token_hex(4)}"
    try:
        connection = await Connection.open(access)
    except BadAccess as error:
        raise Complaint(
            f"--lease {lease}: {error}",
            hint="Name the cluster with --kubeconfig and --context, or run in a pod with an account.",
        ) from None
    try:
        yield LeaseElection(ApiLeases(connection, namespace), name, me, clock=AsyncioClock())
    finally:
        await connection.close()
