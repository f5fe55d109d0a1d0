"""The examples of these kinds are read and written, and run to their end."""

from pathlib import Path

import pytest
import yaml

from adapters.clocks.simpy_clock import SimpyClock, as_process
from adapters.logs.memory_log import MemoryLog
from adapters.simulated_cluster.cluster import SimulatedCluster
from controlplane.engine import Engine, EngineOptions
from controlplane.kinds.mpi import hostfile_job, mpi
from controlplane.kinds.registry import read_manifest
from controlplane.kinds.trainer import trainer
from controlplane.model.commands import SubmitJob
from controlplane.model.phases import Phase
from simulator.kernel.virtual_time import VirtualTime
from simulator.network.topology import Delays, grid
from tests.controlplane.kinds.reading import gang_of, read, written

EXAMPLES = Path(__file__).parents[3] / "examples"
KINDS = {kind.name: kind for kind in (mpi.KIND, trainer.KIND, hostfile_job.KIND)}
FILES = sorted(
    path
    for pattern in ("mpijob*", "trainjob*", "hostfilejob*")
    for path in EXAMPLES.glob(f"{pattern}.yaml")
)


def load(path):
    document = yaml.safe_load(path.read_text())
    return KINDS[document["kind"]], document


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_example_is_read_has_environments_and_survives_a_round_trip(path):
    kind, document = load(path)
    job = read(kind, document)

    assert read(kind, written(kind, job)) == job
    gang = gang_of(job)
    names = [kind.environments(gang)(rank).name for rank in range(job.spec.size)]
    assert len(set(names)) == job.spec.size
    kind.files(gang, range(job.spec.size))
    kind.services(gang)


def test_every_version_of_every_kind_has_an_example():
    shown = {(kind.name, document["apiVersion"]) for kind, document in map(load, FILES)}

    assert shown == {(kind.name, form.version) for kind in KINDS.values() for form in kind.forms}


def test_every_implementation_of_mpi_has_an_example():
    shown = {
        read(kind, document).spec.options.get("mpiImplementation")
        for kind, document in map(load, FILES)
    }

    assert {"OpenMPI", "Intel", "MPICH"} <= shown


def test_all_of_them_run_to_their_end_on_a_simulated_cluster():
    env = VirtualTime()
    cluster = SimulatedCluster(env, grid(1, 4, 8, delays=Delays(start_s=5.0, stop_s=2.0)))
    options = EngineOptions(resync_s=None, snapshot_every=None)
    engine = Engine(SimpyClock(env), MemoryLog(), cluster, options)
    as_process(env, engine.run())
    env.run(1.0)
    for path in FILES:
        job = read_manifest(yaml.safe_load(path.read_text()))
        engine.submit(
            SubmitJob(
                id=f"c-{path.name}",
                job=path.stem,
                namespace=job.namespace,
                name=job.name,
                spec=job.spec,
            )
        )
    env.run(5_000.0)

    jobs = engine.world.jobs
    assert {name: job.phase for name, job in jobs.items()} == {
        path.stem: Phase.SUCCEEDED for path in FILES
    }
    assert all(job.live_attempt is None for job in jobs.values())
