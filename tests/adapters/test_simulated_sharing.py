"""Engines on simulated clusters whose jobs share GPUs: the ledger and the scheduler agree."""

from itertools import count
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.clocks.simpy_clock import SimpyClock, as_process
from adapters.logs.memory_log import MemoryLog
from adapters.simulated_cluster.cluster import SimulatedCluster
from adapters.simulated_cluster.workload import Workload, hints_of
from controlplane.engine import Engine, EngineOptions
from controlplane.model.commands import CancelJob, SubmitJob
from controlplane.model.phases import FINISHED, WITH_DEVICES
from controlplane.model.spec import DoneWhen, JobSpec, RestartPolicy, RestartScope, Role
from simulator.faults import Fault, FaultModel
from simulator.kernel.virtual_time import VirtualTime
from simulator.machine.time_slicing import WHOLE
from simulator.network.topology import ClusterModel, Delays, NodeModel

MEMORY_MIB = 16_000
NODES = tuple(NodeModel(f"n{i}", gpus=2, gpu_memory_mib=MEMORY_MIB) for i in range(2))

roles = st.one_of(
    st.builds(dict, gpu_share=st.integers(1, 999), replicas=st.integers(1, 2)),
    st.builds(dict, gpu_memory_mib=st.integers(1, MEMORY_MIB), replicas=st.integers(1, 2)),
    st.builds(dict, gpus=st.integers(1, 2)),
)
jobs = st.lists(
    st.tuples(
        st.integers(0, 200),
        st.lists(roles, min_size=1, max_size=2),
        st.integers(0, 120),
        st.booleans(),
        # When it is cancelled, if it is.
        st.none() | st.integers(0, 150),
    ),
    min_size=2,
    max_size=8,
)
faults = st.lists(st.tuples(st.integers(1, 200), st.sampled_from(["n0", "n1"])), max_size=2)


class Bench:
    """An engine on a simulated cluster in virtual time."""

    def __init__(self, script: list[tuple[int, str]]) -> None:
        self.env = VirtualTime()
        faults = tuple(Fault(float(at), node, 30.0) for at, node in sorted(set(script)))
        model = ClusterModel(NODES, Delays(5.0, 0.0, 2.0), FaultModel(script=faults))
        self.cluster = SimulatedCluster(self.env, model)
        self.checks = count()
        self.engine = Engine(
            SimpyClock(self.env),
            MemoryLog(),
            self.cluster,
            EngineOptions(resync_s=None),
            lambda batch: self.check(),
        )
        as_process(self.env, self.engine.run())

    def ask(self, at: float, command: Any) -> None:
        self.env.call_after(at, lambda: self.engine.submit(command, lambda answer: None))

    def check(self) -> None:
        """No device holds more than it is, and every holder is one that the scheduler put there."""
        next(self.checks)
        world = self.engine.world
        for node, device, held in self.cluster._machine.allocations():
            assert sum(each.share for each in held) <= WHOLE
            assert sum(each.memory_mib for each in held) <= MEMORY_MIB
            for each in held:
                key: Any = each.owner.gang
                job = world.jobs[key.job]
                attempt = job.attempt
                assert attempt is not None
                if attempt.number != key.attempt:
                    continue
                slot = attempt.placement[each.owner.rank]
                assert (slot.node, device in slot.devices) == (node.name, True)
                assert (attempt.share(each.owner.rank) or WHOLE) == each.share
                assert attempt.ranks[each.owner.rank].state in WITH_DEVICES


@settings(max_examples=40, deadline=None)
@given(jobs, faults)
def test_ledger_and_scheduler_agree_under_any_sharing_and_every_job_ends(
    asked: list[tuple[int, list[dict[str, int]], int, bool, int | None]],
    script: list[tuple[int, str]],
) -> None:
    bench = Bench(script)
    for number, (at, wanted, duration_s, alone, cancel_at) in enumerate(asked):
        made = tuple(Role(name=f"r{i}", **role) for i, role in enumerate(wanted))
        spec = JobSpec(
            roles=made,
            done_when=DoneWhen(made[0].name),
            restart=RestartPolicy(
                limit=None, scope=RestartScope.RANK if alone else RestartScope.GANG
            ),
            hints=hints_of(Workload(duration_s=float(duration_s))),
        )
        bench.ask(at, SubmitJob(job=str(number), namespace="n", name=f"j{number}", spec=spec))
        if cancel_at is not None:
            bench.ask(at + cancel_at, CancelJob(namespace="n", name=f"j{number}"))
    bench.env.run(until=20_000.0)
    world = bench.engine.world
    world.check()
    assert next(bench.checks) > 0
    assert all(job.phase in FINISHED for job in world.jobs.values())
    assert all(not held for _, _, held in bench.cluster._machine.allocations())
