"""Which lines of a pod are kept before it is deleted."""

import asyncio
from typing import Any

from adapters.database.rank_logs import DatabaseRankLogs
from adapters.kubernetes.logs.reader import KEPT_BYTES_MAX, RankLogReader, speakers
from adapters.kubernetes.observe.labels import run_labels
from controlplane.lifecycle.runs import RankRun


def test_what_only_waits_is_not_worth_keeping_unless_it_failed() -> None:
    def ended(name: str, code: int) -> dict[str, Any]:
        return {"name": name, "state": {"terminated": {"exitCode": code}}}

    spec = {"containers": [{"name": "sidecar"}, {"name": "main"}]}
    well = [ended("prepare", 0), ended("init-main", 0)]
    pod = {"spec": spec, "status": {"initContainerStatuses": well}}
    assert speakers(pod) == [(0, "sidecar"), (1, "main"), (-1, "prepare")]
    badly = [ended("prepare", 0), ended("init-main", 1)]
    pod = {"spec": spec, "status": {"initContainerStatuses": badly}}
    assert (-2, "init-main") in speakers(pod)


class Slow:
    """An API server that is slow to return what a container wrote."""

    async def request(self, method: str, path: str, *, query: dict[str, str], **_: Any) -> bytes:
        await asyncio.sleep(0.05)
        return f"of {query['container']}".encode()


async def test_no_pod_is_deleted_while_its_lines_are_being_read(
    rank_logs: DatabaseRankLogs,
) -> None:
    reading = RankLogReader(Slow(), rank_logs)  # type: ignore[arg-type]
    labels = run_labels(RankRun("j", 1, 0, 0))
    over = [
        {"name": name, "state": {"terminated": {"exitCode": 0}}} for name in ("main", "sidecar")
    ]
    pod = {
        "metadata": {"name": "j-0", "namespace": "default", "uid": "u", "labels": labels},
        "spec": {"containers": [{"name": "main"}, {"name": "sidecar"}]},
        "status": {"phase": "Succeeded", "containerStatuses": over},
    }
    reading.keep_soon(pod)
    await reading.keep_now([pod])
    assert await rank_logs.lines("j", 1, 0, 9, "sidecar") == ["of sidecar"]
    await reading.close()


class Wide(Slow):
    """An API server that returns many lines beyond ASCII."""

    async def request(self, method: str, path: str, *, query: dict[str, str], **_: Any) -> bytes:
        return "\n".join(["\u2713" * 1_000] * 1_000).encode()


async def test_the_lines_that_are_kept_are_limited_in_bytes(rank_logs: DatabaseRankLogs) -> None:
    reading = RankLogReader(Wide(), rank_logs)  # type: ignore[arg-type]
    labels = run_labels(RankRun("j", 1, 0, 0))
    ended = {"name": "main", "state": {"terminated": {"exitCode": 0}}}
    pod = {
        "metadata": {"name": "j-0", "namespace": "default", "uid": "u", "labels": labels},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": "Succeeded", "containerStatuses": [ended]},
    }
    await reading.keep_now([pod])
    kept = await rank_logs.lines("j", 1, 0, 10_000, "main")
    assert 0 < len("\n".join(kept).encode()) <= KEPT_BYTES_MAX
    await reading.close()
