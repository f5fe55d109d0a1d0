"""Differences between an existing object and a desired one, as merge patches. Pure.

Each function returns an empty dict if nothing differs. Only the fields that Muster sets are
compared: the server and other controllers fill in the rest.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from adapters.kubernetes.observe.labels import Document


def service(observed: Document, wanted: Document) -> dict[str, Any]:
    """Compare selector, ports and `publishNotReadyAddresses` of a service."""
    spec: Mapping[str, Any] = observed.get("spec", {})
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


def data(observed: Document, wanted: Document) -> dict[str, Any]:
    """Compare the data of a config map; keys that are not wanted are removed."""
    have: Mapping[str, str] = observed.get("data") or {}
    ask: Mapping[str, str] = wanted.get("data") or {}
    if have == ask:
        return {}
    return {"data": {**dict.fromkeys(set(have) - set(ask)), **ask}}


def rules(observed: Document, wanted: Document) -> dict[str, Any]:
    """Compare the rules of a role, which follow the job's size; its subjects never change."""
    rules = wanted.get("rules")
    return {"rules": rules} if rules and observed.get("rules") != rules else {}
