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
