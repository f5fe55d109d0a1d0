"""The examples of these kinds are read, written and read again as the same job."""

from pathlib import Path

import pytest
import yaml

from controlplane.kinds import hostfile_job, mpi, trainer
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
def test_an_example_is_read_and_told_and_survives_the_way_there_and_back(path):
    kind, document = load(path)
    job = read(kind, document)

    assert read(kind, written(kind, job)) == job
    gang = gang_of(job)
    names = [kind.tell(gang)(rank).name for rank in range(job.spec.size)]
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
