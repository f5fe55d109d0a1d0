"""Records the night of docs/incidents.md: a gang that flaps because one of its nodes is bad.

`python examples/incident.py FILE` writes the log to a SQLite file that must not exist yet.
"""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import yaml
from simpy.events import Event

from adapters.clocks.simpy_clock import SimpyClock, as_process
from adapters.database.event_log import DatabaseLog
from adapters.logs.memory_log import MemoryLog
from adapters.simulated_cluster.cluster import SimulatedCluster
from adapters.simulated_cluster.workload import Workload, hints_of
from controlplane.engine import Engine, EngineOptions
from controlplane.model.commands import SubmitJob
from controlplane.model.events import Recorded
from controlplane.model.spec import DoneWhen, JobSpec, Role
from simulator.kernel.virtual_time import VirtualTime
from simulator.network.topology import parse_cluster

# 2026-11-16, 01:00 UTC.
BEGIN = 1_794_790_800.0
NIGHT_S = 4 * 3_600.0
CLUSTER = Path(__file__).parent / "incident-cluster.yaml"


def submission(id: str, name: str, who: str, ranks: int, gpus: int, run_s: float) -> SubmitJob:
    role = Role(name="Worker", replicas=ranks, gpus=gpus, image=f"registry.example/{who}:4")
    spec = JobSpec(
        kind="PyTorchJob",
        roles=(role,),
        done_when=DoneWhen("Worker"),
        hints=hints_of(Workload(duration_s=run_s)),
    )
    return SubmitJob(id=f"submit-{id}", actor=who, job=id, namespace="nlp", name=name, spec=spec)


def people() -> Iterator[tuple[float, SubmitJob]]:
    """One large gang early in the night, and small jobs all through it."""
    yield 120.0, submission("pretrain", "pretrain", "ann", 4, 8, 5_400.0)
    dice = Random(16)
    for number in range(40):
        gpus, run_s = dice.choice([1, 1, 2, 4]), dice.uniform(300.0, 1_500.0)
        at = 30.0 + number * 340.0 + dice.uniform(0.0, 200.0)
        yield at, submission(f"eval{number}", f"eval-{number}", "bob", 1, gpus, run_s)


def night() -> list[Recorded]:
    """All that happened, as the engine recorded it."""
    env, log = VirtualTime(), MemoryLog()
    model = parse_cluster(yaml.safe_load(CLUSTER.read_text()))
    cluster = SimulatedCluster(env, model, origin=BEGIN)
    options = EngineOptions(snapshot_every=None)
    engine = Engine(SimpyClock(env, origin=BEGIN), log, cluster, options)

    def ask() -> Iterator[Event]:
        for at, command in sorted(people(), key=lambda timed: timed[0]):
            yield env.timeout(at - env.now)
            engine.submit(command)

    as_process(env, engine.run())
    env.process(ask())
    env.run(until=NIGHT_S)
    return list(log.events)


async def write(path: Path, events: list[Recorded]) -> None:
    log = await DatabaseLog.open(path)
    await log.append(events, epoch=(await log.lead()).epoch)
    await log.close()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    recorded = night()
    asyncio.run(write(Path(sys.argv[1]), recorded))
    print(f"{len(recorded)} events are in {sys.argv[1]}")
