"""The baseline: pods created by kubernetes-asyncio in a loop, with at most IN_FLIGHT requests at a time.

Run by itself, in a process of its own: `python -m bench.cluster.bare KUBECONFIG DOCUMENTS IN_FLIGHT`.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from kubernetes_asyncio import client, config


async def create(kubeconfig: str, documents: list[dict[str, Any]], in_flight: int) -> None:
    await config.load_kube_config(kubeconfig)
    settings = client.Configuration.get_default_copy()
    settings.connection_pool_maxsize = in_flight
    few = asyncio.Semaphore(in_flight)
    async with client.ApiClient(settings) as api:
        core = client.CoreV1Api(api)

        async def one(document: dict[str, Any]) -> None:
            async with few:
                await core.create_namespaced_pod("default", document)

        await asyncio.gather(*map(one, documents))


if __name__ == "__main__":
    pods = json.loads(Path(sys.argv[2]).read_text())
    asyncio.run(create(sys.argv[1], pods, int(sys.argv[3])))
