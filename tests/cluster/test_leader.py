"""The control plane killed in the middle of a large launch: its successor finishes it."""

import asyncio
from collections import Counter

from tests.cluster.control import Muster
from tests.cluster.kube import Kube, phase, until
from tests.cluster.manifests import job, shell

RANKS = 200


async def test_a_launch_of_200_pods_survives_its_leader(
    made_up: int, own_muster: Muster, kube: Kube
) -> None:
    """No pod is doubled, and none is left without an owner."""
    muster = own_muster
    await until(lambda: _sees(muster, made_up), 60, "the nodes to be seen")
    await muster.submit(job("wide", shell("true"), replicas=RANKS, gpus=1))
    made: list[int] = []
    while not made or made[-1] < RANKS // 4:
        made.append(len(await kube.pods()))
        await asyncio.sleep(0.02)
    muster.kill()
    at_death = {pod["metadata"]["uid"] for pod in await kube.pods()}
    assert 0 < len(at_death) < RANKS, "it was killed in the middle"
    watching = asyncio.create_task(_every_pod(kube))
    await muster.start()
    await muster.until_phase("wide", "Running", seconds=120)
    pods = await kube.pods()
    watching.cancel()
    ranks = Counter(pod["metadata"]["labels"]["muster.dev/rank"] for pod in pods)
    assert ranks == {str(rank): 1 for rank in range(RANKS)}
    assert {phase(pod) for pod in pods} == {"Running"}
    uids = {pod["metadata"]["uid"] for pod in pods}
    assert at_death <= uids, "what the first one made is kept, and not made again"
    answer = await muster.job("wide")
    assert (answer["job"]["attempt"], answer["job"]["failures"]) == (1, 0)
    await muster.delete("wide")
    await until(lambda: _is_empty(kube), 60, "every pod to go")


async def _every_pod(kube: Kube) -> None:
    """No rank ever has two pods at a time."""
    while True:
        pods = await kube.pods()
        ranks = Counter(pod["metadata"]["labels"]["muster.dev/rank"] for pod in pods)
        assert max(ranks.values(), default=1) == 1, ranks
        await asyncio.sleep(0.3)


async def _sees(muster: Muster, count: int) -> bool:
    return len((await muster.get("/v1/nodes", limit="1000"))["items"]) >= count


async def _is_empty(kube: Kube) -> bool:
    return not await kube.pods()
