"""The same scenario on the simulated and on the real cluster gives the same events of each job."""

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.control import Muster
from tests.cluster.kube import Kube
from tests.cluster.manifests import job, shell

AGAIN = {"limit": 2, "backoff_s_first": 0.2, "backoff_s_max": 0.2}


def workload(seconds: float, code: int = 0, failing: int | None = None) -> dict[str, Any]:
    fields: dict[str, Any] = {"duration_s": seconds}
    if code:
        fields |= {"exit_code": code, "exit_rank": 0}
    if failing is not None:
        fields["failing_attempts"] = failing
    return fields


def fails(code: int) -> list[str]:
    """Rank 0 fails; the others would go on."""
    go_on = "trap 'exit 143' TERM; while :; do sleep 0.2; done"
    return shell(f"case $HOSTNAME in *-0) sleep 1; exit {code};; esac; {go_on}")


SCENARIOS: dict[str, tuple[dict[str, Any], str]] = {
    "success": (
        job("one", shell("sleep 1"), replicas=2, gpus=2, workload=workload(1)),
        "Succeeded",
    ),
    "failure": (job("one", fails(3), replicas=2, gpus=2, workload=workload(1, 3)), "Failed"),
    "restarts": (
        job("one", fails(3), replicas=2, gpus=2, restart=AGAIN, workload=workload(1, 3)),
        "Failed",
    ),
    "too-large": (
        job("one", shell("sleep 1"), replicas=4, gpus=8, workload=workload(1)),
        "Succeeded",
    ),
}


async def story(muster: Muster, manifest: dict[str, Any], end: str) -> list[str]:
    name = await muster.submit(manifest)
    await muster.until_phase(name, end, seconds=120)
    await muster.until_event(name, "AttemptEnded")
    return await muster.story(name)


@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
async def test_the_job_level_events_are_the_same(
    muster: Muster, kube: Kube, tmp_path: Path, scenario: str
) -> None:
    manifest, end = SCENARIOS[scenario]
    seen = await story(muster, manifest, end)
    async with Muster(None, tmp_path, cluster="sim") as simulated:
        assert seen == await story(simulated, manifest, end)
