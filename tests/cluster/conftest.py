"""The cluster that these tests run on, and a control plane of each test's own.

KUBECONFIG names a cluster to use; without it the project's own test cluster is used, built and
started if need be. Tests that change nodes need the latter, and skip with that reason.
"""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from deploy.testcluster import cluster, controlplane, nodes, places, processes
from deploy.testcluster.api_client import Api
from tests.cluster.control import Muster
from tests.cluster.kube import Kube, TestBed

HERE = Path(__file__).parent
REAL_NODES = 4
GPUS = 8
MADE_UP_NODES = 40
# For one test; building and starting the cluster is not counted.
SECONDS_MAX = 300


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.cluster)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(SECONDS_MAX, func_only=True))


@pytest.fixture(scope="session")
def bed() -> Iterator[TestBed]:
    """A running cluster; one that was not running before is stopped afterwards."""
    given = os.environ.get("KUBECONFIG")
    if given:
        yield TestBed(Path(given), None)
        return
    try:
        place = places.here()
        cluster.check()
        cluster.build(place)
    except places.Trouble as trouble:
        pytest.skip(f"no cluster: {trouble}. Or name one of yours with KUBECONFIG.")
    # What was built has to start: from here on, trouble is a failure.
    was_running = processes.pid_of(place.state, "apiserver") is not None
    place = cluster.up(place, real=REAL_NODES, gpus=GPUS)
    cluster.stop_made_up(place)
    yield TestBed(place.kubeconfig, place)
    if not was_running:
        cluster.down(place)


@pytest.fixture
def place(bed: TestBed) -> Iterator[places.Place]:
    """The project's own test cluster, whose nodes may be harmed; all is mended afterwards."""
    if bed.place is None:
        pytest.skip(
            "does things to nodes that only the project's own test cluster can stand; unset KUBECONFIG"
        )
    yield bed.place
    for name in ("etcd", "apiserver", "scheduler", "controllers"):
        controlplane.start(bed.place, name)
    for node in nodes.known(bed.place):
        nodes.sicken(bed.place, node)
        nodes.up(bed.place, node, GPUS)
        nodes.unplug(bed.place, node, plugged=True)
    for node in nodes.known(bed.place):
        nodes.wait_ready(bed.place, node, GPUS)


@pytest.fixture
def made_up(place: places.Place) -> Iterator[int]:
    """Nodes without machines besides the real ones, for tests of size; how many there are."""
    cluster.start_made_up(place, MADE_UP_NODES, GPUS)
    yield MADE_UP_NODES
    cluster.stop_made_up(place)


@pytest.fixture
async def kube(bed: TestBed) -> AsyncIterator[Kube]:
    """The cluster as its API server shows it; no object of Muster stays behind."""
    async with Api(bed.kubeconfig) as api:
        kube = Kube(api)
        yield kube
        await kube.clear()


@pytest.fixture(scope="session")
def shared_muster(bed: TestBed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Muster]:
    muster = Muster(bed.kubeconfig, tmp_path_factory.mktemp("muster"), stays=True)
    yield muster
    muster.end()


@pytest.fixture
async def muster(shared_muster: Muster, kube: Kube) -> AsyncIterator[Muster]:
    """A control plane on that cluster, without jobs before and after."""
    async with shared_muster as muster:
        yield muster
        await kube.uncordon_all()
        await muster.forget_all()


@pytest.fixture
async def own_muster(
    shared_muster: Muster, bed: TestBed, kube: Kube, tmp_path: Path
) -> AsyncIterator[Muster]:
    """A control plane of the test's own, the only one that looks at the cluster meanwhile."""
    shared_muster.end()
    async with Muster(bed.kubeconfig, tmp_path) as muster:
        yield muster
