"""Credentials for an API server: a kubeconfig, or the service account of the pod."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from adapters.kubernetes.api.errors import BadAccess


class Access(NamedTuple):
    """The kubeconfig and its context; "" means the service account of the pod this runs in.

    An empty `context` means the kubeconfig's current context.
    """

    kubeconfig: str = ""
    context: str = ""


# Loads fresh credentials into a configuration; called after the server answered 401.
Renew = Callable[[], Awaitable[None]]


async def configuration(access: Access) -> tuple[Any, Renew]:
    """Return a configuration for kubernetes-asyncio, and the function that renews it.

    Raises BadAccess if there is no such kubeconfig or it cannot be used.
    """
    # Imported here: the import loads every model of every API, which takes a second and 60 MB.
    from kubernetes_asyncio import client, config
    from kubernetes_asyncio.config.config_exception import ConfigException

    # `type.__call__` bypasses the library's global default configuration, which stays unused.
    loaded = type.__call__(client.Configuration)

    async def renew() -> None:
        if access.kubeconfig:
            await config.load_kube_config(
                access.kubeconfig,
                context=access.context or None,
                client_configuration=loaded,
                persist_config=False,
            )
        else:
            config.load_incluster_config(client_configuration=loaded)  # type: ignore[no-untyped-call]

    if access.kubeconfig and not _exists(access.kubeconfig):
        raise BadAccess(f"there is no kubeconfig {access.kubeconfig}")
    try:
        await renew()
    except (ConfigException, OSError, ValueError, AssertionError, TypeError) as error:
        where = access.kubeconfig or "the account of this pod"
        raise BadAccess(f"{where} cannot be used: {error}") from None
    return loaded, renew


def _exists(kubeconfig: str) -> bool:
    """Return whether any file exists; `kubeconfig` may list several, as $KUBECONFIG does."""
    return any(Path(each).expanduser().exists() for each in kubeconfig.split(os.pathsep))
