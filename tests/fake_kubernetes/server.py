"""The HTTP side: paths to resources, documents in and out, watches, logs."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web

from tests.fake_kubernetes import faults as f
from tests.fake_kubernetes.faults import Faults
from tests.fake_kubernetes.kubelet import Kubelets
from tests.fake_kubernetes.store import PODS, Happening, Problem, Resource, Store, merged, selected

CLUSTER_WIDE = frozenset(
    {"nodes", "namespaces", "persistentvolumes", "customresourcedefinitions", "priorityclasses"}
)


class Asked(NamedTuple):
    resource: Resource
    namespace: str
    name: str
    sub: str


class FakeKubernetes:
    """Use as `async with FakeKubernetes(tmp_path) as api`; `api.kubeconfig` leads to it."""

    def __init__(self, folder: Path, *, bookmark_s: float = 0.2, page_max: int = 500) -> None:
        self.store = Store()
        self.kubelets = Kubelets(self.store)
        self.faults = Faults()
        self.kubeconfig = str(folder / "kubeconfig")
        self.requests: Counter[str] = Counter()
        self.watches = 0
        self._bookmark_s = bookmark_s
        self._open_watches: set[asyncio.Task[None]] = set()
        self._page_max = page_max
        self._pages: dict[str, list[dict[str, Any]]] = {}
        self._runner: web.AppRunner | None = None
        self._closing = asyncio.Event()

    async def __aenter__(self) -> "FakeKubernetes":
        app = web.Application(client_max_size=8 * 2**20)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        self._write_kubeconfig()
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._runner is not None
        self._closing.set()
        self.kubelets.close()
        await self._runner.cleanup()

    def _write_kubeconfig(self) -> None:
        named = {"name": "fake"}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "fake",
            "clusters": [{**named, "cluster": {"server": self.url}}],
            "users": [{**named, "user": {"token": "secret"}}],
            "contexts": [{**named, "context": {"cluster": "fake", "user": "fake"}}],
        }
        Path(self.kubeconfig).write_text(json.dumps(document))

    # ------------------------------------------------------------------ requests

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        watching = request.query.get("watch") == "true"
        self.requests["WATCH" if watching else request.method] += 1
        fault = self.faults.of_request(request.method)
        if isinstance(fault, int):
            return _refusal(Problem(fault, "Faulty", "so it was planned"))
        if fault == f.DELAY:
            await asyncio.sleep(self.faults.delay_s)
        if fault == f.CUT_BEFORE:
            return self._cut(request)
        try:
            answer = await self._answer(request, watching)
        except Problem as problem:
            answer = _refusal(problem)
        return self._cut(request) if fault == f.CUT_AFTER else answer

    def _cut(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async def _answer(self, request: web.Request, watching: bool) -> web.StreamResponse:
        asked = _asked(request.path)
        if request.headers.get("Authorization") != "Bearer secret":
            raise Problem(401, "Unauthorized", "who are you?")
        if watching:
            return await self._watch(request, asked)
        if asked.sub == "log":
            return await self._log(request, asked)
        body = json.loads(await request.read() or b"null")
        status, document = self._do(request, asked, body)
        return web.json_response(document, status=status)

    def _do(self, request: web.Request, asked: Asked, body: Any) -> tuple[int, dict[str, Any]]:
        store, (resource, namespace, name, sub) = self.store, asked
        match request.method:
            case "GET" if name:
                return 200, store.get(resource, namespace, name)
            case "GET":
                return 200, self._list(request, asked)
            case "POST" if sub == "binding":
                return 201, self._bind(asked, body)
            case "POST":
                return 201, store.create(resource, namespace, body)
            case "PUT" if sub:
                known = store.get(resource, namespace, name)
                version = body["metadata"].get("resourceVersion")
                metadata = {**known["metadata"], "resourceVersion": version}
                return 200, store.update(
                    resource, {**known, "metadata": metadata, sub: body.get(sub)}
                )
            case "PUT":
                return 200, store.update(resource, body)
            case "PATCH":
                if sub:
                    body = {key: body[key] for key in (sub, "metadata") if key in body}
                return 200, store.merge(resource, namespace, name, body)
            case "DELETE" if name:
                return 200, self._delete(asked, body or {})
            case "DELETE":
                for each in self._selected(request, asked):
                    self._delete(asked._replace(name=each["metadata"]["name"]), body or {})
                return 200, {"kind": "Status", "status": "Success"}
            case _:
                raise Problem(405, "MethodNotAllowed", request.method)

    def _selected(self, request: web.Request, asked: Asked) -> list[dict[str, Any]]:
        labels = request.query.get("labelSelector", "")
        fields = request.query.get("fieldSelector", "")
        documents = self.store.all(asked.resource, asked.namespace)
        return [each for each in documents if selected(each, labels, fields)]

    def _list(self, request: web.Request, asked: Asked) -> dict[str, Any]:
        token = request.query.get("continue", "")
        if token:
            version, items = token.split("-")[0], self._pages.pop(token)
        else:
            version, items = str(self.store.version), self._selected(request, asked)
        limit = min(int(request.query.get("limit") or self._page_max), self._page_max)
        metadata = {"resourceVersion": version}
        if len(items) > limit:
            metadata["continue"] = f"{version}-{len(self._pages)}-{len(items)}"
            self._pages[metadata["continue"]] = items[limit:]
        # A real server leaves kind and version out of the items.
        bare = [{k: v for k, v in each.items() if k not in BARE} for each in items[:limit]]
        kind = f"{_kind(asked.resource, items)}List"
        version = asked.resource.api_version
        return {"kind": kind, "apiVersion": version, "metadata": metadata, "items": bare}

    def _bind(self, asked: Asked, body: dict[str, Any]) -> dict[str, Any]:
        pod = self.store.get(asked.resource, asked.namespace, asked.name)
        if pod["spec"].get("nodeName"):
            raise Problem(409, "Conflict", f"pod {asked.name} is already assigned to a node")
        if pod["metadata"].get("deletionTimestamp"):
            raise Problem(409, "Conflict", f"pod {asked.name} is being deleted")
        bound = {"type": "PodScheduled", "status": "True"}
        patch = {"spec": {"nodeName": body["target"]["name"]}, "status": {"conditions": [bound]}}
        self.store.merge(asked.resource, asked.namespace, asked.name, patch)
        return {"kind": "Status", "status": "Success"}

    def _delete(self, asked: Asked, options: dict[str, Any]) -> dict[str, Any]:
        resource, namespace, name, _ = asked
        document = self.store.get(resource, namespace, name)
        grace_s = options.get("gracePeriodSeconds")
        if resource != PODS or grace_s == 0 or not document["spec"].get("nodeName"):
            return self.store.remove(resource, namespace, name)
        if document["metadata"].get("deletionTimestamp"):
            return document
        marks = {"deletionTimestamp": "2026-01-01T00:01:00Z", "deletionGracePeriodSeconds": 30}
        return self.store.merge(resource, namespace, name, {"metadata": marks})

    # ------------------------------------------------------------------ streams

    async def _watch(self, request: web.Request, asked: Asked) -> web.StreamResponse:
        version = int(request.query.get("resourceVersion") or self.store.version)
        list(self.store.since(version))  # 410 before the answer begins
        timeout_s = float(request.query.get("timeoutSeconds", 300))
        response = web.StreamResponse()
        await response.prepare(request)
        news = asyncio.Event()
        self.store.listeners.add(news)
        self.watches += 1
        watch = asyncio.create_task(self._send_news(request, asked, version, response, news))
        self._open_watches.add(watch)
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.wait([watch])
                if watch.cancelled():
                    # The connection stays open, and nothing will ever come.
                    await self._closing.wait()
                    return response
                watch.result()
        except TimeoutError:
            pass
        except Problem as problem:
            await response.write(_line("ERROR", _status(problem)))
        except ConnectionResetError:
            pass
        finally:
            watch.cancel()
            self._open_watches.discard(watch)
            self.watches -= 1
            self.store.listeners.discard(news)
        return response

    async def _send_news(
        self,
        request: web.Request,
        asked: Asked,
        version: int,
        response: web.StreamResponse,
        news: asyncio.Event,
    ) -> None:
        while not self._closing.is_set():
            news.clear()
            for each in self.store.since(version):
                version = each.version
                if each.resource != asked.resource:
                    continue
                change = _as_seen(request, asked, each)
                if change and not self.faults.drops_event():
                    await response.write(_line(change, each.document))
            try:
                async with asyncio.timeout(self._bookmark_s):
                    await news.wait()
            except TimeoutError:
                mark = {"kind": "Bookmark", "metadata": {"resourceVersion": str(version)}}
                await response.write(_line("BOOKMARK", mark))

    @property
    def marks(self) -> dict[str, tuple[str, ...]]:
        """Which run of which rank each pod is or was, by its uid."""
        return self.kubelets.marks

    def delete_pod(self, name: str, namespace: str = "default") -> None:
        """As a user does with kubectl."""
        self._delete(Asked(PODS, namespace, name, ""), {})

    def cut_watches(self) -> None:
        """Every open watch ends in the middle, as when the server is killed."""
        assert self._runner is not None
        server = self._runner.server
        assert server is not None
        for connection in list(server.connections):
            if connection.transport is not None:
                connection.transport.abort()

    def silence_watches(self) -> None:
        """No open watch sends anything any more, as when a link dies without a word."""
        for watch in self._open_watches:
            watch.cancel()

    async def _log(self, request: web.Request, asked: Asked) -> web.StreamResponse:
        pod = self.store.get(PODS, asked.namespace, asked.name)
        uid = pod["metadata"]["uid"]
        if uid not in self.kubelets.lines:
            raise Problem(400, "BadRequest", f"container is waiting to start: {asked.name}")
        if pod["spec"].get("nodeName") in self.kubelets.dead:
            raise Problem(500, "InternalError", "dial tcp: connection refused")
        response = web.StreamResponse()
        await response.prepare(request)
        tail = request.query.get("tailLines")
        lines = self.kubelets.lines[uid]
        sent = max(0, len(lines) - int(tail)) if tail else 0
        while True:
            while sent < len(lines):
                await response.write(_stamped(request, sent, lines[sent]))
                sent += 1
            ended = self.kubelets.has_ended(uid)
            if request.query.get("follow") != "true" or ended or self._closing.is_set():
                return response
            await asyncio.sleep(0.01)


BARE = ("kind", "apiVersion")


def _stamped(request: web.Request, number: int, line: str) -> bytes:
    stamp = f"2026-01-01T00:{number // 60:02d}:{number % 60:02d}.000000000Z "
    return f"{stamp if request.query.get('timestamps') == 'true' else ''}{line}\n".encode()


def _as_seen(request: web.Request, asked: Asked, happening: Happening) -> str:
    """What a watcher with selectors receives for an event; an object that matches no more is deleted."""
    labels = request.query.get("labelSelector", "")
    fields = request.query.get("fieldSelector", "")
    if asked.namespace not in ("", happening.document["metadata"].get("namespace", "")):
        return ""
    before = happening.before
    passed = before is not None and selected(before, labels, fields)
    passes = happening.type != "DELETED" and selected(happening.document, labels, fields)
    return {(0, 1): "ADDED", (1, 1): "MODIFIED", (1, 0): "DELETED"}.get((passed, passes), "")


def _asked(path: str) -> Asked:
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        raise Problem(404, "NotFound", path)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    plural, name, sub = (*rest, "", "")[:3]
    return Asked(Resource(group, version, plural), namespace, name, sub)


def _kind(resource: Resource, items: list[dict[str, Any]]) -> str:
    return next((str(each["kind"]) for each in items if "kind" in each), resource.plural)


def _line(type: str, document: dict[str, Any]) -> bytes:
    return json.dumps({"type": type, "object": document}).encode() + b"\n"


def _status(problem: Problem) -> dict[str, Any]:
    return {
        "kind": "Status",
        "metadata": {},
        "status": "Failure",
        "message": problem.message,
        "reason": problem.reason,
        "details": {"name": problem.name} if problem.name else {},
        "code": problem.status,
    }


def _refusal(problem: Problem) -> web.Response:
    headers = {"Retry-After": "0"} if problem.status == 429 else {}
    return web.json_response(_status(problem), status=problem.status, headers=headers)


__all__ = ["FakeKubernetes", "merged"]
