"""What differs between an object as it is and as it should be, as a merge patch; empty if nothing.

Only what we ask for is compared: the server, and others, fill in the rest.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from adapters.kubernetes.marks import Document


def service(found: Document, wanted: Document) -> dict[str, Any]:
    """Only what we ask for is compared: the server fills in the rest."""
    spec: Mapping[str, Any] = found.get("spec", {})
    ask: Mapping[str, Any] = wanted["spec"]
    body: dict[str, Any] = {}
    if spec.get("selector") != ask["selector"]:
        body["selector"] = ask["selector"]
    if _ports(spec) != _ports(ask):
        body["ports"] = ask["ports"]
    early = bool(ask.get("publishNotReadyAddresses"))
    if bool(spec.get("publishNotReadyAddresses")) != early:
        body["publishNotReadyAddresses"] = early
    return {"spec": body} if body else {}


def _ports(spec: Mapping[str, Any]) -> list[tuple[str, int]]:
    ports: Iterable[Mapping[str, Any]] = spec.get("ports") or ()
    return sorted((port.get("name", ""), port["port"]) for port in ports)


def data(found: Document, wanted: Document) -> dict[str, Any]:
    have: Mapping[str, str] = found.get("data") or {}
    ask: Mapping[str, str] = wanted.get("data") or {}
    if have == ask:
        return {}
    return {"data": {**dict.fromkeys(set(have) - set(ask)), **ask}}


def rules(found: Document, wanted: Document) -> dict[str, Any]:
    """A role's rules follow the job's size; who it is given to does not change."""
    rules = wanted.get("rules")
    return {"rules": rules} if rules and found.get("rules") != rules else {}
