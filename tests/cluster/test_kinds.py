"""Every kind's examples with real pods, to success and to failure."""

import pytest
import yaml

from tests.cluster.control import Muster
from tests.cluster.kube import Kube
from tests.cluster.manifests import EXAMPLES, example

# Several documents in one file, or made for the simulator's size or its clock; one whose runtime starts
# sshd, which the small image does not have; and an array, which has no ranks of its own.
OTHERS = {
    "array",
    "big-gang",
    "never-fits",
    "retries-exhausted",
    "sweep",
    "training",
    "trainjob-mpi",
}


def is_job(name: str) -> bool:
    documents = list(yaml.safe_load_all((EXAMPLES / name).read_text()))
    return len(documents) == 1 and "kind" in documents[0]


NAMES = sorted(
    path.name for path in EXAMPLES.glob("*.yaml") if path.stem not in OTHERS and is_job(path.name)
)


@pytest.mark.parametrize("file", NAMES)
async def test_an_example_runs_to_success(muster: Muster, kube: Kube, file: str) -> None:
    name = await muster.submit(example(file))
    ended = await muster.until_phase(name, "Succeeded", seconds=120)
    assert ended["job"]["restarts"] == 0
    await muster.until_event(name, "AttemptEnded")
    story = await muster.story(name)
    # A master may be done before a worker on a busy machine has reached it.
    assert [each for each in story if each not in ("GangWaiting", "GangStarted")] == [
        "JobSubmitted",
        "GangPlaced",
        "JobSucceeded",
        "AttemptEnded",
    ]


@pytest.mark.parametrize("file", NAMES)
async def test_an_example_that_fails_is_failed(muster: Muster, kube: Kube, file: str) -> None:
    name = await muster.submit(example(file, code=7))
    ended = await muster.until_phase(name, "Failed", seconds=120)
    codes = {rank["exit_code"] for rank in ended["attempt"]["ranks"]}
    assert 7 in codes
    assert "7" in ended["job"]["message"]
