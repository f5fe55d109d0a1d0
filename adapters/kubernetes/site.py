"""What one cluster asks of everything that is made in it."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from controlplane.model import Slot


class Binding(NamedTuple):
    """How a pod is tied to the slot that the scheduler gave its rank."""

    node: str = ""
    # Variables that show the rank its devices, and annotations for those who set devices up.
    env: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    # Variables that stand only where the person set none.
    env_if_unset: Mapping[str, str] = {}
    # A pod that shares a device asks its kubelet for none: that would be a whole one.
    shares_device: bool = False


# What makes NVIDIA's container runtime show these devices and no others.
VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
# The thousandths of its device that a rank was given, for people and for those who set devices up.
SHARE = "muster.dev/gpu-share"


def sharing(binding: Binding, slot: Slot, share: int, memory_mib: int) -> Binding:
    """A pod that has a share of a device, in thousandths, and may have asked for it by memory.

    The container runtime shows it the device that Muster chose. Kubelets give away whole devices
    only, so none is asked for. What the pod should stay within is told to its program, and to CUDA
    MPS, which keeps it to that on nodes where its daemon runs.
    """
    limits = {
        "MUSTER_GPU_SHARE": f"{share / 1_000:g}",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": f"{share / 10:g}",
    }
    if memory_mib:
        limits["MUSTER_GPU_MEMORY_MIB"] = str(memory_mib)
        # Within the container the device that it sees is its first one.
        limits["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={memory_mib}M"
    return binding._replace(
        env={**binding.env, VISIBLE_DEVICES: str(slot.devices[0])},
        annotations={**binding.annotations, SHARE: str(share)},
        env_if_unset=limits,
        shares_device=True,
    )


def unbound(slot: Slot) -> Binding:
    """Leaves the choice of node and devices to the cluster's own scheduler."""
    return Binding()


class Site(NamedTuple):
    # What the cluster's DNS appends to the name of a service, such as cluster.local.
    domain: str = ""
    # Which scheduler binds the pods; "" leaves what the template says.
    scheduler: str = ""
    bind: Callable[[Slot], Binding] = unbound
    # A gang scheduler to which the placement of gangs is left: see `gang_schedulers`.
    gang: str = ""
    # Which control plane everything belongs to that is made here; others' jobs are left alone.
    instance: str = ""
    # The image in which a rank waits for another one's name.
    waiting_image: str = "alpine:3.10"
    # The images that check code out and that show what a job writes, where it names none.
    code_image: str = "alpine/git:2.49.1"
    board_image: str = "tensorflow/tensorflow:2.20.0"


# A reference to the object that owns what is made for a job, as Kubernetes writes it.
Owner = Mapping[str, Any]


def owner(*, version: str, kind: str, name: str, uid: str) -> Owner:
    return {
        "apiVersion": version,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
