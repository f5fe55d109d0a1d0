"""Which kind and version a document is, and who reads it."""

from collections.abc import Callable

from controlplane.errors import Rejected
from controlplane.kinds import mpi, native, pytorch, tensorflow
from controlplane.kinds.manifest import Submission, refuse

READERS: dict[tuple[str, str], Callable[[object], Submission]] = {
    ("muster.dev/v1", "Job"): native.read,
    ("kubeflow.org/v1", "TFJob"): tensorflow.read,
    ("kubeflow.org/v1", "PyTorchJob"): pytorch.read,
    ("kubeflow.org/v1", "MPIJob"): mpi.read,
    ("kubeflow.org/v2beta1", "MPIJob"): mpi.read,
}


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
        known = ", ".join(f"{k} ({v})" for v, k in READERS)
        raise Rejected(
            "unknown_kind", f"{kind} ({version}) is not a kind this release knows: {known}"
        )
    return reader(document)
