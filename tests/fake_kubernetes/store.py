"""Objects with versions, as etcd and an API server keep them."""

import asyncio
import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

# The number of events that are kept; a watch from before that gets 410.
HISTORY_MAX = 100_000


class Problem(Exception):
    """An answer other than 2xx."""

    def __init__(self, status: int, reason: str, message: str, name: str = "") -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message
        # The object that the answer is about, if it is about one.
        self.name = name


class Resource(NamedTuple):
    """A kind as it stands in a path: /apis/GROUP/VERSION/PLURAL."""

    group: str
    version: str
    plural: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


class Happening(NamedTuple):
    version: int
    resource: Resource
    type: str
    document: dict[str, Any]
    before: dict[str, Any] | None = None


Place = tuple[str, str]

PODS = Resource("", "v1", "pods")
NODES = Resource("", "v1", "nodes")


class Store:
    def __init__(self) -> None:
        self.version = 1
        self.objects: dict[Resource, dict[Place, dict[str, Any]]] = {}
        self.history: list[Happening] = []
        # The first version from which a watch can still begin.
        self.oldest = 1
        self.listeners: set[asyncio.Event] = set()
        self.on_change: Callable[[Happening], None] = lambda happening: None
        self._uids = 0

    def all(self, resource: Resource, namespace: str = "") -> list[dict[str, Any]]:
        documents = self.objects.get(resource, {})
        return [each for (ns, _), each in sorted(documents.items()) if namespace in ("", ns)]

    def get(self, resource: Resource, namespace: str, name: str) -> dict[str, Any]:
        document = self.objects.get(resource, {}).get((namespace, name))
        if document is None:
            raise Problem(404, "NotFound", f'{resource.plural} "{name}" not found', name)
        return document

    def create(
        self, resource: Resource, namespace: str, document: dict[str, Any]
    ) -> dict[str, Any]:
        made = copy.deepcopy(document)
        metadata = made.setdefault("metadata", {})
        self._uids += 1
        if "name" not in metadata and "generateName" in metadata:
            metadata["name"] = f"{metadata['generateName']}{self._uids:05d}"
        name = metadata.get("name")
        if not name:
            raise Problem(422, "Invalid", "name or generateName is required")
        if (namespace, name) in self.objects.get(resource, {}):
            raise Problem(409, "AlreadyExists", f'{resource.plural} "{name}" already exists')
        metadata["uid"] = f"uid-{self._uids}"
        metadata["creationTimestamp"] = "2026-01-01T00:00:00Z"
        if namespace:
            metadata["namespace"] = namespace
        made.setdefault("apiVersion", resource.api_version)
        if resource == PODS:
            made["status"] = {"phase": "Pending"}
        return self._put(resource, "ADDED", made)

    def update(self, resource: Resource, document: dict[str, Any]) -> dict[str, Any]:
        """The document instead of what is there; with an old version in it, a conflict."""
        metadata = document["metadata"]
        known = self.get(resource, metadata.get("namespace", ""), metadata["name"])
        version = metadata.get("resourceVersion")
        if version and version != known["metadata"]["resourceVersion"]:
            raise Problem(409, "Conflict", "the object has been modified")
        made = copy.deepcopy(document)
        made["metadata"]["uid"] = known["metadata"]["uid"]
        return self._put(resource, "MODIFIED", made)

    def merge(
        self, resource: Resource, namespace: str, name: str, patch: dict[str, Any]
    ) -> dict[str, Any]:
        known = self.get(resource, namespace, name)
        version = (patch.get("metadata") or {}).get("resourceVersion")
        if version and version != known["metadata"]["resourceVersion"]:
            raise Problem(409, "Conflict", "the object has been modified")
        made = merged(known, patch)
        if made == known:
            return known
        return self._put(resource, "MODIFIED", made)

    def remove(self, resource: Resource, namespace: str, name: str) -> dict[str, Any]:
        before = self.get(resource, namespace, name)
        removed = copy.deepcopy(before)
        del self.objects[resource][namespace, name]
        self.version += 1
        removed["metadata"]["resourceVersion"] = str(self.version)
        self._publish(Happening(self.version, resource, "DELETED", removed, before))
        return removed

    def compact(self) -> None:
        """Forgets what has happened: every watch from before now gets 410."""
        self.oldest = self.version + 1
        self.version += 1
        self.history.clear()

    def _put(self, resource: Resource, type: str, document: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        metadata = document["metadata"]
        metadata["resourceVersion"] = str(self.version)
        place = (metadata.get("namespace", ""), metadata["name"])
        known = self.objects.setdefault(resource, {})
        before, known[place] = known.get(place), document
        self._publish(Happening(self.version, resource, type, document, before))
        return document

    def _publish(self, happening: Happening) -> None:
        self.history.append(happening)
        if len(self.history) > HISTORY_MAX:
            del self.history[: HISTORY_MAX // 2]
            self.oldest = self.history[0].version
        self.on_change(happening)
        for listener in self.listeners:
            listener.set()

    def since(self, version: int) -> Iterator[Happening]:
        if version < self.oldest - 1:
            raise Problem(410, "Expired", f"too old resource version: {version}")
        first = len(self.history)
        while first and self.history[first - 1].version > version:
            first -= 1
        yield from self.history[first:]


def merged(document: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """A JSON merge patch, applied to a copy."""
    result = copy.deepcopy(document)
    _merge(result, patch)
    return result


def _merge(document: dict[str, Any], patch: dict[str, Any]) -> None:
    for key, value in patch.items():
        if value is None:
            document.pop(key, None)
        elif isinstance(value, dict):
            inner = document.get(key)
            if not isinstance(inner, dict):
                inner = document[key] = {}
            _merge(inner, value)
        else:
            document[key] = copy.deepcopy(value)


def selected(document: dict[str, Any], labels: str, fields: str) -> bool:
    """Whether label and field selectors let an object through."""
    have = document["metadata"].get("labels") or {}
    return all(_has(have, term) for term in _terms(labels)) and all(
        _is(document, term) for term in _terms(fields)
    )


def _terms(selector: str) -> list[str]:
    return [term for term in selector.split(",") if term]


def _has(labels: dict[str, str], term: str) -> bool:
    if term.startswith("!"):
        return term[1:] not in labels
    if "!=" in term:
        name, _, value = term.partition("!=")
        return labels.get(name) != value
    name, equals, value = term.replace("==", "=").partition("=")
    return labels.get(name) == value if equals else name in labels


def _is(document: dict[str, Any], term: str) -> bool:
    path, _, value = term.replace("==", "=").partition("=")
    differs = path.endswith("!")
    value_there: Any = document
    for part in path.rstrip("!").split("."):
        value_there = (value_there or {}).get(part)
    return (str(value_there or "") == value) is not differs
