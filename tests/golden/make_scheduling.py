"""Writes this release's golden log of scheduling: `python -m tests.golden.make_scheduling`.

A short story by hand: a policy, a tree of queues, a gang that shares a device, one that waits, is
preferred, evicts, and one that loses a node and gets another. Never run for an old release.
"""

import json
from importlib.metadata import version
from pathlib import Path

from controlplane.decisions.decider import decide
from controlplane.decisions.scheduling_events import enact
from controlplane.log import codec
from controlplane.log.snapshots import state_hash
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo
from controlplane.model.policy import Policy, Preempt, Queue, WithinQueue
from controlplane.model.rows import GENESIS
from controlplane.model.spec import DoneWhen, JobSpec, Repair, Role, Scheduling, TopologyAsk
from controlplane.scheduling.scheduling_pass import Pass
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.world import World

HERE = Path(__file__).parent


class Tale:
    def __init__(self) -> None:
        self.world = World()
        self.log: list[e.Recorded] = []
        self.now = 100.0

    def record(self, *events: e.Event) -> None:
        for event in events:
            recorded = e.Recorded(self.world.position + 1, self.now, event)
            self.world.apply(recorded)
            self.log.append(recorded)
        self.world.check()

    def do(self, *commands: c.AnyCommand) -> None:
        for command in commands:
            self.record(*decide(self.world, command, self.now))

    def schedule(self) -> None:
        for decision in Pass(Snapshot(self.world, self.now), lambda job, code: True).run():
            self.record(*enact(self.world, decision, self.now))
        self.now += 10.0

    def submit(self, name: str, *roles: Role, priority: int = 0, **asks: object) -> None:
        spec = JobSpec(
            roles=roles, done_when=DoneWhen(roles[0].name), queue="left", priority=priority,
            scheduling=Scheduling(repair=Repair.REPLACE, **asks),
        )  # fmt: skip
        self.do(c.SubmitJob(job=f"id-{name}", namespace="default", name=name, spec=spec))

    def report(self, name: str, **news: object) -> None:
        attempt = self.world.jobs[f"id-{name}"].attempt
        self.do(c.ReportRanks(job=f"id-{name}", attempt=attempt.number, **news))


def past() -> Tale:
    tale = Tale()
    rules = Preempt(within_queue=WithinQueue.LOWER)
    tale.do(
        c.SetPolicy(policy=Policy(discipline="fit", preempt=rules)),
        c.DefineQueue(queue=Queue("lab")),
        c.DefineQueue(queue=Queue("left", parent="lab", nominal=12, borrow_max=4)),
        c.DefineQueue(queue=Queue("brief", parent="lab", nominal=4)),
        *(c.ReportNode(node=NodeInfo(f"n{i}", 4, rack=f"r{i // 2}")) for i in range(4)),
    )
    near = TopologyAsk(preferred="rack")
    tale.submit("two", Role(name="worker", replicas=2, gpus=4), topology=near)
    tale.submit("share", Role(name="worker", replicas=2, gpu_share=400))
    tale.schedule()
    tale.report("two", started=(0, 1))
    tale.report("share", started=(0, 1))
    tale.submit("big", Role(name="worker", replicas=4, gpus=4))
    tale.submit("wide", Role(name="worker", replicas=2, gpus=4), priority=5)
    tale.schedule()
    tale.report("share", gone=(0, 1))
    tale.schedule()
    tale.report("wide", started=(0, 1))
    lost = tale.world.jobs["id-two"].attempt.placement[1].node
    tale.do(c.ReportNodeLost(node=lost, detail="silent"))
    tale.report("two", gone=(1,))
    tale.do(c.ReportNode(node=NodeInfo("n9", 4, rack="r9")))
    tale.schedule()
    tale.do(c.RemoveQueue(name="brief"))
    return tale


def main() -> None:
    tale, name = past(), f"{version('muster')}-scheduling"
    rows = codec.to_rows(tale.log, GENESIS)
    (HERE / f"{name}.jsonl").write_bytes(b"".join(codec.to_line(row) + b"\n" for row in rows))
    expected = {"position": tale.world.position, "state_hash": state_hash(tale.world)}
    (HERE / f"{name}.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
