"""The election by a Lease of the cluster that this process can reach."""

import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from adapters.asyncio_clock import AsyncioClock
from adapters.kubernetes.election import LeaseElection
from adapters.kubernetes.lease_api import ClusterUnreachable, reached_leases
from cli.complaints import Complaint


@asynccontextmanager
async def lease_election(lease: str) -> AsyncIterator[LeaseElection]:
    namespace, _, name = lease.partition("/")
    # The host's name is the pod's, which is what people look for; the rest is only this process's.
    me = f"{socket.gethostname()}_{secrets.token_hex(4)}"
    try:
        async with reached_leases(namespace) as leases:
            yield LeaseElection(leases, name, me, clock=AsyncioClock())
    except ClusterUnreachable as error:
        raise Complaint(
            f"--lease {lease}: {error}",
            hint="Run it in a pod with a service account, or set KUBECONFIG.",
        ) from None
