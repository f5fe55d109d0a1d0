"""Jobs that share GPUs, from the command line: what tables and views show of them."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cli.log.sources import Kind, Source
from cli.output.cluster_tables import gpus_bar
from cli.server.simulated import simulated_cluster
from controlplane.queries.views import NodeView, SharedGpu
from simulator.network.topology import Delays, grid
from tests.cli.conftest import EXAMPLES, Muster, server_thread

pytestmark = pytest.mark.usefixtures("server")
LONG_S = 1_000_000


def document(name: str, *roles: dict[str, Any], **spec: Any) -> str:
    """A job in the native form, as text."""
    made = {
        "apiVersion": "muster.dev/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"roles": list(roles), "workload": {"duration_s": LONG_S}} | spec,
    }
    return msgspec.json.encode(made).decode()


def cells(text: str, first: str) -> list[str]:
    """The cells of the row that begins with this word."""
    return next(line.split() for line in text.splitlines() if line.split()[:1] == [first])


def test_tables_show_fractions_of_gpus(muster: Muster) -> None:
    quarter = document("quarters", {"name": "worker", "replicas": 2, "gpu_share": 250})
    assert "(Job, 0.5 GPUs)" in muster("submit", "-", "--plan", stdin=quarter).out
    assert muster("submit", "-", stdin=quarter).code == 0
    assert muster("submit", "-", stdin=document("whole", {"name": "w", "gpus": 1})).code == 0
    assert cells(muster("list").out, "quarters")[4] == "0.5"
    assert "2 worker x 0.25 GPU (0.5 GPU)" in muster("get", "quarters").out
    assert "0 (25%)" in muster("get", "quarters").out
    assert "1.5/8" in muster("node", "list").out
    assert muster("top", "node").out.splitlines()[-1] == "1.5 of 64 GPUs in use (2%)"
    assert cells(muster("top", "job").out, "default/quarters")[2:4] == ["0.5", "0.5"]
    assert cells(muster("queue", "list").out, "default")[2] == "1.5"
    assert "submitted to queue default: 2 ranks, 0.5 GPU" in muster("events", "quarters").out
    assert "placed on rack-0-0 (0.5)" in muster("events", "quarters").out


def test_a_share_by_memory_is_shown_as_memory_until_it_has_a_device(muster: Muster) -> None:
    asks = {"name": "notebook", "gpu_memory_mib": 8192}
    assert muster("queue", "set", "closed", "--gpus-max", 0).code == 0
    waits = document("waits", asks, queue="closed")
    assert "(Job, 8Gi of GPU memory)" in muster("submit", "-", "--plan", stdin=waits).out
    muster("submit", "-", stdin=waits)
    muster("submit", "-", stdin=document("runs", asks))
    assert cells(muster("list").out, "waits")[4] == "8Gi"
    assert "1 notebook x 8Gi of a GPU's memory (8Gi of GPU memory)" in muster("get", "waits").out
    assert cells(muster("list").out, "runs")[4] == "0.25"


def test_views_have_shares_and_telemetry_has_every_sharer(muster: Muster) -> None:
    muster("submit", "-", stdin=document("one", {"name": "w", "replicas": 2, "gpu_share": 300}))
    muster("submit", "-", stdin=document("two", {"name": "w", "gpu_share": 250}))
    job = muster("get", "one", "-o", "json").json
    assert (job["job"]["gpus"], job["job"]["gpus_held"]) == (0.6, 0.6)
    assert [rank["share"] for rank in job["attempt"]["ranks"]] == [300, 300]
    node = muster("node", "get", "rack-0-0", "-o", "json").json
    assert (node["gpus_free"], node["gpus_used"]) == (7, 0.85)
    assert node["shared"] == [{"device": 0, "taken": 850}]
    (device,) = (d for d in muster("top", "node", "-o", "json").json["devices"] if d["sharers"])
    assert [(s["job"], s["rank"], s["share"]) for s in device["sharers"]] == [
        ("default/one", 0, 300),
        ("default/one", 1, 300),
        ("default/two", 0, 250),
    ]
    limits = [sharer["memory_limit_mib"] for sharer in device["sharers"]]
    assert limits == [9830, 9830, 8192]
    assert device["memory_used_mib"] == sum(limits) <= device["memory_total_mib"] == 32_768
    rows = muster("top", "job", "one").out.splitlines()
    assert [line.split()[:4] for line in rows[1:]] == [
        ["0", "rack-0-0", "0", "(30%)"],
        ["1", "rack-0-0", "0", "(30%)"],
    ]
    assert "0 (25%)" in muster("top", "node", "rack-0-0").out


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ([{"gpu_share": 600, "replicas": 65}], "65 ranks need 0.6 of a GPU each, which takes 65"),
        ([{"gpu_share": 300, "replicas": 193}], "193 ranks need 0.3 of a GPU each"),
        ([{"gpu_memory_mib": 20_000, "replicas": 65}], "65 ranks need"),
        ([{"gpus": 8, "replicas": 8}, {"gpu_share": 1}], "besides 64 whole ones"),
    ],
)
def test_sharing_gangs_that_can_never_fit_are_refused(
    muster: Muster, roles: list[dict[str, int]], message: str
) -> None:
    asked = [{"name": f"r{number}", **role} for number, role in enumerate(roles)]
    ran = muster("submit", "-", stdin=document("never", *asked))
    assert ran.code == 103
    assert message in ran.err
    assert muster("list").out.count("never") == 0


def test_why_shows_a_sharing_job_what_is_left_of_devices(muster: Muster) -> None:
    fills = {"name": "w", "replicas": 64, "gpu_share": 800}
    muster("submit", "-", stdin=document("fills", fills))
    muster("submit", "-", stdin=document("first", {"name": "w", "gpu_share": 300}))
    muster("submit", "-", stdin=document("second", {"name": "w", "gpu_share": 100}))
    message = "a rank needs 0.3 of a GPU; no GPU is free, and the most that is left of a shared one is 0.2"
    assert message in muster("why", "first").out
    assert "default/first is ahead of it, needs 0.3 GPUs" in muster("why", "second").out


def test_a_queue_s_ceiling_counts_shares(muster: Muster) -> None:
    muster("queue", "set", "half", "--gpus-max", 1)
    asked = {"name": "w", "replicas": 3, "gpu_share": 400}
    ran = muster("submit", "-", stdin=document("over", asked, queue="half"))
    assert ran.code == 103
    assert "the gang needs 1.2 GPUs; queue half may hold at most 1" in ran.err


def test_the_example_shares_one_device(muster: Muster) -> None:
    assert muster("submit", EXAMPLES / "gpu-sharing.yaml").code == 0
    node = muster("node", "get", "rack-0-0", "-o", "json").json
    assert node["shared"] == [{"device": 0, "taken": 875}]
    for name in ("probes", "notebook", "small-finetune"):
        assert muster("wait", name).code == 0


def test_devices_that_are_shared_are_drawn_between_taken_and_free() -> None:
    view = NodeView(
        name="n", rack="", gpu_type="", gpu_memory_mib=0, gpus=4, gpus_free=1, ready=True,
        cordoned=False, message="", jobs=[], gpus_used=1.5,
        shared=[SharedGpu(device=2, taken=250), SharedGpu(device=3, taken=250)],
    )  # fmt: skip
    assert gpus_bar(view).plain in ("■◧◧□", "#++.")


# ---------------------------------------------------------------- a whole life


def until(look: Callable[[], dict[str, Any]], **wanted: object) -> dict[str, Any]:
    """What is seen as soon as these fields are so; within 20 seconds."""
    deadline = time.monotonic() + 20.0
    while True:
        seen = look()
        if all(seen[name] == value for name, value in wanted.items()):
            return seen
        assert time.monotonic() < deadline, seen
        time.sleep(0.05)


QUARTER = {"name": "w", "gpu_share": 250}


def test_shares_under_quotas_and_preemption_survive_restart_fork_whatif_and_replay(
    muster: Muster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, out = tmp_path / "shared.db", tmp_path / "study"
    source = Source(Kind.SQLITE, str(db))
    small = simulated_cluster(grid(1, 1, 2, delays=Delays(start_s=5.0, stop_s=2.0)), 100.0)
    with server_thread(source=source, cluster=small) as url:
        monkeypatch.setenv("MUSTER_URL", url)
        muster("queue", "set", "lab")
        for queue in ("batch", "urgent"):
            words = ("parent=lab", "nominal=1", "preempt.reclaim=any")
            assert muster("queue", "set", queue, *words).code == 0
        # Eight quarters fill both devices; half of them are borrowed.
        for number in range(4):
            text = document(f"filler-{number}", QUARTER | {"replicas": 2}, queue="batch")
            assert muster("submit", "-", stdin=text).code == 0
        assert muster("queue", "get", "batch", "-o", "json").json["gpus_used"] == 2
        kai = (EXAMPLES / "gpu-sharing.yaml").read_text().split("---")[2]
        asked = kai.replace("name: small-finetune", "name: kai").replace('"0.25"', '"0.5"')
        asked = asked.replace(
            "spec:\n  pytorch", "spec:\n  runPolicy: {schedulingPolicy: {queue: urgent}}\n  pytorch"
        )
        assert muster("submit", "-", stdin=asked).code == 0
        assert muster("wait", "kai").code == 0
        restarts = [job["restarts"] for job in muster("list", "-o", "json").json["items"]]
        assert sum(restarts) == 1
    # Whatever shared a device does so again after a restart on the same log.
    with server_thread(source=source, cluster=small) as url:
        monkeypatch.setenv("MUSTER_URL", url)
        node = until(lambda: muster("node", "get", "rack-0-0", "-o", "json").json, gpus_used=2)
        assert [device["taken"] for device in node["shared"]] == [1000, 1000]
        text = document("later", QUARTER, workload={"duration_s": 5}, queue="urgent")
        assert muster("submit", "-", stdin=text).code == 0
        assert muster("wait", "later").code == 0
    assert muster("log", "verify", db).code == 0
    then = muster("replay", db, "--json").json
    assert {job["name"]: job["gpus"] for job in then["jobs"]}["kai"] == 0.5
    forked = muster("fork", db, "--at", "-30s", "--cordon", "rack-0-0", "--json")
    assert forked.code == 0, forked.err
    export = tmp_path / "log.jsonl"
    assert muster("log", "export", db, "-o", export).code == 0
    study = muster("whatif", "--trace", export, "--nodes", "1x2", "--policy", "fifo", "--out", out)
    assert study.code == 0, study.err
    (scenario,) = msgspec.json.decode((out / "result.json").read_bytes())["scenarios"]
    result = scenario["replication_0"]
    assert (result["finished"], result["refused"]) == (2, 0)
    assert {bar[1] for bar in result["gantt"]["bars"]} == {0.25, 0.5}
