"""Two replicas with the rights that the manifests give them, and no more: elections by a Lease."""

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.control import Muster
from tests.cluster.kube import Kube, TestBed, until
from tests.cluster.manifests import job, shell
from tests.deploy.kustomize import FOLDERS, rendered

NAMESPACE = "muster-system"
# The lease is good for ten seconds.
TAKE_OVER_S_MAX = 30
# What servers without policy/v1 take.
OLDEST = "overlays/oldest"


def kubectl(bed: TestBed, *words: str, text: str | None = None) -> str:
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("no kubectl on the PATH; `make cluster-up` builds one and prints its path")
    done = subprocess.run(
        [program, *words],
        input=text,
        capture_output=True,
        text=True,
        env={**os.environ, "KUBECONFIG": str(bed.kubeconfig)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def account(bed: TestBed, tmp_path: Path) -> Path:
    """A kubeconfig of the account that the manifests make, with the rights that they give it."""
    wanted = {"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}  # fmt: skip
    documents = [each for each in rendered("base") if each["kind"] in wanted]
    kubectl(bed, "apply", "-f", "-", text=yaml.safe_dump_all(documents))
    kubectl(bed, "delete", "lease", "muster", "-n", NAMESPACE, "--ignore-not-found")
    token = kubectl(bed, "create", "token", "muster", "-n", NAMESPACE).strip()
    config = yaml.safe_load(bed.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": token}
    path = tmp_path / "account.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


@asynccontextmanager
async def replica(account: Path, folder: Path, database: str) -> AsyncIterator[Muster]:
    options = ("--standby", "--lease", f"{NAMESPACE}/muster", "--db", database)
    async with Muster(account, folder, *options) as muster:
        yield muster


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


async def leads(one: Muster) -> bool:
    return bool((await one.get("/readyz"))["role"] == "leader")


@pytest.fixture
async def pair(
    kube: Kube, account: Path, tmp_path: Path, database_url: str
) -> AsyncIterator[tuple[Muster, Muster]]:
    async with replica(account, made(tmp_path / "a"), database_url) as first:
        await until(lambda: leads(first), TAKE_OVER_S_MAX, "the first one to lead")
        async with replica(account, made(tmp_path / "b"), database_url) as second:
            yield first, second


async def test_the_second_one_answers_and_takes_over_when_the_first_is_killed(
    pair: tuple[Muster, Muster], kube: Kube
) -> None:
    first, second = pair
    assert not await leads(second)
    name = await second.submit(job("long", shell("sleep 20"), replicas=4))
    await second.until_phase(name, "Running")
    before = {p["metadata"]["name"]: p["metadata"]["uid"] for p in await kube.pods()}
    assert len(before) == 4
    first.kill()

    async def taken_over() -> bool:
        # Reads are answered all the while.
        await second.job(name)
        return await leads(second)

    await until(taken_over, TAKE_OVER_S_MAX, "the second one to lead")
    await second.submit(job("next", shell("true")))
    await second.until_phase("next", "Succeeded")
    ended = await second.until_phase(name, "Succeeded")
    assert ended["job"]["restarts"] == 0
    after = {p["metadata"]["name"]: p["metadata"]["uid"] for p in await kube.pods()}
    assert before.items() <= after.items(), "a rank was started again"


async def test_a_leader_that_was_held_up_steps_down_and_does_nothing_twice(
    pair: tuple[Muster, Muster], kube: Kube
) -> None:
    first, second = pair
    os.kill(first.pid, signal.SIGSTOP)
    try:
        await until(lambda: leads(second), TAKE_OVER_S_MAX, "the second one to lead")
        await second.submit(job("during", shell("sleep 3"), replicas=2))
    finally:
        os.kill(first.pid, signal.SIGCONT)

    async def stepped_down() -> bool:
        try:
            return bool((await first.get("/readyz"))["role"] == "standby")
        except Exception:  # noqa: BLE001 - it is neither for a moment
            return False

    await until(stepped_down, TAKE_OVER_S_MAX, "the first one to stand by")
    # What is asked of it is handed on, and each is there once.
    await first.submit(job("after", shell("true")))
    await first.until_phase("after", "Succeeded")
    await first.until_phase("during", "Succeeded")
    assert await leads(second)
    assert len(await kube.pods()) == 3


async def test_a_stopped_leader_releases_the_lease(pair: tuple[Muster, Muster]) -> None:
    first, second = pair
    first.end()
    began = asyncio.get_running_loop().time()
    await until(lambda: leads(second), TAKE_OVER_S_MAX, "the second one to lead")
    # Long before the lease would have run out.
    assert asyncio.get_running_loop().time() - began < 8


@pytest.mark.parametrize("folder", FOLDERS)
async def test_the_server_takes_every_manifest(bed: TestBed, kube: Kube, folder: str) -> None:
    minor = await kube.minor()
    if folder == OLDEST and minor >= 25:
        pytest.skip("policy/v1beta1 went with Kubernetes 1.25")
    if folder != OLDEST and minor < 21:
        pytest.skip(f"it has no policy/v1 yet; {OLDEST} is for it")
    documents: list[dict[str, Any]] = rendered(folder)
    spaces = [each for each in documents if each["kind"] == "Namespace"]
    kubectl(bed, "apply", "-f", "-", text=yaml.safe_dump_all(spaces))
    words = ("apply", "--dry-run=server", "--validate=strict", "-f", "-")
    output = kubectl(bed, *words, text=yaml.safe_dump_all(documents))
    assert len(output.splitlines()) == len(documents)
