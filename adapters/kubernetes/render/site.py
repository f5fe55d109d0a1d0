"""The settings of one cluster for rendering, and how pods are bound to devices. Pure."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from controlplane.model.cluster import Slot


class Binding(NamedTuple):
    """How a pod is bound to the slot of its rank."""

    node: str = ""
    # Variables that show the rank its devices, and annotations for programs that set up devices.
    env: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    # Variables that are set only where the user has not set them.
    env_if_unset: Mapping[str, str] = {}
    # A pod that shares a device requests none: the kubelet would allocate a whole one.
    shares_device: bool = False


# NVIDIA's container runtime shows a container only the devices in this variable.
VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
# The share of its device that a rank has, in thousandths, for people and device programs.
SHARE = "muster.dev/gpu-share"


def sharing(binding: Binding, slot: Slot, share: int, memory_mib: int) -> Binding:
    """Return `binding` for a pod that has a share of a device.

    `share` is in thousandths; `memory_mib` is the device memory that was requested, 0 if the
    request was not by memory. The container runtime shows the pod the device that Muster chose.
    Kubelets allocate whole devices only, so none is requested. The limits are passed to the program
    as variables, and to CUDA MPS, which enforces them on nodes where its daemon runs.
    """
    limits = {
        "MUSTER_GPU_SHARE": f"{share / 1_000:g}",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": f"{share / 10:g}",
    }
    if memory_mib:
        limits["MUSTER_GPU_MEMORY_MIB"] = str(memory_mib)
        # The container sees one device, which has index 0 there.
        limits["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={memory_mib}M"
    return binding._replace(
        env={**binding.env, VISIBLE_DEVICES: str(slot.devices[0])},
        annotations={**binding.annotations, SHARE: str(share)},
        env_if_unset=limits,
        shares_device=True,
    )


def unbound(slot: Slot) -> Binding:
    """Return an empty binding: the cluster's scheduler chooses node and devices."""
    return Binding()


class Site(NamedTuple):
    """The settings of one cluster that rendering needs."""

    # What the cluster's DNS appends to the name of a service, such as cluster.local.
    domain: str = ""
    # The `schedulerName` of pods; "" keeps that of the template.
    scheduler: str = ""
    bind: Callable[[Slot], Binding] = unbound
    # The gang scheduler that places gangs, "" for none: see `pod_group`.
    gang: str = ""
    # The instance name of the control plane, as a label on every object; "" for no label.
    instance: str = ""
    # The image of the init container that waits until the name of another rank resolves.
    waiting_image: str = "alpine:3.10"
    # The images that check out code and run TensorBoard, for jobs that name none.
    code_image: str = "alpine/git:2.49.1"
    board_image: str = "tensorflow/tensorflow:2.20.0"


# An owner reference of Kubernetes: the object that owns a job's objects.
Owner = Mapping[str, Any]


def owner(*, version: str, kind: str, name: str, uid: str) -> Owner:
    """Return an owner reference; `version` is the owner's apiVersion."""
    return {
        "apiVersion": version,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
