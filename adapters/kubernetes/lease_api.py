"""The Leases of a namespace over the API server, with every request bounded in time."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from kubernetes_asyncio import client, config
from kubernetes_asyncio.client.exceptions import ApiException

from adapters.kubernetes.election import Refused, Unreachable
from adapters.kubernetes.lease import Document

# A holder must learn in time that it cannot renew, so no request may wait longer than this.
REQUEST_S_MAX = 2.0


class ClusterUnreachable(Exception):
    """There is no configuration that leads to a cluster."""


class ApiLeases:
    def __init__(self, api: client.CoordinationV1Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    async def get(self, name: str) -> Document | None:
        return await self._asked(self._api.read_namespaced_lease, name)

    async def create(self, lease: dict[str, Any]) -> Document:
        return await self._written(self._api.create_namespaced_lease, body=lease)

    async def replace(self, lease: dict[str, Any]) -> Document:
        name = lease["metadata"]["name"]
        return await self._written(self._api.replace_namespaced_lease, name, body=lease)

    async def _written(self, call: Any, *words: str, **options: Any) -> Document:
        found = await self._asked(call, *words, **options)
        if found is None:
            # It was deleted meanwhile; the next look sees that.
            raise Refused
        return found

    async def _asked(self, call: Any, *words: str, **options: Any) -> Document | None:
        try:
            answer = await call(
                *words,
                namespace=self._namespace,
                _preload_content=False,
                _request_timeout=REQUEST_S_MAX,
                **options,
            )
            body = await answer.read()
        except ApiException as error:
            answer, body = error, str(error.reason).encode()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Unreachable(str(error) or type(error).__name__) from None
        if answer.status == 404:
            return None
        if answer.status == 409:
            raise Refused
        if answer.status >= 300:
            raise Unreachable(f"{answer.status}: {body.decode(errors='replace')[:200]}")
        found: Document = json.loads(body)
        return found


@asynccontextmanager
async def reached_leases(namespace: str) -> AsyncIterator[ApiLeases]:
    """By the pod's service account, or else by the kubeconfig file."""
    settings = client.Configuration()
    try:
        try:
            config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
        except config.ConfigException:
            await config.load_kube_config(client_configuration=settings)
    except (config.ConfigException, OSError) as error:
        raise ClusterUnreachable(f"no cluster is configured: {error}") from None
    async with client.ApiClient(settings) as connection:
        yield ApiLeases(client.CoordinationV1Api(connection), namespace)
