"""An API server of our own for quick tests: real HTTP, real watches, pretended pods and faults.

It knows no schemas and no controllers but a few kubelets. What it promises is what the adapter
relies on: versions that count up, watches that follow them, conflicts, deletion with grace, binding.
"""

from tests.fake_kubernetes.faults import Faults
from tests.fake_kubernetes.kubelet import Fate, Kubelets
from tests.fake_kubernetes.server import FakeKubernetes
from tests.fake_kubernetes.store import Store

__all__ = ["FakeKubernetes", "Fate", "Faults", "Kubelets", "Store"]
