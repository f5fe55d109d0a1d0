"""A client of an API server over plain HTTP and JSON that costs little CPU.

Used by the made-up nodes and the benchmarks' baselines, which share the machine with what they
measure, and by tests that read objects exactly as they are.
"""

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import yaml

MERGE = "application/merge-patch+json"
JSON = "application/json"


class Refused(Exception):
    """The server refused a request; `status` is the HTTP code."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text[:500]}")
        self.status = status


class Api:
    """One API server; an asynchronous context."""

    def __init__(self, kubeconfig: Path, connections: int = 64) -> None:
        self.server, context, self._headers = read(kubeconfig)
        self._connections, self._context = connections, context

    async def __aenter__(self) -> "Api":
        connector = aiohttp.TCPConnector(limit=self._connections, ssl=self._context)
        self._session = aiohttp.ClientSession(connector=connector, headers=self._headers)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def get(self, path: str, **query: str) -> Any:
        return await self._ask("GET", path, None, JSON, query)

    async def create(self, path: str, document: Mapping[str, Any]) -> Any:
        return await self._ask("POST", path, document, JSON, {})

    async def merge(self, path: str, change: Mapping[str, Any]) -> Any:
        return await self._ask("PATCH", path, change, MERGE, {})

    async def delete(self, path: str, body: Mapping[str, Any] | None = None, **query: str) -> Any:
        return await self._ask("DELETE", path, body, JSON, query)

    async def text(self, path: str, **query: str) -> str:
        async with self._session.get(self.server + path, params=query) as answer:
            text = await answer.text()
            if answer.status >= 400:
                raise Refused(answer.status, text)
            return text

    async def watch(self, path: str, version: str, **query: str) -> AsyncIterator[tuple[str, Any]]:
        """Yield changes after a version, until the stream ends or the version has expired."""
        asked = {"watch": "1", "resourceVersion": version, **query}
        patient = aiohttp.ClientTimeout(total=None)
        async with self._session.get(self.server + path, params=asked, timeout=patient) as answer:
            if answer.status >= 400:
                raise Refused(answer.status, await answer.text())
            kept = b""
            async for chunk in answer.content.iter_any():
                *lines, kept = (kept + chunk).split(b"\n")
                for line in lines:
                    change = json.loads(line)
                    if change["type"] == "ERROR":
                        raise Refused(change["object"].get("code", 500), str(change["object"]))
                    yield change["type"], change["object"]

    async def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        kind: str,
        query: Mapping[str, str],
    ) -> Any:
        data = None if body is None else json.dumps(body).encode()
        asked = self._session.request(
            method,
            self.server + path,
            data=data,
            params=dict(query),
            headers={"Content-Type": kind},
        )
        async with asked as answer:
            content = await answer.read()
            if answer.status >= 400:
                raise Refused(answer.status, content.decode(errors="replace"))
            return json.loads(content)


def read(kubeconfig: Path) -> tuple[str, ssl.SSLContext | bool, dict[str, str]]:
    """Return the server of a kubeconfig's current context, its CA and the client's credentials."""
    config = yaml.safe_load(kubeconfig.read_text())
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    user = _named(config["users"], context["user"])["user"]
    headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
    if not cluster["server"].startswith("https"):
        return cluster["server"], False, headers
    trust = ssl.create_default_context(cafile=cluster.get("certificate-authority"))
    if "client-certificate" in user:
        trust.load_cert_chain(user["client-certificate"], user["client-key"])
    return cluster["server"], trust, headers


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)
