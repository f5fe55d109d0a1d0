"""Which kind and version a document is, and who reads it."""

from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

from controlplane.errors import Rejected
from controlplane.kinds import mpi, native, pytorch, tensorflow
from controlplane.kinds.manifest import Submission, refuse


class Kind(NamedTuple):
    """A kind of job: the versions it comes in, the form of its manifest, and what that means."""

    name: str
    versions: tuple[str, ...]
    manifest: type[Struct]
    read: Callable[[object], Submission]


KINDS = (
    Kind("Job", ("muster.dev/v1",), native.NativeJob, native.read),
    Kind("TFJob", ("kubeflow.org/v1",), tensorflow.TFJob, tensorflow.read),
    Kind("PyTorchJob", ("kubeflow.org/v1",), pytorch.PyTorchJob, pytorch.read),
    Kind("MPIJob", ("kubeflow.org/v1", "kubeflow.org/v2beta1"), mpi.MPIJob, mpi.read),
)
READERS = {(version, kind.name): kind.read for kind in KINDS for version in kind.versions}


def read_manifest(document: object) -> Submission:
    """A document as `kubectl` would take it, understood; raises Rejected with what is wrong."""
    if not isinstance(document, dict):
        raise Rejected("invalid_manifest", "a manifest is a mapping with apiVersion and kind")
    version, kind = document.get("apiVersion"), document.get("kind")
    for field, value in (("apiVersion", version), ("kind", kind)):
        if not isinstance(value, str):
            raise refuse(field, "is missing or not text")
    reader = READERS.get((str(version), str(kind)))
    if reader is None:
        known = ", ".join(f"{kind} ({version})" for version, kind in READERS)
        raise Rejected(
            "unknown_kind", f"{kind} ({version}) is not a kind this release knows: {known}"
        )
    return reader(document)
