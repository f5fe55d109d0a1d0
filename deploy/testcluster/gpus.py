"""Made-up GPUs on a real node: a device plugin that offers them to the kubelet.

Run inside the node: `python -m deploy.testcluster.gpus COUNT SICK`. The file SICK names the devices
that are unhealthy at the moment, such as `GPU-0 GPU-3`. The container gets its devices in
NVIDIA_VISIBLE_DEVICES, unless the pod sets that itself.
"""

import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]

RESOURCE = "nvidia.com/gpu"
PLUGINS = Path("/var/lib/kubelet/device-plugins")
SOCKET = PLUGINS / "muster-gpus.sock"
LOOK_S = 0.2
# The stubs are generated from the description at start; no generated file is kept.
messages, services = grpc.protos_and_services("deploy/testcluster/deviceplugin.proto")


class Plugin(services.DevicePluginServicer):  # type: ignore[misc, name-defined]
    def __init__(self, count: int, sick: Path) -> None:
        self._devices = [f"GPU-{index}" for index in range(count)]
        self._sick = sick
        self.stopped = threading.Event()

    def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:  # noqa: N802
        return messages.DevicePluginOptions()

    def ListAndWatch(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        sent = None
        while context.is_active() and not self.stopped.is_set():
            sick = frozenset(self._sick.read_text().split()) if self._sick.exists() else frozenset()
            if sick != sent:
                sent = sick
                yield messages.ListAndWatchResponse(
                    devices=[self._device(d, sick) for d in self._devices]
                )
            time.sleep(LOOK_S)

    def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802
        answers = []
        for container in request.container_requests:
            indices = sorted(int(device.removeprefix("GPU-")) for device in container.device_ids)
            visible = {"NVIDIA_VISIBLE_DEVICES": ",".join(map(str, indices))}
            answers.append(messages.ContainerAllocateResponse(envs=visible))
        return messages.AllocateResponse(container_responses=answers)

    def _device(self, name: str, sick: frozenset[str]) -> Any:
        return messages.Device(id=name, health="Unhealthy" if name in sick else "Healthy")


def serve_until_unknown(count: int, sick: Path) -> None:
    """Offer the devices until a restarted kubelet has removed our socket."""
    SOCKET.unlink(missing_ok=True)
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
    plugin = Plugin(count, sick)
    services.add_DevicePluginServicer_to_server(plugin, server)
    server.add_insecure_port(f"unix://{SOCKET}")
    server.start()
    try:
        wanted = messages.RegisterRequest(
            version="v1beta1", endpoint=SOCKET.name, resource_name=RESOURCE
        )
        with grpc.insecure_channel(f"unix://{PLUGINS}/kubelet.sock") as channel:
            services.RegistrationStub(channel).Register(wanted, timeout=5)
        print(f"registered {count} devices", flush=True)
        while SOCKET.exists():
            time.sleep(LOOK_S)
    except grpc.RpcError as error:
        print(f"the kubelet does not answer: {error.code()}", flush=True)
        time.sleep(LOOK_S)
    finally:
        plugin.stopped.set()
        server.stop(None).wait()


def main() -> None:
    count, sick = int(sys.argv[1]), Path(sys.argv[2])
    while True:
        if (PLUGINS / "kubelet.sock").exists():
            serve_until_unknown(count, sick)
        else:
            time.sleep(LOOK_S)


if __name__ == "__main__":
    main()
