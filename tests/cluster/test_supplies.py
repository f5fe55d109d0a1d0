"""What a rank needs besides its program, in real pods."""

from typing import Any

from deploy.testcluster.images import BUSYBOX
from tests.cluster.control import Muster
from tests.cluster.kube import Kube, ignoring, until
from tests.cluster.manifests import job, shell

HOME = "/api/v1/namespaces/default"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


async def put(kube: Kube, plural: str, document: dict[str, Any]) -> None:
    await ignoring(404, kube.api.delete(f"{HOME}/{plural}/{document['metadata']['name']}"))
    await kube.api.create(f"{HOME}/{plural}", document)


async def test_files_variables_and_shared_memory_are_there(muster: Muster, kube: Kube) -> None:
    await put(kube, "configmaps", {"kind": "ConfigMap", "apiVersion": "v1",
              "metadata": {"name": "hparams"}, "data": {"rate": "0.1"}})  # fmt: skip
    await put(kube, "secrets", {"kind": "Secret", "apiVersion": "v1",
              "metadata": {"name": "wandb"}, "stringData": {"WANDB_KEY": "hush"}})  # fmt: skip
    look = "grep -q 0.1 /etc/hparams/rate && grep -q hush /etc/wandb/WANDB_KEY && test $WANDB_KEY = hush"
    # Before 1.22 a volume in memory is as large as the memory lets it be.
    is_right = "-eq" if await kube.minor() >= 22 else "-ge"
    size = f"test $(df -m /dev/shm | tail -1 | awk '{{print $2}}') {is_right} 128"
    supplies = {
        "config_maps": [{"name": "hparams", "path": "/etc/hparams"}],
        "secrets": [{"name": "wandb", "path": "/etc/wandb"}],
        "env_from_secrets": ["wandb"],
        "shared_memory": "128Mi",
        "resources": {"memory": "256Mi"},
    }
    name = await muster.submit(job("supplied", shell(f"{look} && {size}"), supplies=supplies))
    await muster.until_phase(name, "Succeeded")


async def test_the_commit_that_a_container_leaves_behind_is_in_the_log(
    muster: Muster, kube: Kube
) -> None:
    """The container's script needs git, which the bed's images lack; its last words do not."""
    first = {
        "name": "init-code",
        "image": BUSYBOX,
        "command": shell(f"echo {COMMIT} > /dev/termination-log"),
    }
    main = {"name": "main", "image": BUSYBOX, "command": shell("sleep 2")}
    manifest = job("coded", ["true"])
    role = {
        "name": "worker",
        "template": {"spec": {"initContainers": [first], "containers": [main]}},
    }
    manifest["spec"]["roles"] = [role]
    name = await muster.submit(manifest)
    await muster.until_phase(name, "Succeeded")
    event = await muster.until_event(name, "CodeResolved")
    assert event["payload"]["commit"] == COMMIT
    assert (await muster.job(name))["commits"] == [COMMIT]


async def test_a_board_comes_with_the_job_and_goes_with_it(muster: Muster, kube: Kube) -> None:
    supplies = {
        "data": [{"claim": "results", "path": "/results"}],
        "tensorboard": {"log_dir": "/results", "image": BUSYBOX},
    }
    # The claim does not exist, so its pods wait; the board is made all the same.
    name = await muster.submit(job("shown", shell("true"), supplies=supplies))
    path = f"/apis/apps/v1/namespaces/default/deployments/{name}-tensorboard"

    async def there() -> bool:
        deployments = await kube.api.get("/apis/apps/v1/namespaces/default/deployments")
        return any(x["metadata"]["name"] == f"{name}-tensorboard" for x in deployments["items"])

    await until(there, 60, "the TensorBoard")
    shown = await kube.api.get(path)
    assert shown["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] == "results"  # fmt: skip
    await muster.delete(name)

    async def gone() -> bool:
        return not await there()

    await until(gone, 90, "the TensorBoard to go")
