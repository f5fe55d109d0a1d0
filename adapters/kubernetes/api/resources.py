"""The paths of each kind of object in the API: a table."""

from typing import NamedTuple
from urllib.parse import quote


class Resource(NamedTuple):
    """A kind, and the parts of its paths."""

    kind: str
    # /api/v1, or /apis/GROUP/VERSION.
    base: str
    plural: str

    def all(self, namespace: str = "") -> str:
        """Return the path of the objects of `namespace`, or of all namespaces if it is empty."""
        if not namespace:
            return f"{self.base}/{self.plural}"
        return f"{self.base}/namespaces/{quote(namespace, safe='')}/{self.plural}"

    def one(self, namespace: str, name: str) -> str:
        return f"{self.all(namespace)}/{quote(name, safe='')}"


_RBAC = "/apis/rbac.authorization.k8s.io/v1"

RESOURCES = {
    each.kind: each
    for each in (
        Resource("Pod", "/api/v1", "pods"),
        Resource("Node", "/api/v1", "nodes"),
        Resource("Service", "/api/v1", "services"),
        Resource("ConfigMap", "/api/v1", "configmaps"),
        Resource("Secret", "/api/v1", "secrets"),
        Resource("ServiceAccount", "/api/v1", "serviceaccounts"),
        Resource("Role", _RBAC, "roles"),
        Resource("RoleBinding", _RBAC, "rolebindings"),
        Resource("Deployment", "/apis/apps/v1", "deployments"),
        Resource("HorizontalPodAutoscaler", "/apis/autoscaling/v2", "horizontalpodautoscalers"),
    )
}
# Cluster-scoped objects that administrators create; Muster only reads them.
PRIORITY_CLASSES = Resource("PriorityClass", "/apis/scheduling.k8s.io/v1", "priorityclasses")
# The PodGroup kinds of the gang schedulers, by apiVersion.
POD_GROUPS = {
    version: Resource("PodGroup", f"/apis/{version}", "podgroups")
    for version in ("scheduling.volcano.sh/v1beta1", "scheduling.x-k8s.io/v1alpha1")
}


def resource_of(kind: str, version: str = "") -> Resource:
    """Return the resource of `kind`; `version` (an apiVersion) matters only for a PodGroup."""
    return POD_GROUPS[version] if kind == "PodGroup" else RESOURCES[kind]
