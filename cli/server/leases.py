"""Leader election by a Lease in the cluster that this process can reach."""

import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from adapters.clocks.asyncio_clock import AsyncioClock
from adapters.kubernetes.api.connection import Connection
from adapters.kubernetes.api.errors import BadAccess
from adapters.kubernetes.api.kubeconfig import Access
from adapters.kubernetes.leader_election.election import LeaseElection
from adapters.kubernetes.leader_election.lease_api import ApiLeases
from cli.errors import CliError


@asynccontextmanager
async def lease_election(lease: str, access: Access) -> AsyncIterator[LeaseElection]:
    """Yield the election, on a connection of its own: renewals must not queue behind pods."""
    namespace, _, name = lease.partition("/")
    # The host name is the pod's name, which people look for; the suffix identifies this process.
    me = f"{socket.gethostname()}_{secrets.token_hex(4)}"
    try:
        connection = await Connection.open(access)
    except BadAccess as error:
        raise CliError(
            f"--lease {lease}: {error}",
            hint="Name the cluster with --kubeconfig and --context, or run in a pod with an account.",
        ) from None
    try:
        yield LeaseElection(ApiLeases(connection, namespace), name, me, clock=AsyncioClock())
    finally:
        await connection.close()
