"""An API server whose requests and watches go wrong at up to 30 %: everything still converges."""

from pathlib import Path

import pytest

from deploy.testcluster.faults import Settings
from deploy.testcluster.proxy import Proxy
from tests.cluster.control import Muster
from tests.cluster.kube import Kube, TestBed, until
from tests.cluster.manifests import job, shell

JOBS = 6
# A change that the proxy drops, and that is the last one, is seen by the next listing.
RESYNC = ("--resync", "20")


async def run_through(
    bed: TestBed, kube: Kube, folder: Path, settings: Settings
) -> tuple[Proxy, dict[str, str]]:
    """A few jobs, good and bad, through a proxy; the requests that it took, and how they ended."""
    async with Proxy(bed.kubeconfig, settings) as proxy:
        (folder / "kubeconfig").write_text(proxy.kubeconfig())
        async with Muster(folder / "kubeconfig", folder, *RESYNC) as muster:
            names = []
            for index in range(JOBS):
                text = "sleep 1; exit 3" if index == 0 else "sleep 1"
                names.append(
                    await muster.submit(job(f"shaky-{index}", shell(text), replicas=2, gpus=1))
                )
            ends = {}
            for name in names:
                answer = await muster.until_phase(name, "Succeeded", "Failed", seconds=180)
                ends[name] = answer["job"]["phase"]
                assert answer["job"]["attempt"] == 1, (
                    "a fault of the API server is no fault of a rank"
                )
            await muster.forget_all()
            await until(kube.is_clear, 90, "the pods to go")
    return proxy, ends


@pytest.mark.timeout(600, func_only=True)
@pytest.mark.parametrize("rate", [0.1, 0.3])
async def test_jobs_end_as_they_should_with_at_most_twice_the_requests(
    bed: TestBed, shared_muster: Muster, kube: Kube, tmp_path: Path, rate: float
) -> None:
    shared_muster.end()
    for each in ("calm", "shaken"):
        (tmp_path / each).mkdir()
    calm, ends = await run_through(bed, kube, tmp_path / "calm", Settings())
    shaken, shaken_ends = await run_through(
        bed, kube, tmp_path / "shaken", Settings(seed=8, rate=rate, delay_s_max=0.3)
    )
    assert shaken_ends == ends
    assert sorted(ends.values()) == ["Failed"] + ["Succeeded"] * (JOBS - 1)
    assert await kube.pods() == []
    assert sum(shaken.judge.faults.values()) > 10, shaken.judge.faults
    before, after = calm.judge.requests.total(), shaken.judge.requests.total()
    print(f"requests: {before} calm, {after} at {rate:.0%} ({after / before:.2f} times)")
    print(f"faults: {dict(shaken.judge.faults)}")
    assert after <= 2 * before
