"""A proxy in front of the API server that injects faults: `python -m deploy.testcluster.proxy -h`.

It speaks plain HTTP on the loopback address and carries the rights of the kubeconfig it was given,
so it is for tests only. `GET /-/counts` returns the counts of requests and faults;
`PUT /-/settings` with `{"seed": 1, "rate": 0.3}` changes the faults from then on.
"""

import argparse
import asyncio
import json
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from deploy.testcluster.api_client import read
from deploy.testcluster.faults import CODES, Fault, Judge, Settings, Verdict, refusal

# Hop-by-hop headers, and those that are written again.
NOT_PASSED_ON = frozenset({
    "connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host",
    "content-length", "content-encoding", "authorization", "accept-encoding",
})  # fmt: skip


SOUND = Settings()


class Proxy:
    """An asynchronous context; it listens at `url`."""

    def __init__(self, kubeconfig: Path, settings: Settings = SOUND, port: int = 0) -> None:
        self.judge = Judge(settings)
        self._server, self._trust, self._headers = read(kubeconfig)
        self._port = port

    async def __aenter__(self) -> "Proxy":
        trust: ssl.SSLContext | bool = self._trust or True
        connector = aiohttp.TCPConnector(limit=0, ssl=trust)
        self._session = aiohttp.ClientSession(
            connector=connector,
            # The proxy reads the streams, so they must not be compressed.
            headers={**self._headers, "Accept-Encoding": "identity"},
            timeout=aiohttp.ClientTimeout(total=None),
        )
        app = web.Application(client_max_size=64 << 20)
        app.router.add_get("/-/counts", self._counts)
        app.router.add_put("/-/settings", self._set)
        app.router.add_route("*", "/{path:.*}", self._pass)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        # A stream without a reader ends when its source ends.
        await self._session.close()
        await self._runner.cleanup()

    def kubeconfig(self) -> str:
        entry = {"name": "proxy", "cluster": {"server": self.url}}
        context = {"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}
        document = {
            "apiVersion": "v1", "kind": "Config", "clusters": [entry], "contexts": [context],
            "users": [{"name": "proxy", "user": {}}], "current-context": "proxy",
        }  # fmt: skip
        return json.dumps(document)

    async def _counts(self, _: web.Request) -> web.Response:
        return web.json_response({"requests": self.judge.requests, "faults": self.judge.faults})

    async def _set(self, request: web.Request) -> web.Response:
        wanted: dict[str, Any] = await request.json()
        wanted["only"] = tuple(map(Fault, wanted.get("only", ())))
        self.judge = Judge(Settings(**wanted))
        return web.Response(status=204)

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        watching = request.query.get("watch", "").lower() in ("1", "true")
        follows = request.query.get("follow", "").lower() in ("1", "true")
        listing = request.method == "GET" and ("resourceVersion" in request.query or watching)
        verdict = self.judge.request(request.method, request.path, is_listing=listing)
        if verdict.fault is Fault.DELAY:
            await asyncio.sleep(verdict.delay_s)
        if verdict.fault is Fault.CUT_BEFORE:
            return _hang_up(request)
        if verdict.fault in (Fault.CONFLICT, Fault.GONE, Fault.TOO_MANY, Fault.BROKEN):
            return _refuse(verdict)
        body = await request.read()
        if verdict.fault is Fault.TWICE:
            async with self._ask(request, body) as first:
                await first.read()
        async with self._ask(request, body) as answer:
            if (watching or follows) and answer.status == 200:
                return await self._stream(request, answer, is_watch=watching)
            content = await answer.read()
            if verdict.fault is Fault.CUT_AFTER:
                return _hang_up(request)
            if verdict.fault is Fault.TIMED_OUT:
                return _refuse(verdict)
            return web.Response(
                status=answer.status, body=content, headers=_passed_on(answer.headers)
            )

    def _ask(self, request: web.Request, body: bytes) -> Any:
        return self._session.request(
            request.method, self._server + request.raw_path, data=body or None,
            headers=_passed_on(request.headers), allow_redirects=False,
        )  # fmt: skip

    async def _stream(
        self, request: web.Request, answer: aiohttp.ClientResponse, *, is_watch: bool
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=200, headers=_passed_on(answer.headers))
        await response.prepare(request)
        with suppress(ConnectionError, aiohttp.ClientError):
            return await self._pass_on(request, answer, response, is_watch=is_watch)
        return response

    async def _pass_on(
        self,
        request: web.Request,
        answer: aiohttp.ClientResponse,
        response: web.StreamResponse,
        *,
        is_watch: bool,
    ) -> web.StreamResponse:
        async for line in _lines(answer) if is_watch else answer.content.iter_any():
            verdict = self.judge.change(request.path) if is_watch else Verdict()
            if verdict.fault is Fault.DROPPED:
                continue
            if verdict.fault is Fault.STREAM_CUT:
                return _hang_up(request)
            if verdict.fault is Fault.STREAM_GONE:
                expired = json.dumps({"type": "ERROR", "object": json.loads(refusal(410))})
                await response.write(expired.encode() + b"\n")
                break
            await response.write(line)
        return response


async def _lines(answer: aiohttp.ClientResponse) -> Any:
    kept = b""
    async for chunk in answer.content.iter_any():
        *lines, kept = (kept + chunk).split(b"\n")
        for line in lines:
            yield line + b"\n"


def _passed_on(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in NOT_PASSED_ON}


def _refuse(verdict: Verdict) -> web.Response:
    assert verdict.fault is not None
    code = CODES[verdict.fault]
    headers = {"Retry-After": "1"} if code == 429 else {}
    return web.Response(
        status=code, text=refusal(code), content_type="application/json", headers=headers
    )


def _hang_up(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


async def serve(asked: argparse.Namespace) -> None:
    settings = Settings(seed=asked.seed, rate=asked.rate, delay_s_max=asked.delay)
    async with Proxy(asked.kubeconfig, settings, asked.port) as proxy:
        print(proxy.kubeconfig(), flush=True)
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument(
        "--port", type=int, default=0, help="0: any free port, which the kubeconfig names"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0.3, help="share that goes wrong (0.3)")
    parser.add_argument("--delay", type=float, default=1.0, help="longest delay in seconds (1)")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
