"""Writes this release's golden log of a simulated cluster: `python -m tests.golden.make_simulated`.

Its model, a pool that is asked for a node and gets it back, a fault that a person asks for, time that
passes without an event, and a start that decides nothing. Never run for an old release.
"""

from importlib.metadata import version

from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo
from controlplane.model.faults import NodeFaultKind, NodeFaultSpec
from controlplane.model.policy import Queue
from controlplane.model.reasons import LossReason
from controlplane.model.spec import Role
from tests.golden.make import keep
from tests.golden.make_scheduling import Tale


def past() -> Tale:
    tale = Tale()
    tale.record(e.EngineStarted(1, version("muster"), passes=False))
    tale.do(c.ReportModel(document='{"nodes": [{"name": "n1", "gpus": 4}], "seed": 7}'))
    tale.do(c.DefineQueue(queue=Queue("left")))
    tale.submit("train", Role(name="worker", replicas=2, gpus=1))
    tale.now += 10.0
    tale.do(c.ReportPoolRequest(pool="cloud", nodes=("n1",), ready_at=(230.5,)))
    tale.now = 230.5
    tale.do(c.ReportNode(node=NodeInfo("n1", 4)))
    tale.schedule()
    tale.record(e.EngineStarted(2, version("muster"), passes=False))
    tale.report("train", started=(0, 1))
    slow = NodeFaultSpec(NodeFaultKind.SLOW, 60.0, factor=0.5)
    tale.do(c.InjectFault(node="n1", fault=slow, delay_s=0.25))
    tale.do(c.CancelJob(namespace="default", name="train"))
    tale.report("train", gone=(0, 1))
    tale.now += 3_600.0
    tale.do(c.ReportTime())
    tale.do(c.ReportPoolReturn(pool="cloud", nodes=("n1",)))
    tale.do(c.ReportNodeLost(node="n1", reason=LossReason.GIVEN_BACK))
    return tale


def main() -> None:
    tale = past()
    keep(f"{version('muster')}-simulated", tale.log, tale.world, decided=False)


if __name__ == "__main__":
    main()
