"""Writes this release's golden log of ranks that do not come up: `python -m tests.golden.make_stuck`.

A wrong image, and devices that others use. Never run for an old release.
"""

from importlib.metadata import version

from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo
from controlplane.model.failures import Stuck
from controlplane.model.policy import Queue
from controlplane.model.spec import Role
from tests.golden.make import keep
from tests.golden.make_scheduling import Tale


def past() -> Tale:
    tale = Tale()
    tale.record(e.EngineStarted(1, version("muster")))
    tale.do(c.DefineQueue(queue=Queue("left")))
    tale.do(c.ReportNode(node=NodeInfo("n1", 4, unusable=(3,))))
    tale.submit("train", Role(name="worker", replicas=3, gpus=1))
    tale.schedule()
    tale.report(
        "train",
        started=(0,),
        stuck=(Stuck(1, "ErrImagePull", "no such image"), Stuck(2, "Other", "x")),
    )
    tale.report("train", started=(1,))
    tale.do(c.CancelJob(namespace="default", name="train"))
    tale.report("train", gone=(0, 1, 2))
    return tale


def main() -> None:
    tale = past()
    keep(f"{version('muster')}-stuck", tale.log, tale.world, decided=False)


if __name__ == "__main__":
    main()
