"""Jobs that share GPUs, from the command line: what tables and views show of them."""

from typing import Any

import msgspec
import pytest

from cli.cluster_tables import gpus_bar
from controlplane.views import NodeView, SharedGpu
from tests.cli.conftest import EXAMPLES, Muster

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
