"""Gangs with real pods: all ranks or none, and no job waits that could run."""

import asyncio
from collections import Counter

from tests.cluster.control import Muster
from tests.cluster.kube import OURS, Kube, node_of, phase
from tests.cluster.manifests import job, shell

# Every real node has this many devices; there are four of them.
GPUS = 8


async def test_a_gang_runs_and_its_end_is_recorded(muster: Muster, kube: Kube) -> None:
    await muster.submit(job("first", shell("echo rank $HOSTNAME; sleep 1"), replicas=3))
    ended = await muster.until_phase("first", "Succeeded")
    assert [rank["exit_code"] for rank in ended["attempt"]["ranks"]] == [0, 0, 0]
    await muster.until_event("first", "AttemptEnded")
    assert await muster.story("first") == [
        "JobSubmitted",
        "GangPlaced",
        "GangStarted",
        "JobSucceeded",
        "AttemptEnded",
    ]


async def test_of_more_gangs_than_fit_each_gets_all_of_its_pods_or_none(
    muster: Muster, kube: Kube
) -> None:
    names = [f"gang-{index}" for index in range(6)]
    for name in names:
        # Two ranks of a whole node each, on four nodes: two gangs at a time.
        await muster.submit(job(name, shell("sleep 3"), replicas=2, gpus=GPUS))
    most, gangs = 0, set[int]()
    while any([await muster.phase(name) != "Succeeded" for name in names]):
        live = [pod for pod in await kube.pods() if phase(pod) in ("Pending", "Running")]
        nodes = Counter(node_of(pod) for pod in live if node_of(pod))
        assert max(nodes.values(), default=0) <= 1, f"two ranks hold the same devices: {nodes}"
        most = max(most, len(nodes))
        running = Counter(
            pod["metadata"]["labels"][OURS] for pod in live if phase(pod) == "Running"
        )
        gangs.add(len(running))
        await asyncio.sleep(0.2)
    # A look every so often need not meet all four pods of two gangs.
    assert most > 2, "two gangs fit side by side"
    assert max(gangs) <= 2
    for name in names:
        answer = await muster.job(name)
        assert answer["job"]["restarts"] == 0
        story = await muster.story(name)
        assert story.count("GangPlaced") == 1
        # No rank ran before all of its gang could: placed whole, then started whole.
        assert story.index("GangPlaced") < story.index("GangStarted")
    held = [name for name in names if "GangWaiting" in await muster.story(name)]
    assert len(held) == 4, "the other four had the reason why they wait"


async def test_a_gang_larger_than_the_cluster_starts_no_pod_and_shows_why(
    muster: Muster, kube: Kube
) -> None:
    await muster.submit(job("fits", shell("sleep 2"), replicas=3, gpus=GPUS))
    await muster.submit(job("waits", shell("exit 0"), replicas=2, gpus=GPUS))
    answer = await muster.why("waits")
    assert answer["phase"] == "Queued"
    assert answer["reasons"], answer
    waiting = [pod for pod in await kube.pods() if pod["metadata"]["name"].startswith("waits")]
    assert waiting == []
    await muster.until_phase("waits", "Succeeded")
