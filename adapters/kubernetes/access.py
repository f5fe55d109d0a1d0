"""How to reach an API server: a kubeconfig, or the account that a pod is given."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from adapters.kubernetes.errors import BadAccess


class Access(NamedTuple):
    """Where the API server is and who we are.

    Without a kubeconfig it is the account of the pod we run in.
    """

    kubeconfig: str = ""
    context: str = ""


# Gives fresh credentials to a configuration; called when the server does not know us any more.
Renew = Callable[[], Awaitable[None]]


async def configuration(access: Access) -> tuple[Any, Renew]:
    """A configuration for kubernetes-asyncio, and how to renew it."""
    # Only here: it loads every model of every API, which takes a second and 60 MB.
    from kubernetes_asyncio import client, config
    from kubernetes_asyncio.config.config_exception import ConfigException

    # Made anew and not copied from the library's global default, which we neither read nor set.
    found = type.__call__(client.Configuration)

    async def renew() -> None:
        if access.kubeconfig:
            await config.load_kube_config(
                access.kubeconfig,
                context=access.context or None,
                client_configuration=found,
                persist_config=False,
            )
        else:
            config.load_incluster_config(client_configuration=found)  # type: ignore[no-untyped-call]

    if access.kubeconfig and not _exists(access.kubeconfig):
        raise BadAccess(f"there is no kubeconfig {access.kubeconfig}")
    try:
        await renew()
    except (ConfigException, OSError, ValueError, AssertionError, TypeError) as error:
        where = access.kubeconfig or "the account of this pod"
        raise BadAccess(f"{where} cannot be used: {error}") from None
    return found, renew


def _exists(kubeconfig: str) -> bool:
    """Several files may be named, as in the variable KUBECONFIG."""
    return any(Path(each).expanduser().exists() for each in kubeconfig.split(os.pathsep))
