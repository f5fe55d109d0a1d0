"""Writes this release's golden log of changed limits: `python -m tests.golden.make_limits`.

A job that gets another deadline while it runs, and a time to live when it is over. Never run for an
old release.
"""

from importlib.metadata import version

from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo
from controlplane.model.policy import Queue
from controlplane.model.spec import CleanPods, Role
from tests.golden.make import keep
from tests.golden.make_scheduling import Tale


def past() -> Tale:
    tale = Tale()
    tale.record(e.EngineStarted(1, version("muster")))
    tale.do(
        c.DefineQueue(queue=Queue("left")),
        c.ReportNode(node=NodeInfo("n1", 4)),
    )
    tale.submit("train", Role(name="worker", replicas=2, gpus=1))
    tale.schedule()
    tale.report("train", started=(0, 1))
    _amend(tale, active_deadline_s=3600.0)
    _amend(tale, active_deadline_s=3600.0, restart_limit=None)
    _amend(tale, clean=CleanPods.ALL)
    tale.do(c.CordonNode(node="n1"), c.DrainNode(node="n1"))
    tale.do(c.CancelJob(namespace="default", name="train"))
    tale.report("train", gone=(0, 1))
    _amend(tale, ttl_s=600.0, clean=CleanPods.ALL)
    return tale


def _amend(tale: Tale, **more: object) -> None:
    limits = {"ttl_s": None, "active_deadline_s": None, "restart_limit": 6, **more}
    limits.setdefault("clean", CleanPods.NONE)
    tale.do(c.AmendJob(namespace="default", name="train", **limits))


def main() -> None:
    tale = past()
    keep(f"{version('muster')}-limits", tale.log, tale.world, decided=False)


if __name__ == "__main__":
    main()
